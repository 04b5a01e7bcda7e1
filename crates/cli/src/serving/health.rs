//! `/healthz` and `/readyz`: what is known of this process, and how old that is.
//!
//! Alive means that its election still turns: a restart mends nothing else. An API server that is
//! away makes it not ready, and keeps it alive: restarts would not bring it back.

use std::fmt::Write;
use std::time::Duration;

use applecart_core::leader::GOOD_FOR;
use applecart_operator::leader::{Beat, Pulse};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::time::Instant;

/// A look at the Lease is due every 2 s and is cut off after 15 s: one that did not end for so
/// long never will.
const LOOKS_WITHIN: Duration = Duration::from_mins(1);
/// An API server that was not heard of for so long is away: longer than one call that timed out.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// What the pages are answered from.
#[derive(Clone)]
pub struct Health {
    pulse: Pulse,
    elects: bool,
    started: Instant,
}

impl Health {
    /// Health of a process that starts now.
    pub fn new(pulse: Pulse, elects: bool) -> Self {
        Self { pulse, elects, started: Instant::now() }
    }

    /// The two pages: 200 or 503, with one line for each thing that was checked.
    pub fn pages(self) -> Router {
        let (alive, ready) = (self.clone(), self);
        Router::new()
            .route("/healthz", get(move || std::future::ready(alive.page(Health::alive))))
            .route("/readyz", get(move || std::future::ready(ready.page(Health::ready))))
    }

    fn page(&self, check: fn(&Self, &Beat, Instant, &mut String) -> bool) -> (StatusCode, String) {
        let mut text = String::new();
        let well = check(self, &self.pulse.beat(), Instant::now(), &mut text);
        (if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
    }

    fn alive(&self, beat: &Beat, now: Instant, text: &mut String) -> bool {
        let silent = now - beat.looked.unwrap_or(self.started);
        line(text, "election", &format!("last looked at the API server {} ago", seconds(silent)));
        let overdue = beat.renewed.map(|renewed| now - renewed).filter(|age| *age > GOOD_FOR);
        if let Some(age) = overdue {
            line(text, "leader", &format!("not renewed for {}, should have ended", seconds(age)));
        }
        silent <= LOOKS_WITHIN && overdue.is_none()
    }

    fn ready(&self, beat: &Beat, now: Instant, text: &mut String) -> bool {
        let silent = beat.answered.map(|answered| now - answered);
        let answers = match silent {
            None => "no answer yet".to_owned(),
            Some(age) if age > ANSWERS_WITHIN => format!("no answer for {}", seconds(age)),
            Some(age) => format!("answered {} ago", seconds(age)),
        };
        line(text, "kubernetes", &answers);
        let leads = match (beat.renewed, &beat.holder) {
            _ if !self.elects => "no election: --leader-elect=false".to_owned(),
            (Some(renewed), _) => format!("leading, renewed {} ago", seconds(now - renewed)),
            (None, Some(holder)) => format!("standing by: {holder} leads"),
            (None, None) => "standing by: nobody leads yet".to_owned(),
        };
        line(text, "leader", &leads);
        silent.is_some_and(|age| age <= ANSWERS_WITHIN)
    }
}

fn line(text: &mut String, what: &str, how: &str) {
    writeln!(text, "{what}: {how}").expect("a String takes everything");
}

fn seconds(age: Duration) -> String {
    format!("{} s", age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told {
        alive: (bool, String),
        ready: (bool, String),
    }

    /// What the pages say 100 s after the start of a process, for ages in seconds.
    fn told(elects: bool, ages: [Option<u64>; 3], holder: Option<&str>) -> Told {
        let started = Instant::now();
        let now = started + Duration::from_secs(100);
        let [looked, answered, renewed] =
            ages.map(|age| age.map(|seconds| now - Duration::from_secs(seconds)));
        let health = Health { pulse: Pulse::default(), elects, started };
        let beat = Beat { looked, answered, renewed, holder: holder.map(str::to_owned) };
        let say = |check: fn(&Health, &Beat, Instant, &mut String) -> bool| {
            let mut text = String::new();
            (check(&health, &beat, now, &mut text), text)
        };
        Told { alive: say(Health::alive), ready: say(Health::ready) }
    }

    #[test]
    fn a_leader_is_alive_and_ready_while_it_renews() {
        // O4
        let Told { alive, ready } = told(true, [Some(1), Some(1), Some(2)], None);
        assert_eq!(alive, (true, "election: last looked at the API server 1 s ago\n".into()));
        let lines = "kubernetes: answered 1 s ago\nleader: leading, renewed 2 s ago\n";
        assert_eq!(ready, (true, lines.into()));
    }

    #[test]
    fn a_leader_that_renews_no_more_and_still_runs_is_to_be_restarted() {
        let Told { alive, .. } = told(true, [Some(1), Some(1), Some(16)], None);
        assert!(!alive.0 && alive.1.contains("leader: not renewed for 16 s"), "{alive:?}");
    }

    #[test]
    fn one_who_stands_by_is_ready_and_says_who_leads() {
        let Told { alive, ready } = told(true, [Some(1), Some(1), None], Some("provider-0"));
        assert!(alive.0 && ready.0);
        assert!(ready.1.contains("leader: standing by: provider-0 leads"), "{ready:?}");
    }

    #[test]
    fn an_api_server_that_is_away_makes_it_unready_and_leaves_it_alive() {
        let Told { alive, ready } = told(true, [Some(5), Some(31), None], Some("provider-0"));
        assert!(alive.0, "{alive:?}");
        assert!(!ready.0 && ready.1.contains("kubernetes: no answer for 31 s"), "{ready:?}");
        let Told { ready, .. } = told(true, [Some(5), None, None], None);
        assert!(!ready.0 && ready.1.contains("no answer yet"), "{ready:?}");
    }

    #[test]
    fn an_election_that_turns_no_more_is_to_be_restarted() {
        let Told { alive, .. } = told(true, [Some(61), Some(61), None], None);
        assert!(!alive.0 && alive.1.contains("61 s"), "{alive:?}");
        let Told { alive, .. } = told(true, [None, None, None], None);
        assert!(!alive.0, "it never looked, in 100 s: {alive:?}");
    }

    #[test]
    fn without_an_election_the_page_says_so() {
        let Told { alive, ready } = told(false, [Some(1), Some(1), None], None);
        assert!(alive.0 && ready.0);
        assert!(ready.1.contains("leader: no election"), "{ready:?}");
    }
}
