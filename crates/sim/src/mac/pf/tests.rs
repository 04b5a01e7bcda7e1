//! The fact sheet of macOS, sentence by sentence.

use applecart_mac::pf::{ANCHOR_RULES, STOCK};
use bytes::Bytes;

use super::*;

const CONF: &str = "/etc/pf.conf";
const OURS: &str = "/etc/pf.anchors/ours";
const TABLES: &str = "table <vms> { 192.168.64.0/22 }\ntable <far> { 10.0.0.0/8 }\n\
                      block drop in quick from <vms> to <far>\n";

fn files(all: &[(&str, &str)]) -> Files {
    let mut files = Files::default();
    for (path, text) in all {
        files.replace(path, Bytes::copy_from_slice(text.as_bytes()), "root:wheel", 0o644);
    }
    let apple = Bytes::from_static(b"anchor \"200.AirDrop/*\"\n");
    files.replace("/etc/pf.anchors/com.apple", apple, "root:wheel", 0o644);
    files
}

/// Loads `text` as the main ruleset, with ours beside it.
fn load(pf: &mut Pf, text: &str, ours: &str) -> Result<String, String> {
    pf.load(&files(&[(CONF, text), (OURS, ours)]), None, CONF, false)
}

fn from_a_vm(destination: [u8; 4]) -> Packet {
    let (source, destination) = ([192, 168, 64, 5].into(), destination.into());
    let interface = VM_BRIDGE;
    Packet { interface, inbound: true, protocol: "tcp", source, destination, port: 443 }
}

fn attached() -> String {
    format!("{STOCK}anchor \"ours\"\nload anchor \"ours\" from \"{OURS}\"\n")
}

#[test]
fn apples_file_and_our_rules_are_understood_and_printed_with_what_goes_without_saying() {
    let mut pf = Pf::default();
    load(&mut pf, &attached(), ANCHOR_RULES).unwrap();
    let main: Vec<String> = pf.rules_of(None).collect();
    assert_eq!(main, ["anchor \"com.apple/*\" all", "anchor \"ours\" all"]);
    let ours: Vec<String> = pf.rules_of(Some("ours")).collect();
    let dhcp = "pass in quick inet proto udp from <vm_sources> to 192.168.64.1 port = bootps";
    assert_eq!(ours[2], format!("{dhcp} keep state"));
    let asks = "pass in quick on bridge100 inet proto udp from 0.0.0.0 to 255.255.255.255 port";
    assert_eq!(ours[0], format!("{asks} = bootps keep state"));
    assert_eq!(ours[1], "block drop in quick on bridge100 from ! <vm_sources> to any");
    assert!(applecart_mac::pf::are_live(&ours.join("\n")), "{ours:?}");
}

#[test]
fn statements_have_an_order_and_an_end() {
    let mut pf = Pf::default();
    let late = format!("{STOCK}nat-anchor \"mine\"\n");
    let order = "Rules must be in order: options, normalization, queueing, translation, filtering";
    let said = load(&mut pf, &late, "").unwrap_err();
    assert!(said.starts_with(&format!("{CONF}:7: {order}\n")), "{said}");
    let said = load(&mut pf, STOCK.trim_end(), "").unwrap_err();
    assert!(said.starts_with(&format!("{CONF}:6: syntax error\n")), "{said}");
    load(&mut pf, &format!("ports = \"{{ 80 }}\"\n{STOCK}table <late> persist\n"), "").unwrap();
    for wrong in [
        "pass sideways all",
        "block in from <vms",
        "table vms { 10.0.0.0/8 }",
        "table <vms> { 10.0.0.0/33 }",
        "pass in from any to example.org",
        "pass in proto tcp to any port https2",
        "anchor \"half",
        "permit all",
    ] {
        let said = load(&mut pf, &format!("{wrong}\n"), "").unwrap_err();
        let expected = format!("{CONF}:1: syntax error\n{NOT_LOADED}");
        assert_eq!(said, expected, "{wrong}");
    }
}

#[test]
fn an_anchor_that_nothing_attaches_loads_and_is_never_evaluated() {
    let mut pf = Pf::default();
    load(&mut pf, STOCK, "").unwrap();
    pf.enable();
    let all = files(&[(OURS, TABLES)]);
    pf.load(&all, Some("ours"), OURS, false).unwrap();
    assert!(pf.passes(from_a_vm([10, 0, 0, 1])));
    pf.load(&all, Some("com.apple/ours"), OURS, false).unwrap();
    assert!(!pf.passes(from_a_vm([10, 0, 0, 1])), "Apple's anchor point evaluates all below it");
    assert!(pf.load(&all, Some("_pf"), OURS, false).is_err());
}

#[test]
fn the_last_match_decides_unless_one_is_quick() {
    let mut pf = Pf::default();
    pf.enable();
    load(&mut pf, "block in all\npass in from any to 10.0.0.0/8\n", "").unwrap();
    assert!(pf.passes(from_a_vm([10, 0, 0, 1])) && !pf.passes(from_a_vm([1, 1, 1, 1])));
    load(&mut pf, "block in quick all\npass in from any to 10.0.0.0/8\n", "").unwrap();
    assert!(!pf.passes(from_a_vm([10, 0, 0, 1])));
    load(&mut pf, "block in quick on bridge100 all\n", "").unwrap();
    let mut other = from_a_vm([1, 1, 1, 1]);
    assert!(!pf.passes(other));
    other.source = [51, 15, 0, 9].into();
    assert!(!pf.passes(other), "whatever source a guest claims");
    other.interface = "en0";
    assert!(pf.passes(other));
}

#[test]
fn an_interface_in_parentheses_is_its_address_and_self_is_no_interface() {
    let mut pf = Pf::default();
    pf.enable();
    load(&mut pf, "block in quick from any to (en0)\n", "").unwrap();
    assert!(!pf.passes(from_a_vm(PUBLIC_ADDRESS.octets())) && pf.passes(from_a_vm([1, 1, 1, 1])));
    load(&mut pf, "block in quick from any to (self)\n", "").unwrap();
    assert!(pf.passes(from_a_vm(PUBLIC_ADDRESS.octets())));
}

#[test]
fn one_anchor_loaded_twice_in_one_run_is_busy_for_ever_and_changes_nothing() {
    // B2
    let mut pf = Pf::default();
    load(&mut pf, &attached(), TABLES).unwrap();
    let twice = format!("{}load anchor \"ours\" from \"{OURS}\"\n", attached());
    for _ in 0..2 {
        let said = load(&mut pf, &twice, TABLES).unwrap_err();
        let busy =
            |line, table| format!("{OURS}:{line}: cannot define table {table}: Resource busy\n");
        assert_eq!(said, format!("{}{}{NOT_LOADED}", busy(1, "vms"), busy(2, "far")));
        assert_eq!(pf.tables_of(Some("ours")).collect::<Vec<_>>(), ["far", "vms"]);
    }
    let all = files(&[(CONF, &twice), (OURS, TABLES)]);
    pf.load(&all, None, CONF, true).expect("a parse alone opens no transaction");
}

#[test]
fn another_pfctl_spoils_a_load_once() {
    let mut pf = Pf { busy: 1, ..Pf::default() };
    assert!(load(&mut pf, &attached(), TABLES).unwrap_err().contains("vms: Resource busy"));
    assert_eq!(pf.rules_of(None).count(), 0, "nothing is committed");
    load(&mut pf, &attached(), TABLES).unwrap();
}

#[test]
fn a_table_lives_as_long_as_its_rules_unless_it_is_to_persist() {
    let mut pf = Pf::default();
    load(&mut pf, &attached(), TABLES).unwrap();
    load(&mut pf, &attached(), "").unwrap();
    assert_eq!(pf.tables_of(Some("ours")).count(), 0);
    load(&mut pf, &attached(), "table <kept> persist { 10.0.0.0/8 }\n").unwrap();
    load(&mut pf, &attached(), "").unwrap();
    assert_eq!(pf.tables_of(Some("ours")).collect::<Vec<_>>(), ["kept"]);
    load(&mut pf, &attached(), "table <kept> persist\n").unwrap();
    let there = pf.addresses(Some("ours"), "kept").unwrap();
    assert_eq!(there, ["10.0.0.0/8"], "a bare definition keeps what is there");
    assert!(pf.kill_table(Some("ours"), "kept") && !pf.kill_table(Some("ours"), "kept"));
    assert_eq!(pf.tables_of(Some("ours")).count(), 0, "persist or not");
}

#[test]
fn a_table_that_is_killed_under_its_rules_matches_nothing() {
    let mut pf = Pf::default();
    pf.enable();
    load(&mut pf, &attached(), TABLES).unwrap();
    assert!(!pf.passes(from_a_vm([10, 0, 0, 1])));
    assert!(pf.kill_table(Some("ours"), "far"));
    assert!(pf.passes(from_a_vm([10, 0, 0, 1])) && pf.addresses(Some("ours"), "far").is_none());
    assert!(!pf.kill_table(None, "vms"), "another scope has another table");
}

#[test]
fn an_anchor_without_the_table_uses_the_main_rulesets() {
    let mut pf = Pf::default();
    pf.enable();
    let rules = "block drop in quick from any to <far>\n";
    let main = format!("table <far> persist {{ 10.0.0.0/8 }}\n{}", attached());
    load(&mut pf, &main, rules).unwrap();
    assert!(!pf.passes(from_a_vm([10, 0, 0, 1])));
    let own = format!("table <far> {{ 172.16.0.0/12 }}\n{rules}");
    let said = load(&mut pf, &main, &own).unwrap();
    assert_eq!(said, "warning: namespace collision with <far> global table.\n");
    assert!(pf.passes(from_a_vm([10, 0, 0, 1])) && !pf.passes(from_a_vm([172, 16, 0, 1])));
}

#[test]
fn adding_makes_a_table_that_persists_and_a_constant_one_is_left_alone() {
    let mut pf = Pf::default();
    let said = pf.add(None, "new", &["10.0.0.1", "10.0.0.1"]).unwrap();
    assert_eq!(said, "1 table created.\n1/2 addresses added.\n");
    load(&mut pf, "table <fixed> persist const { 10.0.0.1 }\n", "").unwrap();
    assert_eq!(pf.tables_of(None).collect::<Vec<_>>(), ["fixed", "new"]);
    assert!(pf.add(None, "fixed", &["10.0.0.2"]).is_err());
    assert!(pf.add(None, "new", &["nowhere"]).is_err());
    assert!(pf.take_out(None, "fixed", None).is_err());
    assert_eq!(pf.take_out(None, "missing", None).unwrap_err(), "pfctl: Table does not exist.\n");
    let said = pf.take_out(None, "new", Some(&["10.0.0.9"])).unwrap();
    assert_eq!(said, "0/1 addresses deleted.\n");
    assert_eq!(pf.take_out(None, "new", None).unwrap(), "1 addresses deleted.\n");
}

#[test]
fn it_is_enabled_while_anybody_holds_a_reference() {
    let mut pf = Pf::default();
    let (one, other) = (pf.take_reference(), pf.take_reference());
    assert_ne!(one, other);
    assert!(pf.give_back(one) && !pf.give_back(one) && pf.is_enabled());
    assert!(pf.give_back(other) && !pf.is_enabled());
    let token = pf.take_reference();
    pf.disable();
    assert!(!pf.give_back(token), "disabling makes every token worthless");
    assert!(pf.enable() && !pf.enable());
    let token = pf.take_reference();
    assert!(pf.give_back(token) && pf.is_enabled(), "whoever enabled it gave nothing back");
}

#[test]
fn a_flush_of_an_anchor_leaves_the_others_and_one_of_all_drops_apples_anchor_points() {
    let mut pf = Pf::default();
    load(&mut pf, &attached(), TABLES).unwrap();
    assert_eq!(pf.kill_tables(Some("ours")), 2);
    pf.flush_rules(Some("ours"));
    assert_eq!((pf.rules_of(Some("ours")).count(), pf.rules_of(None).count()), (0, 2));
    pf.flush_rules(None);
    assert_eq!(pf.rules_of(None).count(), 0);
}
