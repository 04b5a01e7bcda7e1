//! What was written, as it was sent: what is stored may be overwritten, and what was told stays
//! told.

use bytes::Bytes;

use super::fault::Class;
use super::trace::Process;
use super::{Faults, Plan, Recording};

/// What somebody wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The number of the step that it is, or of the next one.
    pub number: usize,
    /// Whose.
    pub process: Process,
    /// The call that carried it, in the words of a trace.
    pub call: String,
    /// The body of that call.
    pub body: Bytes,
}

impl Faults {
    /// Keeps what is written, but in a run without an end; and of heartbeats those in a quiet time,
    /// since a day of them is long and they repeat what they said before.
    pub(super) fn note(
        &self,
        class: Class,
        process: &Process,
        body: &Bytes,
        call: impl FnOnce() -> String,
    ) {
        let mut state = self.state();
        let endless = matches!(state.plan, Plan::Chaos { .. });
        let repeated = state.recording == Recording::Effects && class == Class::Heartbeat;
        if class == Class::Read || body.is_empty() || endless || repeated {
            return;
        }
        let (number, process, body) = (state.next, process.clone(), body.clone());
        state.told.push(Told { number, process, call: call(), body });
    }

    /// The first thing written of which that holds.
    pub fn find_told(&self, holds: impl Fn(&[u8]) -> bool) -> Option<Told> {
        self.state().told.iter().find(|told| holds(&told.body)).cloned()
    }
}
