//! Commands as data: what is run, as whom, for how long. No I/O.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{Hidden, Payload};

/// How long a command may take unless it says otherwise: every tool we call answers within seconds.
const USUAL_TIMEOUT: Duration = Duration::from_mins(1);

/// How much of what a host printed goes into an error: enough for a person, bounded for status.
const EXCERPT_CHARS: usize = 300;

/// Constant text for macOS's own `sh`. Values reach it as `$1`… or on stdin, never in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// What it does, for people and for the simulator.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({:?})", self.name)
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// One tool with its arguments.
    Argv(Vec<String>),
    /// A constant script with its arguments.
    Script(Script, Vec<String>),
}

/// As whom to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The user of the connection.
    User,
    /// Root, by passwordless sudo (`sudo -n`): never prompts, never counts as a login attempt.
    Root,
    /// Root, with the password as the first line of stdin (`sudo -S`): one login attempt.
    RootByPassword,
}

/// What a command reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A few bytes, or none: the only place for a secret.
    Hidden(Hidden),
    /// Megabytes, which are sent piece by piece.
    Payload(Payload),
}

/// One remote command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to run.
    pub program: Program,
    /// As whom.
    pub privilege: Privilege,
    /// What it reads.
    pub stdin: Input,
    /// How long it may take.
    pub timeout: Duration,
}

impl Command {
    fn new(program: Program, privilege: Privilege) -> Self {
        Self { program, privilege, stdin: Input::Hidden(Hidden::default()), timeout: USUAL_TIMEOUT }
    }

    /// A tool, as the user.
    #[must_use]
    pub fn user(argv: &[&str]) -> Self {
        Self::new(Program::Argv(owned(argv)), Privilege::User)
    }

    /// A tool, as root.
    #[must_use]
    pub fn root(argv: &[&str]) -> Self {
        Self::new(Program::Argv(owned(argv)), Privilege::Root)
    }

    /// A script, as `privilege`.
    #[must_use]
    pub fn script(script: Script, arguments: &[&str], privilege: Privilege) -> Self {
        Self::new(Program::Script(script, owned(arguments)), privilege)
    }

    /// The same command, reading `stdin`.
    #[must_use]
    pub fn stdin(self, stdin: impl Into<Hidden>) -> Self {
        Self { stdin: Input::Hidden(stdin.into()), ..self }
    }

    /// The same command, reading `payload`.
    #[must_use]
    pub fn payload(self, payload: &Payload) -> Self {
        Self { stdin: Input::Payload(payload.clone()), ..self }
    }

    /// The same command with another time-out.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The whole argument vector, sudo included.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        let sudo: &[&str] = match self.privilege {
            Privilege::User => &[],
            Privilege::Root => &["sudo", "-n"],
            Privilege::RootByPassword => &["sudo", "-S", "-p", ""],
        };
        let mut argv = owned(sudo);
        match &self.program {
            Program::Argv(program) => argv.extend_from_slice(program),
            Program::Script(script, arguments) => {
                argv.extend(owned(&["/bin/sh", "-c", script.text, "sh"]));
                argv.extend_from_slice(arguments);
            }
        }
        argv
    }

    /// The argument vector as one line that any POSIX shell (and zsh) splits back into it.
    #[must_use]
    pub fn line(&self) -> String {
        self.argv().iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    }

    /// What it does, for people: a script's name, or the tool and its arguments.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.program {
            Program::Argv(argv) => format!("`{}`", argv.join(" ")),
            Program::Script(script, _) => format!("the script {:?}", script.name),
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// In single quotes nothing is special but the single quote itself.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    // zsh expands a leading `=` and most shells a leading `~`; a plain word has neither.
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('=') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit status; 128 and more if a signal ended it.
    pub status: i32,
    /// What it printed.
    pub stdout: Bytes,
    /// What it complained about.
    pub stderr: Bytes,
}

impl Output {
    /// Whether it ended with status 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status == 0
    }

    /// What it printed, as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// All that it complained about, as it is: it is shortened once it is scrubbed of secrets.
    #[must_use]
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// The end of what a host printed, on one line and without `secrets`, for an error: warnings come
/// first, pfctl's alone are longer than this, and what ended a script comes last.
///
/// Scrubbed as it was printed, for a secret may have two blanks in a row or lie across the cut; and
/// once more as one line, for the host may have joined its words itself.
pub(crate) fn excerpt(text: &str, secrets: &[String]) -> String {
    let hide = |text: String, secret: &str| {
        if secret.trim().is_empty() { text } else { text.replace(secret, "<hidden>") }
    };
    let text = secrets.iter().fold(text.to_owned(), |text, secret| hide(text, secret));
    let line = one_line(&text);
    let line = secrets.iter().fold(line, |line, secret| hide(line, &one_line(secret)));
    match line.char_indices().nth_back(EXCERPT_CHARS - 1) {
        Some((from, _)) if from > 0 => format!("…{}", &line[from..]),
        _ => line,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quoted_words_survive_quotes_blanks_and_dollar_signs() {
        assert_eq!(quote("plain-word_1.2/x"), "plain-word_1.2/x");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quote("=ls"), "'=ls'");
        assert_eq!(quote("~root"), "'~root'");
    }

    #[test]
    fn a_secret_is_hidden_before_blanks_are_joined_and_text_is_cut() {
        // LH4
        let secrets = ["two  blanks".to_owned(), "0123456789abcdef".to_owned()];
        for printed in ["no: two  blanks", "no: two blanks", "no:\ntwo\n blanks"] {
            assert_eq!(excerpt(printed, &secrets), "no: <hidden>", "{printed}");
        }
        for after in EXCERPT_CHARS - 16..EXCERPT_CHARS {
            let shown = excerpt(&format!("0123456789abcdef{}", "x".repeat(after)), &secrets);
            assert!(!shown.contains(|c: char| c.is_ascii_digit()), "{shown}");
            assert!(shown.chars().count() <= EXCERPT_CHARS + 1, "{shown}");
        }
        let exact = "x".repeat(EXCERPT_CHARS);
        assert_eq!(excerpt(&exact, &[]), exact);
        assert_eq!(excerpt(&format!("a warning {exact}"), &[]), format!("…{exact}"));
    }

    #[test]
    fn a_command_shows_neither_stdin_nor_script_text() {
        let script = Script { name: "say", text: "cat" };
        let command = Command::script(script, &["x"], Privilege::RootByPassword).stdin("canary");
        let shown = format!("{command:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(command.argv()[..4], ["sudo", "-S", "-p", ""]);
    }

    proptest! {
        #[test]
        fn a_real_shell_splits_a_line_back_into_its_words(
            words in prop::collection::vec("[^\0]{0,12}", 1..5)
        ) {
            let mut argv = vec!["printf", "%s\\0"];
            argv.extend(words.iter().map(String::as_str));
            let line = Command::user(&argv).line();
            let mut shell = std::process::Command::new("/bin/sh");
            let output = shell.args(["-c", &line]).output().unwrap();
            let printed: Vec<String> = output.stdout.split(|&b| b == 0)
                .map(|word| String::from_utf8(word.to_vec()).unwrap()).collect();
            prop_assert_eq!(&printed[..printed.len() - 1], &words[..]);
        }
    }
}
