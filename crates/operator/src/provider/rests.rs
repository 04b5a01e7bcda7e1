//! Who rests, and until when. What an object's watch shows of our own writes is nothing new, and
//! wakes nobody (LH25). In memory: losing it costs a turn.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What each object does, by its key.
#[derive(Debug, Default)]
pub struct Rests(Mutex<BTreeMap<String, State>>);

/// When somebody who rests is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Then, or when anything new is told.
    At(Instant),
    /// Only when anything new is told.
    OnNews,
}

impl Due {
    /// So long from now; never by itself, if that is nothing.
    pub fn after(wait: Option<Duration>) -> Self {
        wait.map_or(Self::OnNews, |wait| Self::At(Instant::now() + wait))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It takes its turns; whether anything new was told meanwhile.
    Works { woken: bool },
    /// It waits.
    Rests(Due),
}

impl Rests {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its turns begin.
    pub fn begin(&self, key: &str) {
        self.all().insert(key.to_owned(), State::Works { woken: false });
    }

    /// Its turns are over, and it is due then: unless anything new was told meanwhile.
    pub fn rest(&self, key: &str, due: Due) {
        let mut all = self.all();
        if all.get(key) == Some(&State::Works { woken: false }) {
            all.insert(key.to_owned(), State::Rests(due));
        }
    }

    /// Something else than its own object told something new.
    pub fn wake(&self, key: &str) {
        let mut all = self.all();
        match all.get_mut(key) {
            Some(State::Works { woken }) => *woken = true,
            Some(State::Rests(_)) => drop(all.remove(key)),
            None => {}
        }
    }

    /// It is gone, or nobody knows what it waits for.
    pub fn forget(&self, key: &str) {
        self.all().remove(key);
    }

    /// When it is due, if it rests and that is not yet.
    pub fn until(&self, key: &str) -> Option<Due> {
        match self.all().get(key)? {
            State::Rests(Due::At(due)) if *due <= Instant::now() => None,
            State::Rests(due) => Some(*due),
            State::Works { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_rests_is_woken_by_time_and_by_others() {
        let rests = Rests::default();
        let due = Due::after(Some(Duration::from_secs(10)));
        assert_eq!(rests.until("a"), None, "nothing is known of it");
        rests.begin("a");
        assert_eq!(rests.until("a"), None, "it works");
        rests.rest("a", due);
        assert_eq!(rests.until("a"), Some(due));
        rests.wake("a");
        assert_eq!(rests.until("a"), None, "its Node changed");
        rests.begin("a");
        rests.rest("a", due);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(rests.until("a"), None, "it is due");
        rests.begin("a");
        rests.rest("a", Due::OnNews);
        tokio::time::sleep(Duration::from_hours(24)).await;
        assert_eq!(rests.until("a"), Some(Due::OnNews));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_during_its_turns_is_looked_at_after_them() {
        // Else it would be seen only when the rest is over (K12).
        let rests = Rests::default();
        rests.begin("a");
        rests.wake("a");
        rests.rest("a", Due::OnNews);
        assert_eq!(rests.until("a"), None);
    }
}
