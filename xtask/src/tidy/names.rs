//! Rules about names of files and modules. No I/O.

use super::{File, Problem};

/// Words that say nothing about what is inside.
const EMPTY_WORDS: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "managers", "handler", "handlers"];

/// The rules about a file's path.
pub fn check_path(file: &File) -> Vec<Problem> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    if file.path.rsplit('/').next() == Some("mod.rs") {
        problems.push(file.problem(1, "mod-rs", "no mod.rs: `machine.rs` beside `machine/`"));
    }
    let empty = file.path.trim_end_matches(".rs").split('/').find_map(empty_word);
    if let Some(word) = empty {
        problems.push(empty_name(file, 1, word));
    }
    problems
}

/// The rule about a module's name.
pub fn check_module(file: &File, name: &str, line: usize) -> Option<Problem> {
    empty_word(name).map(|word| empty_name(file, line, word))
}

fn empty_word(name: &str) -> Option<&'static str> {
    name.split(['_', '-'])
        .find_map(|word| EMPTY_WORDS.iter().find(|empty| **empty == word))
        .copied()
}

fn empty_name(file: &File, line: usize, word: &str) -> Problem {
    file.problem(
        line,
        "empty-name",
        format!("\"{word}\" says nothing: name it after what it holds or does"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::broken;

    #[test]
    fn names_that_say_nothing_are_found_in_paths() {
        for path in [
            "crates/mac/src/utils.rs",
            "crates/mac/src/pf_helpers.rs",
            "crates/mac/src/manager/pf.rs",
            "crates/mac/tests/common.rs",
        ] {
            assert_eq!(broken(path, ""), [("empty-name", 1)], "{path}");
        }
        for path in ["crates/mac/src/pf.rs", "crates/mac/src/managed.rs", "docs/common.md"] {
            assert_eq!(broken(path, ""), [], "{path}");
        }
    }

    #[test]
    fn names_that_say_nothing_are_found_in_modules() {
        assert_eq!(broken("xtask/src/x.rs", "mod a {}\nmod handler {}"), [("empty-name", 2)]);
        assert_eq!(broken("xtask/src/x.rs", "mod handling {}\nfn common() {}"), []);
    }

    #[test]
    fn a_module_is_a_file_beside_its_folder() {
        assert_eq!(broken("crates/mac/src/pf/mod.rs", ""), [("mod-rs", 1)]);
        assert_eq!(broken("crates/mac/src/pf.rs", ""), []);
    }
}
