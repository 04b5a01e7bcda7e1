//! Figures of claims: N Machines and a pool of N, over HTTP, with the real provider, a simulated
//! Scaleway and a real API server. Nothing is asserted but that all Machines get a host.
//!
//! Cluster, Machines and our objects are written here, as Cluster API's manager would have them by
//! the time that the provider looks at them. There are no controllers behind the API server, so no
//! agent's token is ever filled in, and a claimed Machine waits for it: no Mac is called.

mod floor;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::binaries::CLUSTER_API_MANIFESTS;
use crate::ground::our_definitions;
use crate::installation::{POOL_PREFIX, exports, program, request};
use crate::{Audit, Binaries, ControlPlane, Process, objects, wait};

/// Where everything is.
const NAMESPACE: &str = "bench";
/// The Cluster of all Machines, and their fleet.
const CLUSTER: &str = "fleet";
/// Who the provider is to the API server.
const PROVIDER: &str = "provider";
/// Objects that are written at once before it begins.
const WRITES: usize = 16;
/// Longest wait for all claims: twice what the system before us needs for the most of them.
const PATIENCE: Duration = Duration::from_mins(30);
/// Calls that the simulated Scaleway may delay: more than any run makes.
const DELAYED: u64 = 1_000_000_000;

/// How long to wait between two looks, for each Machine: a look reads all of them, and shall not be
/// what keeps the API server busy.
const LOOK_FOR_EACH: Duration = Duration::from_millis(1);

/// The unit of times in `/proc`: the same on every Linux.
const TICKS_A_SECOND: u64 = 100;

/// How many Machines, and how long Scaleway takes to answer.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Machines, and hosts in the pool.
    pub machines: usize,
    /// What each call to Scaleway takes, at least.
    pub delay: Duration,
}

/// What a case took.
struct Figures {
    case: Case,
    /// Calls to Scaleway, by operation.
    calls: BTreeMap<String, u64>,
    /// From the start of the provider to the last provider ID.
    wall: Duration,
    /// The provider's share of it on a core.
    cpu: Duration,
    /// The same of the control plane: the API server and etcd.
    plane_cpu: Duration,
    peak_kib: u64,
    /// Calls of the provider to Kubernetes, by verb and resource.
    kubernetes: BTreeMap<String, usize>,
}

/// Plays each case on a control plane of its own, and prints a table of them.
///
/// The provider is this program, or the one beside us.
pub async fn claims(cases: &[Case], provider: Option<&Path>) -> Result<()> {
    let provider = provider.map_or_else(|| program("applecart"), |path| Ok(path.to_owned()))?;
    let binaries = Binaries::obtain().await?.without_controllers();
    println!("{}", HEAD.join("  "));
    let mut measured = BTreeSet::new();
    for case in cases {
        let figures = play(&binaries, &provider, *case).await?;
        println!("{figures}");
        figures.stay_within_the_calls()?;
        // How long Scaleway takes makes no difference to it.
        if measured.insert(case.machines) {
            let mut plane = prepared(&binaries, case.machines).await?;
            println!("{}", floor::told(&floor::measure(&mut plane, case.machines).await?));
        }
    }
    Ok(())
}

/// What something took.
struct Spent {
    wall: Duration,
    /// The control plane's share of it on a core.
    plane: Duration,
}

/// A control plane of its own with so many Machines.
async fn prepared(binaries: &Binaries, machines: usize) -> Result<ControlPlane> {
    let plane = ControlPlane::start(binaries).await?;
    define(&plane).await?;
    write_objects(&plane, machines).await?;
    Ok(plane)
}

const HEAD: [&str; 12] = [
    "Machines",
    "ms a call",
    "   lists",
    "   gets",
    "renames",
    "  keys",
    "a Machine",
    "    wall",
    "     CPU",
    "plane's CPU",
    "peak memory",
    "Kubernetes calls",
];

/// What one Machine may ask of Scaleway besides the list of the zone.
const CALLS_A_MACHINE: u64 = 6;

impl Figures {
    fn of(&self, operation: &str) -> u64 {
        self.calls.get(operation).copied().unwrap_or_default()
    }

    /// However long anything took: calls grow with the Machines, and no faster.
    fn stay_within_the_calls(&self) -> Result<()> {
        let own = self.of("get_server") + self.of("update_server");
        let most = CALLS_A_MACHINE * u64::try_from(self.case.machines)?;
        ensure!(own <= most, "{own} calls for hosts, and {most} are enough");
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { machines, delay } = self.case;
        let (lists, gets) = (self.of("list_servers"), self.of("get_server"));
        let renames = self.of("update_server");
        let all: u64 = self.calls.values().sum();
        let keys = all - lists - gets - renames;
        // Lists are everybody's, and keys the fleet's.
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let each = (gets + renames) as f64 / machines as f64;
        let (wall, cpu) = (self.wall.as_secs_f64(), self.cpu.as_secs_f64());
        let plane = self.plane_cpu.as_secs_f64();
        let peak = self.peak_kib / 1024;
        let (delay, kubernetes) = (delay.as_millis(), self.kubernetes.values().sum::<usize>());
        write!(
            f,
            "{machines:>8}  {delay:>9}  {lists:>8}  {gets:>7}  {renames:>7}  {keys:>6}  \
             {each:>9.2}  {wall:>6.1} s  {cpu:>6.1} s  {plane:>9.1} s  \
             {peak:>7} MiB  {kubernetes:>16}"
        )?;
        let mut kinds: Vec<_> = self.kubernetes.iter().collect();
        kinds.sort_by_key(|(kind, count)| (Reverse(**count), *kind));
        write!(f, "\n          to Kubernetes:")?;
        // What is not done for each Machine does not grow with them.
        for (kind, count) in kinds.into_iter().filter(|(_, count)| **count >= machines) {
            write!(f, " {count} {kind},")?;
        }
        Ok(())
    }
}

async fn play(binaries: &Binaries, provider: &Path, case: Case) -> Result<Figures> {
    let mut plane = prepared(binaries, case.machines).await?;
    let (mut scaleway, environment) = start_scaleway(case, plane.folder()).await?;
    let url = environment.get("SCW_API_URL").context("no address")?;
    let before = plane_cpu(&mut plane)?;
    let began = Instant::now();
    let mut provider = start_provider(provider, &mut plane, &environment)?;
    let claimed = wait::until_within(PATIENCE, "all Machines to be claimed", async || {
        let left = unclaimed(&plane).await?;
        if left > 0 {
            tokio::time::sleep(LOOK_FOR_EACH * u32::try_from(case.machines)?).await;
        }
        ensure!(left == 0, "{left} of {} are not claimed", case.machines);
        Ok(Some(began.elapsed()))
    });
    let wall = tokio::select! {
        wall = claimed => wall?,
        ended = until_ended(&mut scaleway) => return Err(ended),
        ended = until_ended(&mut provider) => return Err(ended),
    };
    let plane_cpu = plane_cpu(&mut plane)?.saturating_sub(before);
    let state = request("GET", &format!("{url}/sim/state"), &[], None).await?;
    let (cpu, peak_kib) = (cpu(provider.id())?, peak_kib(provider.id())?);
    let kubernetes = Audit::read(&plane, PROVIDER)?.by_kind();
    let calls = serde_json::from_value(state["calls"].clone()).context("no calls in its state")?;
    Ok(Figures { case, calls, wall, cpu, plane_cpu, peak_kib, kubernetes })
}

/// Why a program that should run does not any more.
async fn until_ended(process: &mut Process) -> anyhow::Error {
    loop {
        if let Err(error) = process.must_live() {
            return error;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Our kinds, and those of Cluster API: stored as they are written, with nobody to convert them.
async fn define(plane: &ControlPlane) -> Result<()> {
    let path = plane.binaries().path(CLUSTER_API_MANIFESTS)?;
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("could not read {}", path.display()))?;
    let mut definitions = objects::read(&text).context("in Cluster API's manifests")?;
    let wanted = ["clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io"];
    definitions.retain(|object| wanted.iter().any(|name| object["metadata"]["name"] == **name));
    for definition in &mut definitions {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    definitions.extend(our_definitions()?);
    objects::define(&plane.client(), &definitions).await
}

async fn write_objects(plane: &ControlPlane, machines: usize) -> Result<()> {
    let client = plane.client();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    objects::create(&client, &namespace, false).await?;
    let mut cluster = objects::named("cluster.x-k8s.io/v1beta2", "Cluster", NAMESPACE, CLUSTER);
    cluster["spec"] =
        json!({"infrastructureRef": reference("ScalewayAppleSiliconCluster", CLUSTER)});
    objects::create(&client, &cluster, false).await?;
    let provisioned = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
    objects::merge_status(&client, &cluster, &provisioned).await?;
    stream::iter(0..machines)
        .map(|number| write_machine(&client, number))
        .buffer_unordered(WRITES)
        .try_collect()
        .await
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name})
}

async fn write_machine(client: &kube::Client, number: usize) -> Result<()> {
    let name = format!("{CLUSTER}-{number:04}");
    let mut machine = objects::named("cluster.x-k8s.io/v1beta2", "Machine", NAMESPACE, &name);
    machine["spec"] = json!({
        "clusterName": CLUSTER,
        "bootstrap": {"dataSecretName": "none"},
        "infrastructureRef": reference("ScalewayAppleSiliconMachine", &name),
    });
    let machine = objects::create(client, &machine, false).await?;
    let mut ours = like_ours(&name);
    ours["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": CLUSTER});
    ours["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name,
        "uid": machine["metadata"]["uid"], "controller": true,
    }]);
    ours["spec"] = json!({
        "adoptPoolPrefix": POOL_PREFIX, "fleetName": CLUSTER, "type": "M2-L", "zone": "fr-par-1",
        "os": "macos-tahoe",
    });
    objects::create(client, &ours, false).await.map(|_| ())
}

fn like_ours(name: &str) -> Value {
    let version = "infrastructure.cluster.x-k8s.io/v1alpha1";
    objects::named(version, "ScalewayAppleSiliconMachine", NAMESPACE, name)
}

async fn start_scaleway(case: Case, folder: &Path) -> Result<(Process, BTreeMap<String, String>)> {
    let mut command = Command::new(program("applecart")?);
    command
        .args(["sim", "scaleway", "--pool-prefix", POOL_PREFIX, "--os", "macos-tahoe-26.0"])
        .args(["--hosts", &case.machines.to_string()]);
    let mut process = Process::start("scaleway", &command, folder)?;
    let environment = exports(&mut process, "SCW_API_URL").await?;
    if !case.delay.is_zero() {
        let rule = json!({"effect": {"delay": case.delay.as_secs_f64()}, "times": DELAYED});
        let url = format!("{}/sim/rules", environment["SCW_API_URL"]);
        request("POST", &url, &[], Some(&rule)).await?;
    }
    Ok((process, environment))
}

fn start_provider(
    program: &Path,
    plane: &mut ControlPlane,
    environment: &BTreeMap<String, String>,
) -> Result<Process> {
    let tart = plane.folder().join("tart.tar.gz");
    let mut packer = Command::new(self::program("applecart")?);
    let status = packer.args(["sim", "tart-archive"]).arg(&tart).status();
    ensure!(status.context("could not start applecart")?.success(), "no Tart to install");
    let kubeconfig = plane.kubeconfig_of_user(PROVIDER, Some("system:masters"))?;
    let mut command = Command::new(program);
    command
        // As the chart sets it.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TRIM_THRESHOLD_", "131072")
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        // Nobody else leads, and a machine that this keeps busy may lose a Lease of seconds.
        .args(["provider", "--claim-settle=0s", "--leader-elect=false"])
        // Who has its host waits for a token that nobody fills in here: looking for it shall not be
        // what keeps the API server busy.
        .arg("--look-interval=1h")
        .args(["--secrets-namespace", NAMESPACE, "--health-probe-bind-address=0"])
        .arg("--metrics-bind-address=0")
        .arg(format!("--api-server-url={}", plane.server()))
        .arg(format!("--tart-tarball-path={}", tart.display()))
        .arg(format!("--tartkubelet-binary-path={}", tart.display()))
        .envs(environment)
        .env("KUBECONFIG", kubeconfig);
    Process::start(PROVIDER, &command, plane.folder())
}

async fn unclaimed(plane: &ControlPlane) -> Result<usize> {
    let all = objects::list(&plane.client(), &like_ours("any")).await?;
    Ok(all.iter().filter(|object| !object["spec"]["providerID"].is_string()).count())
}

/// The most memory that a process had so far.
fn peak_kib(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
    let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let peak = peak.with_context(|| format!("no VmHWM in {path}"))?;
    peak.parse().with_context(|| format!("VmHWM in {path}"))
}

/// How long the control plane kept cores busy so far.
fn plane_cpu(plane: &mut ControlPlane) -> Result<Duration> {
    plane.processes().iter().map(|process| cpu(process.id())).sum()
}

/// How long a process kept a core busy so far.
fn cpu(process: u32) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
    // After the name, which may hold anything: user and system time are the 12th and 13th.
    let (_, fields) = text.rsplit_once(')').with_context(|| format!("no name in {path}"))?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks = times.map(str::parse::<u64>).sum::<Result<u64, _>>();
    let ticks = ticks.with_context(|| format!("no times in {path}"))?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_A_SECOND))
}
