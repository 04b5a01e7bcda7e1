//! What Scaleway last said of each host, for a while: a turn that only notes or tells something
//! need not ask again. In memory: losing it costs a read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::ids::ServerId;
use applecart_core::Outcome;
use applecart_core::machine::{Action, Host};
use secrecy::SecretString;
use tokio::time::Instant;

/// The last read of each host.
pub struct Reads {
    remember: Duration,
    last: Mutex<BTreeMap<ServerId, Read>>,
}

/// A host as Scaleway told it.
#[derive(Clone)]
pub struct Read {
    /// When it was asked for: what it tells is at least as new.
    pub at: Instant,
    /// The host.
    pub host: Host,
    /// User and password.
    pub login: Option<(String, SecretString)>,
}

impl Reads {
    /// Each is remembered for so long.
    pub fn new(remember: Duration) -> Self {
        Self { remember, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<ServerId, Read>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last read of a host, while it counts.
    pub fn of(&self, server: &ServerId) -> Option<Read> {
        self.last().get(server).filter(|read| read.at.elapsed() < self.remember).cloned()
    }

    /// Remembers a read, unless a newer one is.
    pub fn note(&self, read: Read) {
        let mut last = self.last();
        // So that there are never more than were read within that time.
        last.retain(|_, read| read.at.elapsed() < self.remember);
        if last.get(&read.host.id).is_none_or(|known| known.at <= read.at) {
            last.insert(read.host.id.clone(), read);
        }
    }

    /// The host changes, or may have.
    pub fn forget(&self, server: &ServerId) {
        self.last().remove(server);
    }

    /// What is remembered of a host does not outlive a change of it, nor an effect of which nobody
    /// knows whether it happened.
    pub async fn during(
        &self,
        server: Option<&ServerId>,
        action: &Action,
        performed: impl Future<Output = Outcome>,
    ) -> Outcome {
        let forget = || server.iter().for_each(|server| self.forget(server));
        if action.changes_host() {
            // Before it: we may never hear how it ends.
            forget();
        }
        let outcome = performed.await;
        if outcome == Outcome::Unknown {
            forget();
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use applecart_core::machine::HostState;

    use super::*;

    fn read(id: u32, name: &str) -> Read {
        let host = Host {
            id: format!("5fb0ab06-2ab7-4ef5-8bb8-{id:012}").parse().expect("an id"),
            name: name.to_owned(),
            state: HostState::Ready,
            delivered: true,
            retiring: false,
            server_type: "M2-L".to_owned(),
            os: None,
            address: None,
            has_password: false,
            changed_at: None,
        };
        Read { at: Instant::now(), host, login: None }
    }

    fn name(reads: &Reads, of: &Read) -> Option<String> {
        reads.of(&of.host.id).map(|read| read.host.name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_counts_for_its_time_and_is_dropped_after_it() {
        let reads = Reads::new(Duration::from_mins(1));
        let (one, other) = (read(1, "one"), read(2, "other"));
        reads.note(one.clone());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(name(&reads, &one).as_deref(), Some("one"));
        assert_eq!(name(&reads, &other), None);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(name(&reads, &one), None);
        reads.note(read(2, "other"));
        assert_eq!(reads.last().len(), 1, "a password is not kept for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_is_not_told_again() {
        let reads = Reads::new(Duration::from_mins(1));
        let (one, other) = (read(1, "one"), read(2, "other"));
        reads.note(one.clone());
        reads.note(other.clone());
        reads.forget(&one.host.id);
        assert_eq!(name(&reads, &one), None);
        assert_eq!(name(&reads, &other).as_deref(), Some("other"));
    }

    /// What is remembered while an effect is performed, and after it.
    async fn around(action: fn(ServerId) -> Action, outcome: Outcome) -> [bool; 2] {
        let reads = Reads::new(Duration::from_mins(1));
        let one = read(1, "one");
        reads.note(one.clone());
        let server = &one.host.id;
        let mut meanwhile = false;
        let performed = async {
            meanwhile = reads.of(server).is_some();
            outcome
        };
        reads.during(Some(server), &action(server.clone()), performed).await;
        [meanwhile, reads.of(server).is_some()]
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_forgotten_before_it_changes_and_when_nobody_knows_what_happened() {
        assert_eq!(around(Action::Reboot, Outcome::Done).await, [false, false]);
        assert_eq!(around(Action::NoteMarked, Outcome::Done).await, [true, true]);
        assert_eq!(around(Action::NoteMarked, Outcome::Refused).await, [true, true]);
        assert_eq!(around(Action::NoteMarked, Outcome::Unknown).await, [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_read_does_not_take_the_place_of_a_newer_one() {
        // A list is begun before a read of one of its hosts, and may be whole after it.
        let reads = Reads::new(Duration::from_mins(1));
        let listed = read(1, "listed");
        tokio::time::sleep(Duration::from_secs(1)).await;
        reads.note(read(1, "read"));
        reads.note(listed.clone());
        assert_eq!(name(&reads, &listed).as_deref(), Some("read"));
    }
}
