//! Tart on one simulated Mac: images, VMs and guests that take their time, in tokio's time.
//!
//! Nothing runs beside it: what a guest has become is worked out whenever somebody looks, from when
//! it was started. So it costs nothing between looks, and the same calls at the same times give the
//! same answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_core::pod::{Exit, Template, VmName, VmState};
use jiff::{SignedDuration, Timestamp};
use tart_kubelet::{Share, Vm, VmError};
use tokio::time::{Instant, sleep};

/// macOS runs no more at once.
const LIMIT: usize = 2;
/// How many guests are remembered that ended by themselves: somebody looks after every effect.
const HALTED: usize = 16;

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Fetching an image that is not there.
    pub pull: Duration,
    /// Cloning an image into a VM.
    pub clone: Duration,
    /// From a VM's start to its address.
    pub boot: Duration,
    /// Stopping a running VM.
    pub stop: Duration,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            pull: Duration::from_secs(90),
            clone: Duration::from_secs(3),
            boot: Duration::from_secs(40),
            stop: Duration::from_secs(2),
        }
    }
}

impl Durations {
    /// All of it, `speed` times as fast.
    #[must_use]
    pub fn scaled(self, speed: f64) -> Self {
        assert!(speed.is_finite() && speed > 0.0, "a speed is a positive number, not {speed}");
        let scale = |duration: Duration| duration.div_f64(speed);
        Self {
            pull: scale(self.pull),
            clone: scale(self.clone),
            boot: scale(self.boot),
            stop: scale(self.stop),
        }
    }
}

/// What one VM is like, for who looks from outside.
#[derive(Clone, Debug)]
pub struct SimVm {
    /// What Tart would say of it.
    pub state: VmState,
    /// The image that it was cloned from.
    pub image: String,
    /// Its cores, if they were set.
    pub cpu: Option<u32>,
    /// Its memory in MiB, if it was set.
    pub memory_mib: Option<u32>,
    /// What its guest finds in the share; empty until it is started.
    pub share: Share,
    /// Its guest's address, once it has booted and as long as it runs.
    pub address: Option<IpAddr>,
}

/// What was asked of Tart, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// VMs made.
    pub creates: usize,
    /// VMs started.
    pub starts: usize,
    /// VMs that ran and were stopped from outside.
    pub stops: usize,
    /// Removals of a VM that was there.
    pub removes: usize,
    /// Images fetched.
    pub pulls: usize,
}

/// One Mac's Tart. Clones are handles to the same one; it outlives any agent.
#[derive(Clone)]
pub struct SimTart {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    durations: Durations,
    job: Option<Duration>,
    images: BTreeSet<String>,
    vms: BTreeMap<VmName, Machine>,
    calls: Calls,
    addresses: u8,
    /// Guests that ended by themselves, the last ones.
    halted: VecDeque<VmName>,
}

struct Machine {
    life: Life,
    image: String,
    cpu: Option<u32>,
    memory_mib: Option<u32>,
    share: Share,
}

enum Life {
    Partial,
    Created,
    Started { boots: Instant, halts: Option<Instant>, address: IpAddr },
    Ended { exit: Exit, at: Option<Timestamp> },
}

impl SimTart {
    /// A Tart without images and VMs. `clock` dates what happens.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// From now on, things take this long.
    pub fn set_durations(&self, durations: Durations) {
        self.lock().durations = durations;
    }

    /// From now on, a guest that has booted works this long and then halts with exit code 0; `None`
    /// lets it work until it is told to [finish](Self::finish).
    pub fn set_job(&self, job: Option<Duration>) {
        self.lock().job = job;
    }

    /// Halts a running guest with this exit code. False if no such VM runs.
    #[must_use]
    pub fn finish(&self, vm: &VmName, code: i32) -> bool {
        let message = String::new();
        self.end(vm, Exit::Code { code, message }, Some(self.clock.now()))
    }

    /// Ends a running VM so that nobody learns how, as a power cut does. False if no such VM runs.
    #[must_use]
    pub fn kill(&self, vm: &VmName) -> bool {
        self.end(vm, Exit::Unknown, None)
    }

    /// Drops all VMs and images, as a reinstalled Mac has none.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.vms.clear();
        state.images.clear();
    }

    /// All VMs as they are now.
    #[must_use]
    pub fn vms(&self) -> BTreeMap<VmName, SimVm> {
        let state = self.lock();
        state.vms.iter().map(|(name, machine)| (name.clone(), machine.look())).collect()
    }

    /// The names of the VMs that run now.
    #[must_use]
    pub fn running(&self) -> Vec<VmName> {
        self.lock().running()
    }

    /// Whether this VM's guest ended by itself, of late: nobody stopped it, and it had power.
    #[must_use]
    pub fn has_halted(&self, vm: &VmName) -> bool {
        self.lock().halted.contains(vm)
    }

    /// What was done until now.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.lock().calls.clone()
    }

    /// The state, with all that time has changed in it.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().expect("no panic while the state is held");
        let (now, time) = (Instant::now(), self.clock.now());
        let State { vms, halted, .. } = &mut *state;
        for (name, machine) in vms {
            if let Life::Started { halts: Some(halts), .. } = machine.life
                && halts <= now
            {
                let ago = SignedDuration::try_from(now - halts).unwrap_or_default();
                let exit = Exit::Code { code: 0, message: String::new() };
                machine.life = Life::Ended { exit, at: time.checked_sub(ago).ok() };
                remember(halted, name);
            }
        }
        state
    }

    fn end(&self, vm: &VmName, exit: Exit, at: Option<Timestamp>) -> bool {
        let mut state = self.lock();
        let State { vms, halted, .. } = &mut *state;
        match vms.get_mut(vm) {
            Some(machine) if machine.runs() => {
                if let Exit::Code { .. } = exit {
                    remember(halted, vm);
                }
                machine.life = Life::Ended { exit, at };
                true
            }
            _ => false,
        }
    }
}

fn remember(halted: &mut VecDeque<VmName>, vm: &VmName) {
    halted.truncate(HALTED - 1);
    halted.push_front(vm.clone());
}

impl State {
    fn running(&self) -> Vec<VmName> {
        let running = self.vms.iter().filter(|(_, machine)| machine.runs());
        running.map(|(name, _)| name.clone()).collect()
    }

    fn next_address(&mut self) -> IpAddr {
        self.addresses = self.addresses % 250 + 1;
        IpAddr::V4(Ipv4Addr::new(192, 168, 64, self.addresses + 1))
    }

    fn start(&mut self, vm: &VmName, share: Share, now: Timestamp) -> Result<(), VmError> {
        let (others, address) = (self.running(), self.next_address());
        let (boot, job) = (self.durations.boot, self.job);
        let Some(machine) = self.vms.get_mut(vm) else {
            return Err(failed(vm, format!("the specified VM \"{vm}\" does not exist")));
        };
        match machine.life {
            Life::Created => {}
            Life::Partial => return Err(failed(vm, "its creation did not finish".to_owned())),
            // A VM runs once.
            Life::Started { .. } | Life::Ended { .. } => return Ok(()),
        }
        self.calls.starts += 1;
        machine.share = share;
        machine.life = if others.len() < LIMIT {
            let boots = Instant::now() + boot;
            Life::Started { boots, halts: job.map(|job| boots + job), address }
        } else {
            let names: Vec<&str> = others.iter().map(VmName::as_str).collect();
            let message = format!(
                "The number of VMs exceeds the system limit (other running VMs: {})",
                names.join(", ")
            );
            Life::Ended { exit: Exit::Code { code: 1, message }, at: Some(now) }
        };
        Ok(())
    }
}

impl Machine {
    fn runs(&self) -> bool {
        matches!(self.life, Life::Started { .. })
    }

    fn look(&self) -> SimVm {
        SimVm {
            state: match &self.life {
                Life::Partial => VmState::Partial,
                Life::Created => VmState::Created,
                Life::Started { .. } => VmState::Running,
                Life::Ended { exit, at } => VmState::Ended { exit: exit.clone(), at: *at },
            },
            image: self.image.clone(),
            cpu: self.cpu,
            memory_mib: self.memory_mib,
            share: self.share.clone(),
            address: match self.life {
                Life::Started { boots, address, .. } if boots <= Instant::now() => Some(address),
                Life::Partial | Life::Created | Life::Started { .. } | Life::Ended { .. } => None,
            },
        }
    }
}

impl Vm for SimTart {
    async fn list(&self) -> Result<BTreeMap<VmName, VmState>, VmError> {
        Ok(self.vms().into_iter().map(|(name, vm)| (name, vm.state)).collect())
    }

    async fn create(&self, vm: &VmName, template: &Template) -> Result<(), VmError> {
        let (durations, cached) = {
            let mut state = self.lock();
            if state.vms.get(vm).is_some_and(|it| !matches!(it.life, Life::Partial | Life::Created))
            {
                return Err(failed(vm, "it was started before, and a VM runs once".to_owned()));
            }
            let machine = Machine {
                life: Life::Partial,
                image: template.image.clone(),
                cpu: template.cpu,
                memory_mib: template.memory_mib,
                share: Share::default(),
            };
            state.vms.insert(vm.clone(), machine);
            (state.durations, state.images.contains(&template.image))
        };
        if !cached {
            sleep(durations.pull).await;
            let mut state = self.lock();
            state.calls.pulls += 1;
            state.images.insert(template.image.clone());
        }
        sleep(durations.clone).await;
        let mut state = self.lock();
        match state.vms.get_mut(vm) {
            Some(machine) => machine.life = Life::Created,
            None => return Err(failed(vm, "the Mac was wiped meanwhile".to_owned())),
        }
        state.calls.creates += 1;
        Ok(())
    }

    async fn start(&self, vm: &VmName, share: Share) -> Result<(), VmError> {
        let now = self.clock.now();
        self.lock().start(vm, share, now)
    }

    async fn address(&self, vm: &VmName) -> Result<Option<IpAddr>, VmError> {
        Ok(self.vms().get(vm).and_then(|vm| vm.address))
    }

    async fn remove(&self, vm: &VmName) -> Result<(), VmError> {
        let stop = {
            let mut state = self.lock();
            let runs = state.vms.get(vm).is_some_and(Machine::runs);
            state.calls.stops += usize::from(runs);
            runs.then_some(state.durations.stop)
        };
        if let Some(stop) = stop {
            sleep(stop).await;
        }
        let mut state = self.lock();
        let there = state.vms.remove(vm).is_some();
        state.calls.removes += usize::from(there);
        Ok(())
    }
}

fn failed(vm: &VmName, said: String) -> VmError {
    VmError::Failed { what: format!("tart, for VM {vm}"), said }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tart() -> SimTart {
        let (zero, start) = (Instant::now(), Timestamp::UNIX_EPOCH);
        SimTart::new(Clock::new(move || {
            start + SignedDuration::try_from(zero.elapsed()).unwrap_or_default()
        }))
    }

    fn template() -> Template {
        Template {
            container: "runner".into(),
            image: "image".into(),
            cpu: None,
            memory_mib: None,
            env: Vec::new(),
            token_of: None,
        }
    }

    async fn started(tart: &SimTart, name: &str) -> VmName {
        let vm = VmName::new(name);
        tart.create(&vm, &template()).await.unwrap();
        tart.start(&vm, Share::default()).await.unwrap();
        vm
    }

    fn state(tart: &SimTart, vm: &VmName) -> Option<VmState> {
        tart.vms().get(vm).map(|vm| vm.state.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_is_fetched_once_and_a_guest_takes_its_time_to_an_address() {
        let tart = tart();
        let before = Instant::now();
        let a = started(&tart, "a").await;
        assert_eq!(before.elapsed(), Duration::from_secs(93));
        let b = started(&tart, "b").await;
        assert_eq!(before.elapsed(), Duration::from_secs(96), "the second clone is warm");
        assert_eq!(tart.address(&b).await.unwrap(), None);
        sleep(Duration::from_secs(40)).await;
        assert_ne!(tart.address(&a).await.unwrap(), tart.address(&b).await.unwrap());
        assert_eq!((tart.calls().pulls, tart.calls().creates), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_halts_after_its_job_and_its_end_is_dated_when_it_happened() {
        let tart = tart();
        tart.set_job(Some(Duration::from_secs(100)));
        let vm = started(&tart, "a").await;
        sleep(Duration::from_secs(139)).await;
        assert_eq!(state(&tart, &vm), Some(VmState::Running));
        sleep(Duration::from_secs(61)).await;
        let exit = Exit::Code { code: 0, message: String::new() };
        let at = Timestamp::from_second(93 + 140).ok();
        assert_eq!(state(&tart, &vm), Some(VmState::Ended { exit, at }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_third_vm_does_not_start_and_says_why() {
        let tart = tart();
        started(&tart, "a").await;
        started(&tart, "b").await;
        let third = started(&tart, "c").await;
        match state(&tart, &third) {
            Some(VmState::Ended { exit: Exit::Code { code: 1, message }, .. }) => {
                assert!(message.ends_with("(other running VMs: a, b)"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(tart.running().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_runs_once_and_ends_as_it_is_told() {
        let tart = tart();
        let vm = started(&tart, "a").await;
        assert!(tart.finish(&vm, 7));
        assert!(!tart.finish(&vm, 8) && !tart.kill(&vm));
        tart.start(&vm, Share::default()).await.unwrap();
        assert!(tart.create(&vm, &template()).await.is_err());
        assert!(matches!(
            state(&tart, &vm),
            Some(VmState::Ended { exit: Exit::Code { code: 7, .. }, .. })
        ));
        let other = started(&tart, "b").await;
        assert!(tart.kill(&other));
        let unknown = VmState::Ended { exit: Exit::Unknown, at: None };
        assert_eq!(state(&tart, &other), Some(unknown));
        assert!(tart.has_halted(&vm) && !tart.has_halted(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_nobody_waits_for_leaves_a_part_and_a_wipe_leaves_nothing() {
        let tart = tart();
        let (vm, template) = (VmName::new("a"), template());
        let cut = tokio::time::timeout(Duration::from_secs(10), tart.create(&vm, &template));
        assert!(cut.await.is_err());
        assert_eq!(state(&tart, &vm), Some(VmState::Partial));
        tart.wipe();
        assert!(tart.vms().is_empty());
        tart.remove(&vm).await.unwrap();
        assert_eq!(tart.calls(), Calls::default());
    }
}
