//! The egress firewall as text: what VMs may not reach. No I/O.
//!
//! `/etc/pf.conf` belongs to macOS; of it, one marked block is ours. Older versions left blocks
//! without markers, twice, or cut off in the middle, and two `load anchor` lines for one anchor
//! make the whole file fail to load (`Resource busy`). So the edit removes every form ever written
//! and then appends one.

/// The anchor that holds our rules.
pub const ANCHOR: &str = "tuist.runners";

/// Where our rules are while the main ruleset does not use that anchor and may not be loaded: all
/// that is below `com.apple` is evaluated at once, by a line that macOS itself brings.
pub const STAND_IN: &str = "com.apple/tuist.runners";

/// The first line of our block in `/etc/pf.conf`.
pub const BEGIN: &str = "# BEGIN tuist.runners";

/// The last line of our block in `/etc/pf.conf`.
pub const END: &str = "# END tuist.runners";

/// Our block in `/etc/pf.conf`: attaches the anchor and fills it at boot.
pub const BLOCK: &str = r#"# BEGIN tuist.runners
# What VMs may not reach. Written by Applecart; edits here are lost.
anchor "tuist.runners"
load anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"
# END tuist.runners
"#;

/// `/etc/pf.conf` as macOS ships it, for a host that lost its own.
pub const STOCK: &str = r#"scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
"#;

/// The names of the tables, and what is in them.
pub const TABLES: [(&str, &[&str]); 2] = [
    ("vm_sources", &["192.168.64.0/22"]),
    (
        "blocked_dst",
        &["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"],
    ),
];

/// The content of the anchor.
///
/// A VM's packet comes *in* on the host's bridge with the VM's own address, and goes *out* after
/// address translation, so the inbound rule is the one that holds; the outbound one is for packets
/// that are not translated. A VM needs its gateway for DHCP and DNS, and may answer the host. It
/// has no way to the address of `en0`, where the world reaches the host: in parentheses that is
/// looked up with each packet, so it survives a new one. (`self` there matches nothing on macOS.)
/// A guest chooses its source by itself: one that is no VM's is dropped, but for the question for
/// an address, which has none. Over IPv6 it reaches nothing: macOS gives VMs addresses there that
/// no table could list, and all VMs are on the one bridge.
pub const ANCHOR_RULES: &str = "\
# What VMs may not reach. Written by Applecart; edits here are lost.
table <vm_sources> { 192.168.64.0/22 }
table <blocked_dst> { 10.0.0.0/8, 100.64.0.0/10, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16 }
pass in quick on bridge100 proto udp from 0.0.0.0 to 255.255.255.255 port 67
block drop in quick on bridge100 from ! <vm_sources> to any
pass in quick proto udp from <vm_sources> to 192.168.64.1 port 67
pass in quick proto udp from <vm_sources> to 192.168.64.1 port 53
pass in quick proto tcp from <vm_sources> to 192.168.64.1 port 53
pass out quick from 192.168.64.1 to <vm_sources>
block drop in quick from <vm_sources> to (en0)
block drop in quick from <vm_sources> to <blocked_dst>
block drop out quick from <vm_sources> to <blocked_dst>
block drop in quick on bridge100 inet6 all
";

/// Words that make a rule match less than it does without them.
const NARROWING: [&str; 12] = [
    "on",
    "proto",
    "from",
    "to",
    "port",
    "user",
    "group",
    "icmp-type",
    "tos",
    "tagged",
    "probability",
    "!",
];

/// Whether `printed`, by `pfctl -s rules`, is what the anchor shall have: every rule of it, in its
/// order, and no other.
#[must_use]
pub fn are_live(printed: &str) -> bool {
    let is_rule = |line: &&str| line.starts_with("pass ") || line.starts_with("block ");
    let ours: Vec<&str> = ANCHOR_RULES.lines().filter(is_rule).collect();
    let live: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    ours.len() == live.len() && ours.iter().zip(live).all(|(ours, live)| is_same(ours, live))
}

/// What is live: the main ruleset, and that of every anchor by its path, as pfctl prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    main: Vec<String>,
    anchors: Vec<(String, Vec<String>)>,
}

/// A rule before ours that ends the evaluation: ours are not looked at then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decides<'a> {
    /// The anchor that it is in; `None`: the main ruleset.
    pub anchor: Option<&'a str>,
    /// As it is printed.
    pub rule: &'a str,
}

impl Live {
    /// Reads rules as a host prints them: those of the main ruleset, then those of each anchor
    /// after a line `# <path>`.
    #[must_use]
    pub fn read(printed: &str) -> Self {
        let mut live = Self::default();
        for line in printed.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match (line.strip_prefix("# "), live.anchors.last_mut()) {
                (Some(path), _) => live.anchors.push((path.to_owned(), Vec::new())),
                (None, Some((_, rules))) => rules.push(line.to_owned()),
                (None, None) => live.main.push(line.to_owned()),
            }
        }
        live
    }

    /// Whether our anchor is evaluated for every packet: an anchor point may be narrowed to an
    /// interface or a direction, as a rule may.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.main.iter().any(|line| is_point(line, ANCHOR))
    }

    /// Whether [`STAND_IN`] is evaluated for every packet.
    #[must_use]
    pub fn evaluates_stand_in(&self) -> bool {
        self.main.iter().any(|line| is_point(line, "com.apple/*"))
    }

    /// The rules of an anchor, one a line.
    #[must_use]
    pub fn rules_of(&self, anchor: &str) -> String {
        let of = self.anchors.iter().filter(|(path, _)| path == anchor);
        of.flat_map(|(_, rules)| rules).fold(String::new(), |text, rule| text + rule + "\n")
    }

    /// The first rule before our anchor point that ends the evaluation for VMs by letting them
    /// pass, there or in an anchor that is evaluated before ours.
    #[must_use]
    pub fn decides_before(&self) -> Option<Decides<'_>> {
        let before = self.main.iter().take_while(|line| !is_point(line, ANCHOR));
        before.map(String::as_str).find_map(|line| {
            let own = decides(line).then_some(Decides { anchor: None, rule: line });
            own.or_else(|| self.decides_below(line))
        })
    }

    /// The same before [`STAND_IN`]: its siblings are evaluated in the order of their names.
    #[must_use]
    pub fn decides_before_stand_in(&self) -> Option<Decides<'_>> {
        let is_apples = |line: &&String| is_point(line, "com.apple/*");
        let before = self.main.iter().take_while(|line| !is_apples(line));
        let in_main = before.map(String::as_str).find_map(|line| {
            let own = decides(line).then_some(Decides { anchor: None, rule: line });
            own.or_else(|| self.decides_below(line))
        });
        in_main.or_else(|| self.decides_in_anchors(is_before_stand_in))
    }

    /// The same in what an anchor point evaluates, however deep.
    fn decides_below(&self, point: &str) -> Option<Decides<'_>> {
        let name = point.strip_prefix("anchor \"")?.split('"').next()?;
        self.decides_in_anchors(|path| match name.strip_suffix("/*") {
            Some(parent) => is_below(parent, path),
            None => path == name || is_below(name, path),
        })
    }

    fn decides_in_anchors(&self, is_meant: impl Fn(&str) -> bool) -> Option<Decides<'_>> {
        let meant = self.anchors.iter().filter(|(path, _)| path != STAND_IN && is_meant(path));
        let mut rules = meant.flat_map(|(path, rules)| rules.iter().map(move |rule| (path, rule)));
        let found = rules.find(|(_, rule)| decides(rule));
        found.map(|(path, rule)| Decides { anchor: Some(path), rule })
    }
}

fn is_below(parent: &str, path: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}

fn is_before_stand_in(path: &str) -> bool {
    let name = path.strip_prefix("com.apple/").and_then(|below| below.split('/').next());
    name.is_some_and(|name| name < ANCHOR)
}

/// The first rule of a file, before our block, that ends the evaluation for VMs by letting them
/// pass.
#[must_use]
pub fn decides_in(file: &str) -> Option<&str> {
    let mut before = file.lines().map(str::trim).take_while(|line| !is_point(line, ANCHOR));
    before.find(|line| decides(line))
}

/// Whether a load of `file` as the main ruleset loses translations that `pfctl -s nat` printed:
/// macOS adds one for its VMs by itself, and no file has it. Its own `com.apple/*` comes back.
#[must_use]
pub fn loses_translation(printed: &str, file: &str) -> bool {
    let comes_back = |line: &str| {
        let point = line.strip_suffix(" all").unwrap_or(line);
        file.lines().any(|kept| kept.trim() == point)
    };
    let mut translations = printed.lines().map(str::trim).filter(|line| line.starts_with("nat"));
    translations.any(|line| !comes_back(line))
}

/// Whether a rule lets VMs pass, and ends the evaluation with that. One that blocks only tightens,
/// and one on an interface where no VM is, is about others.
fn decides(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let quick = words.contains(&"quick");
    let on = words.iter().position(|word| *word == "on").and_then(|at| words.get(at + 1));
    match words.first() {
        Some(&"pass") => quick && on.is_none_or(|name| may_be_of_vms(name)),
        Some(&"anchor") => quick,
        _ => false,
    }
}

/// Whether an interface may be one where VMs are; macros, lists and negations may be anything.
fn may_be_of_vms(interface: &str) -> bool {
    !interface.chars().all(char::is_alphanumeric)
        || ["bridge", "vm", "any"].iter().any(|start| interface.starts_with(start))
}

fn is_point(line: &str, anchor: &str) -> bool {
    let point = format!("anchor \"{anchor}\"");
    line.trim().strip_prefix(&point).is_some_and(|rest| ["", " all"].contains(&rest))
}

/// Whether a rule is printed as `live`: macOS adds what goes without saying, at its end or as
/// `inet`, and may call a port by its name.
fn is_same(rule: &str, live: &str) -> bool {
    let (rule, live) = (words(rule), words(live));
    let added = live.strip_prefix(rule.as_slice());
    added.is_some_and(|added| !added.iter().any(|word| NARROWING.contains(word)))
}

fn words(rule: &str) -> Vec<&str> {
    let said = rule.split_whitespace().filter(|word| !["=", "inet"].contains(word));
    let numbers = said.map(|word| match word {
        "bootps" => "67",
        "domain" => "53",
        word => word,
    });
    numbers.collect()
}

/// `existing` with exactly one block of ours, at its end; lines that are not ours stay as they are.
///
/// Idempotent. A blank or missing file becomes Apple's own with our block.
#[must_use]
pub fn with_block(existing: &str) -> String {
    let mut text = without_ours(existing);
    if text.trim().is_empty() {
        STOCK.clone_into(&mut text);
    }
    text + BLOCK
}

/// `existing` without any form of our block, ending in a newline unless empty.
fn without_ours(existing: &str) -> String {
    let lines: Vec<&str> = existing.lines().collect();
    let torn = if existing.ends_with('\n') { None } else { lines.len().checked_sub(1) };
    let mut kept = String::new();
    let mut block_end = 0;
    for (index, line) in lines.iter().enumerate() {
        if line.trim() == BEGIN {
            block_end = end_of_block(&lines, index).unwrap_or(block_end);
        }
        // Inside a whole block everything is ours but what macOS may have put there.
        let in_block = index < block_end && !line.contains("com.apple");
        let torn_ours = torn == Some(index) && is_start_of_ours(line);
        if !in_block && !torn_ours && !is_ours(line) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Where the block that begins at `begin` ends, unless another begins first: then it is cut off.
fn end_of_block(lines: &[&str], begin: usize) -> Option<usize> {
    let rest = &lines[begin + 1..];
    let marker = rest.iter().position(|line| [BEGIN, END].contains(&line.trim()))?;
    (rest[marker].trim() == END).then_some(begin + 1 + marker)
}

/// A line that only we write, alone or in a block, now or in an older version.
fn is_ours(line: &str) -> bool {
    let line = line.trim();
    let words: Vec<&str> = line.split_whitespace().collect();
    let quoted = format!("\"{ANCHOR}\"");
    let kinds = ["anchor", "nat-anchor", "rdr-anchor"];
    let anchor = words.iter().any(|word| kinds.contains(word))
        && !line.starts_with('#')
        && words.iter().any(|word| *word == quoted || *word == ANCHOR);
    let table = words.first() == Some(&"table")
        && TABLES.iter().any(|(name, _)| words.get(1) == Some(&format!("<{name}>").as_str()));
    let comment = line.starts_with('#') && BLOCK.lines().any(|ours| ours == line);
    let marker = line == BEGIN || line == END;
    anchor || table || comment || marker
}

/// The last line of a file that was cut off while one of our lines was appended.
fn is_start_of_ours(line: &str) -> bool {
    let tables = TABLES.iter().map(|(name, _)| format!("table <{name}>"));
    let points = ["nat-anchor", "rdr-anchor"].map(|kind| format!("{kind} \"{ANCHOR}\""));
    let older = tables.chain(points);
    let mut ours = BLOCK.lines().map(str::to_owned).chain(older);
    !line.trim().is_empty() && ours.any(|ours| ours.starts_with(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every form that a host can carry, oldest first.
    fn older_forms() -> Vec<String> {
        let unmarked = "anchor \"tuist.runners\"\n\
                        load anchor \"tuist.runners\" from \"/etc/pf.anchors/tuist.runners\"\n";
        let tables = "table <vm_sources> persist { 192.168.64.0/22 }\n\
                      table <blocked_dst> persist { 10.0.0.0/8 }\n";
        let marked = format!("{BEGIN}\n# VM egress rules\n{unmarked}{END}\n");
        vec![
            unmarked.to_owned(),
            format!("{tables}{unmarked}"),
            marked.clone(),
            format!("{marked}{marked}"),
            format!("{unmarked}{marked}"),
            format!("{BEGIN}\n{unmarked}"),
            format!("{unmarked}{END}\n"),
            format!("{BEGIN}\n{BEGIN}\n{unmarked}{END}\n"),
            format!("nat-anchor \"tuist.runners\"\nrdr-anchor \"tuist.runners\"\n{unmarked}"),
            BLOCK.to_owned(),
        ]
    }

    fn assert_converged(text: &str) {
        let count = |needle: &str| text.lines().filter(|line| *line == needle).count();
        for ours in BLOCK.lines() {
            assert_eq!(count(ours), 1, "{ours} in {text}");
        }
        for vendor in STOCK.lines() {
            assert_eq!(count(vendor), 1, "{vendor} in {text}");
        }
        assert_eq!(text.matches("load anchor \"tuist.runners\"").count(), 1);
        assert!(!text.contains("table <") && !text.contains("-anchor \"tuist"), "{text}");
        assert!(text.ends_with(BLOCK));
        assert_eq!(with_block(text), text, "idempotent");
    }

    #[test]
    fn a_pristine_file_gets_one_block_at_its_end() {
        assert_eq!(with_block(STOCK), format!("{STOCK}{BLOCK}"));
        assert_eq!(with_block(""), format!("{STOCK}{BLOCK}"));
        assert_eq!(with_block(STOCK.trim_end()), format!("{STOCK}{BLOCK}"));
    }

    #[test]
    fn every_older_form_becomes_the_one_block() {
        // B2, B19
        for form in older_forms() {
            assert_converged(&with_block(&format!("{STOCK}{form}")));
            assert_converged(&with_block(&format!("{form}{STOCK}")));
        }
    }

    #[test]
    fn apples_lines_survive_even_between_our_markers() {
        let text = format!("{BEGIN}\nanchor \"tuist.runners\"\n{STOCK}{END}\n");
        assert_converged(&with_block(&text));
    }

    #[test]
    fn lines_of_others_are_kept_in_their_order() {
        let others = "# my own\nanchor \"tuist.runners.extra\"\nblock in proto tcp to port 5900\n";
        let text = with_block(&format!("{STOCK}{others}{BLOCK}"));
        assert_eq!(text, format!("{STOCK}{others}{BLOCK}"));
    }

    #[test]
    fn the_anchors_text_and_its_parts_agree() {
        for (name, addresses) in TABLES {
            let line = format!("table <{name}> {{ {} }}", addresses.join(", "));
            assert!(ANCHOR_RULES.lines().any(|text| text == line), "{line}");
        }
    }

    #[test]
    fn live_rules_are_ours_only_if_each_is_in_its_order() {
        let printed = "\
pass in quick on bridge100 inet proto udp from 0.0.0.0 to 255.255.255.255 port = bootps keep state
block drop in quick on bridge100 from ! <vm_sources> to any
pass in quick inet proto udp from <vm_sources> to 192.168.64.1 port = bootps keep state
pass in quick inet proto udp from <vm_sources> to 192.168.64.1 port = 53 keep state
pass in quick inet proto tcp from <vm_sources> to 192.168.64.1 port = domain flags S/SA keep state
pass out quick inet from 192.168.64.1 to <vm_sources> flags S/SA keep state
block drop in quick from <vm_sources> to (en0)
block drop in quick from <vm_sources> to <blocked_dst>
block drop out quick from <vm_sources> to <blocked_dst>
block drop in quick on bridge100 inet6 all
";
        assert!(are_live(printed));
        let lines: Vec<&str> = printed.lines().collect();
        for at in 1..lines.len() {
            let mut other = lines.clone();
            other.swap(at - 1, at);
            assert!(!are_live(&other.join("\n")), "{at} before its turn");
        }
        for at in 0..lines.len() {
            let mut other = lines.clone();
            other.remove(at);
            assert!(!are_live(&other.join("\n")), "without {at}");
            other.insert(at, "pass in quick all flags S/SA keep state");
            assert!(!are_live(&other.join("\n")), "another in place of {at}");
        }
        let narrower = printed.replace("to <blocked_dst>", "to <blocked_dst> port = 22");
        assert!(!are_live(&narrower));
    }

    #[test]
    fn an_anchor_point_that_is_narrowed_attaches_nothing() {
        // S22
        let is_attached = |printed: &str| Live::read(printed).is_attached();
        for whole in ["anchor \"tuist.runners\"", "anchor \"tuist.runners\" all"] {
            assert!(is_attached(&format!("anchor \"com.apple/*\" all\n{whole}\n")), "{whole}");
        }
        for narrowed in [" on lo0 all", " in all", " inet all", " proto tcp all"] {
            let printed = format!("anchor \"tuist.runners\"{narrowed}\n");
            assert!(!is_attached(&printed), "{printed}");
        }
        assert!(!is_attached("anchor \"tuist.runners.extra\" all\n"));
        assert!(!is_attached("# com.apple\nanchor \"tuist.runners\" all\n"), "in another one");
    }

    #[test]
    fn a_quick_rule_before_ours_is_found_if_it_lets_vms_pass() {
        // S22
        let quick = "pass in quick proto tcp all flags S/SA keep state";
        let ours = "anchor \"tuist.runners\" all";
        let decides = |printed: &str| {
            let live = Live::read(printed);
            live.decides_before().map(|by| (by.anchor.map(str::to_owned), by.rule.to_owned()))
        };
        for open in [quick, "pass quick on bridge100 all", "anchor \"other\" quick all"] {
            let found = decides(&format!("{open}\n{ours}\n"));
            assert_eq!(found, Some((None, open.to_owned())), "{open}");
            assert_eq!(decides_in(&format!("{open}\n{BLOCK}")), Some(open));
        }
        for harmless in [
            format!("{ours}\n{quick}\n"),
            format!("pass in all\n{ours}\n"),
            format!("block drop in quick on en0 proto tcp from any to any port = 5900\n{ours}\n"),
            format!("pass in quick on lo0 all flags S/SA keep state\n{ours}\n"),
        ] {
            assert_eq!(decides(&harmless), None, "{harmless}");
        }
    }

    #[test]
    fn a_quick_rule_in_an_anchor_is_found_if_that_is_evaluated_before_ours() {
        // S22
        let points = "anchor \"com.apple/*\" all\nanchor \"one\" all\n\
                      anchor \"tuist.runners\" all\nanchor \"late\" all\n";
        let quick = "pass in quick all flags S/SA keep state";
        for (path, is_found) in [
            ("com.apple/200.AirDrop", true),
            ("com.apple/200.AirDrop/Bonjour", true),
            ("one", true),
            ("one/below", true),
            ("com.apple", false),
            ("com.apple.other/x", false),
            ("late", false),
            ("tuist.runners", false),
            (STAND_IN, false),
        ] {
            let live = Live::read(&format!("{points}# {path}\n{quick}\n"));
            let expected = is_found.then_some(Decides { anchor: Some(path), rule: quick });
            assert_eq!(live.decides_before(), expected, "{path}");
        }
        let live = Live::read(&format!("{points}# one\npass in quick on awdl0 all\n"));
        assert_eq!(live.decides_before(), None, "macOS's own, where no VM is");
    }

    #[test]
    fn a_quick_rule_is_found_if_it_is_evaluated_before_what_stands_in() {
        // S22
        let quick = "pass in quick all flags S/SA keep state";
        let points = "anchor \"early\" all\nanchor \"com.apple/*\" all\nanchor \"late\" all\n";
        for (path, is_found) in [
            ("early", true),
            ("com.apple/200.AirDrop", true),
            ("com.apple/200.AirDrop/Bonjour", true),
            ("com.apple/zzz", false),
            ("late", false),
            (STAND_IN, false),
        ] {
            let live = Live::read(&format!("{points}# {path}\n{quick}\n"));
            let expected = is_found.then_some(Decides { anchor: Some(path), rule: quick });
            assert_eq!(live.decides_before_stand_in(), expected, "{path}");
        }
        let live = Live::read(&format!("{quick}\n{points}"));
        let in_main = Some(Decides { anchor: None, rule: quick });
        assert_eq!(live.decides_before_stand_in(), in_main);
        let live = Live::read(&format!("{points}{quick}\n"));
        assert_eq!(live.decides_before_stand_in(), None, "what stands in has decided by then");
    }

    #[test]
    fn a_load_loses_the_translations_that_no_file_has() {
        // V17
        let apples = "nat-anchor \"com.apple/*\" all\nrdr-anchor \"com.apple/*\" all\n";
        let file = with_block(STOCK);
        assert!(!loses_translation("", &file) && !loses_translation(apples, &file));
        let for_vms = "nat-anchor \"com.apple.internet-sharing\" all\n";
        for lost in [for_vms, "nat on en0 inet from 192.168.64.0/24 to any -> (en0)\n"] {
            assert!(loses_translation(&format!("{apples}{lost}"), &file), "{lost}");
        }
        assert!(loses_translation(apples, BLOCK), "a file without Apple's own lines");
    }

    #[test]
    fn a_file_cut_off_anywhere_converges() {
        for form in older_forms() {
            let whole = format!("{STOCK}{form}");
            for cut in STOCK.len()..=whole.len() {
                assert_converged(&with_block(&whole[..cut]));
            }
            // Apple's own lines may be cut off too; what is left of ours must still be one block.
            let ours_first = format!("{form}{STOCK}");
            for cut in 0..ours_first.len() {
                let once = with_block(&ours_first[..cut]);
                assert_eq!(with_block(&once), once, "{cut} of {ours_first}");
                assert_eq!(once.matches("load anchor \"tuist.runners\"").count(), 1, "{cut}");
                assert!(once.ends_with(BLOCK) && !once.contains("table <"), "{cut}: {once}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_edit_is_idempotent_and_leaves_one_block_whatever_was_there(
            lines in prop::collection::vec(0..14_usize, 0..20), newline in any::<bool>()
        ) {
            let mut parts: Vec<&str> = BLOCK.lines().chain(STOCK.lines()).collect();
            parts.extend(["", "# a note", "table <vm_sources> persist"]);
            let mut text = lines.iter().map(|&i| parts[i]).collect::<Vec<_>>().join("\n");
            if newline { text.push('\n'); }
            let once = with_block(&text);
            prop_assert_eq!(with_block(&once), once.clone());
            prop_assert_eq!(once.matches("load anchor \"tuist.runners\"").count(), 1);
            prop_assert!(once.ends_with(BLOCK));
        }
    }
}
