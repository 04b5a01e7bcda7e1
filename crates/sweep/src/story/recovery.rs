//! Stories of trouble that lasts, and of what comes after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use applecart_api::keys::lease;
use applecart_api::name_class::NameClass;
use applecart_core::machine::Limits;
use applecart_sim::faults::{Edge, Step};
use applecart_sim::scaleway::{Answer, HostView, Rule, Verdict};
use applecart_sim::world::{Install, POOL_PREFIX, World};

use super::steps::{LEASES, all, empty_fleet, first, fleet, is_told, reach, scale};
use crate::oracle::{host_of, is_tried_out};

/// How long the token is revoked.
const REVOKED: Duration = Duration::from_hours(1);
/// The agent of the version that an upgrade brings.
const NEWER_AGENT: &str = "simulated tart-kubelet, newer";
/// How soon something happens that is due: within a look.
const PROMPT: Duration = Duration::from_secs(15);
/// Where the agent is on a Mac.
const AGENT: &str = "/usr/local/bin/tart-kubelet";

/// The Mac that is claimed first lets nobody in for so many times: each bootstrap fails at once.
pub fn fail(world: &World, times: usize) -> Result<(), String> {
    let hosts = world.scaleway().hosts();
    let pool = hosts.iter().filter(|host| host.name.starts_with(POOL_PREFIX));
    let left = Arc::new(AtomicUsize::new(times));
    let bad: Arc<std::sync::OnceLock<String>> = Arc::default();
    for host in pool {
        let mac = world.mac(&host.id).ok_or("no Mac behind a host")?;
        let (left, bad, keys) = (left.clone(), bad.clone(), world.scaleway().clone());
        let id = host.id.to_string();
        mac.authorize_by(Arc::new(move || {
            // Whoever is asked first is the bad one.
            let is_bad = *bad.get_or_init(|| id.clone()) == id;
            let one_less = |left: usize| left.checked_sub(1);
            let fails =
                is_bad && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
            if fails { vec![] } else { keys.public_keys() }
        }));
    }
    Ok(())
}

/// The one host of the pool fails whoever has it, and two owners gave it up already.
pub async fn wear_out(world: &World) -> Result<(), String> {
    fail(world, usize::MAX)?;
    scale(world, 1).await?;
    for owners in ["1", "2"] {
        reach("an owner who gave its host up", || {
            !all(world, LEASES, |l| l["metadata"]["annotations"][lease::OWNERS_FAILED] != owners)
        })
        .await?;
    }
    Ok(())
}

/// The third owner gives it up: nobody gets it any more.
pub async fn set_aside(world: &World) -> Result<(), String> {
    let is_aside =
        |host: &HostView| NameClass::read(&host.name, POOL_PREFIX) == NameClass::Quarantined;
    reach("the host set aside", || world.scaleway().hosts().iter().any(is_aside)).await?;
    reach("no other host told", || is_told(world, "NoAvailableHost")).await?;
    empty_fleet(world).await
}

/// How the tiers of a recovery show in a trace: how many bootstraps fail at once, and how often the
/// host is wiped for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Bootstraps that fail, all on the host that is claimed first.
    pub failures: usize,
    /// Wipes: one, if the host is exchanged.
    pub wipes: usize,
}

impl Tiers {
    /// LH21: each attempt at its time and none before it; exactly one reboot right after the third
    /// failure, and exactly one wipe right after the eighth, if there is one.
    pub fn check(self, steps: &[Step]) -> Result<(), String> {
        let limits = Limits::default();
        let dials = at_times(steps, Edge::Ssh, |call| call.ends_with(" dial"));
        let attempts = dials.get(..self.failures).ok_or("tiers: too few bootstraps")?;
        let mut due = limits.retry;
        for pair in attempts.windows(2) {
            let gap = pair[1].saturating_sub(pair[0]);
            if gap < due || gap > due + PROMPT {
                let (gap, due) = (gap.as_secs(), due.as_secs());
                return Err(format!("tiers: tried again after {gap} s, due after {due} s"));
            }
            due = (due * 2).min(limits.retry_cap);
        }
        let reboots = at_times(steps, Edge::Scaleway, |call| call.ends_with("/reboot"));
        right_after("reboot", &reboots, attempts, limits.tiers.reboot_after, 1)?;
        let wipes = at_times(steps, Edge::Scaleway, |call| call.ends_with("/reinstall"));
        right_after("wipe", &wipes, attempts, limits.tiers.max_attempts, self.wipes)
    }
}

/// LH21: whatever else goes wrong, no tier comes before the Mac of that host was tried so often, by
/// all who lead together. It was, too, where its password may not be tried again in this boot.
pub fn none_early(steps: &[Step]) -> Result<(), String> {
    let tiers = Limits::default().tiers;
    let mut dials: BTreeMap<&str, u32> = BTreeMap::new();
    for step in steps {
        let Step { edge, call, .. } = step;
        if let (Edge::Ssh, Some(mac)) = (edge, call.strip_suffix(" dial")) {
            *dials.entry(mac).or_default() += 1;
        }
        let Some(host) = host_of(step).filter(|_| *edge == Edge::Scaleway) else { continue };
        let (what, least) = match call {
            _ if call.ends_with("/reboot") && is_tried_out(steps) => continue,
            _ if call.ends_with("/reboot") => ("a reboot", tiers.reboot_after),
            _ if call.ends_with("/reinstall") => ("a wipe", tiers.max_attempts),
            _ => continue,
        };
        let of_host = dials.iter().find(|(mac, _)| host.starts_with(**mac));
        let times = of_host.map_or(0, |(_, times)| *times);
        if times < least {
            return Err(format!("tiers: {what} after {times} tries, not before {least}"));
        }
    }
    Ok(())
}

/// LH21: one reboot and one wipe, whoever leads.
pub fn once_each(steps: &[Step]) -> Result<(), String> {
    for (what, end) in [("a reboot", "/reboot"), ("a wipe", "/reinstall")] {
        let times = at_times(steps, Edge::Scaleway, |call| call.ends_with(end)).len();
        if times != 1 {
            return Err(format!("tiers: {what} {times} times, not once"));
        }
    }
    Ok(())
}

/// When the calls were made that `is` picks.
fn at_times(steps: &[Step], edge: Edge, is: impl Fn(&str) -> bool) -> Vec<Duration> {
    let picked = steps.iter().filter(|step| step.edge == edge && is(&step.call));
    picked.map(|step| step.at).collect()
}

/// Something happened so often, and right after that attempt failed, counted from 1.
fn right_after(
    what: &str,
    times: &[Duration],
    attempts: &[Duration],
    attempt: u32,
    wanted: usize,
) -> Result<(), String> {
    if times.len() != wanted {
        return Err(format!("tiers: {what} {} times, not {wanted}", times.len()));
    }
    let at = usize::try_from(attempt).ok().and_then(|attempt| attempt.checked_sub(1));
    let failed = at.and_then(|at| attempts.get(at)).copied();
    let prompt = |at: &Duration| failed.is_some_and(|f| *at >= f && *at <= f + PROMPT);
    match times.iter().find(|at| !prompt(at)) {
        Some(at) => Err(format!("tiers: {what} after {} s, not at its time", at.as_secs())),
        None => Ok(()),
    }
}

/// Scaleway refuses everything for an hour, in which a Machine more is wanted.
pub async fn revoke_token(world: &World) -> Result<(), String> {
    let denied = Answer::error("permissions_denied").ok_or("no such answer")?;
    world.scaleway().add_rule(Rule::any(Verdict::FailBefore(denied)).for_ever());
    scale(world, 2).await?;
    tokio::time::sleep(REVOKED).await;
    world.scaleway().clear_rules();
    fleet(world, 2).await
}

/// Another version of the provider takes over, and brings another agent.
pub async fn upgrade(world: &World) -> Result<(), String> {
    world.install(Install { agent: NEWER_AGENT, ..Install::default() });
    fleet(world, 1).await?;
    let (_, host) = first(world)?;
    let mac = world.mac(&host.id).ok_or("no Mac behind a host")?;
    // Its signature follows.
    let newer =
        || mac.file(AGENT).is_some_and(|(content, ..)| content.starts_with(NEWER_AGENT.as_bytes()));
    reach("the newer agent", newer).await
}

/// All status is lost; what it said of the host must be found again.
pub async fn forget(world: &World) -> Result<(), String> {
    let (machine, before) = first(world)?;
    world.forget_status(&machine).await.map_err(|error| error.to_string())?;
    fleet(world, 1).await?;
    let (again, host) = first(world)?;
    let stamp = |machine: &applecart_api::machine::ScalewayAppleSiliconMachine| {
        let status = machine.status.clone().unwrap_or_default();
        (status.server_id, status.initialization, status.addresses)
    };
    if stamp(&again) != stamp(&machine) {
        return Err(format!("forgotten: {:?}, was {:?}", stamp(&again), stamp(&machine)));
    }
    let effects = (host.generation, host.power_cycles);
    if effects != (before.generation, before.power_cycles) {
        return Err("forgotten: the host was wiped or rebooted".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use applecart_sim::faults::{Class, Process, Terms};

    use super::*;

    /// A trace of calls at these seconds.
    fn trace(calls: &[(u64, Edge, &str)]) -> Vec<Step> {
        let step = |(number, (at, edge, call)): (usize, &(u64, Edge, &str))| Step {
            number,
            at: Duration::from_secs(*at),
            process: Process::Provider,
            edge: *edge,
            class: Class::Effect,
            terms: Terms::Plain,
            call: (*call).to_owned(),
            answer: "200".to_owned(),
            fault: None,
        };
        calls.iter().enumerate().map(step).collect()
    }

    #[test]
    fn a_tier_that_comes_twice_too_early_or_not_at_all_is_told() {
        // LH21
        let three = Tiers { failures: 3, wipes: 0 };
        let dial = |at| (at, Edge::Ssh, "5fb0ab06 dial");
        let reboot = |at| (at, Edge::Scaleway, "POST servers/5fb0ab06/reboot");
        let wipe = |at| (at, Edge::Scaleway, "POST servers/5fb0ab06/reinstall");
        let tried = [dial(50), dial(110), dial(230)];
        let with = |more: &[(u64, Edge, &str)]| three.check(&trace(&[&tried, more].concat()));
        assert_eq!(with(&[reboot(231)]), Ok(()));
        for (more, told) in [
            (vec![], "reboot 0 times"),
            (vec![reboot(231), reboot(500)], "reboot 2 times"),
            (vec![reboot(111)], "not at its time"),
            (vec![reboot(400)], "not at its time"),
            (vec![reboot(231), wipe(232)], "wipe 1 times"),
        ] {
            assert!(with(&more).is_err_and(|why| why.contains(told)), "{told}");
        }
        let rushed = trace(&[dial(50), dial(51), dial(52), reboot(53)]);
        assert!(three.check(&rushed).is_err_and(|why| why.contains("tried again after 1 s")));
    }

    #[test]
    fn a_tier_that_comes_before_so_many_tries_is_told_whatever_went_wrong() {
        let dials = |times: u64| (0..times).map(|at| (at, Edge::Ssh, "5fb0ab06 dial"));
        let others = |times: u64| (0..times).map(|at| (at, Edge::Ssh, "77aa0012 dial"));
        let reboot = (500, Edge::Scaleway, "POST servers/5fb0ab06-77/reboot");
        let wipe = (500, Edge::Scaleway, "POST servers/5fb0ab06-77/reinstall");
        for (early, tier, own) in [(true, reboot, 2), (false, reboot, 3), (false, reboot, 4)]
            .into_iter()
            .chain([(true, wipe, 7), (false, wipe, 8)])
        {
            let calls: Vec<_> = dials(own).chain(others(9)).chain([tier]).collect();
            assert_eq!(none_early(&trace(&calls)).is_err(), early, "{own} tries, {tier:?}");
        }
    }

    #[test]
    fn a_second_reboot_or_wipe_is_told_and_so_is_none() {
        let reboot = (231, Edge::Scaleway, "POST servers/5fb0ab06/reboot");
        let wipe = (900, Edge::Scaleway, "POST servers/5fb0ab06/reinstall");
        let rename = (901, Edge::Scaleway, "PATCH servers/5fb0ab06 to a/reboot-me");
        assert_eq!(once_each(&trace(&[reboot, wipe, rename])), Ok(()));
        for (calls, told) in [
            (vec![wipe], "a reboot 0 times"),
            (vec![reboot, wipe, reboot], "a reboot 2 times"),
            (vec![reboot], "a wipe 0 times"),
            (vec![reboot, wipe, wipe], "a wipe 2 times"),
        ] {
            assert!(once_each(&trace(&calls)).is_err_and(|why| why.contains(told)), "{told}");
        }
    }
}
