//! The long run: a demo with chaos whose memory is watched, and a sweep of one seed after another.

mod memory;

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::memory::{READ_EVERY, Trend};
use crate::program::{APPLECART, Profile, SWEEP};
use crate::terminal::seconds;

/// How many times memory is told in one run.
const TOLD: u32 = 10;
/// Many times faster than a real fleet: ten minutes are more than a day of it.
const SPEED: &str = "240";

/// How glibc keeps memory for the provider, as the chart tells it: with an arena for each thread
/// and nothing given back, what was ever used at once would pass for growth.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
];

/// How a line begins in which the demo counts its faults.
const CHAOS: &str = "chaos: ";
/// In place of the first one.
const NOTHING_TOLD: &str = "chaos: nothing told yet";

/// What was typed after `soak`.
#[derive(clap::Args)]
pub struct Soak {
    /// For how long each of them runs.
    ///
    /// The demo's memory is read every 15 s. The first half is for warming up, since Events live
    /// for five minutes; growing is a last quarter whose mean is more than 1.5 % above that of the
    /// third one. So ten minutes show what grows by 0.4 MB a minute at 60 MB, an hour what does by
    /// 0.06; less than ten minutes are not judged.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this one.
    #[arg(long, value_enum)]
    only: Option<Part>,
}

/// What a soak is made of.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// `applecart demo --chaos`, and how much memory it takes
    Demo,
    /// Sweeps of one seed after another, at full breadth
    Sweep,
}

impl Soak {
    /// Runs it to its end, or to the first thing that breaks.
    pub fn run(&self) -> Result<ExitCode> {
        if self.only != Some(Part::Sweep) && !self.demo()? {
            return Ok(ExitCode::FAILURE);
        }
        if self.only == Some(Part::Demo) {
            return Ok(ExitCode::SUCCESS);
        }
        let (minutes, seed) = (self.minutes.to_string(), self.seed.to_string());
        let mut command = SWEEP.build(Profile::Release)?;
        command.args(["soak", "--minutes", &minutes, "--seed", &seed]);
        let sound = SWEEP.status(command)?.success();
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The demo with chaos; whether nothing broke and its memory stayed flat.
    fn demo(&self) -> Result<bool> {
        let seed = self.seed.to_string();
        let mut child = APPLECART
            .build(Profile::Release)?
            .envs(ALLOCATOR)
            .args(["demo", "--chaos", "--port", "0", "--speed", SPEED, "--seed", &seed])
            .stdout(Stdio::piped())
            .spawn()
            .context("could not start the demo")?;
        let watched = watch(&mut child, Duration::from_mins(self.minutes));
        let killed = child.kill().and_then(|()| child.wait());
        killed.context("could not end the demo")?;
        watched
    }
}

fn watch(child: &mut Child, time: Duration) -> Result<bool> {
    let told = last_words(child)?;
    let began = Instant::now();
    let mut chaos = String::from(NOTHING_TOLD);
    let mut memory = Vec::new();
    let mut tenths = 1;
    for due in readings_due(time) {
        // Until it is time to look, or until there is nobody left to tell anything.
        while let Ok(latest) = told.recv_timeout(due.saturating_sub(began.elapsed())) {
            chaos = latest;
        }
        if let Some(status) = child.try_wait().context("lost sight of the demo")? {
            println!("demo: ended with {status} after {}; {chaos}", seconds(began.elapsed()));
            return Ok(false);
        }
        let kib = resident_kib(child.id())?;
        memory.push(kib);
        if due >= time * tenths / TOLD {
            println!("demo, {}: {} MB of memory; {chaos}", seconds(began.elapsed()), kib / 1024);
            tenths += 1;
        }
    }
    if faults_told(&chaos) == 0 {
        println!("demo: no fault was injected, so this run shows nothing; {chaos}");
        return Ok(false);
    }
    Ok(judge(&memory))
}

/// When memory is read.
fn readings_due(time: Duration) -> impl Iterator<Item = Duration> {
    (1..).map(|reading| READ_EVERY * reading).take_while(move |due| *due <= time)
}

/// Tells how memory went; whether it did not grow, as far as can be told.
fn judge(readings_kib: &[u32]) -> bool {
    let Some(trend) = Trend::of(readings_kib) else {
        println!("demo: memory is not judged: in less than ten minutes it only warms up");
        return true;
    };
    println!("demo: memory is {trend}");
    trend.is_flat()
}

/// How many faults a line of the demo's counts.
fn faults_told(line: &str) -> u64 {
    let counted = line.strip_prefix(CHAOS).and_then(|line| line.split(' ').next());
    counted.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The lines in which the demo counts its faults, as they come.
fn last_words(child: &mut Child) -> Result<Receiver<String>> {
    let output = child.stdout.take().context("a piped child has no output")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(std::result::Result::ok);
        for line in lines.filter(|line| line.starts_with(CHAOS)) {
            // Nobody listens any more: the demo is about to be ended.
            let _ = sender.send(line);
        }
    });
    Ok(receiver)
}

/// A process's memory, as the system counts it.
fn resident_kib(id: u32) -> Result<u32> {
    let path = format!("/proc/{id}/status");
    let status =
        std::fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    match line.and_then(|line| line.split_whitespace().next()?.parse().ok()) {
        Some(kib) => Ok(kib),
        None => bail!("{path} tells no VmRSS"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_that_told_of_no_fault_had_none() {
        let line = |faults| {
            format!("chaos: {faults} faults injected, 330 invariants checked, none broken")
        };
        assert_eq!([faults_told(&line(0)), faults_told(&line(566))], [0, 566]);
        assert_eq!(faults_told(NOTHING_TOLD), 0);
    }
}
