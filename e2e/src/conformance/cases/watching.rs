//! Changes are followed: a watch that ends after a second tells what happened before it.

use serde_json::json;

use super::{MERGE, Request, Story, ask, delete, get, patch, post, put, until};
use crate::conformance::kinds::Kind;

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The objects of a case.
const OURS: &str = "labelSelector=suite%3Dconformance";
/// What is there already comes first.
const INITIAL: &str = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
const BOOKMARKS: &str = "&allowWatchBookmarks=true";

/// What a watch tells, and how it is refused. The real controllers write to every Node, when they
/// come to it: of Nodes only refusals are compared.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let mut stories = refusals(kind);
    if kind.name != "Node" {
        stories.extend(changes(kind));
        stories.extend(beginnings(kind));
        stories.extend(ends(kind));
    }
    stories
}

fn watch(kind: &Kind, query: &str) -> Request {
    get(format!("{}?watch=true&timeoutSeconds=1&{query}", kind.path()))
}

/// A list, for its version.
fn start(kind: &Kind) -> Request {
    get(format!("{}?{OURS}", kind.path()))
}

fn refusals(kind: &Kind) -> Vec<Story> {
    let ours = |query: &str| vec![watch(kind, &format!("{OURS}{query}"))];
    vec![
        ("watch from a bad version", ours("&resourceVersion=x")),
        ("watch with a bad selector", vec![watch(kind, "labelSelector=%3D%3D")]),
        ("watch by an unknown field", vec![watch(kind, "fieldSelector=spec.nothing%3D1")]),
        ("watch with initial events of any age", ours("&sendInitialEvents=true")),
        ("watch without initial events of any age", ours("&sendInitialEvents=false")),
        ("watch with a match alone", ours("&resourceVersionMatch=NotOlderThan")),
        ("watch from a version to come", ours("&resourceVersion=1000000000")),
        ("watch in a form that nobody has", {
            vec![Request { accept: "text/html", ..watch(kind, OURS) }]
        }),
    ]
}

/// Two objects come, one changes and leaves the selection, the other goes.
fn changes(kind: &Kind) -> Vec<Story> {
    let (all, one, two) = (kind.path(), kind.path_of("one"), kind.path_of("two"));
    let label = |name: &str, value: Option<&str>| {
        patch(MERGE, &one, json!({"metadata": {"labels": {name: value}}}))
    };
    let after = |request: Request| {
        vec![
            start(kind),
            post(&all, kind.object("one")),
            post(&all, kind.object("two")),
            label("more", Some("1")),
            patch(MERGE, &one, kind.change()),
            label("suite", None),
            delete(&two),
            request,
            delete(&one),
        ]
    };
    let from = format!("{OURS}&resourceVersion={{start}}");
    let shown = |accept: &'static str| after(Request { accept, ..watch(kind, &from) });
    vec![
        ("watch changes", after(watch(kind, &from))),
        ("watch changes and bookmarks", after(watch(kind, &format!("{from}{BOOKMARKS}")))),
        ("watch changes as metadata", shown(METADATA)),
        ("watch changes as a table", shown(TABLE)),
        ("watch one name", {
            let name = "fieldSelector=metadata.name%3Done&resourceVersion={start}";
            after(watch(kind, name))
        }),
        ("watch one name with a label", {
            after(watch(kind, &format!("{from}&fieldSelector=metadata.name%3Done")))
        }),
        ("watch a label that comes", {
            after(watch(kind, "labelSelector=more&resourceVersion={start}"))
        }),
        ("watch changes after their middle", {
            let mut story = after(watch(kind, &from));
            story.insert(3, start(kind));
            story
        }),
    ]
}

/// Two objects are there already.
fn beginnings(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let between = |request: Request| {
        // The list makes sure that the real server's cache has them.
        let made = vec![post(&all, kind.object("one")), post(&all, kind.object("two"))];
        let gone = vec![delete(&one), delete(kind.path_of("two"))];
        [made, vec![start(kind), request], gone].concat()
    };
    let ours = |query: &str| between(watch(kind, &format!("{OURS}{query}")));
    let shown = |accept: &'static str| {
        between(Request { accept, ..watch(kind, &format!("{OURS}{BOOKMARKS}")) })
    };
    vec![
        ("watch from now", ours("")),
        ("watch from now, with a limit", ours("&limit=1")),
        ("watch from any version", ours("&resourceVersion=0")),
        ("watch from now with bookmarks", ours(BOOKMARKS)),
        ("watch from any version with bookmarks", ours("&resourceVersion=0&allowWatchBookmarks=1")),
        ("watch with initial events", ours(INITIAL)),
        ("watch with initial events and bookmarks", ours(&format!("{INITIAL}{BOOKMARKS}"))),
        ("watch with initial events no older", {
            ours(&format!("{INITIAL}{BOOKMARKS}&resourceVersion={{start}}"))
        }),
        ("watch without initial events", {
            let none = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
            ours(&format!("{none}&resourceVersion={{start}}"))
        }),
        ("watch from now as metadata", shown(METADATA)),
        ("watch from now as a table", shown(TABLE)),
        ("watch an object's own path", {
            between(get(format!("{one}?watch=true&timeoutSeconds=1")))
        }),
    ]
}

/// What is not written tells nothing, and what was held goes at once when it is let go.
fn ends(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let from = || watch(kind, &format!("{OURS}&resourceVersion={{start}}"));
    let mut same = kind.object("one");
    same["metadata"]["resourceVersion"] = json!("{version}");
    let mut held = kind.object("one");
    held["metadata"]["finalizers"] = json!(["conformance.dev/held"]);
    let free = json!({"metadata": {"finalizers": null}});
    vec![
        ("watch what changes nothing", {
            let again =
                patch(MERGE, &one, json!({"metadata": {"labels": {"suite": "conformance"}}}));
            let made = post(&all, kind.object("one"));
            let stays = vec![start(kind), get(&one), put(&one, same), again, get(&one), from()];
            [vec![made], stays, vec![delete(&one)]].concat()
        }),
        ("watch what is let go", {
            let story = vec![post(&all, held), delete(&one), patch(MERGE, &one, free)];
            [vec![start(kind)], story, vec![get(&one), from()]].concat()
        }),
        ("watch what is orphaned", {
            let path = format!("{one}?propagationPolicy=Orphan&gracePeriodSeconds=0");
            let go = ask("DELETE", path);
            let story = vec![post(&all, kind.object("one")), go, until(404, get(&one))];
            [vec![start(kind)], story, vec![from()]].concat()
        }),
    ]
}
