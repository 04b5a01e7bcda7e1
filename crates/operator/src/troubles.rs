//! What failed last, for each object, and when it is due again. In memory: losing it costs one try.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use applecart_core::{Outcome, Streak, Trouble};
use jiff::Timestamp;

/// How often in a row an effect may end without an answer, or be refused because the world had
/// moved on, before that is a trouble of its own: after a write of others once or twice is usual.
const USUAL: u32 = 3;

/// Doublings after which waits stay the same: 2⁶ times the first.
const MOST_DOUBLINGS: u32 = 6;

/// The last failure of each object.
#[derive(Debug)]
pub struct Troubles {
    first_wait: Duration,
    last: Mutex<BTreeMap<String, Failure>>,
}

#[derive(Clone, Debug)]
struct Failure {
    tried: &'static str,
    /// Nothing to tell yet, only to count.
    usual: bool,
    message: String,
    at: Timestamp,
    retry_at: Timestamp,
    too_early: bool,
    streaks: Vec<Streak>,
    /// What another effect failed with before.
    before: Option<Box<Failure>>,
}

impl Failure {
    /// This one, or what was before it, if that is of another effect than this.
    fn other_than(self, tried: &str) -> Option<Box<Self>> {
        if self.tried == tried {
            return self.before;
        }
        // No chain of them: two that fail in turn would make it longer each time.
        Some(Box::new(Self { before: None, streaks: Vec::new(), ..self }))
    }
}

impl Troubles {
    /// No failures yet; the first one waits this long, each further one twice as long.
    pub fn new(first_wait: Duration) -> Self {
        Self { first_wait, last: Mutex::default() }
    }

    /// The last failure of `key`.
    pub fn of(&self, key: &str) -> Option<Trouble> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = last.get(key).filter(|last| !last.usual)?.clone();
        let Failure { tried, message, at, retry_at, too_early, streaks, .. } = failure;
        Some(Trouble { tried, message, at, retry_at, too_early, streaks })
    }

    /// What follows from how an effect of `key` ended: when to look again. That a trouble was told
    /// (`told`) does not end it, unless it was that it could not be.
    pub fn settle(
        &self,
        key: &str,
        tried: &'static str,
        outcome: &Outcome,
        told: bool,
        now: Timestamp,
    ) -> Duration {
        match outcome {
            Outcome::Done if told => self.end(key, tried),
            Outcome::Done => self.clear(key),
            Outcome::Failed(said) => drop(self.note(key, 0, tried, said, now)),
            Outcome::TooEarly(said) => {
                self.note(key, 0, tried, said, now);
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                last.entry(key.to_owned()).and_modify(|failure| failure.too_early = true);
            }
            // The world is not as it was read, or may not be: look again, never in a hot loop.
            Outcome::Refused => {
                let why = "refused each time, because something else had changed";
                return self.note_usual(key, tried, why, now);
            }
            Outcome::Unknown => {
                let why = "no answer each time; it may have happened";
                return self.note_usual(key, tried, why, now);
            }
        }
        Duration::ZERO
    }

    /// Notes an effect that may be tried again soon, unless that went on for too long already.
    fn note_usual(&self, key: &str, tried: &'static str, said: &str, now: Timestamp) -> Duration {
        let usual = self.note(key, USUAL, tried, said, now);
        if usual { self.first_wait / 10 } else { Duration::ZERO }
    }

    /// Notes a failure, of which the first `usual` ones of this effect are only counted, and hide
    /// nothing that failed before; whether this was one of them.
    fn note(&self, key: &str, usual: u32, tried: &'static str, said: &str, now: Timestamp) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = last.remove(key);
        let mut streaks = earlier.as_ref().map_or(vec![], |earlier| earlier.streaks.clone());
        // Each effect waits for what it did itself: another that failed for an hour says nothing
        // about this one.
        let known = streaks.iter_mut().find(|streak| streak.tried == tried);
        let before = known.as_ref().map_or(0, |streak| streak.times);
        let is_usual = before < usual;
        let doublings = before.saturating_sub(usual).min(MOST_DOUBLINGS);
        let retry_at = now + self.first_wait.saturating_mul(1 << doublings);
        let own = if is_usual { now } else { retry_at };
        match known {
            Some(streak) => (streak.times, streak.retry_at) = (before.saturating_add(1), own),
            None => streaks.push(Streak { tried, since: now, times: 1, retry_at: own }),
        }
        let (lasting, earlier) = match earlier {
            Some(earlier) if is_usual && !earlier.usual => (Some(earlier), None),
            earlier => (None, earlier),
        };
        let fresh = |streaks| {
            let (message, at, too_early) = (format!("{tried}: {said}"), now, false);
            let before = earlier.and_then(|earlier| earlier.other_than(tried));
            Failure { tried, usual: is_usual, message, at, retry_at, too_early, streaks, before }
        };
        let failure = match lasting {
            Some(lasting) => Failure { streaks, ..lasting },
            None => fresh(streaks),
        };
        last.insert(key.to_owned(), failure);
        is_usual
    }

    /// This effect of `key` succeeded, which says nothing about its others.
    fn end(&self, key: &str, tried: &'static str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut failure) = last.remove(key) else { return };
        let mut streaks = std::mem::take(&mut failure.streaks);
        streaks.retain(|streak| streak.tried != tried);
        if let Some(other) = failure.other_than(tried) {
            last.insert(key.to_owned(), Failure { streaks, ..*other });
        }
    }

    /// An effect of `key` succeeded, or `key` is gone.
    pub fn clear(&self, key: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telling_of_a_trouble_does_not_end_it() {
        // LH21: else every failure is told, forgotten and repeated at once.
        let troubles = Troubles::new(Duration::from_secs(1));
        let now = Timestamp::from_second(1000).unwrap();
        troubles.settle("a", "try", &Outcome::Failed("no".into()), false, now);
        troubles.settle("a", "write the status", &Outcome::Done, true, now);
        assert!(troubles.of("a").is_some_and(|trouble| trouble.due_in(now).is_some()));
        troubles.settle("a", "try", &Outcome::Done, false, now);
        assert_eq!(troubles.of("a"), None);
    }

    #[test]
    fn what_could_not_be_told_is_no_trouble_once_it_was() {
        // G7: two leaders refuse each other's status, and one would tell so for ever.
        let troubles = Troubles::new(Duration::from_secs(1));
        let now = Timestamp::from_second(1000).unwrap();
        let fail = |tried| troubles.settle("a", tried, &Outcome::Failed("no".into()), false, now);
        fail("write the status");
        troubles.settle("a", "write the status", &Outcome::Done, true, now);
        assert_eq!(troubles.of("a"), None);
        fail("try");
        fail("write the status");
        troubles.settle("a", "write the status", &Outcome::Done, true, now);
        assert_eq!(troubles.of("a").map(|trouble| trouble.tried), Some("try"), "it lasts");
        fail("try");
        let trouble = troubles.of("a").expect("a trouble");
        assert_eq!(trouble.due_in(now), Some(Duration::from_secs(2)), "the second time");
    }

    #[test]
    fn waits_double_until_they_do_not_and_a_success_starts_afresh() {
        let troubles = Troubles::new(Duration::from_secs(1));
        let now = Timestamp::from_second(1000).unwrap();
        let mut waits = vec![];
        for _ in 0..9 {
            troubles.note("a", 0, "try", "no", now);
            waits.push(troubles.of("a").unwrap().retry_at.as_second() - 1000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(troubles.of("b"), None);
        troubles.clear("a");
        assert_eq!(troubles.of("a"), None);
    }

    #[test]
    fn what_fails_in_turn_is_counted_each_on_its_own_until_something_succeeds() {
        let troubles = Troubles::new(Duration::from_secs(1));
        let at = |second: i64| Timestamp::from_second(1000 + second).unwrap();
        for second in 0..6 {
            let said = Outcome::Failed("no".into());
            troubles.settle("a", "delete", &said, false, at(second * 360));
            troubles.settle("a", "schedule", &said, false, at(second * 60));
        }
        let lasts = |effect: &str, second: i64| {
            let trouble = troubles.of("a").expect("a trouble");
            trouble.lasts(&[effect], Duration::from_mins(30), at(second))
        };
        for effect in ["delete", "schedule"] {
            assert!(!lasts(effect, 1799) && lasts(effect, 1800), "{effect}");
        }
        troubles.settle("a", "delete", &Outcome::Done, false, at(1900));
        for _ in 0..5 {
            troubles.settle("a", "delete", &Outcome::Failed("no".into()), false, at(2000));
        }
        assert!(!lasts("delete", 9000), "five times are not often enough");
        assert!(!lasts("schedule", 9000), "it is forgotten");
    }

    #[test]
    fn a_failure_waits_by_its_own_count_and_hides_none_that_lasts() {
        let troubles = Troubles::new(Duration::from_secs(10));
        let now = Timestamp::from_second(1000).unwrap();
        for _ in 0..6 {
            troubles.settle("a", "rename the host", &Outcome::Failed("no".into()), false, now);
        }
        let again = troubles.settle("a", "write the status", &Outcome::Unknown, false, now);
        let trouble = troubles.of("a").expect("a trouble");
        assert_eq!((again, trouble.tried), (Duration::from_secs(1), "rename the host"));
        assert_eq!(trouble.due_in(now), Some(Duration::from_secs(320)));
        troubles.settle("a", "write a note", &Outcome::Failed("no".into()), false, now);
        let trouble = troubles.of("a").expect("a trouble");
        assert_eq!(trouble.due_in(now), Some(Duration::from_secs(10)), "its first failure");
        assert!(trouble.lasts(&["rename the host"], Duration::ZERO, now));
    }

    #[test]
    fn no_answer_again_and_again_is_told_and_waited_out() {
        let troubles = Troubles::new(Duration::from_secs(10));
        let now = Timestamp::from_second(1000).unwrap();
        for outcome in [Outcome::Unknown, Outcome::Refused, Outcome::Unknown] {
            let again = troubles.settle("a", "rename the host", &outcome, false, now);
            assert_eq!((again, troubles.of("a")), (Duration::from_secs(1), None));
        }
        let mut waits = vec![];
        for _ in 0..3 {
            troubles.settle("a", "rename the host", &Outcome::Unknown, false, now);
            let trouble = troubles.of("a").expect("told");
            assert!(trouble.message.starts_with("rename the host: no answer"), "{trouble:?}");
            waits.push(trouble.retry_at.as_second() - 1000);
        }
        assert_eq!(waits, [10, 20, 40]);
    }
}
