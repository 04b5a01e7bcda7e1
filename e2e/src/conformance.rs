//! Conformance: the same requests to the simulated API server and to a real one, and the same
//! answers, but for what `differences` lists with its reason.

mod cases;
mod differences;
mod kinds;
mod play;

use anyhow::{Result, bail};
use kube::Client;
use serde_json::Value;

pub use cases::{Case, Request, cases};
pub use differences::{KNOWN, Known};
pub use kinds::widgets;
pub use play::{Answer, play};

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

/// Plays every case on both servers, in the same namespace of each, and tells how they differ.
pub async fn compare(simulated: &Client, real: &Client, namespace: &str) -> Result<Report> {
    let cases = cases();
    let mut report = Report { cases: cases.len(), ..Report::default() };
    report.excused.resize(KNOWN.len(), 0);
    for case in &cases {
        let ours = play(simulated, namespace, case).await?;
        let theirs = play(real, namespace, case).await?;
        if ours.len() != theirs.len() {
            bail!("{}: {} answers and {}", case.name, ours.len(), theirs.len());
        }
        report.requests += ours.len();
        let before = report.differences.len() + report.excused.iter().sum::<usize>();
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            report.add(case, at, differences::between(ours, theirs));
        }
        let after = report.differences.len() + report.excused.iter().sum::<usize>();
        report.equal += usize::from(before == after);
    }
    Ok(report)
}

impl Report {
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
