//! Rules about the length of functions and files, tests aside. No I/O.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{File, Problem};

/// Lines of a function's body, from the line of its opening brace to that of its closing one.
const MAX_FUNCTION_LINES: usize = 70;
/// Lines of a file without its test modules.
const MAX_FILE_LINES: usize = 600;

/// All rules of this file. Code that does not parse is reported by the rules about code.
pub fn check(file: &File) -> Vec<Problem> {
    let Ok(syntax) = syn::parse_file(&file.text) else { return Vec::new() };
    if file.is_test() {
        return Vec::new();
    }
    let mut measure = Measure { file, test_lines: 0, problems: Vec::new() };
    measure.visit_file(&syntax);
    let lines = file.text.lines().count().saturating_sub(measure.test_lines);
    if lines > MAX_FILE_LINES {
        let advice = format!(
            "{lines} lines without tests, at most {MAX_FILE_LINES}: split it by what its parts do"
        );
        measure.problems.push(file.problem(1, "file-length", advice));
    }
    measure.problems
}

struct Measure<'f> {
    file: &'f File,
    test_lines: usize,
    problems: Vec<Problem>,
}

impl Measure<'_> {
    fn function(&mut self, name: &syn::Ident, body: &syn::Block) {
        let braces = body.brace_token.span;
        let lines = braces.close().end().line - braces.open().start().line + 1;
        if lines > MAX_FUNCTION_LINES {
            let advice = format!(
                "`{name}` has {lines} lines, at most {MAX_FUNCTION_LINES}: split it at its stages"
            );
            let line = name.span().start().line;
            self.problems.push(self.file.problem(line, "function-length", advice));
        }
    }
}

impl<'ast> Visit<'ast> for Measure<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_test(&module.attrs) {
            let span = module.span();
            self.test_lines += span.end().line - span.start().line + 1;
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            self.function(&function.sig.ident, &function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            self.function(&function.sig.ident, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.function(&function.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// `#[cfg(test)]`, `#[cfg(all(test, …))]`, `#[test]`, `#[tokio::test(…)]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let last = attribute.path().segments.last().map(|segment| segment.ident.to_string());
        match last.as_deref() {
            Some("test") => true,
            Some("cfg") => attribute.meta.require_list().is_ok_and(|list| {
                let condition = list.tokens.to_string().replace(' ', "");
                condition == "test" || condition.starts_with("all(test,")
            }),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::broken;
    use super::*;

    const PATH: &str = "crates/mac/src/pf.rs";

    /// A function whose body, braces included, has this many lines.
    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_body_of_one_line_too_many_is_found_wherever_the_function_is() {
        let (right, long) = (function(MAX_FUNCTION_LINES), function(MAX_FUNCTION_LINES + 1));
        for (before, after, line) in [
            ("", "", 1),
            ("struct S;\nimpl S {\n", "}", 3),
            ("trait T {\n", "}", 2),
            ("mod inner {\n", "}", 2),
            ("fn outer() {\n", "}", 2),
        ] {
            let found = broken(PATH, &format!("{before}{long}{after}"));
            assert!(found.contains(&("function-length", line)), "{before}: {found:?}");
        }
        assert_eq!(broken(PATH, &right), []);
    }

    #[test]
    fn tests_may_be_as_long_as_they_like() {
        let long = function(MAX_FUNCTION_LINES + 1);
        for attribute in ["#[test]", "#[tokio::test(start_paused = true)]", "#[cfg(test)]"] {
            assert_eq!(broken(PATH, &format!("{attribute}\n{long}")), [], "{attribute}");
        }
        assert_eq!(broken(PATH, &format!("#[cfg(test)]\nmod tests {{\n{long}}}")), []);
        assert_eq!(broken("crates/mac/tests/pf.rs", &long), []);
    }

    #[test]
    fn a_file_is_too_long_only_if_it_is_so_without_its_tests() {
        let line = "const A: u8 = 0;\n";
        let right = line.repeat(MAX_FILE_LINES);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", line.repeat(500));
        assert_eq!(broken(PATH, &format!("{right}{line}{tests}")), [("file-length", 1)]);
        assert_eq!(broken(PATH, &format!("{right}{tests}")), []);
        assert_eq!(broken("crates/mac/tests/pf.rs", &format!("{right}{line}")), []);
    }
}
