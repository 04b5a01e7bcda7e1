//! Lists are whole while others create and delete.

#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use applecart_api::ids::ServerId;
use applecart_sim::scaleway::{Call, Gate, HostSpec, Operation, Scaleway, Settings, Verdict};
use proptest::prelude::*;
use scaleway_world::{clock, zone};

/// What others do before a page is read.
#[derive(Clone, Debug)]
enum Change {
    /// Delete the host at this place of the list, counted as a share of a thousand.
    Delete(usize),
    Create,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![(0_usize..1_000).prop_map(Change::Delete), Just(Change::Create)]
}

/// Changes the account right before each page.
#[derive(Default)]
struct Busy {
    scaleway: OnceLock<Scaleway>,
    /// For each page to come, last first.
    changes: Mutex<Vec<Vec<Change>>>,
}

impl Gate for Busy {
    fn judge(&self, call: &Call) -> Verdict {
        assert_eq!(call.operation, Operation::ListServers);
        let scaleway = self.scaleway.get().expect("set before the first call");
        for change in self.changes.lock().unwrap().pop().unwrap_or_default() {
            match change {
                Change::Delete(share) => {
                    let hosts = scaleway.hosts();
                    if let Some(host) = hosts.get(share * hosts.len() / 1_000) {
                        scaleway.delete_host(&host.id);
                    }
                }
                Change::Create => {
                    scaleway.order_host(&new_host());
                }
            }
        }
        Verdict::Pass
    }
}

fn new_host() -> HostSpec {
    HostSpec { ordered_ago: Duration::ZERO, ..HostSpec::named("box") }
}

fn ids(scaleway: &Scaleway) -> BTreeSet<ServerId> {
    scaleway.hosts().into_iter().map(|host| host.id).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_was_there_throughout_is_listed_exactly_once(
        hosts in 0_usize..60,
        page_size in 1_usize..12,
        changes in prop::collection::vec(prop::collection::vec(change(), 0..6), 0..70),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let busy = Arc::new(Busy::default());
            let settings = Settings { max_page_size: page_size, ..Settings::new(1) };
            let scaleway = Scaleway::with_gate(settings, clock(), busy.clone());
            for _ in 0..hosts {
                scaleway.order_host(&new_host());
            }
            let before = ids(&scaleway);
            *busy.changes.lock().unwrap() = changes;
            assert!(busy.scaleway.set(scaleway.clone()).is_ok());
            let listed = scaleway.client().list_servers(&zone()).await.unwrap();
            let after = ids(&scaleway);
            let distinct: BTreeSet<ServerId> =
                listed.iter().map(|server| server.id.clone()).collect();
            prop_assert_eq!(distinct.len(), listed.len(), "nothing is repeated");
            let throughout: BTreeSet<ServerId> = before.intersection(&after).cloned().collect();
            prop_assert!(throughout.is_subset(&distinct), "nothing is lost");
            let sorted = listed.is_sorted_by_key(|server| server.created_at);
            prop_assert!(sorted, "in order of creation");
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_contradicts_itself_is_an_error_and_not_an_empty_list() {
    use applecart_scaleway::ErrorKind;
    use applecart_sim::scaleway::{Answer, Rule};
    // P10: what we could not read is not "none".
    let scaleway = scaleway_world::world(Settings::new(1));
    let body = serde_json::json!({"total_count": 7, "servers": []});
    let answer = Verdict::FailBefore(Answer::ok(&body));
    scaleway.add_rule(Rule::next(Operation::ListServers, answer));
    let error = scaleway.client().list_servers(&zone()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Other);
}
