//! The tree's own rules, checked: style that no compiler knows.
//!
//! # Flow
//! [`Tree`] (the files that git knows, what cargo says about packages; the only part with I/O) →
//! rules, each a pure function from text to [`Problem`]s.
//!
//! # Guarantees
//! - Files that git ignores are not looked at; files that are new and not yet added are.
//! - Every problem names file and line, the rule, and what to do.

mod code;
mod layers;
mod lengths;
mod names;
mod text;
mod tree;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use self::tree::Tree;

/// A rule that is broken at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    file: String,
    line: usize,
    rule: &'static str,
    /// What is wrong and what to do.
    advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.advice)
    }
}

/// A file of the tree: its path from the root, with `/`, and its text.
#[derive(Clone, Debug)]
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.extension() == Some("rs")
    }

    fn extension(&self) -> Option<&str> {
        Path::new(&self.path).extension()?.to_str()
    }

    /// Nothing but tests is in it: under `tests/`, or an out-of-line `mod tests;`.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    fn is_in_core(&self) -> bool {
        self.path.starts_with("crates/core/")
    }

    fn problem(&self, line: usize, rule: &'static str, advice: impl Into<String>) -> Problem {
        Problem { file: self.path.clone(), line, rule, advice: advice.into() }
    }
}

/// Every broken rule in the tree at `root`, in the order of files and lines.
pub fn check(root: &Path) -> Result<Vec<Problem>> {
    let tree = Tree::read(root)?;
    let mut problems = layers::check(&tree);
    for file in &tree.files {
        problems.extend(check_file(file));
    }
    problems.sort();
    Ok(problems)
}

fn check_file(file: &File) -> Vec<Problem> {
    let mut problems = text::check(file);
    problems.extend(names::check_path(file));
    if file.is_rust() {
        problems.extend(code::check(file));
        problems.extend(lengths::check(file));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules that a text in a file breaks, with their lines.
    pub fn broken(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let file = File { path: path.into(), text: text.into() };
        let mut broken: Vec<_> = check_file(&file).iter().map(|p| (p.rule, p.line)).collect();
        broken.sort_unstable();
        broken
    }

    #[test]
    fn the_tree_is_tidy() {
        let problems = check(&crate::cargo::workspace_root()).unwrap();
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn a_problem_reads_as_editors_expect() {
        let file = File { path: "crates/api/src/lib.rs".into(), text: String::new() };
        assert_eq!(
            file.problem(7, "some-rule", "do this").to_string(),
            "crates/api/src/lib.rs:7: some-rule: do this"
        );
    }

    #[test]
    fn code_that_does_not_parse_is_a_problem_and_not_a_crash() {
        assert_eq!(broken("crates/api/src/x.rs", "fn f( {"), [("syntax", 1)]);
    }
}
