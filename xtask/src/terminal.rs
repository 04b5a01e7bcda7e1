//! Colours on a terminal, plain text everywhere else; times that people read.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

/// Paints words if whoever reads them is a terminal that wants colours.
#[derive(Clone, Copy)]
pub struct Paint {
    coloured: bool,
}

impl Paint {
    /// For what goes to standard output.
    pub fn stdout() -> Self {
        Self { coloured: wants_colours() && std::io::stdout().is_terminal() }
    }

    /// For what goes to standard error.
    pub fn stderr() -> Self {
        Self { coloured: wants_colours() && std::io::stderr().is_terminal() }
    }

    /// Something went wrong.
    pub fn red(self, text: impl Display) -> String {
        self.paint("31;1", text)
    }

    /// Something went well.
    pub fn green(self, text: impl Display) -> String {
        self.paint("32;1", text)
    }

    /// A heading.
    pub fn bold(self, text: impl Display) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: impl Display) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// `NO_COLOR` with any value but the empty one switches colours off (no-color.org).
fn wants_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `0.4 s`, `12.3 s`, `2 min 05 s`.
pub fn seconds(time: Duration) -> String {
    if time < Duration::from_mins(1) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_appear_only_where_they_are_wanted() {
        assert_eq!(Paint { coloured: false }.red("no"), "no");
        assert_eq!(Paint { coloured: true }.green("yes"), "\x1b[32;1myes\x1b[0m");
    }

    #[test]
    fn times_read_as_people_say_them() {
        for (millis, text) in [(0, "0.0 s"), (12_340, "12.3 s"), (125_000, "2 min 05 s")] {
            assert_eq!(seconds(Duration::from_millis(millis)), text);
        }
    }
}
