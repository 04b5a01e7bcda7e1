//! Rules about what code must not name. No I/O.
//!
//! Looks at tokens, not at syntax, so that what is inside macros is seen and what is inside strings
//! and comments is not. Names are followed through `use`, by file: `use tokio::task;` makes
//! `task::spawn` mean `tokio::task::spawn`.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{File, Problem, names};

/// A name that must not be used, and why.
struct Forbidden {
    rule: &'static str,
    name: Name,
    advice: &'static str,
}

enum Name {
    /// These segments, in a row, anywhere in a path.
    Path(&'static [&'static str]),
    /// A path that begins with this crate.
    Crate(&'static str),
    /// A call of this macro.
    Macro(&'static str),
}

/// For all code.
const EVERYWHERE: &[Forbidden] = &[
    forbid("unfinished", Name::Macro("todo"), "finish it, or open an issue"),
    forbid("unfinished", Name::Macro("unimplemented"), "finish it, or open an issue"),
    forbid("unfinished", Name::Macro("dbg"), "take it out, or use `tracing`"),
    forbid("bare-spawn", Name::Path(&["tokio", "spawn"]), SPAWN),
    forbid("bare-spawn", Name::Path(&["tokio", "task", "spawn"]), SPAWN),
    forbid("bare-spawn", Name::Path(&["tokio", "task", "spawn_local"]), SPAWN),
];

/// For `crates/core`, tests included: a decision is the same whoever asks, whenever.
const IN_CORE: &[Forbidden] = &[
    forbid("core-clock", Name::Path(&["Timestamp", "now"]), CLOCK),
    forbid("core-clock", Name::Path(&["Zoned", "now"]), CLOCK),
    forbid("core-clock", Name::Path(&["Instant", "now"]), CLOCK),
    forbid("core-clock", Name::Path(&["SystemTime"]), CLOCK),
    forbid("core-clock", Name::Path(&["Clock"]), CLOCK),
    forbid("core-randomness", Name::Crate("rand"), "take the number as an argument"),
    forbid("core-randomness", Name::Crate("getrandom"), "take the number as an argument"),
    forbid("core-environment", Name::Path(&["std", "env"]), "take the setting as an argument"),
    forbid("core-io", Name::Path(&["std", "fs"]), SHELL),
    forbid(
        "core-io",
        Name::Path(&["std", "net"]),
        "addresses are in `core::net`; sockets: in a shell",
    ),
    forbid("core-io", Name::Path(&["std", "process"]), SHELL),
    forbid("core-io", Name::Path(&["std", "io"]), SHELL),
    forbid("core-io", Name::Macro("print"), SHELL),
    forbid("core-io", Name::Macro("println"), SHELL),
    forbid("core-io", Name::Macro("eprint"), SHELL),
    forbid("core-io", Name::Macro("eprintln"), SHELL),
    forbid("core-order", Name::Path(&["HashMap"]), "order is part of the answer: use BTreeMap"),
    forbid("core-order", Name::Path(&["HashSet"]), "order is part of the answer: use BTreeSet"),
];

const OUTSIDE_ENTROPY: &[Forbidden] = &[forbid(
    "unsafe",
    Name::Path(&["unsafe"]),
    "only crates/entropy may: find a safe way, or put it there",
)];

const SPAWN: &str = "spawn into a JoinSet that somebody owns, so that a crash ends every task";
const CLOCK: &str = "take `now` as an argument";
const SHELL: &str = "core decides and does not act: do it in a shell";

const fn forbid(rule: &'static str, name: Name, advice: &'static str) -> Forbidden {
    Forbidden { rule, name, advice }
}

/// All rules of this file.
pub fn check(file: &File) -> Vec<Problem> {
    if let Err(error) = syn::parse_file(&file.text) {
        return vec![file.problem(error.span().start().line, "syntax", error.to_string())];
    }
    let tokens = TokenStream::from_str(&file.text).expect("a file that parses has tokens");
    let mut scan = Scan::default();
    scan.tokens(tokens, &[], false);
    let core: &[Forbidden] = if file.is_in_core() { IN_CORE } else { &[] };
    let entropy: &[Forbidden] =
        if file.path.starts_with("crates/entropy/") { &[] } else { OUTSIDE_ENTROPY };
    let forbidden = || EVERYWHERE.iter().chain(core).chain(entropy);
    let mut problems: Vec<Problem> = Vec::new();
    for used in &scan.used {
        let path = scan.in_full(&used.path);
        for rule in forbidden().filter(|rule| rule.name.is(&path, used.is_macro)) {
            let advice = format!("`{}`: {}", path.join("::"), rule.advice);
            problems.push(file.problem(used.line, rule.rule, advice));
        }
    }
    let modules = scan.modules.iter();
    problems.extend(modules.filter_map(|(name, line)| names::check_module(file, name, *line)));
    problems
}

impl Name {
    fn is(&self, path: &[String], is_macro: bool) -> bool {
        match self {
            Self::Path(segments) => path.windows(segments.len()).any(|part| part == *segments),
            Self::Crate(name) => path.len() > 1 && path[0] == *name,
            Self::Macro(name) => is_macro && path.last().is_some_and(|last| last == name),
        }
    }
}

struct Used {
    path: Vec<String>,
    is_macro: bool,
    line: usize,
}

/// What the tokens of a file name.
#[derive(Default)]
struct Scan {
    used: Vec<Used>,
    /// What `use` brought in: the name here, and its full path.
    imported: BTreeMap<String, Vec<String>>,
    /// Modules declared, with their lines.
    modules: Vec<(String, usize)>,
}

impl Scan {
    /// `prefix` is what stands before the braces of a `use a::b::{…}`.
    fn tokens(&mut self, tokens: TokenStream, prefix: &[String], mut in_use: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(ident) if ident == "use" => in_use = true,
                TokenTree::Ident(ident) if ident == "as" && in_use => {
                    self.rename(&tokens, at);
                    at += 1;
                }
                TokenTree::Ident(ident) if ident == "mod" => self.module(&tokens, at),
                TokenTree::Ident(_) => at = self.path(&tokens, at, prefix, in_use),
                TokenTree::Group(group) => self.tokens(group.stream(), &[], false),
                TokenTree::Punct(punct) if punct.as_char() == ';' => in_use = false,
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }

    /// Reads the path that begins at `start`; returns where it ends.
    fn path(
        &mut self,
        tokens: &[TokenTree],
        start: usize,
        prefix: &[String],
        in_use: bool,
    ) -> usize {
        let line = tokens[start].span().start().line;
        let mut path = prefix.to_vec();
        path.push(tokens[start].to_string());
        let mut end = start;
        while is_punct(tokens, end + 1, ':') && is_punct(tokens, end + 2, ':') {
            match tokens.get(end + 3) {
                Some(TokenTree::Ident(ident)) => path.push(ident.to_string()),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.tokens(group.stream(), &path, in_use);
                    return end + 3;
                }
                _ => break,
            }
            end += 3;
        }
        let is_macro = is_punct(tokens, end + 1, '!') && !is_punct(tokens, end + 2, '=');
        if in_use {
            // `use a::b::{self}` brings in `b`.
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            if let Some(name) = path.last() {
                self.imported.insert(name.clone(), path.clone());
            }
        }
        self.used.push(Used { path, is_macro, line });
        end
    }

    /// `use a::b as c`: the path before `as` is the last one that was read.
    fn rename(&mut self, tokens: &[TokenTree], at: usize) {
        if let (Some(TokenTree::Ident(name)), Some(used)) = (tokens.get(at + 1), self.used.last()) {
            self.imported.insert(name.to_string(), used.path.clone());
        }
    }

    fn module(&mut self, tokens: &[TokenTree], at: usize) {
        if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
            self.modules.push((name.to_string(), name.span().start().line));
        }
    }

    fn in_full(&self, path: &[String]) -> Vec<String> {
        match path.first().and_then(|first| self.imported.get(first)) {
            Some(full) => full.iter().chain(&path[1..]).cloned().collect(),
            None => path.to_vec(),
        }
    }
}

fn is_punct(tokens: &[TokenTree], at: usize, character: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::super::tests::broken;

    const CORE: &str = "crates/core/src/machine/decide.rs";
    const SHELL: &str = "crates/operator/src/provider.rs";

    #[test]
    fn unfinished_work_is_found_even_inside_macros() {
        for name in ["todo", "unimplemented", "dbg", "std::dbg"] {
            let text = format!("fn f() {{\n    assert!(x, {name}!());\n}}");
            assert_eq!(broken(SHELL, &text), [("unfinished", 2)], "{name}");
        }
        assert_eq!(broken(SHELL, "/// No todo!()\nfn todo() { let x = \"dbg!(1)\"; }"), []);
    }

    #[test]
    fn a_bare_spawn_is_found_whatever_it_is_called() {
        for text in [
            "fn f() { tokio::spawn(x); }",
            "fn f() { ::tokio::task::spawn(x); }",
            "use tokio::spawn;",
            "use tokio::{sync::mpsc, task::{spawn, JoinSet}};",
            "fn f() { tokio::select! { _ = async { tokio::task::spawn(x) } => {} } }",
        ] {
            assert_eq!(broken(SHELL, text), [("bare-spawn", 1)], "{text}");
        }
        for text in [
            "use tokio::task;\nfn f() { task::spawn(x); }",
            "use tokio::{sync, task::{self, JoinSet}};\nfn f() { task::spawn(x); }",
            "use tokio::task as work;\nfn f() { work::spawn_local(x); }",
            "use tokio as t;\nfn f() { t::spawn(x); }",
        ] {
            assert_eq!(broken(SHELL, text), [("bare-spawn", 2)], "{text}");
        }
        let good = "use tokio::task::{self, JoinSet};\n\
                    fn f(tasks: &mut JoinSet<()>) { tasks.spawn(x); task::yield_now(); }";
        assert_eq!(broken(SHELL, good), []);
    }

    #[test]
    fn core_names_no_clock_no_randomness_no_environment_and_no_io() {
        for (text, rule) in [
            ("fn f() { jiff::Timestamp::now(); }", "core-clock"),
            ("fn f() { Zoned::now(); }", "core-clock"),
            ("fn f() { Instant::now(); }", "core-clock"),
            ("use std::time::SystemTime;", "core-clock"),
            ("use applecart_api::clock::Clock;", "core-clock"),
            ("fn f() { rand::random() }", "core-randomness"),
            ("use getrandom::fill;", "core-randomness"),
            ("fn f() { std::env::var(x) }", "core-environment"),
            ("use std::{env, fmt};", "core-environment"),
            ("use std::fs;", "core-io"),
            ("use std::net::IpAddr;", "core-io"),
            ("use std::process::Command;", "core-io"),
            ("use std::io::Write;", "core-io"),
            ("fn f() { println!(\"x\") }", "core-io"),
            ("use std::collections::HashMap;", "core-order"),
            ("fn f(x: std::collections::HashSet<u8>) {}", "core-order"),
        ] {
            assert_eq!(broken(CORE, text), [(rule, 1)], "{text}");
            assert_eq!(broken(SHELL, text), [], "{text}");
        }
    }

    #[test]
    fn core_may_speak_of_time_and_order() {
        let text = "use jiff::{SignedDuration, Timestamp};\nuse std::collections::BTreeMap;\n\
                    use core::net::IpAddr;\n/// Not `Timestamp::now`.\n\
                    fn decide(now: Timestamp, environment: &str) {}";
        assert_eq!(broken(CORE, text), []);
    }

    #[test]
    fn unsafe_code_is_for_entropy_alone() {
        let text = "fn f() {\n    unsafe { g() }\n}";
        assert_eq!(broken(SHELL, text), [("unsafe", 2)]);
        assert_eq!(broken("crates/entropy/src/lib.rs", text), []);
        assert_eq!(broken(SHELL, "#![forbid(unsafe_code)]"), []);
    }
}
