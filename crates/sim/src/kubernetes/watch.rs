//! Following changes: a stream of lines, one for each event, that replays history first.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::gate::{Call, Delivery};
use super::refusal::Refusal;
use super::server::Inner;
use super::state::{Ask, State};
use super::store::{Change, ChangeKind, uid_of};
use super::view::View;

/// How often a watch that asked for bookmarks gets one.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// How long before its end a watch that asked for bookmarks gets its last one.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// How long a watch without a time-out lives. The real server draws from half an hour to an hour.
const LONGEST_WATCH: Duration = Duration::from_mins(30);

/// One client's watch.
struct Watch {
    server: Arc<Inner>,
    ask: Ask,
    view: View,
    /// Everything up to this version was told.
    told: u64,
    /// The server's version when it began: a bookmark that says no more is not sent.
    began: u64,
    /// A table's columns were told: they are the same in every event.
    columns_told: bool,
    news: watch::Receiver<u64>,
    first: Option<Bytes>,
    ends: Instant,
    bookmark: Option<Instant>,
    over: bool,
    /// An event was dropped: the watch must not be renewed without a list.
    lost: bool,
    /// The request, as a gate knows it.
    call: Call,
    /// Nothing is told before this time, and then only what came of it all.
    held: Option<Instant>,
}

/// The events that are asked for, as they happen. Ends at the time-out, or with an error event when
/// the history no longer reaches back far enough.
pub(crate) fn stream(
    server: &Arc<Inner>,
    ask: Ask,
    view: View,
    call: Call,
) -> Result<impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + use<>, Refusal> {
    let mut watch = {
        let mut state = server.state();
        let now = Instant::now();
        let ends = now + ask.options.timeout.unwrap_or(LONGEST_WATCH);
        let asked = ask.options.resource_version;
        let mut watch = Watch {
            news: state.store.subscribe(&ask.kind().store),
            told: asked.unwrap_or_else(|| state.store.version()),
            began: state.store.version(),
            columns_told: false,
            first: None,
            ends,
            bookmark: ask.options.events.bookmarks.then(|| next_bookmark(now, ends)),
            over: false,
            lost: false,
            call,
            held: None,
            server: server.clone(),
            ask,
            view,
        };
        if asked.is_none() || watch.ask.options.events.initial {
            state.check_not_future(asked)?;
            watch.told = state.store.version();
            watch.first = watch.initial_events(&state);
        }
        watch
    };
    watch.news.mark_changed();
    Ok(futures::stream::unfold(watch, |mut watch| async {
        let lines = watch.next().await?;
        Some((Ok(Frame::data(lines)), watch))
    }))
}

impl Watch {
    /// The next lines; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.over {
            self.news.borrow_and_update();
            if let Some(lines) = self.fresh() {
                return Some(lines);
            }
            let wake = self.bookmark.map_or(self.ends, |bookmark| bookmark.min(self.ends));
            let release = self.held.unwrap_or(wake).min(wake);
            tokio::select! {
                biased;
                changed = self.news.changed(), if self.held.is_none() => {
                    if changed.is_err() { return None }
                }
                () = tokio::time::sleep_until(release) => {
                    if self.held.take_if(|held| *held <= Instant::now()).is_some() {
                        self.over = self.server.is_away(&self.call);
                        if self.over {
                            return None;
                        }
                        if let Some(lines) = self.summary() {
                            return Some(lines);
                        }
                        continue;
                    }
                    self.over = wake == self.ends;
                    if self.over && self.lost {
                        return Some(gone(self.told, self.told));
                    }
                    if self.bookmark.take_if(|due| !self.over && *due <= wake).is_some() {
                        self.bookmark = Some(next_bookmark(wake, self.ends));
                        if self.told > self.began {
                            return Some(self.tell_bookmark());
                        }
                    }
                }
            }
        }
        None
    }

    /// The lines of all changes since the last call that concern this watch.
    fn fresh(&mut self) -> Option<Bytes> {
        if self.held.is_some() {
            return None;
        }
        let server = self.server.clone();
        let state = server.state();
        let collection = state.store.collection(&self.ask.kind().store)?;
        if collection.forgotten > self.told {
            self.over = true;
            return Some(gone(self.told, collection.forgotten));
        }
        let mut lines = Vec::new();
        let mut told = state.store.version();
        for change in collection.changes_after(self.told) {
            let Some((event, object)) = concerns(&self.ask, change) else { continue };
            let delivery = server
                .gate
                .as_ref()
                .map_or(Delivery::Pass, |gate| gate.deliver(&self.call, event, &object));
            let now = server.clock.now();
            match delivery {
                Delivery::Pass => self.tell(&mut lines, event, &object, now),
                Delivery::Drop => self.lost = true,
                Delivery::Twice => {
                    self.tell(&mut lines, event, &object, now);
                    self.tell(&mut lines, event, &object, now);
                }
                Delivery::Coalesce(time) => {
                    self.held = Some(Instant::now() + time);
                    told = change.version - 1;
                    break;
                }
                Delivery::Cut => {
                    self.over = true;
                    break;
                }
                Delivery::Gone => {
                    self.over = true;
                    lines.extend_from_slice(&gone(self.told, told));
                    break;
                }
            }
        }
        // No write can happen meanwhile: all that is not of this collection is told as well. A
        // watch from a version to come waits for that one.
        self.told = self.told.max(told);
        if lines.is_empty() { None } else { Some(lines.into()) }
    }

    /// What became of each object since the last line, one event for each.
    fn summary(&mut self) -> Option<Bytes> {
        let server = self.server.clone();
        let state = server.state();
        let collection = state.store.collection(&self.ask.kind().store)?;
        if collection.forgotten > self.told {
            self.over = true;
            return Some(gone(self.told, collection.forgotten));
        }
        let mut changed: BTreeMap<&str, Change> = BTreeMap::new();
        for change in collection.changes_after(self.told) {
            let entry = changed.entry(uid_of(&change.object)).or_insert_with(|| change.clone());
            entry.object = change.object.clone();
            entry.kind = change.kind;
            entry.version = change.version;
        }
        let mut changed: Vec<Change> = changed.into_values().collect();
        changed.sort_by_key(|change| change.version);
        let mut lines = Vec::new();
        for change in &changed {
            if let Some((event, object)) = concerns(&self.ask, change) {
                self.tell(&mut lines, event, &object, server.clock.now());
            }
        }
        self.told = self.told.max(state.store.version());
        if lines.is_empty() { None } else { Some(lines.into()) }
    }

    /// A bookmark, unless something happened since the last look: then that.
    fn tell_bookmark(&mut self) -> Bytes {
        if let Some(lines) = self.fresh() {
            return lines;
        }
        let mut lines = Vec::new();
        self.mark(&mut lines, self.told, false, self.server.clock.now());
        lines.into()
    }

    /// An `ADDED` for everything that is there, and for those who asked for bookmarks the mark of
    /// their end.
    fn initial_events(&mut self, state: &State) -> Option<Bytes> {
        let mut lines = Vec::new();
        let now = self.ask.now;
        let target = self.ask.target.clone();
        for (_, object) in state.store.objects(&target.kind.store, target.namespace.as_deref()) {
            if selects(&self.ask, object) {
                self.tell(&mut lines, "ADDED", object, now);
            }
        }
        if self.ask.options.events.bookmarks {
            self.mark(&mut lines, state.store.version(), true, now);
        }
        if lines.is_empty() { None } else { Some(lines.into()) }
    }

    fn tell(&mut self, lines: &mut Vec<u8>, event: &str, object: &Arc<Value>, now: Timestamp) {
        let shown = self.view.one(self.ask.kind(), self.ask.target.version, object, now);
        self.show(lines, event, shown);
    }

    fn mark(&mut self, lines: &mut Vec<u8>, at: u64, initial_end: bool, now: Timestamp) {
        let version = self.ask.target.version;
        let shown = self.view.bookmark(self.ask.kind(), version, at, initial_end, now);
        self.show(lines, "BOOKMARK", Arc::new(shown));
    }

    fn show(&mut self, lines: &mut Vec<u8>, event: &str, mut shown: Arc<Value>) {
        if self.view.is_table() && std::mem::replace(&mut self.columns_told, true) {
            Arc::make_mut(&mut shown)["columnDefinitions"] = Value::Null;
        }
        line(lines, event, &shown);
    }
}

/// When the next bookmark is due: in a minute, or a moment before the end.
fn next_bookmark(now: Instant, ends: Instant) -> Instant {
    let last = ends.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
    let regular = now + BOOKMARK_INTERVAL;
    last.map_or(regular, |last| last.min(regular))
}

/// What a change is to a watch: an object that leaves the selection is deleted to it, and it sees
/// it as it was, at the version of the change.
fn concerns(ask: &Ask, change: &Change) -> Option<(&'static str, Arc<Value>)> {
    let selected = |object: &Arc<Value>| selects(ask, object);
    let after = change.kind != ChangeKind::Deleted && selected(&change.object);
    let before = change.previous.as_ref().filter(|object| selected(object));
    match (before, after) {
        (None, true) => Some(("ADDED", change.object.clone())),
        (Some(_), true) => Some(("MODIFIED", change.object.clone())),
        (Some(_), false) if change.kind == ChangeKind::Deleted => {
            Some(("DELETED", change.object.clone()))
        }
        (Some(was), false) => {
            let mut was = Value::clone(was);
            was["metadata"]["resourceVersion"] = json!(change.version.to_string());
            Some(("DELETED", Arc::new(was)))
        }
        (None, false) => None,
    }
}

fn selects(ask: &Ask, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let target = &ask.target;
    target.namespace.as_ref().is_none_or(|wanted| metadata["namespace"] == wanted.as_str())
        && target.name.as_ref().is_none_or(|wanted| metadata["name"] == wanted.as_str())
        && ask.options.selector.matches(object)
}

/// The event that says that the history does not reach back to what was told.
fn gone(told: u64, forgotten: u64) -> Bytes {
    let mut lines = Vec::new();
    line(&mut lines, "ERROR", &Refusal::expired(told, forgotten).body());
    lines.into()
}

fn line(lines: &mut Vec<u8>, event: &str, object: &Value) {
    lines.extend_from_slice(br#"{"type":""#);
    lines.extend_from_slice(event.as_bytes());
    lines.extend_from_slice(br#"","object":"#);
    serde_json::to_writer(&mut *lines, object).expect("memory takes all writes");
    lines.extend_from_slice(b"}\n");
}
