//! The language of pf's files, as far as hosts use it: what a text says, or where it is wrong.

use std::fmt;
use std::net::Ipv4Addr;

/// One line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// `table <name> …`
    Table(Definition),
    /// `load anchor "name" from "file"`
    Load {
        /// The anchor's path.
        anchor: String,
        /// Where its rules are.
        file: String,
    },
    /// A line of the filter.
    Filter(Line),
    /// Where addresses are translated by the rules of others, as `pfctl -s nat` prints it.
    Translation(String),
    /// Something that does not concern the filter.
    Other,
}

/// A table as a file defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: String,
    /// It outlives the rules that use it.
    pub(super) persist: bool,
    /// Nobody may change it.
    pub(super) constant: bool,
    /// `None` keeps what is in it.
    pub(super) addresses: Option<Vec<String>>,
}

/// A line of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Other rules are evaluated here, for packets that match: those of this anchor, or of all
    /// below it.
    Anchor(String, Rule),
    /// A rule.
    Rule(Rule),
}

/// A rule. What is not said matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) pass: bool,
    pub(super) direction: Option<&'static str>,
    pub(super) quick: bool,
    pub(super) interface: Option<String>,
    pub(super) family: Option<&'static str>,
    pub(super) protocol: Option<String>,
    pub(super) from: End,
    pub(super) to: End,
}

/// One end of a packet's way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    /// Everything but the address.
    pub(super) negated: bool,
    /// An address, a network, a `<table>` or an `(interface)`.
    pub(super) address: Option<String>,
    pub(super) port: Option<u16>,
}

/// Services that pfctl prints by name.
const SERVICES: [(&str, u16); 4] = [("ssh", 22), ("domain", 53), ("bootps", 67), ("http", 80)];
/// What is said of a line that comes too late.
const ORDER: &str =
    "Rules must be in order: options, normalization, queueing, translation, filtering";
/// Parts of a file, in the order in which they must come. Apple's own file has the lines of
/// dummynet after those of translation.
const PARTS: [&[&str]; 5] = [
    &["set"],
    &["scrub", "scrub-anchor"],
    &["nat", "nat-anchor", "rdr", "rdr-anchor", "binat", "binat-anchor"],
    &["dummynet", "dummynet-anchor"],
    &["anchor", "block", "pass", "antispoof"],
];

/// Reads a file: each statement with the number of its line. All errors, as pfctl tells them.
pub(super) fn read(path: &str, text: &str) -> Result<Vec<(usize, Statement)>, String> {
    let (mut statements, mut errors, mut reached) = (Vec::new(), Vec::new(), 0);
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let ends = number < lines.len() || text.ends_with('\n');
        let words: Vec<&str> = said(line);
        let Some(first) = words.first() else { continue };
        let part = PARTS.iter().position(|words| words.contains(first));
        if part.is_some_and(|part| part < reached) {
            errors.push(format!("{path}:{number}: {ORDER}\n"));
            continue;
        }
        reached = part.unwrap_or(reached);
        match statement(&words).filter(|_| ends) {
            Some(Statement::Other) => {}
            Some(statement) => statements.push((number, statement)),
            None => errors.push(format!("{path}:{number}: syntax error\n")),
        }
    }
    if errors.is_empty() { Ok(statements) } else { Err(errors.concat()) }
}

/// The words of a line, without its comment.
fn said(line: &str) -> Vec<&str> {
    line.split('#').next().unwrap_or_default().split_whitespace().collect()
}

/// What a line says, if pf understands it.
fn statement(words: &[&str]) -> Option<Statement> {
    match *words {
        ["table", name, ref rest @ ..] => table(name, rest).map(Statement::Table),
        ["load", "anchor", name, "from", file] => {
            let (anchor, file) = (quoted(name)?, quoted(file)?);
            Some(Statement::Load { anchor, file })
        }
        ["anchor", name, ref rest @ ..] => {
            let narrowed = rule(&[&["block"], rest].concat())?;
            Some(Statement::Filter(Line::Anchor(quoted(name)?, narrowed)))
        }
        ["block" | "pass", ..] => rule(words).map(Line::Rule).map(Statement::Filter),
        [first @ ("nat-anchor" | "rdr-anchor"), name] => {
            Some(Statement::Translation(format!("{first} \"{}\" all", quoted(name)?)))
        }
        [first, name] if first.ends_with("-anchor") => quoted(name).map(|_| Statement::Other),
        // A macro.
        [_, "=", ..] => quoted(&words[2..].join(" ")).map(|_| Statement::Other),
        [first, _, ..] => {
            let others = ["set", "scrub", "nat", "rdr", "binat", "dummynet"];
            others.contains(&first).then_some(Statement::Other)
        }
        _ => None,
    }
}

fn quoted(word: &str) -> Option<String> {
    let bare = word.strip_prefix('"').map_or(Some(word), |word| word.strip_suffix('"'))?;
    (!bare.is_empty() && !bare.contains('"')).then(|| bare.to_owned())
}

fn table(name: &str, words: &[&str]) -> Option<Definition> {
    let name = table_name(name)?.to_owned();
    let (mut persist, mut constant) = (false, false);
    let mut rest = words;
    while let [flag @ ("persist" | "const"), after @ ..] = rest {
        if *flag == "persist" {
            persist = true;
        } else {
            constant = true;
        }
        rest = after;
    }
    let text = rest.join(" ");
    let addresses = if text.is_empty() {
        None
    } else {
        let inner = text.strip_prefix('{')?.strip_suffix('}')?;
        let listed = inner.split([',', ' ']).filter(|word| !word.is_empty());
        Some(listed.map(|word| is_network(word).then(|| word.to_owned())).collect::<Option<_>>()?)
    };
    Some(Definition { name, persist, constant, addresses })
}

/// The name in `<name>`.
pub(super) fn table_name(word: &str) -> Option<&str> {
    word.strip_prefix('<')?.strip_suffix('>').filter(|name| !name.is_empty())
}

/// Whether a word is an interface's address, looked up with each packet.
fn is_interface(word: &str) -> bool {
    let name = word.strip_prefix('(').and_then(|word| word.strip_suffix(')'));
    name.is_some_and(|name| !name.is_empty() && name.chars().all(char::is_alphanumeric))
}

/// Whether a word is an address or a network.
pub(super) fn is_network(word: &str) -> bool {
    let (address, bits) = word.split_once('/').unwrap_or((word, "32"));
    address.parse::<Ipv4Addr>().is_ok() && bits.parse::<u32>().is_ok_and(|bits| bits <= 32)
}

fn rule(words: &[&str]) -> Option<Rule> {
    let mut rule = Rule { pass: words.first() == Some(&"pass"), ..Rule::default() };
    let mut rest = &words[1..];
    if !rule.pass
        && let ["drop", after @ ..] = rest
    {
        rest = after;
    }
    if let [direction @ ("in" | "out"), after @ ..] = rest {
        rule.direction = Some(if *direction == "in" { "in" } else { "out" });
        rest = after;
    }
    if let ["quick", after @ ..] = rest {
        (rule.quick, rest) = (true, after);
    }
    if let ["on", interface, after @ ..] = rest {
        (rule.interface, rest) = (Some((*interface).to_owned()), after);
    }
    if let [family @ ("inet" | "inet6"), after @ ..] = rest {
        rule.family = Some(if *family == "inet" { "inet" } else { "inet6" });
        rest = after;
    }
    if let ["proto", protocol, after @ ..] = rest {
        (rule.protocol, rest) = (Some((*protocol).to_owned()), after);
    }
    if let ["all", after @ ..] = rest {
        rest = after;
    } else {
        (rule.from, rest) = end("from", rest)?;
        (rule.to, rest) = end("to", rest)?;
    }
    if let ["flags", _, after @ ..] = rest {
        rest = after;
    }
    if let ["keep" | "no", "state"] = rest {
        rest = &[];
    }
    let is_literal = |end: &End| end.address.as_deref().is_some_and(is_network);
    if rule.family.is_none() && (is_literal(&rule.from) || is_literal(&rule.to)) {
        rule.family = Some("inet");
    }
    rest.is_empty().then_some(rule)
}

/// One end of a rule, if it is told; and the words after it.
fn end<'a, 'b>(which: &str, words: &'a [&'b str]) -> Option<(End, &'a [&'b str])> {
    let [word, after @ ..] = words else { return Some((End::default(), words)) };
    if *word != which {
        return Some((End::default(), words));
    }
    let (negated, after) = match after {
        ["!", after @ ..] => (true, after),
        after => (false, after),
    };
    let [address, rest @ ..] = after else { return None };
    let known = is_network(address) || table_name(address).is_some() || is_interface(address);
    let address = match *address {
        "any" if negated => return None,
        "any" => None,
        address => Some(known.then(|| address.to_owned())?),
    };
    let (port, rest) = match rest {
        ["port", "=", port, rest @ ..] | ["port", port, rest @ ..] => (Some(number(port)?), rest),
        rest => (None, rest),
    };
    Some((End { negated, address, port }, rest))
}

fn number(port: &str) -> Option<u16> {
    let service = SERVICES.iter().find(|(name, _)| *name == port).map(|(_, port)| *port);
    service.or_else(|| port.parse().ok())
}

/// As `pfctl -s rules` prints it: with all that goes without saying.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anchor(name, narrowed) => {
                write!(f, "anchor \"{name}\"")?;
                narrowed.conditions(f)
            }
            Self::Rule(rule) => rule.fmt(f),
        }
    }
}

impl Rule {
    /// What a packet must be for it.
    fn conditions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(direction) = self.direction {
            write!(f, " {direction}")?;
        }
        if self.quick {
            f.write_str(" quick")?;
        }
        if let Some(interface) = &self.interface {
            write!(f, " on {interface}")?;
        }
        if let Some(family) = self.family {
            write!(f, " {family}")?;
        }
        if let Some(protocol) = &self.protocol {
            write!(f, " proto {protocol}")?;
        }
        if self.from == End::default() && self.to == End::default() {
            f.write_str(" all")
        } else {
            write!(f, " from {} to {}", self.from, self.to)
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.pass { "pass" } else { "block drop" })?;
        self.conditions(f)?;
        if self.pass && self.protocol.as_deref().is_none_or(|protocol| protocol == "tcp") {
            f.write_str(" flags S/SA")?;
        }
        f.write_str(if self.pass { " keep state" } else { "" })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.negated { "! " } else { "" })?;
        f.write_str(self.address.as_deref().unwrap_or("any"))?;
        let Some(port) = self.port else { return Ok(()) };
        match SERVICES.iter().find(|(_, number)| *number == port) {
            Some((name, _)) => write!(f, " port = {name}"),
            None => write!(f, " port = {port}"),
        }
    }
}
