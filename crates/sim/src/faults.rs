//! Faults: every effect of the provider, whatever it is on, is numbered here, and the plan says
//! which one goes wrong and how.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::{kubernetes, mac, scaleway};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process dies before the effect.
    CrashBefore,
    /// The process dies after the effect, and never hears of it.
    CrashAfter,
    /// The effect does not happen, and the answer says so.
    Error,
    /// The effect is refused for lack of rights.
    Denied,
    /// The effect happens, and the answer is lost.
    LostAnswer,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::CrashBefore, Self::CrashAfter, Self::Error, Self::Denied, Self::LostAnswer];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CrashBefore => "crash before",
            Self::CrashAfter => "crash after",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::LostAnswer => "lost answer",
        })
    }
}

impl std::str::FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.to_string().replace(' ', "-") == text);
        found.ok_or_else(|| {
            "one of crash-before, crash-after, error, denied, lost-answer".to_owned()
        })
    }
}

/// The plan of one run, and the trace of what happened in it.
#[derive(Default)]
pub struct Faults {
    plan: Option<(usize, Fault)>,
    trace: Mutex<Vec<String>>,
    crash: Notify,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({:?}, {} effects so far)", self.plan, self.trace().len())
    }
}

impl Faults {
    /// The `effect`-th effect, from 0, meets `fault`; with no plan, none does.
    #[must_use]
    pub fn new(plan: Option<(usize, Fault)>) -> Arc<Self> {
        Arc::new(Self { plan, ..Self::default() })
    }

    /// Everything that happened, in order.
    pub fn trace(&self) -> MutexGuard<'_, Vec<String>> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the process shall die.
    pub async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Numbers an effect, and says what shall go wrong with it.
    fn pass(&self, what: &str) -> Option<Fault> {
        let mut trace = self.trace();
        let number = trace.len();
        let fault = self.plan.filter(|(planned, _)| *planned == number).map(|(_, fault)| fault);
        let mark = fault.map(|fault| format!("   ← {fault}")).unwrap_or_default();
        trace.push(format!("{what}{mark}"));
        if matches!(fault, Some(Fault::CrashBefore | Fault::CrashAfter)) {
            self.crash.notify_one();
        }
        fault
    }
}

/// The user name that the provider has in a world.
pub const PROVIDER: &str = "provider";

impl kubernetes::Gate for Faults {
    fn pass<'a>(&'a self, call: &'a kubernetes::Call) -> BoxFuture<'a, kubernetes::Verdict> {
        let ours = call.who.user.ends_with(PROVIDER);
        // Events are news, not state: losing one is no fault worth a run.
        let verdict = if ours && call.verb.mutates() && call.resource != "events" {
            match self.pass(&format!("kubernetes: {call}")) {
                None => kubernetes::Verdict::Pass,
                Some(Fault::CrashBefore) => kubernetes::Verdict::HangBefore,
                Some(Fault::CrashAfter | Fault::LostAnswer) => kubernetes::Verdict::HangAfter,
                Some(Fault::Error) => {
                    let why = "the simulated API server fails";
                    let refusal = kubernetes::Refusal::new(500, "InternalError", why);
                    kubernetes::Verdict::FailBefore(refusal)
                }
                Some(Fault::Denied) => {
                    let refusal = kubernetes::Refusal::new(403, "Forbidden", "not today");
                    kubernetes::Verdict::FailBefore(refusal)
                }
            }
        } else {
            kubernetes::Verdict::Pass
        };
        std::future::ready(verdict).boxed()
    }
}

impl scaleway::Gate for Faults {
    fn judge(&self, call: &scaleway::Call) -> scaleway::Verdict {
        if call.operation.is_read() {
            return scaleway::Verdict::Pass;
        }
        let server = call.server.as_ref().map(ToString::to_string).unwrap_or_default();
        match self.pass(&format!("scaleway: {} {server}", call.operation.label())) {
            None => scaleway::Verdict::Pass,
            Some(Fault::CrashBefore) => scaleway::Verdict::HangBefore,
            Some(Fault::CrashAfter) => scaleway::Verdict::HangAfter,
            Some(Fault::LostAnswer) => scaleway::Verdict::LoseAfter,
            Some(Fault::Error) => scaleway::Verdict::FailBefore(scaleway::Answer::html(502)),
            Some(Fault::Denied) => scaleway::Verdict::FailBefore(scaleway::Answer::html(403)),
        }
    }
}

impl mac::Gate for Faults {
    fn verdict(&self, effect: &mac::Effect) -> mac::Verdict {
        if !effect.mutates {
            return mac::Verdict::Pass;
        }
        match self.pass(&format!("mac: {}", effect.what)) {
            None => mac::Verdict::Pass,
            Some(Fault::CrashBefore) => mac::Verdict::HangBefore,
            Some(Fault::CrashAfter | Fault::LostAnswer) => mac::Verdict::HangAfter,
            Some(Fault::Error | Fault::Denied) => mac::Verdict::FailBefore,
        }
    }
}
