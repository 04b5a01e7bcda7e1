//! Who may act: the pure part of leader election by a Lease. No I/O here.
//!
//! # Guarantees
//! - Somebody else's Lease is taken only when it has not changed for its whole duration, by a
//!   clock of ours that nobody sets: clocks of two machines are never compared.
//! - A leader that could not renew for [`RENEW_WITHIN`] stops before anybody else may begin.
//!
//! A Lease does not fence: what a host needs beyond it is in `machine`.

use std::time::Duration;

/// How long a Lease is good for after its last renewal.
pub const GOOD_FOR: Duration = Duration::from_secs(15);
/// A leader that could not renew for so long is none any more.
pub const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// How often the Lease is looked at and renewed.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The Lease, and since when it has looked like this to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Who holds it; nobody if empty or absent.
    pub holder: Option<String>,
    /// How long it says that it is good for.
    pub good_for: Duration,
    /// How long it has looked to us as it does now, by a clock that nobody sets.
    pub unchanged_for: Duration,
}

/// What to do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody holds it, or its holder is gone: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// This one holds it: stand by.
    StandBy(String),
}

/// Decides one look at the Lease.
#[must_use]
pub fn decide(us: &str, seen: &Observed) -> Decision {
    match seen.holder.as_deref().filter(|holder| !holder.is_empty()) {
        None => Decision::Take,
        Some(holder) if holder == us => Decision::Renew,
        Some(_) if seen.unchanged_for >= seen.good_for => Decision::Take,
        Some(holder) => Decision::StandBy(holder.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, seconds: u64) -> Observed {
        let holder = Some(holder.to_owned());
        Observed { holder, good_for: GOOD_FOR, unchanged_for: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_lease_is_taken_only_from_a_holder_who_was_silent_for_its_whole_duration() {
        let nobody = Observed { holder: None, ..held_by("", 0) };
        for (seen, expected) in [
            (nobody, Decision::Take),
            (held_by("", 0), Decision::Take),
            (held_by("us", 0), Decision::Renew),
            (held_by("us", 99), Decision::Renew),
            (held_by("them", 0), Decision::StandBy("them".into())),
            (held_by("them", 14), Decision::StandBy("them".into())),
            (held_by("them", 15), Decision::Take),
        ] {
            assert_eq!(decide("us", &seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_leader_stops_before_another_may_begin() {
        assert!(RENEW_WITHIN + LOOK_EVERY < GOOD_FOR);
    }
}
