//! S16: no secret anywhere but in Secrets, whatever it looks like.

use aho_corasick::AhoCorasick;
use applecart_sim::faults::{Faults, Told};
use applecart_sim::world::{SecretsSeen, World};

use super::end::name_of;
use crate::log::Log;

/// Looks at what is stored, at what was asked, at every body that was written, if it was
/// overwritten later or refused, and at every line that was logged.
pub fn secrets(
    world: &World,
    faults: &Faults,
    seen: &SecretsSeen,
    log: &Log,
) -> Result<(), String> {
    // All at once: there are dozens, and every plan is read through.
    let secrets = AhoCorasick::new(world.secret_texts(seen)).map_err(|error| error.to_string())?;
    for resource in world.sight().resources() {
        if resource == "secrets" {
            continue;
        }
        for object in world.sight().objects(&resource) {
            if secrets.is_match(&object.to_string()) {
                let name = name_of(&object);
                return Err(format!("secrets: one is told in {resource} {name}"));
            }
        }
    }
    let asked = faults.look(|steps| {
        steps.iter().find(|step| secrets.is_match(&step.call)).map(|step| step.number)
    });
    if let Some(number) = asked {
        return Err(format!("secrets: one is told in step {number}"));
    }
    if let Some(Told { number, process, call, .. }) =
        faults.find_told(|body| secrets.is_match(body))
    {
        return Err(format!("secrets: {process} told one in {call}, about step {number}"));
    }
    match log.find(|line| secrets.is_match(line)) {
        Some(about) => Err(format!("secrets: one is told in the log, {about}")),
        None => Ok(()),
    }
}
