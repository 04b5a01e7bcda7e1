//! A tree of processes: what plans have in common happens once. The trunk plays the story without
//! faults; where a plan's first fault is due, the process splits, and the child meets the fault and
//! goes on alone. A plan costs what comes after its fault, and ends as if it had run by itself.

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, PipeReader, PipeWriter, Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use applecart_entropy::{Side, end, fork};
use applecart_sim::faults::{Ahead, Class, Fault};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::apart::{apart, from_text, to_text};
use crate::oracle::Course;
use crate::run::{Case, End, play_here, prepare};

/// What comes at each effect after a story began at any moment.
const CRASHES: [Fault; 2] = [Fault::CrashBefore, Fault::CrashAfter];
/// What comes in pairs: whoever dies before an effect leaves what it leaves that died after the one
/// before it, and forgets what it read in between.
const PAIRED: Fault = Fault::CrashAfter;

/// How often people who wait are told how far it has come.
const TELL: Duration = Duration::from_secs(2);

/// What goes wrong after something went wrong, or began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds {
    /// After one crash in so many, another after every later effect.
    pub pairs: Option<usize>,
    /// Where a story begins at any moment, one later effect in so many meets crashes, and one other
    /// fault in turn; every effect, if pairs are wanted.
    pub one_in: usize,
}

/// What became of plans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// How many ran.
    pub plans: usize,
    /// Those that broke something, and what.
    pub broken: Vec<(Case, String)>,
    /// The digest of the trace of each plan with one fault.
    pub digests: Vec<(Case, u64)>,
    /// The most memory that any of them had, as the system counts it.
    pub most_kib: u64,
    /// Faults of plans that were sound, for steps that they did not come to.
    pub never: usize,
    /// Plans that did not begin, because the time was up.
    pub left: usize,
}

/// What a process tells its parent when it ends.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    found: Found,
    /// What it played: where something cannot happen, something else did.
    case: Option<Case>,
    digest: u64,
    /// How it went, if nothing was violated.
    course: Option<Course>,
}

/// A plan, and those that go as it does until something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Branch {
    case: Case,
    twigs: Vec<Case>,
}

/// A process that runs a plan.
struct Child {
    id: Option<Pid>,
    case: Case,
    report: PipeReader,
}

/// Where the plans of one process part.
pub struct Explorer {
    state: Mutex<State>,
    /// Rings when a story begins that may begin at any moment.
    pub begun: Notify,
    /// Rings when nothing is left for this process but to wait for others.
    pub over: Notify,
}

struct State {
    /// What this process runs.
    case: Case,
    /// What of it is still to come.
    rest: VecDeque<(usize, Fault)>,
    /// Plans that begin later, by the step at which they do.
    later: BTreeMap<usize, Vec<Branch>>,
    /// What goes wrong a second time.
    seconds: Seconds,
    /// Of the effects from here on one in so many meets a second fault, in processes of their own.
    one_in: Option<usize>,
    /// How many effects there were since this process parted.
    effects: usize,
    /// How many children there may be at once.
    most: usize,
    children: Vec<Child>,
    /// How it went with those who began at this moment as well, and met faults.
    courses: Vec<(Case, Course)>,
    found: Found,
    /// When people were last told how far it has come.
    told: Instant,
    /// When the time is up, if it is limited: no plan begins any more.
    until: Option<Instant>,
    /// Where a child tells what it found; the trunk has nobody to tell.
    parent: Option<PipeWriter>,
}

/// Runs all `cases`, which differ from `calm` in what goes wrong, each in a process of its own that
/// splits off where it first differs.
/// `course` is how it goes without faults, if that is one way. None begins after `until`.
pub fn explore(
    calm: &Case,
    cases: Vec<Case>,
    course: Option<Course>,
    seconds: Seconds,
    until: Option<Instant>,
) -> Found {
    prepare();
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let mut explorer = Explorer::new(calm.clone(), cases, seconds, most);
    explorer.state_mut().until = until;
    let explorer = Arc::new(explorer);
    let trunk = move || {
        let ended = catch_unwind(AssertUnwindSafe(|| play_here(&explorer, course)));
        explorer.finish(ended.unwrap_or_else(|_| End::panicked()))
    };
    apart(trunk).expect("what panics is caught")
}

impl Explorer {
    /// For one case, alone.
    pub fn alone(case: &Case) -> Arc<Self> {
        let none = Seconds { pairs: None, one_in: 1 };
        let mut alone = Self::new(case.clone(), vec![], none, 0);
        alone.state_mut().rest = case.faults.iter().copied().collect();
        Arc::new(alone)
    }

    fn new(calm: Case, cases: Vec<Case>, seconds: Seconds, most: usize) -> Self {
        let later = parted(branches(cases));
        let state = State {
            case: calm,
            rest: VecDeque::new(),
            later,
            seconds,
            one_in: None,
            effects: 0,
            most,
            children: Vec::new(),
            courses: Vec::new(),
            found: Found::default(),
            told: Instant::now(),
            until: None,
            parent: None,
        };
        Self { state: Mutex::new(state), begun: Notify::new(), over: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process runs, as far as it is decided.
    pub fn case(&self) -> Case {
        self.state().case.clone()
    }

    /// Compares how this process's run went with how it goes without faults. Where a story begins
    /// at any moment, that is a claim, until something goes wrong.
    pub fn compare(&self, course: &Course, calm: &Course) -> Result<(), String> {
        let state = self.state();
        match state.case.story {
            story if !story.is_anywhere() => course.check(calm),
            story if state.is_plain_beginning() => course.check_beginning(story, calm),
            // Its parent compares it with the run that began at the same moment.
            _ if state.parent.is_some() => Ok(()),
            _ => course.check(calm),
        }
    }

    /// What goes wrong with the next step. Splits this process, if plans part here.
    pub fn choose(&self, ahead: &Ahead) -> Option<Fault> {
        let mut state = self.state();
        let mut is_new = false;
        if state.is_time_up() && state.leave_the_rest() {
            self.over.notify_one();
        }
        while let Some(branch) = state.next_at(ahead.number) {
            is_new |= state.part(branch);
            if state.parent.is_none() && state.later.is_empty() {
                self.over.notify_one();
            }
        }
        let own = state.own_at(ahead);
        if is_new {
            state.one_in = state.second_in(own);
        } else if let Some(second) = state.split_seconds(ahead) {
            return Some(second);
        }
        drop(state);
        self.begin(ahead.number);
        own
    }

    fn begin(&self, now: usize) {
        if self.state().case.at == Some(now) {
            self.begun.notify_one();
        }
    }

    /// Waits for all that split off. In a child, tells the parent and ends the process.
    fn finish(&self, ended: End) -> Found {
        let mut state = self.state();
        while !state.children.is_empty() {
            state.wait_for_one();
        }
        state.judge(&ended);
        let digest = ended.digest();
        let found = std::mem::take(&mut state.found);
        let Some(mut parent) = state.parent.take() else { return found };
        let course = ended.violation.is_none().then_some(ended.course);
        let case = Some(state.case.clone());
        let told = to_text(&Report { found, case, digest, course });
        let told = told.is_some_and(|text| parent.write_all(&text).is_ok());
        end(i32::from(!told))
    }
}

/// Who begins at the same moment begins together: what goes wrong then is compared with how it goes
/// without.
fn branches(cases: Vec<Case>) -> Vec<Branch> {
    let mut begun: BTreeMap<usize, Branch> = BTreeMap::new();
    let mut branches = Vec::new();
    for case in cases {
        let Some(at) = case.at else {
            branches.push(Branch { case, twigs: vec![] });
            continue;
        };
        let plain = || Case { faults: vec![], silence: None, ..case.clone() };
        let branch = begun.entry(at).or_insert_with(|| Branch { case: plain(), twigs: vec![] });
        if case.faults.is_empty() { branch.case = case } else { branch.twigs.push(case) }
    }
    branches.extend(begun.into_values());
    branches
}

/// By the step at which they begin.
fn parted(branches: Vec<Branch>) -> BTreeMap<usize, Vec<Branch>> {
    let mut later: BTreeMap<usize, Vec<Branch>> = BTreeMap::new();
    for branch in branches {
        later.entry(branch.case.begins()).or_default().push(branch);
    }
    later
}

/// The most memory that this process had, as the system counts it; 0 where it does not say.
fn most_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

impl State {
    /// What this process's plan says of this step. Once something went wrong, another step than
    /// in the reference may have the number: what cannot happen to it becomes what can.
    fn own_at(&mut self, ahead: &Ahead) -> Option<Fault> {
        let (number, planned) = self.rest.pop_front_if(|(step, _)| *step == ahead.number)?;
        if ahead.possible.contains(&planned) {
            return Some(planned);
        }
        let instead = ahead.possible[number % ahead.possible.len()];
        let told = self.case.faults.iter_mut().find(|(step, _)| *step == number);
        if let Some((_, fault)) = told {
            *fault = instead;
        }
        Some(instead)
    }

    fn is_time_up(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Counts the plans that would have begun later; whether nothing is left for the trunk.
    fn leave_the_rest(&mut self) -> bool {
        let left = std::mem::take(&mut self.later).into_values().flatten();
        let plans: usize = left.map(|branch| 1 + branch.twigs.len()).sum();
        self.found.left += plans;
        plans > 0 && self.parent.is_none()
    }

    /// The next plan that begins at this step.
    fn next_at(&mut self, number: usize) -> Option<Branch> {
        let branches = self.later.get_mut(&number)?;
        // In their order.
        let next = (!branches.is_empty()).then(|| branches.remove(0));
        if branches.is_empty() {
            self.later.remove(&number);
        }
        next
    }

    /// Splits off a process for a plan; whether this is the one, which then splits off those that
    /// go with it until something goes wrong.
    fn part(&mut self, Branch { case, twigs }: Branch) -> bool {
        let is_child = self.split(case);
        if is_child {
            self.later = BTreeMap::new();
            for case in twigs {
                let begins = case.faults.first().map_or(0, |(step, _)| *step);
                self.later.entry(begins).or_default().push(Branch { case, twigs: vec![] });
            }
        }
        is_child
    }

    /// Splits off a process for each second fault; the fault, if this is one of them.
    fn split_seconds(&mut self, ahead: &Ahead) -> Option<Fault> {
        let seconds = self.seconds_at(ahead);
        if self.is_time_up() {
            self.found.left += seconds.len();
            return None;
        }
        for fault in seconds {
            let mut case = self.case.clone();
            case.faults.push((ahead.number, fault));
            case.silence = None;
            if self.split(case) {
                self.one_in = None;
                self.rest.clear();
                self.later.clear();
                return Some(fault);
            }
        }
        None
    }

    /// Notes what is wrong with this process's own run, and with those that are compared with it.
    fn judge(&mut self, ended: &End) {
        let is_trunk = self.parent.is_none();
        // The trunk's own run is known already, but for what should never be.
        self.found.plans += usize::from(!is_trunk);
        self.found.most_kib = self.found.most_kib.max(most_kib());
        if let Some(violation) = &ended.violation {
            self.found.broken.push((self.case.clone(), violation.clone()));
            return;
        }
        for (case, course) in std::mem::take(&mut self.courses) {
            if let Err(violation) = course.check(&ended.course) {
                self.found.broken.push((case, violation));
            }
        }
        self.found.never += self.rest.len();
        // What was drawn for a step after a beginning may never come; what was drawn for the trunk
        // must.
        let untried = std::mem::take(&mut self.later).into_values().flatten();
        if is_trunk {
            let what = "untried: the story ended before this plan began";
            self.found.broken.extend(untried.map(|branch| (branch.case, what.to_owned())));
        } else {
            self.found.never += untried.map(|branch| branch.case.faults.len()).sum::<usize>();
        }
    }

    /// How many later effects meet a second fault in the process of the case that begins here with
    /// `first`: after a crash all, if pairs are wanted; after a beginning some, in any case.
    fn second_in(&self, first: Option<Fault>) -> Option<usize> {
        let Seconds { pairs, one_in } = self.seconds;
        let crashes = first == Some(PAIRED);
        let begins = first.is_none() && self.case.at.is_some();
        match (self.rest.is_empty(), pairs) {
            (true, Some(_)) if begins => Some(1),
            (true, Some(pairs)) if crashes && self.case.begins().is_multiple_of(pairs) => Some(1),
            (true, None) if begins => Some(one_in),
            _ => None,
        }
    }

    /// Whether this process runs a story that began at some moment, and nothing goes wrong in it.
    fn is_plain_beginning(&self) -> bool {
        self.case.at.is_some() && self.case.faults.is_empty()
    }

    /// What else goes wrong with the next step, each in a process of its own.
    fn seconds_at(&mut self, ahead: &Ahead) -> Vec<Fault> {
        let Some(one_in) = self.one_in.filter(|_| ahead.class == Class::Effect) else {
            return vec![];
        };
        self.effects += 1;
        // Each beginning takes other effects than the one before it.
        if !(self.effects + self.case.at.unwrap_or_default()).is_multiple_of(one_in) {
            return vec![];
        }
        if self.case.at.is_none() {
            return vec![PAIRED];
        }
        let others: Vec<Fault> =
            ahead.possible.iter().copied().filter(|fault| !CRASHES.contains(fault)).collect();
        let in_turn = others.get(ahead.number % others.len().max(1)).copied();
        CRASHES.into_iter().chain(in_turn).collect()
    }

    /// Splits off a process for `case`; whether this is the one.
    fn split(&mut self, case: Case) -> bool {
        while self.children.len() >= self.most {
            self.wait_for_one();
        }
        let (report, tell) = pipe().expect("a pipe");
        match fork().expect("another process") {
            Side::Parent(id) => {
                self.children.push(Child { id: Pid::from_raw(id), case, report });
                false
            }
            Side::Child => {
                self.rest = case.faults.iter().copied().collect();
                self.case = case;
                self.children.clear();
                self.courses.clear();
                self.found = Found::default();
                self.parent = Some(tell);
                // As many at once as there are cores is the trunk's affair.
                self.most = 1;
                true
            }
        }
    }

    /// Tells people who wait how far it has come; the trunk knows of all.
    fn tell(&mut self) {
        let due = self.told.elapsed() >= TELL && self.parent.is_none();
        if due && std::io::stderr().is_terminal() {
            let Found { plans, broken, .. } = &self.found;
            eprint!("{}: {plans} plans so far, {} violations\r", self.case.story, broken.len());
            self.told = Instant::now();
        }
    }

    /// Waits until a child has ended, whichever is first, and notes what it found.
    fn wait_for_one(&mut self) {
        let readable = |child| PollFd::new(child, PollFlags::IN);
        let mut told: Vec<PollFd<'_>> = self.children.iter().map(|c| readable(&c.report)).collect();
        let polled = poll(&mut told, None).is_ok();
        let first = told.iter().position(|fd| !fd.revents().is_empty());
        let Some(at) = first.filter(|_| polled) else { return };
        let Child { id, case, mut report } = self.children.swap_remove(at);
        let mut text = Vec::new();
        let read = report.read_to_end(&mut text);
        // It is done: nothing is left of it but its id.
        let _ended = waitpid(id, WaitOptions::empty());
        let Some(report) = read.ok().and_then(|_| from_text::<Report>(&text)) else {
            self.found.plans += 1;
            self.found.broken.push((case, "died: the process of this plan ended".to_owned()));
            return;
        };
        self.found.plans += report.found.plans;
        self.found.broken.extend(report.found.broken);
        self.found.most_kib = self.found.most_kib.max(report.found.most_kib);
        self.found.never += report.found.never;
        self.found.left += report.found.left;
        if let (true, Some(course)) = (self.is_plain_beginning(), report.course) {
            self.courses.push((report.case.unwrap_or_else(|| case.clone()), course));
        }
        self.found.digests.push((case, report.digest));
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use applecart_sim::faults::Step;

    use super::*;
    use crate::plant::Bug;
    use crate::run::{NO_SILENCE, run};
    use crate::story::Story;

    /// A release, how it goes, and its first effect.
    fn release() -> (Case, End, usize) {
        let calm = Case { silence: Some(NO_SILENCE), ..Case::new(Story::Release, 1) };
        let reference = run(&calm, None);
        let begun = |number: usize| number >= reference.first;
        let mut effects = reference.steps.iter().filter(|step| step.class == Class::Effect);
        let first = effects.find(|step| begun(step.number)).expect("an effect").number;
        (calm, reference, first)
    }

    #[test]
    fn a_fault_that_cannot_happen_to_its_step_becomes_one_that_can() {
        let (calm, reference, first) = release();
        let later = first + 3;
        let case = |fault| {
            let faults = vec![(first, Fault::Error), (later, fault)];
            Case { faults, ..calm.clone() }
        };
        let met = |fault| {
            let step = run(&case(fault), Some(&reference)).steps[later].clone();
            (step.fault, step.possible())
        };
        let (_, possible) = met(Fault::Error);
        let impossible = Fault::ALL.iter().find(|fault| !possible.contains(fault));
        let impossible = *impossible.expect("no step meets every fault");
        assert_eq!(met(impossible), (Some(possible[later % possible.len()]), possible));
    }

    #[test]
    fn a_plan_that_is_wrong_beside_its_beginning_is_told_as_it_was_played() {
        let bug = Some(Bug::Amnesia);
        let calm = Case { bug, ..Case::new(Story::DeleteAnywhere, 1) };
        let claim = run(&calm.reference(), None);
        let is_effect = |step: &&Step| step.number >= claim.first && step.class == Class::Effect;
        let begun =
            Case { at: claim.steps.iter().find(is_effect).map(|step| step.number), ..calm.clone() };
        let crash = (begun.begins(), Fault::CrashAfter);
        let second = crash.0 + 3;
        let crashed = run(&Case { faults: vec![crash], ..begun.clone() }, None);
        let possible = crashed.steps[second].possible();
        let impossible = Fault::ALL.iter().copied().find(|fault| !possible.contains(fault));
        let faults = vec![crash, (second, impossible.expect("no step meets every fault"))];
        let seconds = Seconds { pairs: None, one_in: 1_000_000 };
        let cases = vec![Case { faults, ..begun }];
        let found = explore(&calm, cases, Some(claim.course), seconds, None);
        let [(case, told)] = found.broken.as_slice() else { panic!("{:?}", found.broken) };
        assert!(told.starts_with("counts: "), "{told}");
        assert_eq!(case.faults, [crash, (second, possible[second % possible.len()])]);
    }

    #[test]
    fn when_the_time_is_up_no_plan_begins_and_those_that_are_left_are_counted() {
        let (calm, reference, first) = release();
        let case = |fault| Case { faults: vec![(first, fault)], silence: None, ..calm.clone() };
        let cases = vec![case(Fault::Error), case(Fault::CrashAfter)];
        let seconds = Seconds { pairs: Some(1), one_in: 1 };
        let until = |time| Instant::now() + time;
        let explore = |until| {
            let course = Some(reference.course.clone());
            explore(&calm, cases.clone(), course, seconds, Some(until))
        };
        let none = explore(until(Duration::ZERO));
        assert_eq!((none.plans, none.left, none.broken), (0, 2, vec![]));
        let all = explore(until(Duration::from_hours(1)));
        assert!(all.plans > 2 && all.left == 0, "{all:?}");
    }

    #[test]
    fn a_fault_whose_step_never_comes_is_counted() {
        let (calm, reference, first) = release();
        let faults = vec![(first, Fault::Error), (1_000_000, Fault::Error)];
        let case = Case { faults, silence: None, ..calm.clone() };
        let seconds = Seconds { pairs: None, one_in: 1 };
        let found = explore(&calm, vec![case], Some(reference.course), seconds, None);
        assert_eq!((found.plans, found.never, found.broken), (1, 1, vec![]));
    }
}
