//! The packet filter as the kernel treats it: a main ruleset, anchors with rules and tables, loads
//! that happen as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::files::Files;

/// One anchor's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ruleset {
    pub(super) rules: Vec<String>,
    pub(super) tables: BTreeMap<String, Table>,
}

/// A table of an anchor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) addresses: Vec<String>,
    /// It outlives the rules that use it.
    persist: bool,
}

/// The packet filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Pf {
    pub(super) enabled: bool,
    /// The main ruleset's filter rules and anchor points.
    pub(super) main: Vec<String>,
    pub(super) anchors: BTreeMap<String, Ruleset>,
    /// Tables of the main ruleset, which outlive their rules.
    pub(super) main_tables: BTreeSet<String>,
    /// What macOS put into the main ruleset for VMs; lost with it.
    pub(super) translates_for_vms: bool,
    /// How many of the next loads another pfctl spoils.
    pub(super) busy: u32,
}

/// A packet, as the filter sees it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Coming in on an interface, or going out.
    pub inbound: bool,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Where from.
    pub source: Ipv4Addr,
    /// Where to.
    pub destination: Ipv4Addr,
    /// Which port there.
    pub port: u16,
}

/// What a parsed main ruleset would do.
struct Parsed {
    main: Vec<String>,
    tables: BTreeSet<String>,
    loads: Vec<(String, String, Ruleset)>,
}

impl Pf {
    /// Loads the main ruleset of `path`. `only_parse` neither loads nor notices a busy table.
    pub(super) fn load_main(
        &mut self,
        files: &Files,
        path: &str,
        only_parse: bool,
    ) -> Result<(), String> {
        let parsed = parse_main(files, path)?;
        if only_parse {
            return Ok(());
        }
        self.meets_another("main", path)?;
        let mut anchors = self.anchors.clone();
        let mut begun: Vec<&str> = Vec::new();
        for (anchor, file, ruleset) in &parsed.loads {
            // Loading an anchor a second time in one run makes the first run's ticket stale.
            if begun.contains(&anchor.as_str())
                && let Some(table) = ruleset.tables.keys().next()
            {
                return Err(format!(
                    "{file}:2: cannot define table {table}: Resource busy\n\
                     pfctl: Syntax error in config file: pf rules not loaded\n"
                ));
            }
            begun.push(anchor);
            anchors.insert(anchor.clone(), self.staged(anchor, ruleset.clone()));
        }
        self.main = parsed.main;
        self.main_tables.extend(parsed.tables);
        self.anchors = anchors;
        self.translates_for_vms = false;
        Ok(())
    }

    /// Loads one anchor; whether anything evaluates it is another matter.
    pub(super) fn load_anchor(
        &mut self,
        files: &Files,
        anchor: &str,
        path: &str,
        only_parse: bool,
    ) -> Result<(), String> {
        let ruleset = parse_anchor(files, path)?;
        if !only_parse {
            self.meets_another(anchor, path)?;
            let staged = self.staged(anchor, ruleset);
            self.anchors.insert(anchor.to_owned(), staged);
        }
        Ok(())
    }

    /// A load of which another pfctl made the ticket stale changes nothing.
    fn meets_another(&mut self, anchor: &str, path: &str) -> Result<(), String> {
        if self.busy == 0 {
            return Ok(());
        }
        self.busy -= 1;
        Err(format!(
            "{path}:2: cannot define table {anchor}: Resource busy\n\
             pfctl: Syntax error in config file: pf rules not loaded\n"
        ))
    }

    /// What an anchor has after a load: its tables that outlive their rules are still there.
    fn staged(&self, anchor: &str, mut ruleset: Ruleset) -> Ruleset {
        let before = self.anchors.get(anchor).map(|ruleset| ruleset.tables.clone());
        for (name, table) in before.unwrap_or_default() {
            if table.persist {
                ruleset.tables.entry(name).or_insert(table);
            }
        }
        ruleset
    }

    /// Destroys a table of exactly this scope; whether there was one.
    pub(super) fn kill_table(&mut self, anchor: Option<&str>, table: &str) -> bool {
        match anchor {
            None => self.main_tables.remove(table),
            Some(anchor) => {
                let ruleset = self.anchors.get_mut(anchor);
                ruleset.is_some_and(|ruleset| ruleset.tables.remove(table).is_some())
            }
        }
    }

    /// The tables of an anchor, by name.
    pub(super) fn tables_of(&self, anchor: &str) -> Vec<String> {
        let ruleset = self.anchors.get(anchor);
        ruleset.map(|ruleset| ruleset.tables.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether a packet gets through what is live now.
    pub(super) fn passes(&self, packet: Packet) -> bool {
        if !self.enabled {
            return true;
        }
        let points = self.main.iter().filter_map(|rule| anchor_name(rule));
        let live = points.filter_map(|name| self.anchors.get(&name));
        for ruleset in live {
            for rule in &ruleset.rules {
                if matches(rule, ruleset, packet) {
                    return rule.starts_with("pass");
                }
            }
        }
        true
    }
}

fn anchor_name(rule: &str) -> Option<String> {
    let name = rule.strip_prefix("anchor \"")?.split('"').next()?;
    Some(name.to_owned())
}

fn matches(rule: &str, ruleset: &Ruleset, packet: Packet) -> bool {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let after = |key: &str| {
        words.iter().position(|word| *word == key).and_then(|at| words.get(at + 1)).copied()
    };
    let direction = if packet.inbound { "in" } else { "out" };
    let port = after("port").and_then(|word| match word {
        "=" => after("="),
        word => Some(word),
    });
    words.contains(&direction)
        && !words.contains(&"inet6")
        && after("proto").is_none_or(|protocol| protocol == packet.protocol)
        && after("from").is_none_or(|word| covers(word, ruleset, packet.source))
        && after("to").is_none_or(|word| covers(word, ruleset, packet.destination))
        && port.is_none_or(|port| port == packet.port.to_string())
}

fn covers(word: &str, ruleset: &Ruleset, address: Ipv4Addr) -> bool {
    match word.strip_prefix('<').and_then(|word| word.strip_suffix('>')) {
        Some(table) => {
            let table = ruleset.tables.get(table);
            table.is_some_and(|table| table.addresses.iter().any(|net| within(net, address)))
        }
        None => word == "any" || within(word, address),
    }
}

fn within(network: &str, address: Ipv4Addr) -> bool {
    let (base, bits) = network.split_once('/').unwrap_or((network, "32"));
    let (Ok(base), Ok(bits)) = (base.parse::<Ipv4Addr>(), bits.parse::<u32>()) else {
        return false;
    };
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    (u32::from(base) & mask) == (u32::from(address) & mask)
}

fn syntax_error(path: &str, line: usize) -> String {
    format!("{path}:{}: syntax error\n", line + 1)
}

fn parse_main(files: &Files, path: &str) -> Result<Parsed, String> {
    let text = files.text(path).ok_or_else(|| format!("pfctl: {path}: No such file\n"))?;
    let mut parsed = Parsed { main: Vec::new(), tables: BTreeSet::new(), loads: Vec::new() };
    let mut order = 0;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(syntax_error(path, text.lines().count()));
    }
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let place = match words.first().copied() {
            None => continue,
            Some("table") => {
                if let [_, name, "persist", ..] = words[..] {
                    parsed.tables.insert(name.trim_matches(['<', '>']).to_owned());
                }
                continue;
            }
            Some(word) if word.starts_with('#') => continue,
            Some("load") => {
                parsed.loads.push(parse_load(files, &words, path, number)?);
                continue;
            }
            Some("scrub-anchor") => 1,
            Some("nat-anchor" | "rdr-anchor") => 2,
            Some("dummynet-anchor") => 3,
            Some("anchor" | "block" | "pass") => 4,
            Some(_) => return Err(syntax_error(path, number)),
        };
        if place < order {
            return Err(format!(
                "{path}:{}: Rules must be in order: options, normalization, queueing, \
                 translation, filtering\n",
                number + 1
            ));
        }
        order = place;
        if line.starts_with("anchor ") {
            parsed.main.push(format!("{line} all"));
        } else if place == 4 {
            parsed.main.push(line.to_owned());
        }
    }
    Ok(parsed)
}

fn parse_load(
    files: &Files,
    words: &[&str],
    path: &str,
    number: usize,
) -> Result<(String, String, Ruleset), String> {
    let ["load", "anchor", name, "from", file] = words else {
        return Err(syntax_error(path, number));
    };
    let (name, file) = (name.trim_matches('"'), file.trim_matches('"'));
    Ok((name.to_owned(), file.to_owned(), parse_anchor(files, file)?))
}

fn parse_anchor(files: &Files, path: &str) -> Result<Ruleset, String> {
    if path == "/dev/null" {
        return Ok(Ruleset::default());
    }
    let text = files.text(path).ok_or_else(|| format!("pfctl: {path}: No such file\n"))?;
    let mut ruleset = Ruleset::default();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first().copied() {
            None => {}
            Some(word) if word.starts_with('#') => {}
            Some("table") => {
                let name = words.get(1).map(|word| word.trim_matches(['<', '>']));
                let name = name.ok_or_else(|| syntax_error(path, number))?;
                let addresses = words[2..].iter().map(|word| word.trim_matches(','));
                let addresses = addresses.filter(|word| word.contains('.')).map(str::to_owned);
                let persist = words.get(2) == Some(&"persist");
                let table = Table { addresses: addresses.collect(), persist };
                ruleset.tables.insert(name.to_owned(), table);
            }
            Some("anchor") => ruleset.rules.push(format!("{line} all")),
            // As `pfctl -s rules` prints them.
            Some("block") => ruleset.rules.push(line.to_owned()),
            Some("pass") => ruleset.rules.push(printed_pass(line)),
            Some(_) => return Err(syntax_error(path, number)),
        }
    }
    Ok(ruleset)
}

/// A rule as `pfctl -s rules` prints it: with all that goes without saying.
fn printed_pass(line: &str) -> String {
    let mut line = line.replace(" port ", " port = ");
    if line.split_whitespace().any(|word| word.parse::<Ipv4Addr>().is_ok()) {
        line = line.replacen(" quick", " quick inet", 1);
    }
    let flags = if line.contains(" proto udp") { "" } else { " flags S/SA" };
    format!("{line}{flags} keep state")
}
