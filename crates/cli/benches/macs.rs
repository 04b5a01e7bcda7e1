//! What a bootstrap costs over real SSH: `cargo xtask bench mac`. Prints figures; needs Linux and
//! root, as `applecart sim macs` does.

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/support/macs.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use applecart_mac::{
    Answer, Command, Dial, File, HostConfig, Input, Mac, Output, Payload, Report, Session, Ssh,
    Target, bootstrap, reading, sent_line, writing,
};
use bytes::Bytes;
use clap::Parser;
use futures::future::join_all;

use support::Macs;

/// Lives until it is ended.
const AGENT: &str = "#!/bin/sh\nwhile :; do sleep 60; done\n";

/// How often a Mac is dialled until it answers: those that just started need a few.
const DIALS: u64 = 1000;

/// Measures bootstraps over real SSH.
#[derive(Parser)]
struct Arguments {
    /// Macs that are bootstrapped at once.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=250))]
    hosts: u8,
    /// Size of the agent's binary.
    #[arg(long, default_value_t = 32)]
    agent_mb: usize,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A Mac whose calls are counted.
struct Counted<'a> {
    mac: &'a dyn Mac,
    dials: u64,
    calls: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl<'a> Counted<'a> {
    fn new(mac: &'a dyn Mac, dials: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { mac, dials, calls: zero(), sent: zero(), received: zero() }
    }

    /// Counts what goes out for a command: its whole line, and what it reads.
    fn send(&self, command: &Command) {
        let input = match &command.stdin {
            Input::Hidden(bytes) => bytes.expose().len() as u64,
            Input::Payload(payload) => payload.size_bytes(),
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(sent_line(command).len() as u64 + input, Ordering::Relaxed);
    }

    fn receive(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn figures(&self) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} connections, {} round trips, {} sent, {} received",
            self.dials,
            of(&self.calls),
            kib(of(&self.sent)),
            kib(of(&self.received))
        )
    }
}

impl Mac for Counted<'_> {
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>> {
        self.send(&reading(path));
        Box::pin(async move {
            let content = self.mac.read(path).await?;
            self.receive(content.as_ref().map_or(0, Bytes::len));
            Ok(content)
        })
    }

    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()> {
        self.send(&writing(file));
        self.mac.write(file)
    }

    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output> {
        self.send(command);
        Box::pin(async move {
            let output = self.mac.run(command).await?;
            self.receive(output.stdout.len() + output.stderr.len());
            Ok(output)
        })
    }
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes / 1024)
}

/// The most memory that this process ever had, as the kernel counts it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |line| line.trim().to_owned())
}

/// A connection, and how many it took to get one.
async fn dial(target: &Target) -> (Session, u64) {
    for dials in 1..=DIALS {
        if let Ok(session) = Ssh::default().dial(target).await {
            return (session, dials);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} does not answer", target.address)
}

/// One Mac from its present state to what it shall be, and the time that it took.
async fn one(macs: &Macs, index: usize, desired: &HostConfig) -> (Report, String, Duration) {
    let host = macs.host_at(index).await;
    let began = Instant::now();
    let (session, dials) = dial(&macs.target_of(&host)).await;
    let counted = Counted::new(&*session.mac, dials);
    let report = bootstrap(&counted, desired, &|_| {}).await.expect("it converges");
    assert!(report.converged(), "{report:?}");
    (report, counted.figures(), began.elapsed())
}

async fn measure(arguments: &Arguments) {
    // One is measured alone, before the others.
    let macs = Macs::start(40, arguments.hosts + 1, AGENT).await;
    let agent = macs.folder.path().join("agent-binary");
    std::fs::write(&agent, vec![7; arguments.agent_mb * 1024 * 1024]).expect("written");
    let agent = Payload::open(agent).expect("a file");
    let mut desired = Vec::new();
    for index in 0..=usize::from(arguments.hosts) {
        let host = macs.host_at(index).await;
        desired.push(macs.desired_with(&host, &format!("bench-{index}"), agent.clone()));
    }
    let before = peak_memory();
    let (_, figures, took) = one(&macs, 0, &desired[0]).await;
    println!("first bootstrap:   {figures}, {took:.1?}");
    let (report, figures, took) = one(&macs, 0, &desired[0]).await;
    assert!(!report.changed(), "{report:?}");
    println!("converged check:   {figures}, {took:.1?}, nothing written");
    println!("the system before: 3 connections, 12 commands, the whole payload every time");
    let began = Instant::now();
    let rest =
        desired.iter().enumerate().skip(1).map(|(index, desired)| one(&macs, index, desired));
    let count = join_all(rest).await.len();
    println!(
        "{count} Macs at once: {:.1?} wall, each with an agent of {} MiB; peak memory {} \
         (before the first: {before})",
        began.elapsed(),
        arguments.agent_mb,
        peak_memory(),
    );
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure(&arguments));
}
