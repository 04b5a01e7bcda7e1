//! A process of its own for a run. Its trace must not depend on what ran before it, and some of
//! that outlives a thread: tokio seeds what it draws at random from a counter of the process.

use std::io::{Read, Write, pipe};
use std::sync::{Mutex, PoisonError};
use std::thread;

use applecart_entropy::{Side, end, fork};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Held while processes part, so that none keeps the pipe of another open.
static PARTING: Mutex<()> = Mutex::new(());

/// Does `work` in a process of its own, on a fresh thread: hash maps take their keys from the
/// thread's first. `None` if it panicked or its process died.
pub fn apart<T>(work: impl FnOnce() -> T + Send + 'static) -> Option<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let parting = PARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut told, mut tell) = pipe().expect("a pipe");
    let id = match fork().expect("another process") {
        Side::Parent(id) => id,
        Side::Child => {
            let done = thread::spawn(work).join().ok().and_then(|done| to_text(&done));
            end(i32::from(done.is_none_or(|text| tell.write_all(&text).is_err())))
        }
    };
    drop((parting, tell));
    let mut text = Vec::new();
    let read = told.read_to_end(&mut text);
    // It is done: nothing is left of it but its id.
    let _ended = waitpid(Pid::from_raw(id), WaitOptions::empty());
    read.ok().and_then(|_| from_text(&text))
}

/// What one process tells another.
pub fn to_text(value: &impl Serialize) -> Option<Vec<u8>> {
    serde_json::to_vec(value).ok()
}

/// What another process told.
pub fn from_text<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tokio draws on a fresh runtime shows in the order of many who wait for one thing.
    fn drawn() -> Vec<usize> {
        applecart_entropy::seed(7);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (sender, _) = tokio::sync::watch::channel(());
            let order = std::sync::Arc::new(Mutex::new(Vec::new()));
            let mut all = tokio::task::JoinSet::new();
            for waiter in 0..16 {
                let (mut receiver, order) = (sender.subscribe(), order.clone());
                all.spawn(async move {
                    let _ = receiver.changed().await;
                    order.lock().expect("no panic").push(waiter);
                });
            }
            tokio::task::yield_now().await;
            sender.send_replace(());
            while all.join_next().await.is_some() {}
            order.lock().expect("no panic").clone()
        })
    }

    #[test]
    fn what_ran_before_does_not_show_in_a_process_of_its_own() {
        let alone = apart(drawn).expect("an order");
        assert_eq!(apart(drawn), Some(alone.clone()));
        let after_another = apart(|| (0..8).map(|_| drawn()).collect::<Vec<_>>()).expect("orders");
        assert_eq!(after_another[0], alone);
        assert!(after_another.iter().any(|order| *order != alone), "nothing is drawn at random");
    }

    #[test]
    fn a_panic_ends_that_process_alone() {
        assert_eq!(apart(|| -> u8 { panic!("as planned") }), None);
    }
}
