//! A host under our releasing name that could be wiped: emptied, asked, or set aside. Pure.

use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::{Action, Decision};
use super::decide::{act, is_heard, refuse};
use super::memory::age;
use super::observed::{Policy, Seen};
use super::reason::Reason;
use crate::machine::{Guest, Host, Image, Images};

pub(super) fn wipe(now: Timestamp, seen: &Seen, host: &Host, policy: &Policy) -> Decision {
    empty(now, seen, policy).unwrap_or_else(|| ask(now, seen, host, policy))
}

/// LH24, S24: nobody else drains a Mac that nobody owns, and what runs there may get a job at any
/// moment. A Node of which nobody hears any more is not waited for.
fn empty(now: Timestamp, seen: &Seen, policy: &Policy) -> Option<Decision> {
    let mac = seen.mac.as_ref().filter(|mac| is_heard(now, mac.node.silent_since))?;
    if !mac.node.cordoned {
        let (node, uid) = (mac.name.clone(), mac.node.uid.clone());
        return Some(act(Action::Cordon { node, uid }, Reason::Finishing));
    }
    // Some never go, as what a DaemonSet puts there again; but no runner is left to get a job.
    let soon = seen.lease.taken_at.is_some_and(|at| age(now, at) < policy.pause());
    let is_idle = |guest: &&Guest| !guest.busy && !guest.deleting && (guest.runner || soon);
    if let Some(guest) = mac.guests.iter().find(is_idle) {
        return Some(act(Action::DeleteGuest(guest.clone()), Reason::Finishing));
    }
    if let Some(job) = mac.guests.iter().find(|guest| guest.busy) {
        return Some(refuse(Reason::Busy(format!("{}/{}", job.namespace, job.name))));
    }
    let leaving = soon && !mac.guests.is_empty();
    leaving.then(|| refuse(Reason::Waiting("being emptied".to_owned())))
}

/// A host shows that it is being wiped a while after that was accepted, and one that is asked again
/// and again is never done. So each ask is noted first, and waited for; a crash in between costs
/// one of them.
fn ask(now: Timestamp, seen: &Seen, host: &Host, policy: &Policy) -> Decision {
    let asked = seen.lease.asked.filter(|_| !seen.asking);
    let waited = asked.map(|asked| age(now, asked.at));
    if waited.is_some_and(|waited| waited < policy.pause()) {
        return refuse(Reason::Waiting("ready, and asked to be wiped".to_owned()));
    }
    if let Some(asked) = asked.filter(|asked| asked.times >= Policy::ASKS) {
        let to = NameClass::quarantined(&host.id);
        return act(Action::Rename { to }, Reason::SetAside(asked.times));
    }
    let images = match &seen.images {
        Images::Listed(images) => images,
        Images::NotRead => return refuse(Reason::ImagesUnreadable("nobody asked".to_owned())),
        Images::Failed(why) => return refuse(Reason::ImagesUnreadable(why.clone())),
    };
    let action = if seen.asking {
        Action::RequestWipe { image: image(host, images) }
    } else {
        Action::NoteAsked { times: asked.map_or(1, |asked| asked.times + 1) }
    };
    act(action, Reason::Finishing)
}

/// P32: a returned host must fit the fleet that it came from. Whose it was nobody knows any more,
/// so it gets what it has: the same image, else the newest of its family, else the default.
fn image(host: &Host, images: &[Image]) -> Option<String> {
    let (name, family) = host.os.as_ref()?;
    let same = images.iter().find(|image| image.name == *name);
    let newest = || {
        let family = images.iter().filter(|image| image.family == *family);
        family.max_by_key(|image| (!image.beta, release_order(&image.version)))
    };
    same.or_else(newest).map(|image| image.id.clone())
}

/// `26.10` comes after `26.9`.
fn release_order(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}
