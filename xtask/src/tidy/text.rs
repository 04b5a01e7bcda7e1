//! Rules about text, whatever language it is in. No I/O.

use super::{File, Problem};

/// Columns of a line, in characters.
const MAX_COLUMNS: usize = 100;

// Written in two halves so that this file does not break its own rules.
const UNFINISHED: &str = concat!("FIX", "ME");

/// Where a developer's home or checkout is likely to be.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/work", "space/"),
    concat!("C:\\Us", "ers\\"),
];
/// Homes on a Mac. Some users exist on every Mac of a fleet or in every guest, and are no person's.
const MAC_HOME: &str = concat!("/Us", "ers/");
const USERS_OF_EVERY_MAC: &[&str] = &["m1", "admin", "runner", "Shared"];

/// Hosts that packages come from, on one machine or another.
const REGISTRIES: &[&str] = &[
    concat!("index.cra", "tes.io"),
    concat!("static.cra", "tes.io"),
    concat!("py", "pi.org"),
    concat!("python", "hosted.org"),
    concat!("registry.np", "mjs.org"),
    concat!("registry.yarn", "pkg.com"),
    concat!("proxy.go", "lang.org"),
    concat!("sum.go", "lang.org"),
    concat!("art", "ifactory"),
    concat!("jf", "rog"),
];
/// The one source that `Cargo.lock` may name.
const LOCK_SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// All rules of this file.
pub fn check(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut add = |rule, advice| problems.push(file.problem(index + 1, rule, advice));
        if is_edited_by_hand(file) && line.chars().count() > MAX_COLUMNS {
            let columns = line.chars().count();
            add("columns", format!("{columns} columns, at most {MAX_COLUMNS}: break the line"));
        }
        if line.contains(UNFINISHED) {
            add("unfinished", format!("no {UNFINISHED}: finish it, or open an issue"));
        }
        if let Some(path) = machine_path(line) {
            add("machine-path", format!("{path} is one machine's: use a relative path"));
        }
        if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
            add("registry", format!("{host} is one machine's setting: leave the registry out"));
        }
        if is_lock(file) && foreign_source(line) {
            add("registry", "another source than crates.io: build with the default one".into());
        }
    }
    problems
}

fn is_lock(file: &File) -> bool {
    file.path == "Cargo.lock"
}

/// Prose wraps itself, and generated files are nobody's to break.
fn is_edited_by_hand(file: &File) -> bool {
    matches!(file.extension(), Some("rs" | "toml" | "sh")) || file.text.starts_with("#!")
}

fn foreign_source(line: &str) -> bool {
    line.strip_prefix("source = ").is_some_and(|source| source.trim_matches('"') != LOCK_SOURCE)
}

fn machine_path(line: &str) -> Option<&str> {
    let homes = line.match_indices(MAC_HOME).filter(|(at, _)| {
        let rest = &line[at + MAC_HOME.len()..];
        let user: &str = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
        !user.is_empty() && !USERS_OF_EVERY_MAC.contains(&user)
    });
    let others = MACHINE_PATHS.iter().flat_map(|path| line.match_indices(path));
    homes.chain(others).find(|(at, _)| starts_a_path(line, *at)).map(|(_, path)| path)
}

/// Nothing before it that would make it the middle of a longer path.
fn starts_a_path(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '}' | '~'))
}

#[cfg(test)]
mod tests {
    use super::super::tests::broken;
    use super::*;

    #[test]
    fn a_line_of_a_hundred_and_one_columns_is_too_long_and_characters_count_not_bytes() {
        let long = format!("# {}\n", "x".repeat(MAX_COLUMNS - 1));
        let right = format!("# {}\n", "é".repeat(MAX_COLUMNS - 2));
        for path in ["Cargo.toml", "scripts/try.sh"] {
            assert_eq!(broken(path, &long), [("columns", 1)], "{path}");
            assert_eq!(broken(path, &right), [], "{path}");
        }
        assert_eq!(broken(".ci/run", &format!("#!/bin/sh\n{long}")), [("columns", 2)]);
        assert_eq!(broken("README.md", &long), []);
        assert_eq!(broken("Cargo.lock", &long), []);
    }

    #[test]
    fn unfinished_work_is_found_in_any_file() {
        let bad = format!("# {UNFINISHED}: later\n");
        for path in ["chart/values.yaml", "README.md", "crates/api/build.sh"] {
            assert_eq!(broken(path, &bad), [("unfinished", 1)], "{path}");
        }
        assert_eq!(broken("README.md", "fix me a drink\n"), []);
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_path_of_every_mac_is_not() {
        for path in MACHINE_PATHS {
            assert_eq!(broken("a.md", &format!("in `{path}x`")), [("machine-path", 1)], "{path}");
            assert_eq!(broken("a.md", &format!("in /var{path}x")), [], "{path}");
        }
        assert_eq!(broken("a.md", &format!("{MAC_HOME}alice/src")), [("machine-path", 1)]);
        for user in ["m1", "admin", "<user>", "$USER"] {
            assert_eq!(broken("a.md", &format!("{MAC_HOME}{user}/.ssh")), [], "{user}");
        }
    }

    #[test]
    fn hosts_that_packages_come_from_are_found() {
        for host in REGISTRIES {
            let text = format!("url = \"https://x.{host}/y\"\n");
            assert_eq!(broken("a.toml", &text), [("registry", 1)], "{host}");
        }
        assert_eq!(broken("a.md", "[serde](https://docs.rs/serde), image ghcr.io/a/b\n"), []);
    }

    #[test]
    fn the_lock_file_names_one_source() {
        let good = format!("source = \"{LOCK_SOURCE}\"\n");
        let bad = "source = \"sparse+https://mirror.example/index/\"\n";
        assert_eq!(broken("Cargo.lock", &good), []);
        assert_eq!(broken("Cargo.lock", &format!("{good}{bad}")), [("registry", 2)]);
    }
}
