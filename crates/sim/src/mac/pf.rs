//! The packet filter as the kernel treats it: rulesets by anchor, tables by anchor and name, loads
//! that happen as a whole or not at all.

mod grammar;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::Ipv4Addr;

use self::grammar::{Definition, End, Line, Rule, Statement};
use super::files::Files;

/// Where the world reaches the host.
const PUBLIC_ADDRESS: Ipv4Addr = Ipv4Addr::new(51, 15, 0, 2);
/// The host's own addresses, as far as packets of VMs can be for them.
pub const OWN_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 64, 1), PUBLIC_ADDRESS];

/// The scope of the main ruleset.
const MAIN: &str = "";
/// Where packets of VMs come in.
pub const VM_BRIDGE: &str = "bridge100";
/// Where macOS translates the addresses of VMs.
const FOR_VMS: &str = "nat-anchor \"com.apple.internet-sharing\" all";
/// The end of every load that failed.
const NOT_LOADED: &str = "pfctl: Syntax error in config file: pf rules not loaded\n";

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    addresses: Vec<String>,
    persist: bool,
    constant: bool,
    /// One that was killed under its rules matches nothing, and is not shown.
    active: bool,
}

/// The packet filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Pf {
    enabled: bool,
    /// Somebody wants it enabled who got no token, by `-e`.
    wanted: bool,
    /// Who wants it enabled: tokens that `-E` gave out.
    references: Vec<u64>,
    next_token: u64,
    rulesets: BTreeMap<String, Vec<Line>>,
    /// By scope, where addresses are translated.
    translations: BTreeMap<String, Vec<String>>,
    /// By scope and name: the same name in another scope is another table.
    tables: BTreeMap<(String, String), Table>,
    /// What macOS put into the main ruleset for VMs; lost with it.
    pub(super) translates_for_vms: bool,
    /// How many of the next loads another pfctl spoils, how many go well before that, and how many
    /// it spoils even before those.
    pub(super) busy: u32,
    pub(super) busy_after: u32,
    pub(super) busy_first: u32,
}

/// A packet, as the filter sees it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Where it comes in, or goes out.
    pub interface: &'static str,
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

/// What a file says for one scope.
struct Part {
    scope: String,
    file: String,
    statements: Vec<(usize, Statement)>,
}

impl Part {
    fn read(files: &Files, scope: &str, file: &str) -> Result<Self, String> {
        let text = if file == "/dev/null" {
            String::new()
        } else {
            let text = files.text(file);
            text.ok_or_else(|| format!("pfctl: {file}: No such file or directory\n"))?
        };
        let statements = grammar::read(file, &text)?;
        Ok(Self { scope: scope.to_owned(), file: file.to_owned(), statements })
    }

    fn tables(&self) -> impl Iterator<Item = (usize, &Definition)> {
        self.statements.iter().filter_map(|(line, statement)| match statement {
            Statement::Table(definition) => Some((*line, definition)),
            _ => None,
        })
    }

    /// What pfctl says if this part's ticket is stale: a line for each table, or the commit's.
    fn spoilt(&self) -> String {
        let mut said = String::new();
        for (line, table) in self.tables() {
            let (file, name) = (&self.file, &table.name);
            let _ = writeln!(said, "{file}:{line}: cannot define table {name}: Resource busy");
        }
        if said.is_empty() {
            return "pfctl: DIOCXCOMMIT: Resource busy\n".to_owned();
        }
        said + NOT_LOADED
    }
}

impl Pf {
    /// Loads a file into an anchor, or as the main ruleset; what it warns of. `only_parse` opens no
    /// transaction, so it neither loads nor notices a stale ticket.
    pub(super) fn load(
        &mut self,
        files: &Files,
        anchor: Option<&str>,
        file: &str,
        only_parse: bool,
    ) -> Result<String, String> {
        let scope = anchor.unwrap_or(MAIN);
        let parts = Self::parts(files, scope, file, if only_parse { "" } else { NOT_LOADED })?;
        let warnings = self.collisions(&parts);
        if !only_parse {
            self.begin(&parts)?;
            for part in &parts {
                self.commit_filter(part);
                self.commit_rest(part);
            }
            self.translates_for_vms &= scope != MAIN;
            self.drop_unused();
        }
        Ok(warnings)
    }

    /// Loads the rules of the filter alone, and neither translations nor tables.
    pub(super) fn load_filter(
        &mut self,
        files: &Files,
        anchor: Option<&str>,
        file: &str,
    ) -> Result<String, String> {
        let parts = Self::parts(files, anchor.unwrap_or(MAIN), file, NOT_LOADED)?;
        self.begin(&parts)?;
        for part in &parts {
            self.commit_filter(part);
        }
        self.drop_unused();
        Ok(String::new())
    }

    /// What a file says for its scope, and, in the main ruleset, for those that it loads.
    fn parts(files: &Files, scope: &str, file: &str, ending: &str) -> Result<Vec<Part>, String> {
        if scope.split('/').any(|name| name.starts_with('_')) {
            return Err(format!("pfctl: {scope}: anchor is reserved\n"));
        }
        let told = |error: String| error + ending;
        let mut parts = vec![Part::read(files, scope, file).map_err(told)?];
        if scope == MAIN {
            // Within an anchor, nothing else is loaded.
            let main = &parts[0].statements;
            let loads = main.iter().filter_map(|(_, statement)| match statement {
                Statement::Load { anchor, file } => Some(Part::read(files, anchor, file)),
                _ => None,
            });
            let loads = loads.collect::<Result<Vec<_>, _>>().map_err(told)?;
            parts.extend(loads);
        }
        Ok(parts)
    }

    /// Every scope gets a ticket; what makes one stale changes nothing.
    fn begin(&mut self, parts: &[Part]) -> Result<(), String> {
        let left = [&mut self.busy_first, &mut self.busy_after, &mut self.busy];
        let next = left.into_iter().enumerate().find(|(_, left)| **left > 0);
        let spoilt = next.is_some_and(|(which, left)| {
            *left -= 1;
            which != 1
        });
        if spoilt {
            let has_tables = |part: &&Part| part.tables().next().is_some();
            return Err(parts.iter().find(has_tables).unwrap_or(&parts[0]).spoilt());
        }
        // Beginning a scope again makes its first ticket stale, and that is the one pfctl shows.
        let again = |(at, part): &(usize, &Part)| {
            parts[..*at].iter().any(|earlier| earlier.scope == part.scope)
        };
        parts.iter().enumerate().find(again).map_or(Ok(()), |(_, part)| Err(part.spoilt()))
    }

    fn commit_filter(&mut self, part: &Part) {
        let lines = part.statements.iter().filter_map(|(_, statement)| match statement {
            Statement::Filter(line) => Some(line.clone()),
            _ => None,
        });
        self.rulesets.insert(part.scope.clone(), lines.collect());
    }

    fn commit_rest(&mut self, part: &Part) {
        let translations = part.statements.iter().filter_map(|(_, statement)| match statement {
            Statement::Translation(line) => Some(line.clone()),
            _ => None,
        });
        self.translations.insert(part.scope.clone(), translations.collect());
        for (_, definition) in part.tables() {
            let key = (part.scope.clone(), definition.name.clone());
            let table = self.tables.entry(key).or_default();
            if let Some(addresses) = &definition.addresses {
                table.addresses.clone_from(addresses);
            }
            (table.persist, table.constant) = (definition.persist, definition.constant);
            table.active = true;
        }
    }

    fn collisions(&self, parts: &[Part]) -> String {
        let inner = parts.iter().filter(|part| part.scope != MAIN).flat_map(Part::tables);
        let is_global = |name: &str| self.table(MAIN, name).is_some();
        let both = inner.filter(|(_, table)| is_global(&table.name));
        both.fold(String::new(), |mut text, (_, table)| {
            let _ =
                writeln!(text, "warning: namespace collision with <{}> global table.", table.name);
            text
        })
    }

    /// A table without a rule goes, unless it is to persist.
    fn drop_unused(&mut self) {
        let unused = |key: &(String, String)| !self.is_referenced(&key.0, &key.1);
        let gone: Vec<_> = (self.tables.iter())
            .filter(|(key, table)| !(table.persist && table.active) && unused(key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.tables.remove(&key);
        }
    }

    /// Whether a rule of its scope names the table; one of the main ruleset is every anchor's that
    /// has none of the name.
    fn is_referenced(&self, scope: &str, name: &str) -> bool {
        let names = |end: &End| end.address.as_deref().and_then(grammar::table_name) == Some(name);
        let uses = |line: &Line| match line {
            Line::Rule(rule) => names(&rule.from) || names(&rule.to),
            Line::Anchor(..) => false,
        };
        self.rulesets.iter().any(|(of, lines)| {
            let own = self.tables.contains_key(&(of.clone(), name.to_owned()));
            (of == scope || (scope == MAIN && !own)) && lines.iter().any(uses)
        })
    }

    fn table(&self, scope: &str, name: &str) -> Option<&Table> {
        let table = self.tables.get(&(scope.to_owned(), name.to_owned()));
        table.filter(|table| table.active)
    }

    /// Destroys a table of exactly this scope; whether there was one. Under rules that name it, it
    /// stays, empty.
    pub(super) fn kill_table(&mut self, anchor: Option<&str>, name: &str) -> bool {
        let key = (anchor.unwrap_or(MAIN).to_owned(), name.to_owned());
        let Some(table) = self.tables.get_mut(&key).filter(|table| table.active) else {
            return false;
        };
        *table = Table::default();
        self.drop_unused();
        true
    }

    /// The addresses in a table.
    pub(super) fn addresses(&self, anchor: Option<&str>, name: &str) -> Option<&[String]> {
        self.table(anchor.unwrap_or(MAIN), name).map(|table| table.addresses.as_slice())
    }

    /// Adds addresses to a table, and makes it if there is none. What pfctl says.
    pub(super) fn add(
        &mut self,
        anchor: Option<&str>,
        name: &str,
        addresses: &[&str],
    ) -> Result<String, String> {
        if let Some(wrong) = addresses.iter().find(|address| !grammar::is_network(address)) {
            return Err(format!("pfctl: no IP address found for {wrong}\n"));
        }
        let key = (anchor.unwrap_or(MAIN).to_owned(), name.to_owned());
        let table = self.tables.entry(key).or_default();
        if table.constant {
            return Err("pfctl: Operation not permitted.\n".to_owned());
        }
        let mut said = String::new();
        if !table.active {
            *table = Table { persist: true, active: true, ..Table::default() };
            said += "1 table created.\n";
        }
        let before = table.addresses.len();
        for address in addresses {
            if !table.addresses.iter().any(|there| there == address) {
                table.addresses.push((*address).to_owned());
            }
        }
        let added = table.addresses.len() - before;
        let _ = writeln!(said, "{added}/{} addresses added.", addresses.len());
        Ok(said)
    }

    /// Takes addresses out of a table, or all of them. What pfctl says.
    pub(super) fn take_out(
        &mut self,
        anchor: Option<&str>,
        name: &str,
        addresses: Option<&[&str]>,
    ) -> Result<String, String> {
        let key = (anchor.unwrap_or(MAIN).to_owned(), name.to_owned());
        let table = self.tables.get_mut(&key).filter(|table| table.active);
        let table = table.ok_or("pfctl: Table does not exist.\n")?;
        if table.constant {
            return Err("pfctl: Operation not permitted.\n".to_owned());
        }
        let before = table.addresses.len();
        table.addresses.retain(|there| addresses.is_some_and(|all| !all.contains(&there.as_str())));
        let gone = before - table.addresses.len();
        Ok(match addresses {
            Some(asked) => format!("{gone}/{} addresses deleted.\n", asked.len()),
            None => format!("{gone} addresses deleted.\n"),
        })
    }

    /// The tables of a scope, by name.
    pub(super) fn tables_of(&self, anchor: Option<&str>) -> impl Iterator<Item = &str> {
        let scope = anchor.unwrap_or(MAIN);
        let here = self.tables.iter().filter(move |((of, _), table)| of == scope && table.active);
        here.map(|((_, name), _)| name.as_str())
    }

    /// The rules of a scope, as pfctl prints them.
    pub(super) fn rules_of(&self, anchor: Option<&str>) -> impl Iterator<Item = String> {
        self.rulesets.get(anchor.unwrap_or(MAIN)).into_iter().flatten().map(Line::to_string)
    }

    /// The paths of all anchors below one, or of all there are.
    pub(super) fn anchors_below(&self, anchor: Option<&str>) -> BTreeSet<String> {
        let tables = self.tables.keys().map(|(scope, _)| scope);
        let scopes = self.rulesets.keys().chain(self.translations.keys()).chain(tables);
        let ends = |scope: &String| {
            let inner: Vec<usize> = scope.match_indices('/').map(|(at, _)| at).collect();
            inner.into_iter().chain([scope.len()]).collect::<Vec<_>>()
        };
        let all = scopes.filter(|scope| *scope != MAIN);
        let all = all.flat_map(|scope| ends(scope).into_iter().map(|end| scope[..end].to_owned()));
        let parent = anchor.map(|anchor| format!("{anchor}/")).unwrap_or_default();
        all.filter(|path| path.starts_with(&parent)).collect()
    }

    /// Where addresses of a scope are translated, as pfctl prints it.
    pub(super) fn translations_of(&self, anchor: Option<&str>) -> impl Iterator<Item = &str> {
        let scope = anchor.unwrap_or(MAIN);
        let for_vms = (scope == MAIN && self.translates_for_vms).then_some(FOR_VMS);
        let loaded = self.translations.get(scope).into_iter().flatten();
        loaded.map(String::as_str).chain(for_vms)
    }

    /// Forgets the rules of exactly one scope.
    pub(super) fn flush_rules(&mut self, anchor: Option<&str>) {
        self.rulesets.remove(anchor.unwrap_or(MAIN));
        self.drop_unused();
    }

    /// Forgets where addresses of exactly one scope are translated.
    pub(super) fn flush_translations(&mut self, anchor: Option<&str>) {
        self.translations.remove(anchor.unwrap_or(MAIN));
        self.translates_for_vms &= anchor.is_some();
    }

    /// Destroys all tables of exactly one scope; how many.
    pub(super) fn kill_tables(&mut self, anchor: Option<&str>) -> usize {
        let names: Vec<String> = self.tables_of(anchor).map(str::to_owned).collect();
        for name in &names {
            self.kill_table(anchor, name);
        }
        names.len()
    }

    /// Forgets what every anchor has.
    pub(super) fn flush_anchors(&mut self) {
        self.rulesets.retain(|scope, _| scope == MAIN);
        self.tables.retain(|(scope, _), _| scope == MAIN);
    }

    /// Whether it filters at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Enables it for good. False if it was.
    pub(super) fn enable(&mut self) -> bool {
        self.wanted = true;
        !std::mem::replace(&mut self.enabled, true)
    }

    /// Enables it while the token that this gives is held.
    pub(super) fn take_reference(&mut self) -> u64 {
        self.next_token += 1;
        self.references.push(self.next_token);
        self.enabled = true;
        self.next_token
    }

    /// Gives a token back; the last one disables it. False if nobody got it.
    pub(super) fn give_back(&mut self, token: u64) -> bool {
        let held = self.references.len();
        self.references.retain(|reference| *reference != token);
        let known = self.references.len() < held;
        self.enabled &= self.wanted || !known || !self.references.is_empty();
        known
    }

    /// Disables it, whoever wants it enabled.
    pub(super) fn disable(&mut self) {
        self.references.clear();
        (self.enabled, self.wanted) = (false, false);
    }

    /// Tokens that are held.
    pub(super) fn references(&self) -> &[u64] {
        &self.references
    }

    /// Whether a packet gets through what is live now.
    pub(super) fn passes(&self, packet: Packet) -> bool {
        let mut passes = true;
        if self.enabled {
            self.evaluate(MAIN, packet, &mut passes);
        }
        passes
    }

    /// The last rule that matches decides, or the first that is quick: then nothing after it is
    /// looked at, which is what this says.
    fn evaluate(&self, scope: &str, packet: Packet, passes: &mut bool) -> bool {
        let lines = self.rulesets.get(scope).into_iter().flatten();
        for line in lines {
            let decided = match line {
                Line::Anchor(name, narrowed) if self.matches(narrowed, scope, packet) => {
                    let below = self.attached(scope, name);
                    below.into_iter().any(|below| self.evaluate(below, packet, passes))
                }
                Line::Rule(rule) if self.matches(rule, scope, packet) => {
                    *passes = rule.pass;
                    rule.quick
                }
                Line::Anchor(..) | Line::Rule(_) => false,
            };
            if decided {
                return true;
            }
        }
        false
    }

    /// The scopes that an anchor point evaluates: its own, or for `/*` all right below it.
    fn attached(&self, scope: &str, name: &str) -> Vec<&str> {
        let path = if scope == MAIN { name.to_owned() } else { format!("{scope}/{name}") };
        let is_meant = |there: &&String| match path.strip_suffix("/*") {
            Some(parent) => {
                let child = there.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
                child.is_some_and(|child| !child.contains('/'))
            }
            None => **there == path,
        };
        self.rulesets.keys().filter(is_meant).map(String::as_str).collect()
    }

    fn matches(&self, rule: &Rule, scope: &str, packet: Packet) -> bool {
        let direction = if packet.inbound { "in" } else { "out" };
        let covers = |end: &End, address: Ipv4Addr| {
            let covers = |word| self.covers(word, scope, address) != end.negated;
            end.address.as_deref().is_none_or(covers)
        };
        rule.direction.is_none_or(|wanted| wanted == direction)
            && rule.interface.as_deref().is_none_or(|wanted| wanted == packet.interface)
            && rule.family != Some("inet6")
            && rule.protocol.as_deref().is_none_or(|wanted| wanted == packet.protocol)
            && covers(&rule.from, packet.source)
            && covers(&rule.to, packet.destination)
            && rule.to.port.is_none_or(|wanted| wanted == packet.port)
    }

    fn covers(&self, word: &str, scope: &str, address: Ipv4Addr) -> bool {
        match grammar::table_name(word) {
            Some(name) => {
                let table = self.table(scope, name).or_else(|| self.table(MAIN, name));
                table.is_some_and(|t| t.addresses.iter().any(|net| is_within(net, address)))
            }
            // The kernel knows interfaces by their names alone: `(self)` is none of them.
            None if word.starts_with('(') => word == "(en0)" && address == PUBLIC_ADDRESS,
            None => is_within(word, address),
        }
    }
}

fn is_within(network: &str, address: Ipv4Addr) -> bool {
    let (base, bits) = network.split_once('/').unwrap_or((network, "32"));
    let (Ok(base), Ok(bits)) = (base.parse::<Ipv4Addr>(), bits.parse::<u32>()) else {
        return false;
    };
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
    (u32::from(base) & mask) == (u32::from(address) & mask)
}

#[cfg(test)]
mod tests;
