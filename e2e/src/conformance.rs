//! Conformance: the same requests to the simulated API server and to a real one, and the same
//! answers, but for what `differences` lists with its reason.

mod cases;
mod differences;
mod kinds;
mod play;

use anyhow::{Result, bail};
use futures::future::{join, join_all};
use serde_json::Value;

pub use cases::{Case, Request, Who, cases};
pub use differences::{KNOWN, Known, rows};
pub use kinds::widgets;
pub use play::{Answer, Server, play};

/// How two servers answered one request differently.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The case's name.
    pub case: String,
    /// Which of its requests, from 0, and the request.
    pub request: String,
    /// Where in the answer: `code`, or a path in the body.
    pub path: String,
    /// What each said: the simulated server, and the real one.
    pub said: (Value, Value),
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Cases that were played.
    pub cases: usize,
    /// Requests in all of them.
    pub requests: usize,
    /// Cases in which every answer was the same, byte for byte after normalising.
    pub equal: usize,
    /// Differences that are listed with a reason, by the number of the reason.
    pub excused: Vec<usize>,
    /// Differences that are not.
    pub differences: Vec<Difference>,
}

/// How often a case is played that somebody of the real server's disturbs.
const TRIES: usize = 5;

/// Plays every case on both servers, in the same namespace of each, and tells how they differ.
pub async fn compare(simulated: &Server, real: &Server, namespace: &str) -> Result<Report> {
    let (kinds, others) = cases();
    let sets = kinds.iter().map(|cases| compare_all(simulated, real, namespace, cases));
    let mut report = Report::new();
    for part in join_all(sets).await {
        report.join(part?);
    }
    report.join(compare_all(simulated, real, namespace, &others).await?);
    Ok(report)
}

async fn compare_all(
    simulated: &Server,
    real: &Server,
    namespace: &str,
    cases: &[Case],
) -> Result<Report> {
    let mut report = Report::new();
    for case in cases {
        let mut found = compare_one(simulated, real, namespace, case).await?;
        // The real controllers write to Nodes and collect Pods without one, when they come to it;
        // and whatever they write to is told in a bookmark, where none is due.
        let disturbed = ["Node: ", "Pod: ", "watch: no bookmark "];
        let disturbed = disturbed.iter().any(|cases| case.name.starts_with(cases));
        for _ in 1..TRIES {
            if found.differences.is_empty() || !disturbed {
                break;
            }
            found = compare_one(simulated, real, namespace, case).await?;
        }
        report.join(found);
    }
    Ok(report)
}

async fn compare_one(
    simulated: &Server,
    real: &Server,
    namespace: &str,
    case: &Case,
) -> Result<Report> {
    let (ours, theirs) = join(play(simulated, namespace, case), play(real, namespace, case)).await;
    let (ours, theirs) = (ours?, theirs?);
    let mut report = Report { cases: 1, requests: ours.len(), ..Report::new() };
    if ours.len() != theirs.len() {
        bail!("{}: {} answers and {}", case.name, ours.len(), theirs.len());
    }
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        report.add(case, at, differences::between(ours, theirs));
    }
    let known: usize = report.excused.iter().sum();
    report.equal = usize::from(known + report.differences.len() == 0);
    Ok(report)
}

impl Report {
    fn new() -> Self {
        Self { excused: vec![0; KNOWN.len()], ..Self::default() }
    }

    fn join(&mut self, other: Self) {
        self.cases += other.cases;
        self.requests += other.requests;
        self.equal += other.equal;
        for (all, more) in self.excused.iter_mut().zip(other.excused) {
            *all += more;
        }
        self.differences.extend(other.differences);
    }

    fn add(&mut self, case: &Case, at: usize, found: Vec<(String, (Value, Value))>) {
        for (path, said) in found {
            let request = format!("{at}: {}", case.requests[at]);
            let difference = Difference { case: case.name.clone(), request, path, said };
            match differences::excuse(&difference) {
                Some(known) => self.excused[known] += 1,
                None => self.differences.push(difference),
            }
        }
    }
}
