//! What must hold at the end of a run; what must hold after every effect is
//! `applecart_sim::oracle`. Each finding begins with the oracle's name.

mod counts;
mod end;
mod secrets;

use applecart_sim::faults::{Edge, Step};

pub use counts::{Course, is_tried_out};
pub use end::{at_end, on_the_way};
pub use secrets::secrets;

/// The host that a call to Scaleway is about, or one to Kubernetes about a host's Lease.
pub fn host_of(step: &Step) -> Option<&str> {
    let before = match step.edge {
        Edge::Scaleway => "servers/",
        Edge::Kubernetes => "/host-",
        Edge::Ssh | Edge::Tart | Edge::Github => return None,
    };
    let host = step.call.split(before).nth(1)?;
    let end = host.find(|c: char| c != '-' && !c.is_alphanumeric()).unwrap_or(host.len());
    Some(&host[..end])
}

/// The host that a call renames, and the name that it gives it: its Machine's and its Node's, while
/// it has one.
fn renamed(step: &Step) -> Option<(&str, &str)> {
    let renames = step.edge == Edge::Scaleway && step.call.starts_with("PATCH ");
    let (_, name) = step.call.rsplit_once(" to ").filter(|_| renames)?;
    Some((host_of(step)?, name))
}
