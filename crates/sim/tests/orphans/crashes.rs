//! A return, once for every effect and every fault that it can meet: names and Leases alone tell
//! where it was left.

use std::sync::Arc;

use applecart_sim::faults::{Ahead, Class, Fault, Faults, Plan, Step, table};

use crate::stage::{Stage, minutes};

/// A stray whose object is gone, one that owns its host, and somebody else's.
const HOSTS: [&str; 4] = ["macs-stray", "macs-owned", "someone-elses-mac", "tuist-pool-1"];

/// Plays a return in which these steps go wrong; what is not as it should be at its end.
async fn play(plan: Vec<(usize, Fault)>) -> (Vec<Step>, Result<(), String>) {
    let chosen = move |ahead: &Ahead| {
        let planned = plan.iter().find(|(number, _)| *number == ahead.number);
        planned.map(|(_, fault)| *fault)
    };
    let faults = Faults::new(Plan::Chosen(Box::new(chosen)));
    let stage = Stage::with_faults(&HOSTS, Some(Arc::clone(&faults)));
    let (stray, owned) = (stage.host(HOSTS[0]), stage.host(HOSTS[1]));
    let uid = stage.object(HOSTS[1], Some(&owned)).await;
    stage.hold(&owned, &format!("default/macs-owned/{uid}")).await;
    stage.hold(&stray, "default/macs-stray/gone").await;
    // Two sightings, a crash that forgets them, and two more.
    stage.run(stage.after(minutes(80))).await;
    let mut expected = HOSTS.map(str::to_owned);
    expected[0] = format!("tuist-pool-{stray}");
    let wipes = stage.wipes();
    let ended = if stage.names() != expected {
        Err(format!("hosts are called {:?}", stage.names()))
    } else if wipes[0] == 0 || wipes[1..] != [0; 3] {
        Err(format!("hosts were wiped {wipes:?} times"))
    } else if stage.lease(&stray).0.is_some() || stage.lease(&owned).0.is_none() {
        Err(format!("Leases: {:?}, {:?}", stage.lease(&stray), stage.lease(&owned)))
    } else {
        Ok(())
    };
    (faults.look(<[Step]>::to_vec), ended)
}

#[tokio::test(start_paused = true)]
async fn a_return_ends_well_whatever_happens_to_each_of_its_effects() {
    let (steps, calm) = play(vec![]).await;
    assert_eq!(calm, Ok(()), "{}", table(&steps));
    let effects: Vec<&Step> = steps.iter().filter(|step| step.class == Class::Effect).collect();
    // Free the Lease, take it, mark, note that a wipe is asked for, wipe, note that it runs, rename
    // into the pool, free.
    assert_eq!(effects.len(), 8, "{}", table(effects));
    let mut plans = 0;
    for effect in effects {
        for fault in effect.possible() {
            let (steps, ended) = play(vec![(effect.number, *fault)]).await;
            assert_eq!(ended, Ok(()), "{fault} at {}:\n{}", effect.number, table(&steps));
            plans += 1;
        }
    }
    assert!(plans >= 50, "{plans} plans");
}

#[tokio::test(start_paused = true)]
async fn no_stale_or_failed_read_makes_the_sweep_touch_what_is_owned() {
    let (steps, _) = play(vec![]).await;
    // From the second sighting on: before it, nothing follows from a read.
    let due = |step: &&Step| (minutes(15)..minutes(16)).contains(&step.at);
    let reads: Vec<&Step> = steps.iter().filter(|s| s.class == Class::Read).filter(due).collect();
    assert!(reads.len() >= 10, "{} reads", reads.len());
    for read in reads {
        for fault in read.possible() {
            let (steps, ended) = play(vec![(read.number, *fault)]).await;
            assert_eq!(ended, Ok(()), "{fault} at {}:\n{}", read.number, table(&steps));
        }
    }
}
