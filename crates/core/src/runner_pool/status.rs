//! What we tell people. Derived from what was seen and decided; can be wiped and rebuilt.

use applecart_api::condition::{Says, set};
use applecart_api::runner_pool::RunnerPoolStatus;
use jiff::Timestamp;

use super::decide::{Decision, Reason};
use super::observed::{Observed, RunnerState};

/// The status that goes with this turn. Nothing in it moves by itself (LH25).
#[must_use]
pub fn status(now: Timestamp, seen: &Observed, decision: &Decision) -> RunnerPoolStatus {
    let mut status = seen.pool.status.clone();
    let count = |state: RunnerState| {
        let alive = seen.runners.iter().filter(|r| r.is_alive() && r.state == state).count();
        i64::try_from(alive).unwrap_or(i64::MAX)
    };
    let (idle, busy) = (count(RunnerState::Idle), count(RunnerState::Busy));
    status.observed_replicas = Some(idle + busy + count(RunnerState::Starting));
    status.idle_replicas = Some(idle);
    status.busy_replicas = Some(busy);
    status.last_reason = Some(decision.reason.to_string());
    status.observed_generation = seen.pool.generation;
    let image = &seen.pool.spec.image;
    if seen.pool.unreadable.is_none() && status.observed_image.as_ref() != Some(image) {
        status.observed_image = Some(image.clone());
        status.image_rolled_at = Timestamp::from_second(now.as_second()).ok();
    }
    let warm = decision.reason == Reason::Warm;
    let says = Says {
        type_: "Ready",
        status: if warm { "True" } else { "False" },
        reason: decision.reason.word(),
        message: if warm { String::new() } else { decision.reason.to_string() },
    };
    set(&mut status.conditions, says, seen.pool.generation, now);
    status
}

#[cfg(test)]
mod tests {
    use applecart_api::runner_pool::RunnerPoolSpec;

    use super::super::observed::Pool;
    use super::*;

    #[test]
    fn the_image_rolled_when_it_changed_and_at_no_other_time() {
        // R2: the roll timestamp moves only when the image moves.
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut seen = Observed {
            pool: Pool {
                name: "p".into(),
                generation: Some(1),
                finalizer: true,
                deleting: false,
                spec: RunnerPoolSpec { image: "one".into(), ..RunnerPoolSpec::default() },
                unreadable: None,
                status: RunnerPoolStatus::default(),
            },
            runners: vec![],
            accounts: vec![],
            fresh_name: String::new(),
            contested_until: None,
            trouble: None,
        };
        let warm = Decision { action: None, wake: None, reason: Reason::Warm };
        seen.pool.status = status(at(10), &seen, &warm);
        seen.pool.status = status(at(20), &seen, &warm);
        assert_eq!(seen.pool.status.image_rolled_at, Some(at(10)));
        seen.pool.spec.image = "two".into();
        seen.pool.status = status(at(30), &seen, &warm);
        assert_eq!(seen.pool.status.image_rolled_at, Some(at(30)));
        assert_eq!(seen.pool.status.observed_image.as_deref(), Some("two"));
    }
}
