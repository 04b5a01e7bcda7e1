//! `pfctl`: its flags, what it prints and how it ends.

use applecart_mac::Output;
use bytes::Bytes;

use super::model::Model;
use super::tools::fail;

/// What nearly every call says first.
const NO_ALTQ: &str = "No ALTQ support in kernel\nALTQ related functions disabled\n";
/// What a load of the main ruleset says.
const FLUSHES: &str = "pfctl: Use of -f option, could result in flushing of rules\n\
                       present in the main ruleset added by the system at startup.\n\
                       See /etc/pf.conf for further details.\n\n";
/// Flags that have a value.
const VALUED: [char; 8] = ['a', 'f', 'F', 's', 't', 'T', 'X', 'k'];
/// Flags that have none.
const BARE: [char; 7] = ['n', 'e', 'd', 'E', 'q', 'v', 'R'];

/// A command line, read.
#[derive(Default)]
struct Asked<'a> {
    flags: Vec<char>,
    values: Vec<(char, &'a str)>,
    rest: Vec<&'a str>,
}

impl<'a> Asked<'a> {
    /// `-nf file` is `-n -f file`, and `-fname` is `-f name`. `None`: not as pfctl reads them.
    fn read(arguments: &[&'a str]) -> Option<Self> {
        let mut asked = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|_| asked.rest.is_empty()) else {
                asked.rest.push(word);
                continue;
            };
            for (at, letter) in letters.char_indices() {
                if VALUED.contains(&letter) {
                    let attached = &letters[at + letter.len_utf8()..];
                    let value = if attached.is_empty() { words.next()? } else { attached };
                    asked.values.push((letter, value));
                    break;
                }
                if !BARE.contains(&letter) {
                    return None;
                }
                asked.flags.push(letter);
            }
        }
        Some(asked)
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(&flag)
    }

    fn value(&self, flag: char) -> Option<&'a str> {
        self.values.iter().find(|(letter, _)| *letter == flag).map(|(_, value)| *value)
    }
}

/// Whether a call changes nothing.
pub(super) fn only_looks(arguments: &[&str]) -> bool {
    Asked::read(arguments).is_none_or(|asked| {
        let acts = asked.flags.iter().any(|flag| "edE".contains(*flag));
        let changes = asked.value('F').or(asked.value('X')).is_some();
        let loads = asked.value('f').is_some() && !asked.has('n');
        let edits = asked.value('T').is_some_and(|command| command != "show");
        !acts && !changes && !loads && !edits
    })
}

/// Runs one call, in pfctl's own order: disable, show, flush, tables, load, enable.
pub(super) fn run(mac: &mut Model, arguments: &[&str]) -> Output {
    let Some(asked) = Asked::read(arguments) else { return usage() };
    if asked.flags.is_empty() && asked.values.is_empty() {
        return usage();
    }
    let anchor = asked.value('a');
    let mut said = NO_ALTQ.to_owned();
    let mut shown = String::new();
    if asked.has('d') {
        mac.pf.disable();
        said += "pf disabled\n";
    }
    if let Some(what) = asked.value('s') {
        match show(mac, what, anchor, asked.has('v')) {
            Some(text) => shown = text,
            None => return fail(1, format!("pfctl: Unknown show modifier '{what}'\n")),
        }
    }
    if let Some(what) = asked.value('F') {
        match flush(mac, what, anchor) {
            Some(text) => said += &text,
            None => return fail(1, format!("pfctl: Unknown flush modifier '{what}'\n")),
        }
    }
    if let Some(command) = asked.value('T') {
        match edit(mac, &asked, command) {
            Ok((text, told)) => (shown, said) = (text, said + &told),
            Err(error) => return fail(1, error),
        }
    }
    if let Some(file) = asked.value('f') {
        if anchor.is_none() {
            said += FLUSHES;
        }
        let loaded = if asked.has('R') && !asked.has('n') {
            mac.pf.load_filter(&mac.files, anchor, file)
        } else {
            mac.pf.load(&mac.files, anchor, file, asked.has('n'))
        };
        match loaded {
            Ok(warnings) => said += &warnings,
            Err(error) => return fail(1, said + &error),
        }
    }
    enable(mac, &asked, shown, said)
}

fn enable(mac: &mut Model, asked: &Asked<'_>, shown: String, mut said: String) -> Output {
    if asked.has('e') {
        if !mac.pf.enable() {
            return fail(1, said + "pfctl: pf already enabled\n");
        }
        said += "pf enabled\n";
    }
    if asked.has('E') {
        let token = mac.pf.take_reference();
        said.extend(["pf enabled\nToken : ", &token.to_string(), "\n"]);
    }
    if let Some(token) = asked.value('X') {
        if !token.parse().is_ok_and(|token| mac.pf.give_back(token)) {
            return fail(1, said + "pfctl: DIOCSTOPREF: Invalid argument\n");
        }
        said += if mac.pf.is_enabled() { "" } else { "pf disabled\n" };
    }
    Output { status: 0, stdout: shown.into(), stderr: Bytes::from(said) }
}

fn usage() -> Output {
    fail(1, "usage: pfctl [-deEnqv] [-a anchor] [-F modifier] [-f file] [-s modifier]\n")
}

fn lines<T: AsRef<str>>(all: impl Iterator<Item = T>) -> String {
    all.fold(String::new(), |text, line| text + line.as_ref() + "\n")
}

/// A modifier may be cut short, as in `-sr`.
fn is_short_for(whole: &str, what: &str) -> bool {
    !what.is_empty() && whole.starts_with(what)
}

fn show(mac: &Model, what: &str, anchor: Option<&str>, verbose: bool) -> Option<String> {
    let pf = &mac.pf;
    if is_short_for("info", what) {
        let status = if pf.is_enabled() { "Enabled for 0 days 00:00:01" } else { "Disabled" };
        Some(format!("Status: {status}\n"))
    } else if is_short_for("rules", what) {
        Some(lines(pf.rules_of(anchor)))
    } else if is_short_for("nat", what) {
        Some(lines(pf.translations_of(anchor)))
    } else if is_short_for("Tables", what) {
        Some(lines(pf.tables_of(anchor)))
    } else if is_short_for("Anchors", what) {
        // Asked for more, it goes on below each.
        let depth = anchor.map_or(0, |anchor| anchor.matches('/').count() + 1);
        let all = pf.anchors_below(anchor).into_iter();
        let shown = all.filter(|path| verbose || path.matches('/').count() == depth);
        Some(lines(shown.map(|path| format!("  {path}"))))
    } else if is_short_for("References", what) {
        let held = pf.references().iter().map(|token| format!("pfctl {token}"));
        Some(format!("TOKENS:\n{}", lines(held)))
    } else {
        None
    }
}

fn flush(mac: &mut Model, what: &str, anchor: Option<&str>) -> Option<String> {
    if is_short_for("Tables", what) {
        return Some(format!("{} tables deleted.\n", mac.pf.kill_tables(anchor)));
    }
    if is_short_for("rules", what) {
        mac.pf.flush_rules(anchor);
        return Some("rules cleared\n".to_owned());
    }
    if is_short_for("nat", what) {
        mac.pf.flush_translations(anchor);
        return Some("nat cleared\n".to_owned());
    }
    if what != "all" {
        return None;
    }
    let count = mac.pf.kill_tables(anchor);
    mac.pf.flush_rules(anchor);
    mac.pf.flush_translations(anchor);
    let own = format!("rules cleared\nnat cleared\ndummynet cleared\n{count} tables deleted.\n");
    let whole = "0 states cleared\nsource tracking entries cleared\npf: statistics cleared\n\
                 pf: interface flags reset\n";
    Some(if anchor.is_none() { own + whole } else { own })
}

/// A command on one table: what is shown, and what is said beside it.
fn edit(mac: &mut Model, asked: &Asked<'_>, command: &str) -> Result<(String, String), String> {
    let (anchor, table) = (asked.value('a'), asked.value('t'));
    let table = table.ok_or("pfctl: -T needs a table: -t name\n")?;
    match command {
        "kill" => {
            let killed = usize::from(mac.pf.kill_table(anchor, table));
            Ok((String::new(), format!("{killed} table deleted.\n")))
        }
        "delete" => {
            let said = mac.pf.take_out(anchor, table, Some(&asked.rest))?;
            Ok((String::new(), said))
        }
        "flush" => Ok((String::new(), mac.pf.take_out(anchor, table, None)?)),
        "add" => mac.pf.add(anchor, table, &asked.rest).map(|said| (String::new(), said)),
        "show" => {
            let there = mac.pf.addresses(anchor, table).ok_or("pfctl: Table does not exist.\n")?;
            Ok((lines(there.iter().map(|address| format!("   {address}"))), String::new()))
        }
        _ => Err(format!("pfctl: Unknown table command '{command}'\n")),
    }
}
