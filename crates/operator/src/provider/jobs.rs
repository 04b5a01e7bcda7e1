//! Bootstraps, beside the loop: one slow host delays nobody, and no deletion waits for one.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applecart_api::clock::Clock;
use applecart_api::ids::CrUid;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::machine::{Host, Job};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Which object a job belongs to.
pub type Key = ObjectRef<ScalewayAppleSiliconMachine>;
/// A bootstrap: ends with the fingerprint of what it applied, or with what it has to say.
pub type Work = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// The bootstraps of this process, by object.
#[derive(Clone)]
pub struct Jobs {
    table: Arc<Mutex<BTreeMap<CrUid, Entry>>>,
    start: mpsc::UnboundedSender<(CrUid, Work)>,
    wake: mpsc::UnboundedSender<Key>,
    woken: Arc<Mutex<Option<mpsc::UnboundedReceiver<Key>>>>,
    clock: Clock,
}

struct Entry {
    key: Key,
    host: Host,
    job: Job,
    abort: Option<AbortHandle>,
}

/// Owns the tasks; dropping it ends them.
pub struct Runner {
    jobs: Jobs,
    starts: mpsc::UnboundedReceiver<(CrUid, Work)>,
}

impl Jobs {
    /// No jobs yet, and the runner that will hold their tasks.
    pub fn new(clock: Clock) -> (Self, Runner) {
        let (start, starts) = mpsc::unbounded_channel();
        let (wake, woken) = mpsc::unbounded_channel();
        let woken = Arc::new(Mutex::new(Some(woken)));
        let jobs = Self { table: Arc::default(), start, wake, woken, clock };
        (jobs.clone(), Runner { jobs, starts })
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<CrUid, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects whose job moved on. The first caller gets them; there is one loop to wake.
    pub fn woken(&self) -> BoxStream<'static, Key> {
        let receiver = self.woken.lock().unwrap_or_else(PoisonError::into_inner).take();
        match receiver {
            Some(receiver) => from_channel(receiver).boxed(),
            None => futures::stream::pending().boxed(),
        }
    }

    /// What the object's job is doing.
    pub fn of(&self, uid: &CrUid) -> Job {
        self.table().get(uid).map_or(Job::None, |entry| entry.job.clone())
    }

    /// The host as it was read when the object's job began, while that runs. Nothing is decided
    /// from it but to wait, so it need not be read again for each step.
    pub fn host(&self, uid: &CrUid) -> Option<Host> {
        let table = self.table();
        let entry = table.get(uid)?;
        matches!(entry.job, Job::Running { .. }).then(|| entry.host.clone())
    }

    /// Begins a job on `host`, unless the object has one.
    pub fn start(&self, uid: &CrUid, key: Key, host: Host, work: Work) {
        let mut table = self.table();
        if table.contains_key(uid) {
            return;
        }
        let job = Job::Running { step: None, since: self.clock.now() };
        table.insert(uid.clone(), Entry { key, host, job, abort: None });
        // The runner lives as long as the loop that calls this.
        let _ = self.start.send((uid.clone(), work));
    }

    /// The job begins a step.
    pub fn advance(&self, uid: &CrUid, step: (String, usize, usize)) {
        let since = self.clock.now();
        self.set(uid, Job::Running { step: Some(step), since });
    }

    /// Forgets the object's job, and ends it if it still runs.
    pub fn stop(&self, uid: &CrUid) {
        if let Some(Entry { abort: Some(abort), .. }) = self.table().remove(uid) {
            abort.abort();
        }
    }

    fn set(&self, uid: &CrUid, job: Job) {
        if let Some(entry) = self.table().get_mut(uid) {
            entry.job = job;
            // Nobody listens once the loop is gone, and then nobody needs to.
            let _ = self.wake.send(entry.key.clone());
        }
    }
}

impl Runner {
    /// Runs jobs until dropped.
    pub async fn run(mut self) {
        let mut tasks: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some((uid, work)) = self.starts.recv() => self.begin(&mut tasks, &uid, work),
                Some(_) = tasks.join_next() => {}
                else => return,
            }
        }
    }

    fn begin(&self, tasks: &mut JoinSet<()>, uid: &CrUid, work: Work) {
        let jobs = self.jobs.clone();
        let of = uid.clone();
        let abort = tasks.spawn(async move {
            let job = match work.await {
                Ok(stamp) => Job::Succeeded(stamp),
                Err(said) => Job::Failed(said),
            };
            jobs.set(&of, job);
        });
        match self.jobs.table().get_mut(uid) {
            Some(entry) => entry.abort = Some(abort),
            None => abort.abort(),
        }
    }
}

fn from_channel<T: Send + 'static>(
    receiver: mpsc::UnboundedReceiver<T>,
) -> impl Stream<Item = T> + Send {
    futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|item| (item, receiver))
    })
}
