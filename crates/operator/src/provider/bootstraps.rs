//! Bootstraps and upkeep, beside the loop: one slow host delays nobody, and no deletion waits for
//! one.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applecart_api::clock::Clock;
use applecart_api::ids::CrUid;
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineStatus};
use applecart_core::machine::{Bootstrap, Host, Looked, Reason, Upkeep, Upkept};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Which object a bootstrap belongs to.
pub type Key = ObjectRef<ScalewayAppleSiliconMachine>;
/// A bootstrap: how the steps ended.
pub type Work = Pin<Box<dyn Future<Output = Upkept> + Send>>;

/// Which object a run is for, and why.
#[derive(Clone)]
pub struct Order {
    /// The object's UID.
    pub uid: CrUid,
    /// The object.
    pub key: Key,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The host, as it was read for this run.
    pub host: Host,
    /// The Mac was bootstrapped before: what happens now is upkeep.
    pub upkeep: bool,
}

/// The bootstraps of this process, by object.
#[derive(Clone)]
pub struct Bootstraps {
    table: Arc<Mutex<Table>>,
    start: mpsc::UnboundedSender<(Place, Work)>,
    wake: mpsc::UnboundedSender<Key>,
    woken: Arc<Mutex<Option<mpsc::UnboundedReceiver<Key>>>>,
    clock: Clock,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<CrUid, Entry>,
    looked: BTreeMap<CrUid, Looked>,
    /// The password that the last one used.
    passwords: BTreeMap<CrUid, SecretString>,
    begun: u64,
}

struct Entry {
    number: u64,
    order: Order,
    state: State,
    /// What telling how it ended would have said, when no answer said that it was told.
    maybe_told: Option<MaybeTold>,
    abort: Option<AbortHandle>,
}

/// What failures are counted in: a status carries both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    bootstrap: Option<i32>,
    upkeep: Option<i32>,
}

/// A status that may have been stored.
#[derive(Clone, Debug, PartialEq)]
pub struct MaybeTold {
    /// What it counts up to.
    pub counts: Counts,
    /// Its reason, if that is another than the one before.
    pub news: Option<Reason>,
}

impl From<&ScalewayAppleSiliconMachineStatus> for Counts {
    fn from(status: &ScalewayAppleSiliconMachineStatus) -> Self {
        Self { bootstrap: status.bootstrap_attempts, upkeep: status.tart_kubelet_update_attempts }
    }
}

#[derive(Clone)]
enum State {
    Running { step: Option<(String, usize, usize)>, since: Timestamp },
    Ended(Upkept),
}

/// One bootstrap's place in the table: numbered, so that one that was stopped cannot speak for its
/// successor.
#[derive(Clone)]
pub struct Place {
    bootstraps: Bootstraps,
    uid: CrUid,
    number: u64,
}

/// Owns the tasks; dropping it ends them.
pub struct Runner {
    starts: mpsc::UnboundedReceiver<(Place, Work)>,
}

impl Bootstraps {
    /// None yet, and the runner that will hold their tasks.
    pub fn new(clock: Clock) -> (Self, Runner) {
        let (start, starts) = mpsc::unbounded_channel();
        let (wake, woken) = mpsc::unbounded_channel();
        let woken = Arc::new(Mutex::new(Some(woken)));
        (Self { table: Arc::default(), start, wake, woken, clock }, Runner { starts })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects whose bootstrap moved on. The first caller gets them; there is one loop to wake.
    pub fn woken(&self) -> BoxStream<'static, Key> {
        let receiver = self.woken.lock().unwrap_or_else(PoisonError::into_inner).take();
        match receiver {
            Some(receiver) => from_channel(receiver).boxed(),
            None => futures::stream::pending().boxed(),
        }
    }

    /// What the object's bootstrap is doing.
    pub fn of(&self, uid: &CrUid) -> Bootstrap {
        let table = self.table();
        let entry = table.entries.get(uid).filter(|entry| !entry.order.upkeep);
        match entry.map(|entry| entry.state.clone()) {
            // Where nothing was to be done on the Mac, nothing ran.
            None | Some(State::Ended(Upkept::TakenOver(_))) => Bootstrap::None,
            Some(State::Running { step, since }) => Bootstrap::Running { step, since },
            Some(State::Ended(Upkept::Current { stamp, awaits_boot, did })) => {
                Bootstrap::Succeeded { stamp, awaits_boot, did }
            }
            Some(State::Ended(Upkept::PasswordRefused(said))) => Bootstrap::PasswordRefused(said),
            Some(State::Ended(Upkept::Postponed(what))) => Bootstrap::Postponed(what),
            Some(State::Ended(Upkept::Incomplete(said))) => Bootstrap::Incomplete(said),
            Some(State::Ended(Upkept::Failed(said))) => Bootstrap::Failed(said),
        }
    }

    /// What the object's upkeep is doing.
    pub fn upkeep_of(&self, uid: &CrUid) -> Upkeep {
        let table = self.table();
        let entry = table.entries.get(uid).filter(|entry| entry.order.upkeep);
        match entry.map(|entry| entry.state.clone()) {
            None => Upkeep::Idle(table.looked.get(uid).copied()),
            Some(State::Running { .. }) => Upkeep::Running,
            Some(State::Ended(upkept)) => Upkeep::Ended(upkept),
        }
    }

    /// The generation of the spec that the object's bootstrap or upkeep is for, if it has one.
    pub fn run_of(&self, uid: &CrUid) -> Option<i64> {
        self.table().entries.get(uid).and_then(|entry| entry.order.generation)
    }

    /// The host as it was read when the object's bootstrap began, while that runs. Nothing is
    /// decided from it but to wait, so it need not be read again for each step.
    pub fn host(&self, uid: &CrUid) -> Option<Host> {
        let table = self.table();
        let entry = table.entries.get(uid).filter(|entry| !entry.order.upkeep)?;
        matches!(entry.state, State::Running { .. }).then(|| entry.order.host.clone())
    }

    /// Begins a run, unless the object has one; whether it did.
    #[must_use]
    pub fn start(&self, order: Order, work: impl FnOnce(Place) -> Work) -> bool {
        let mut table = self.table();
        if table.entries.contains_key(&order.uid) {
            return false;
        }
        table.begun += 1;
        let number = table.begun;
        let place = Place { bootstraps: self.clone(), uid: order.uid.clone(), number };
        let state = State::Running { step: None, since: self.clock.now() };
        let uid = order.uid.clone();
        let entry = Entry { number, order, state, maybe_told: None, abort: None };
        table.entries.insert(uid, entry);
        let work = work(place.clone());
        // The runner lives as long as the loop that calls this.
        let _ = self.start.send((place, work));
        true
    }

    /// Forgets the object's bootstrap, and ends it if it still runs.
    pub fn stop(&self, uid: &CrUid) {
        if let Some(Entry { abort: Some(abort), .. }) = self.table().entries.remove(uid) {
            abort.abort();
        }
    }

    /// How the object's run ended was to be told so, and nobody knows whether it was.
    pub fn may_have_told(&self, uid: &CrUid, told: MaybeTold) {
        if let Some(entry) = self.table().entries.get_mut(uid) {
            entry.maybe_told = Some(told);
        }
    }

    /// Forgets a run whose end turns out to have been told: told again, it would count twice
    /// (LH21). How it was.
    pub fn was_told(&self, uid: &CrUid, counts: Counts) -> Option<MaybeTold> {
        let maybe_told = self.table().entries.get(uid).and_then(|entry| entry.maybe_told.clone());
        let told = maybe_told.filter(|told| told.counts == counts)?;
        self.stop(uid);
        Some(told)
    }

    /// Forgets the object, which is gone, and ends what runs for it.
    pub fn forget(&self, uid: &CrUid) {
        self.stop(uid);
        let mut table = self.table();
        table.looked.remove(uid);
        table.passwords.remove(uid);
    }

    /// The next one uses this password.
    pub fn uses(&self, uid: &CrUid, password: &SecretString) {
        self.table().passwords.insert(uid.clone(), password.clone());
    }

    /// The password that the last one used, if there was one in this process.
    pub fn password_of(&self, uid: &CrUid) -> Option<SecretString> {
        self.table().passwords.get(uid).cloned()
    }
}

impl Place {
    /// The bootstrap begins a step.
    pub fn advance(&self, step: (String, usize, usize)) {
        let since = self.bootstraps.clock.now();
        self.set(State::Running { step: Some(step), since });
    }

    fn end(&self, upkept: Upkept) {
        let at = self.bootstraps.clock.now();
        let mut table = self.bootstraps.table();
        if let Some(entry) = self.entry(&mut table)
            && matches!(
                upkept,
                Upkept::Current { .. } | Upkept::Postponed(_) | Upkept::TakenOver(_)
            )
        {
            let looked = Looked { at, generation: entry.order.generation };
            table.looked.insert(self.uid.clone(), looked);
        }
        drop(table);
        self.set(State::Ended(upkept));
    }

    fn set(&self, state: State) {
        let mut table = self.bootstraps.table();
        if let Some(entry) = self.entry(&mut table) {
            // How far upkeep is, nobody is told.
            let silent = entry.order.upkeep && matches!(state, State::Running { .. });
            entry.state = state;
            if !silent {
                // Nobody listens once the loop is gone, and then nobody needs to.
                let _ = self.bootstraps.wake.send(entry.order.key.clone());
            }
        }
    }

    fn entry<'a>(&self, table: &'a mut Table) -> Option<&'a mut Entry> {
        table.entries.get_mut(&self.uid).filter(|entry| entry.number == self.number)
    }
}

impl Runner {
    /// Runs bootstraps until dropped.
    pub async fn run(mut self) {
        let mut tasks: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some((place, work)) = self.starts.recv() => begin(&mut tasks, &place, work),
                Some(_) = tasks.join_next() => {}
                else => return,
            }
        }
    }
}

fn begin(tasks: &mut JoinSet<()>, place: &Place, work: Work) {
    let of = place.clone();
    let abort = tasks.spawn(async move {
        // One that panics has failed; else its object would wait for it for ever.
        let ended = AssertUnwindSafe(work).catch_unwind().await;
        let panicked = "the bootstrap panicked: see the provider's log";
        of.end(ended.unwrap_or_else(|_| Upkept::Failed(panicked.to_owned())));
    });
    match place.entry(&mut place.bootstraps.table()) {
        Some(entry) => entry.abort = Some(abort),
        None => abort.abort(),
    }
}

fn from_channel<T: Send + 'static>(
    receiver: mpsc::UnboundedReceiver<T>,
) -> impl Stream<Item = T> + Send {
    futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    })
}

#[cfg(test)]
mod tests {
    use applecart_core::machine::HostState;
    use tokio::sync::oneshot;

    use super::*;

    fn uid() -> CrUid {
        "0d6b7c60-9a9e-4f0e-8f0b-3a6f6f0c1a11".parse().expect("a uid")
    }

    fn host() -> Host {
        Host {
            id: "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().expect("a server id"),
            name: "mac-1".into(),
            state: HostState::Ready,
            delivered: true,
            retiring: false,
            server_type: "M2-L".into(),
            os: None,
            address: None,
            has_password: true,
            changed_at: None,
        }
    }

    fn order(upkeep: bool) -> Order {
        Order { uid: uid(), key: Key::new("mac-1"), generation: Some(1), host: host(), upkeep }
    }

    fn current(stamp: &str) -> Upkept {
        Upkept::Current { stamp: stamp.to_owned(), awaits_boot: None, did: String::new() }
    }

    fn bootstraps() -> (Bootstraps, Runner) {
        Bootstraps::new(Clock::new(|| Timestamp::from_second(1000).expect("a time")))
    }

    /// Runs the runner until the object's bootstrap moved on once.
    async fn until_woken(bootstraps: &Bootstraps, runner: Runner) {
        let mut woken = bootstraps.woken();
        tokio::select! {
            () = runner.run() => unreachable!("it runs until dropped"),
            _ = woken.next() => {}
        }
    }

    #[tokio::test]
    async fn a_bootstrap_that_panics_has_failed() {
        let (bootstraps, runner) = bootstraps();
        let work = |_| -> Work { Box::pin(async { panic!("a defect") }) };
        assert!(bootstraps.start(order(false), work));
        until_woken(&bootstraps, runner).await;
        assert!(matches!(bootstraps.of(&uid()), Bootstrap::Failed(said) if said.contains("panic")));
    }

    #[tokio::test]
    async fn a_first_bootstrap_that_waits_or_is_not_all_done_has_not_failed() {
        for (ended, told) in [
            (Upkept::Postponed("x".into()), Bootstrap::Postponed("x".into())),
            (Upkept::Incomplete("x".into()), Bootstrap::Incomplete("x".into())),
        ] {
            let (bootstraps, runner) = bootstraps();
            assert!(bootstraps.start(order(false), |_| Box::pin(async { ended })));
            until_woken(&bootstraps, runner).await;
            assert_eq!(bootstraps.of(&uid()), told);
        }
    }

    #[tokio::test]
    async fn a_stopped_bootstrap_does_not_speak_for_its_successor() {
        let (bootstraps, runner) = bootstraps();
        let (end, ended) = oneshot::channel::<()>();
        let first = |_| -> Work { Box::pin(async { current("of the first") }) };
        let second = |_| -> Work {
            Box::pin(async {
                ended.await.expect("the test ends it");
                current("of the second")
            })
        };
        assert!(bootstraps.start(order(false), first));
        bootstraps.stop(&uid());
        assert!(bootstraps.start(order(false), second));
        end.send(()).expect("it waits");
        until_woken(&bootstraps, runner).await;
        let (stamp, did) = ("of the second".to_owned(), String::new());
        assert_eq!(bootstraps.of(&uid()), Bootstrap::Succeeded { stamp, awaits_boot: None, did });
    }

    #[tokio::test]
    async fn an_end_whose_telling_was_not_answered_is_told_again_only_if_it_was_not() {
        // LH21: a lost answer made one failure two, and the reboot came one attempt early.
        let counts = |bootstrap, upkeep| Counts { bootstrap, upkeep };
        for (upkeep, before, after) in [
            (false, counts(Some(1), None), counts(Some(2), None)),
            (true, counts(None, Some(1)), counts(None, Some(2))),
        ] {
            let (bootstraps, runner) = bootstraps();
            let failed = |_| -> Work { Box::pin(async { Upkept::Failed("no".into()) }) };
            assert!(bootstraps.start(order(upkeep), failed));
            until_woken(&bootstraps, runner).await;
            assert_eq!(bootstraps.was_told(&uid(), after), None, "nobody tried");
            let told = MaybeTold { counts: after, news: Some(Reason::Rebooted) };
            bootstraps.may_have_told(&uid(), told.clone());
            assert_eq!(bootstraps.was_told(&uid(), before), None, "it did not come about");
            assert_eq!(bootstraps.was_told(&uid(), after), Some(told));
            let (ended, kept) = (bootstraps.of(&uid()), bootstraps.upkeep_of(&uid()));
            assert_eq!((ended, kept), (Bootstrap::None, Upkeep::Idle(None)));
        }
    }

    #[tokio::test]
    async fn a_look_that_ended_is_remembered_and_one_that_failed_is_not() {
        for (ends, remembered) in [(current("abc"), true), (Upkept::Failed("no".into()), false)] {
            let (bootstraps, runner) = bootstraps();
            let work = |place: Place| -> Work {
                Box::pin(async move {
                    place.advance(("a step".into(), 1, 10));
                    ends
                })
            };
            assert!(bootstraps.start(order(true), work));
            assert_eq!(bootstraps.upkeep_of(&uid()), Upkeep::Running);
            assert_eq!(bootstraps.of(&uid()), Bootstrap::None, "it is no bootstrap");
            assert!(bootstraps.host(&uid()).is_none(), "its host is read anew");
            until_woken(&bootstraps, runner).await;
            assert!(matches!(bootstraps.upkeep_of(&uid()), Upkeep::Ended(_)));
            bootstraps.stop(&uid());
            let Upkeep::Idle(looked) = bootstraps.upkeep_of(&uid()) else { panic!("not idle") };
            assert_eq!(looked.is_some(), remembered);
            bootstraps.forget(&uid());
            assert_eq!(bootstraps.upkeep_of(&uid()), Upkeep::Idle(None));
        }
    }
}
