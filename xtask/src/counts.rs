//! What test runners say that they counted.

use std::fmt;
use std::ops::AddAssign;

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

impl Counts {
    /// Reads a runner's last line: `test result: ok. 3 passed; 1 failed; 0 ignored; …` of Rust's
    /// own, `e2e: 3 passed, 1 failed` of the end-to-end scenarios.
    pub fn read(line: &str) -> Option<Self> {
        let rest = match line.strip_prefix("e2e: ") {
            Some(rest) => rest,
            None => line.strip_prefix("test result: ")?.split_once(". ")?.1,
        };
        let number = |word: &str| {
            rest.split([';', ','])
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        Some(Self { passed: number("passed")?, failed: number("failed")? })
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runners_last_line_is_read_whatever_the_result() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; \
                    0 filtered out; finished in 0.02s";
        assert_eq!(Counts::read(line), Some(Counts { passed: 12, failed: 3 }));
        let line = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Counts::read(line), Some(Counts::default()));
        let line = "e2e: 12 passed, 3 failed, 26 not asked for, 2 left out";
        assert_eq!(Counts::read(line), Some(Counts { passed: 12, failed: 3 }));
    }

    #[test]
    fn what_a_test_prints_is_not_counted() {
        for line in ["test x ... ok", "12 passed; 3 failed", "test result: ok", "e2e: x", ""] {
            assert_eq!(Counts::read(line), None, "{line}");
        }
    }

    #[test]
    fn the_sum_is_said_in_four_words() {
        let mut sum = Counts { passed: 2, failed: 0 };
        sum += Counts { passed: 3, failed: 1 };
        assert_eq!(sum.to_string(), "5 passed, 1 failed");
    }
}
