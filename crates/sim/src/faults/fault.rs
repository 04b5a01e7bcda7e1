//! What can go wrong, and where. No I/O.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// What goes wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name, on a command line and in a trace.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

faults! {
    /// The process dies before the effect.
    CrashBefore = "crash-before";
    /// The process dies in the middle of an effect that takes its time, and cuts it short.
    CrashDuring = "crash-during";
    /// The process dies after the effect, and never hears of it.
    CrashAfter = "crash-after";
    /// The call does not happen, and the answer says so.
    Error = "error";
    /// The call is refused for lack of rights.
    Denied = "denied";
    /// The write is refused as if somebody else had written in between.
    Conflict = "conflict";
    /// The call does not happen, and no answer comes in time.
    TimeOut = "time-out";
    /// The effect happens, and the answer is lost.
    LostAnswer = "lost-answer";
    /// The effect happens some seconds after the caller was told that nobody knows.
    Late = "late";
    /// The call takes eight seconds to arrive; its caller waits, others do not.
    Slow = "slow";
    /// The command ends with a status that is not 0, and did nothing.
    Fails = "fails";
    /// The Mac loses its power before the call, and boots.
    Reboot = "reboot";
    /// The read does not see the last minute.
    Stale = "stale";
    /// The event never arrives; the watch is listed anew when its time is up.
    Drop = "drop";
    /// The event arrives twice.
    Twice = "twice";
    /// Nothing arrives for half a minute, and then only what came of it.
    Coalesce = "coalesce";
    /// The watch ends before the event.
    Cut = "cut";
    /// The server has forgotten the history (410).
    Gone = "gone";
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|fault| fault.word() == text);
        found.ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|fault| fault.word()).collect();
            format!("no such fault; one of {}", words.join(", "))
        })
    }
}

/// Who is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Edge {
    /// The API server.
    Kubernetes,
    /// Scaleway's API.
    Scaleway,
    /// A Mac over SSH.
    Ssh,
    /// Tart, on a Mac.
    Tart,
    /// GitHub's API.
    Github,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubernetes => "kubernetes",
            Self::Scaleway => "scaleway",
            Self::Ssh => "ssh",
            Self::Tart => "tart",
            Self::Github => "github",
        })
    }
}

/// What kind of a call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// It may change something.
    Effect,
    /// It says only that somebody is alive.
    Heartbeat,
    /// It changes nothing.
    Read,
    /// An event of a watch, on its way to a process.
    Event,
}

/// What there is to know of a call beside its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Terms {
    /// Nothing.
    Plain,
    /// A write that names the version or the uid that it is meant for.
    Conditional,
    /// A read that no older answer could stand for: a watch, or one that nobody asked within the
    /// last minute.
    Fresh,
}

/// What can go wrong with a call.
#[must_use]
pub fn possible(edge: Edge, class: Class, terms: Terms) -> &'static [Fault] {
    use Fault::{
        Coalesce, Conflict, CrashAfter, CrashBefore, CrashDuring, Cut, Denied, Drop, Error, Fails,
        Gone, Late, LostAnswer, Reboot, Slow, Stale, TimeOut, Twice,
    };
    match (class, edge) {
        (Class::Effect | Class::Heartbeat, Edge::Kubernetes) if terms == Terms::Conditional => {
            &[CrashBefore, CrashAfter, Error, Denied, Conflict, TimeOut, LostAnswer, Late, Slow]
        }
        (Class::Effect | Class::Heartbeat, Edge::Kubernetes | Edge::Scaleway | Edge::Github) => {
            &[CrashBefore, CrashAfter, Error, Denied, TimeOut, LostAnswer, Late, Slow]
        }
        (Class::Effect | Class::Heartbeat, Edge::Ssh) => {
            &[CrashBefore, CrashAfter, Error, Fails, TimeOut, LostAnswer, Late, Reboot]
        }
        (Class::Effect | Class::Heartbeat, Edge::Tart) => {
            &[CrashBefore, CrashDuring, CrashAfter, Error, TimeOut, LostAnswer, Slow]
        }
        (Class::Read, Edge::Kubernetes | Edge::Scaleway | Edge::Github)
            if terms == Terms::Fresh =>
        {
            &[Error, Denied, TimeOut, Slow]
        }
        (Class::Read, Edge::Kubernetes | Edge::Scaleway | Edge::Github) => {
            &[Error, Denied, TimeOut, Stale, Slow]
        }
        (Class::Read, Edge::Ssh) => &[Error, TimeOut, Reboot],
        (Class::Read, Edge::Tart) => &[Error, TimeOut, Slow],
        (Class::Event, _) => &[Drop, Twice, Coalesce, Cut, Gone],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_word_of_its_own_and_can_happen_somewhere() {
        for fault in Fault::ALL {
            assert_eq!(fault.word().parse(), Ok(*fault));
            let edges = [Edge::Kubernetes, Edge::Scaleway, Edge::Ssh, Edge::Tart, Edge::Github];
            let classes = [Class::Effect, Class::Heartbeat, Class::Read, Class::Event];
            let happens = edges.iter().any(|edge| {
                classes.iter().any(|class| {
                    possible(*edge, *class, Terms::Plain).contains(fault)
                        || possible(*edge, *class, Terms::Conditional).contains(fault)
                })
            });
            assert!(happens, "{fault} can happen nowhere");
        }
        assert!("crash".parse::<Fault>().unwrap_err().contains("crash-before"));
    }
}
