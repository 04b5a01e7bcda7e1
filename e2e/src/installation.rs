//! Applecart installed on a control plane, as the chart has it, with a simulated Scaleway and Macs
//! behind real SSH servers around it.
//!
//! The chart is rendered by helm and applied whole, but for its Deployments: there is no kubelet to
//! run them here, so each becomes a process with the arguments of its container and the token of
//! its `ServiceAccount`.

mod disturb;
mod levers;
mod optional;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::binaries::package_folder;
use crate::process::write_private;
use crate::{ControlPlane, Process, objects, wait};
pub use levers::{page, request};
pub use optional::OptionalSteps;

/// Longest wait for a fleet to be as it should: three Macs take half a minute, a loaded machine and
/// killed processes take longer.
const PATIENCE: Duration = Duration::from_mins(6);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(300);
/// The prefix of free hosts.
pub const POOL_PREFIX: &str = "tuist-pool-";
/// The provider's waits, short enough for a story.
const SHORT_WAITS: [(&str, &str); 6] = [
    ("--claim-settle=", "1s"),
    ("--release-settle=", "2s"),
    ("--look-interval=", "1s"),
    ("--keep-interval=", "10s"),
    ("--bootstrap-retry=", "2s"),
    ("--ssh-patience=", "1m"),
];
/// The version that Machines ask for, and Nodes report.
pub const VERSION: &str = "v1.36.4";

/// Who writes the Cluster and the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterForm {
    /// The system before us did, without a control-plane object: `original/fleet.yaml`.
    Original,
    /// Our chart does, with its control-plane object.
    Ours,
    /// Nobody: they come from another cluster.
    Moved,
}

/// How to install.
pub struct Plan {
    /// Namespace that the chart goes to; also the fleet's name, and what other names begin with.
    pub namespace: String,
    /// Hosts in the pool.
    pub hosts: usize,
    /// Who writes the Cluster and the fleet.
    pub cluster: ClusterForm,
    /// Warm runners to keep.
    pub runners: usize,
    /// Seeds ids, and the moments at which processes are killed.
    pub seed: u64,
    /// The namespace whose objects the provider looks at: other stories' fleets are on the same
    /// control plane.
    pub watches: String,
    /// Whether the sweep returns orphans.
    pub reclaims: bool,
    /// Whether Macs join a tailnet, show figures, and may build for GitHub.
    pub optional_steps: bool,
    /// More arguments of the provider, or others instead of the usual ones.
    pub arguments: Vec<String>,
}

impl Plan {
    /// One Mac's worth of runners, and hosts for three Macs and one to spare.
    #[must_use]
    pub fn new(namespace: String, cluster: ClusterForm, seed: u64) -> Self {
        let watches = namespace.clone();
        Self {
            namespace,
            hosts: 4,
            cluster,
            runners: 2,
            seed,
            watches,
            reclaims: false,
            optional_steps: false,
            arguments: Vec::new(),
        }
    }
}

/// A program that can be started again.
struct Program {
    name: String,
    /// Its `ServiceAccount`.
    account: String,
    path: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    health_port: u16,
    process: Process,
}

impl Program {
    fn is_provider(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "provider")
    }

    /// Starts it again if it ended because another may lead by now, as its Deployment would. Any
    /// other end of its own is an error.
    fn must_live(&mut self, folder: &Path) -> Result<()> {
        if self.process.ended()?.is_none() {
            return Ok(());
        }
        ensure!(self.process.tail().contains("lost the lead"), "{}", self.process.tail());
        self.start(folder)
    }

    fn start(&mut self, folder: &Path) -> Result<()> {
        let Self { name, path, arguments, environment, .. } = self;
        self.process = launch(name, path, arguments, environment, folder)?;
        Ok(())
    }
}

/// Applecart, running.
pub struct Installation {
    /// What it was made from.
    pub plan: Plan,
    client: Client,
    folder: PathBuf,
    ssh_port: u16,
    /// What the chart would run, until it runs.
    deployments: Vec<Value>,
    // In the order in which they end: those that act first, then the world around them.
    programs: Vec<Program>,
    macs: Option<Process>,
    macs_url: String,
    optional: Option<OptionalSteps>,
    scaleway: Option<Process>,
    scaleway_environment: BTreeMap<String, String>,
    chaos: Option<(SmallRng, Instant)>,
    /// How often each process was killed so far; agents count as one.
    pub kills: BTreeMap<String, usize>,
}

impl Installation {
    /// Installs all of it on `plane`, which must have Cluster API and our definitions.
    pub async fn start(plane: &mut ControlPlane, plan: Plan) -> Result<Self> {
        let mut installation = Self::prepare(plane, plan).await?;
        installation.begin(plane).await?;
        Ok(installation)
    }

    /// Installs all of it, but starts none of its programs yet: see [`Installation::begin`].
    pub async fn prepare(plane: &mut ControlPlane, plan: Plan) -> Result<Self> {
        let folder = plane.folder().join(&plan.namespace);
        std::fs::create_dir_all(&folder).context("could not create a folder")?;
        let ssh_port = plane.free_port()?;
        let (scaleway, environment) = start_scaleway(&plan, ssh_port, &folder).await?;
        let (macs, macs_url) = start_macs(&environment, ssh_port, &folder).await?;
        let client = plane.client();
        let optional = if plan.optional_steps {
            Some(OptionalSteps::start(&client, &plan.namespace, plan.seed, &folder).await?)
        } else {
            None
        };
        let mut installation = Self {
            client,
            folder,
            ssh_port,
            deployments: Vec::new(),
            programs: Vec::new(),
            macs: Some(macs),
            macs_url,
            optional,
            scaleway: Some(scaleway),
            scaleway_environment: environment,
            chaos: None,
            kills: BTreeMap::new(),
            plan,
        };
        installation.register_key().await?;
        installation.deployments = installation.apply_chart(plane).await?;
        Ok(installation)
    }

    /// Installs another one on another control plane, with the same Scaleway and the same Macs
    /// around it. Its fleet's key has to be given to it by hand, as everywhere.
    pub async fn beside(&self, plane: &mut ControlPlane, plan: Plan) -> Result<Self> {
        let folder = plane.folder().join(&plan.namespace);
        std::fs::create_dir_all(&folder).context("could not create a folder")?;
        let mut installation = Self {
            client: plane.client(),
            folder,
            ssh_port: self.ssh_port,
            deployments: Vec::new(),
            programs: Vec::new(),
            macs: None,
            macs_url: self.macs_url.clone(),
            optional: None,
            scaleway: None,
            scaleway_environment: self.scaleway_environment.clone(),
            chaos: None,
            kills: BTreeMap::new(),
            plan,
        };
        installation.deployments = installation.apply_chart(plane).await?;
        installation.begin(plane).await?;
        Ok(installation)
    }

    /// Starts its programs.
    pub async fn begin(&mut self, plane: &mut ControlPlane) -> Result<()> {
        for deployment in std::mem::take(&mut self.deployments) {
            self.run_deployment(plane, &deployment).await?;
        }
        Ok(())
    }

    /// The fleet's SSH key: in its Secret, and known to Scaleway.
    async fn register_key(&self) -> Result<()> {
        let key = self.folder.join("fleet-key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "fleet", "-f"])
            .arg(&key)
            .status();
        ensure!(made.context("ssh-keygen is missing")?.success(), "ssh-keygen failed");
        let public = std::fs::read_to_string(key.with_extension("pub"))?;
        let mut secret = objects::named(
            "v1",
            "Secret",
            &self.plan.namespace,
            &format!("{}-ssh", self.plan.namespace),
        );
        secret["stringData"] = json!({"id_ed25519": std::fs::read_to_string(&key)?});
        objects::create(&self.client, &secret, false).await?;
        let body = json!({
            "name": self.plan.namespace,
            "public_key": public.trim(),
            "project_id": self.scaleway_environment["SCW_DEFAULT_PROJECT_ID"],
        });
        self.scaleway("POST", "/iam/v1alpha1/ssh-keys", Some(&body)).await?;
        Ok(())
    }

    /// Renders and applies the chart; its Deployments come back.
    async fn apply_chart(&self, plane: &ControlPlane) -> Result<Vec<Value>> {
        let values = self.folder.join("values.yaml");
        write_private(&values, &self.values(plane.server()).to_string())?;
        let output = Command::new(plane.binaries().path("helm")?)
            .args(["template", &self.plan.namespace])
            .arg(package_folder().join("../chart"))
            .args(["--kube-version", VERSION])
            .args(["--namespace", &self.plan.namespace, "--values"])
            .arg(&values)
            .output()
            .context("could not start helm")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm template: {complaint}");
        let mut all = objects::read(&String::from_utf8(output.stdout)?)?;
        if self.plan.cluster == ClusterForm::Original {
            let path = package_folder().join("original/fleet.yaml");
            let text = std::fs::read_to_string(path).context("no fleet of the original's")?;
            all.extend(objects::read(&text.replace("NAME", &self.plan.namespace))?);
        }
        let mut deployments = Vec::new();
        for object in all {
            if object["kind"] == "Deployment" {
                deployments.push(object);
            } else {
                let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
                objects::apply(&self.client, &object).await.with_context(|| what)?;
            }
        }
        Ok(deployments)
    }

    fn values(&self, server: &str) -> Value {
        let pool = json!({
            "name": "pool",
            "runnerImage": "registry.example/runner@sha256:6a05",
            "dispatchLabel": "macos-26",
            "replicas": self.plan.runners,
            "pod": {"cpuMilli": 4000, "memoryMB": 7168},
        });
        let mut arguments = vec![format!("--namespace={}", self.plan.watches)];
        let given = |flag: &str| self.plan.arguments.iter().any(|a| a.starts_with(flag));
        for (flag, wait) in SHORT_WAITS.into_iter().filter(|(flag, _)| !given(flag)) {
            arguments.push(format!("{flag}{wait}"));
        }
        arguments.extend(self.plan.arguments.iter().cloned());
        json!({
            "fullnameOverride": self.plan.namespace,
            "capi": {"enabled": self.plan.cluster == ClusterForm::Ours},
            "macosFleet": {
                "enabled": self.plan.cluster == ClusterForm::Ours,
                "name": self.plan.namespace,
                "replicas": 0,
                "adoptPoolPrefix": POOL_PREFIX,
                "orphanReclaim": {"activeReclaim": self.plan.reclaims},
                "apiServerURL": server,
                "kubernetesVersion": VERSION,
                "machine": {"type": "M2-L", "zone": "fr-par-1", "os": "macos-tahoe"},
            },
            "runnersFleet": {
                "enabled": true,
                "namespace": self.runners_namespace(),
                "pools": [pool],
            },
            "server": {"appUrl": "https://ci.example"},
            "provider": {"extraArgs": arguments},
        })
    }

    /// Namespace of runner Pods.
    #[must_use]
    pub fn runners_namespace(&self) -> String {
        format!("{}-runners", self.plan.namespace)
    }

    /// Runs a Deployment's container as a process under its `ServiceAccount`.
    async fn run_deployment(&mut self, plane: &mut ControlPlane, deployment: &Value) -> Result<()> {
        let name = objects::name(deployment)?.to_owned();
        let pod = &deployment["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().context("no ServiceAccount")?;
        let namespace = self.plan.namespace.clone();
        let kubeconfig = plane.kubeconfig_of_service_account(&namespace, account).await?;
        let container = &pod["containers"][0];
        let given = container["args"].as_array().context("no arguments")?;
        let mut arguments: Vec<String> =
            given.iter().filter_map(|a| a.as_str().map(str::to_owned)).collect();
        let health_port = plane.free_port()?;
        arguments.push(format!("--health-probe-bind-address=127.0.0.1:{health_port}"));
        // All of them share one network here, and metrics are on the health page too.
        arguments.push("--metrics-bind-address=0".to_owned());
        if arguments.first().is_some_and(|verb| verb == "provider") {
            let tart = self.folder.join("tart.tar.gz");
            let mut packer = Command::new(program("applecart")?);
            let status = packer.args(["sim", "tart-archive"]).arg(&tart).status();
            ensure!(status.context("could not start applecart")?.success(), "no Tart to install");
            arguments.push(format!("--tart-tarball-path={}", tart.display()));
            arguments.push(format!("--tartkubelet-binary-path={}", tart.display()));
            arguments.push(format!("--ssh-port={}", self.ssh_port));
            arguments.extend(self.optional.iter().flat_map(OptionalSteps::arguments));
        }
        let mut environment = self.scaleway_environment.clone();
        for variable in container["env"].as_array().into_iter().flatten() {
            let field = &variable["valueFrom"]["fieldRef"]["fieldPath"];
            let value = match field.as_str() {
                Some("metadata.namespace") => namespace.clone(),
                Some("metadata.name") => format!("{name}-0"),
                _ => continue,
            };
            environment.insert(variable["name"].as_str().context("no name")?.to_owned(), value);
        }
        environment.insert("KUBECONFIG".to_owned(), kubeconfig.display().to_string());
        let path = program("applecart")?;
        let process = launch(&name, &path, &arguments, &environment, &self.folder)?;
        let account = account.to_owned();
        let program = Program { name, account, path, arguments, environment, health_port, process };
        self.programs.push(program);
        Ok(())
    }

    /// Starts a second provider beside the first, as a second replica is.
    pub fn second_provider(&mut self, plane: &mut ControlPlane) -> Result<()> {
        self.another_provider(plane, "second", &[])
    }

    /// Starts a provider beside the first that only observes, with these flags besides.
    pub fn observer(&mut self, plane: &mut ControlPlane, flags: &[String]) -> Result<()> {
        let flags = [&["--observe-only".to_owned()], flags].concat();
        self.another_provider(plane, "observer", &flags)
    }

    /// What a program that was started beside the first provider has logged.
    pub fn logged(&self, called: &str) -> Result<String> {
        let program = self.programs.iter().find(|program| program.name.ends_with(called));
        let log = program.context("no such program")?.process.log();
        std::fs::read_to_string(log).context("could not read its log")
    }

    fn another_provider(
        &mut self,
        plane: &mut ControlPlane,
        called: &str,
        flags: &[String],
    ) -> Result<()> {
        let provider = |program: &&Program| program.arguments.iter().any(|a| a == "provider");
        let first = self.programs.iter().find(provider).context("no provider runs")?;
        let (path, mut environment) = (first.path.clone(), first.environment.clone());
        let name = format!("{}-{called}", first.name);
        environment.insert("POD_NAME".to_owned(), name.clone());
        let port = format!("--health-probe-bind-address=127.0.0.1:{}", first.health_port);
        let health_port = plane.free_port()?;
        let other = format!("--health-probe-bind-address=127.0.0.1:{health_port}");
        let arguments = first.arguments.iter();
        let arguments = arguments.map(|a| if *a == port { other.clone() } else { a.clone() });
        let arguments: Vec<String> = arguments.chain(flags.iter().cloned()).collect();
        let account = first.account.clone();
        let process = launch(&name, &path, &arguments, &environment, &self.folder)?;
        let program = Program { name, account, path, arguments, environment, health_port, process };
        self.programs.push(program);
        Ok(())
    }

    /// Where what the first provider says is kept, however often it was started.
    pub fn provider_log(&self) -> Result<PathBuf> {
        let provider = self.programs.iter().find(|program| program.is_provider());
        let provider = provider.context("no provider runs")?;
        Ok(provider.process.log().to_owned())
    }

    /// The optional steps, for a plan that has them.
    pub fn optional(&self) -> Result<&OptionalSteps> {
        self.optional.as_ref().context("the plan has no optional steps")
    }

    /// A client of its cluster that may do everything.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Stops the provider where it is, or lets it go on.
    pub fn freeze_provider(&self, frozen: bool) -> Result<()> {
        let provider = |program: &&Program| program.arguments.iter().any(|a| a == "provider");
        let provider = self.programs.iter().find(provider).context("no provider runs")?;
        provider.process.freeze(frozen)
    }

    /// Waits until `look` sees something; processes may be killed meanwhile.
    pub async fn until<T>(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&Client) -> Result<Option<T>>,
    ) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        let client = self.client.clone();
        loop {
            self.kill_something().await?;
            for program in &mut self.programs {
                program.must_live(&self.folder)?;
            }
            self.macs.iter_mut().try_for_each(Process::must_live)?;
            let seen = look(&client).await;
            if let Ok(Some(seen)) = seen {
                return Ok(seen);
            }
            if Instant::now() > end {
                let error = seen.err().map(|error| format!("{error:#}")).unwrap_or_default();
                bail!("waited {} s for {what}: {error}\n{}", PATIENCE.as_secs(), self.tails());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The last lines of everything.
    #[must_use]
    pub fn tails(&self) -> String {
        let programs = self.programs.iter().map(|program| &program.process);
        let tail = |process: &Process| format!("--- {}\n{}\n", process.name(), process.tail());
        programs.chain(&self.macs).chain(&self.scaleway).map(tail).collect()
    }

    /// The names under which its programs are known to the API server.
    #[must_use]
    pub fn users(&self) -> Vec<String> {
        let user = |program: &Program| {
            format!("system:serviceaccount:{}:{}", self.plan.namespace, program.account)
        };
        self.programs.iter().map(user).collect()
    }
}

async fn start_scaleway(
    plan: &Plan,
    ssh_port: u16,
    folder: &Path,
) -> Result<(Process, BTreeMap<String, String>)> {
    let mut command = Command::new(program("applecart")?);
    // The port is nobody else's, so these addresses are nobody else's either.
    let first = format!("127.{}.{}.1", 64 + ssh_port / 256, ssh_port % 256);
    command
        .args(["sim", "scaleway", "--first-address", &first, "--pool-prefix", POOL_PREFIX])
        .args(["--os", "macos-tahoe-26.0", "--hosts", &plan.hosts.to_string()])
        .args(["--seed", &plan.seed.to_string()])
        .args(["--reinstalling-seconds", "4", "--rebooting-seconds", "2"]);
    let mut process = Process::start("scaleway", &command, folder)?;
    let environment = exports(&mut process, "SCW_API_URL").await?;
    Ok((process, environment))
}

async fn start_macs(
    scaleway: &BTreeMap<String, String>,
    ssh_port: u16,
    folder: &Path,
) -> Result<(Process, String)> {
    let mut command = Command::new(program("applecart")?);
    command
        .args(["sim", "macs", "--scaleway", &scaleway["SCW_API_URL"], "--speed", "60"])
        .args(["--ssh-port", &ssh_port.to_string(), "--agent"])
        .arg(program("tart-kubelet")?);
    let mut process = Process::start("macs", &command, folder)?;
    let mut environment = exports(&mut process, "APPLECART_SIM_MACS").await?;
    let url = environment.remove("APPLECART_SIM_MACS").context("no address")?;
    Ok((process, url))
}

/// What a simulator prints as its environment, once `wanted` is in it.
pub async fn exports(process: &mut Process, wanted: &str) -> Result<BTreeMap<String, String>> {
    wait::until(&format!("{} to print {wanted}", process.name()), async || {
        process.must_live()?;
        let text = std::fs::read_to_string(process.log())?;
        let pairs = text.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let all: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(all.contains_key(wanted).then_some(all))
    })
    .await
}

fn launch(
    name: &str,
    path: &Path,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<Process> {
    let mut command = Command::new(path);
    command.args(arguments).envs(environment);
    Process::start(name, &command, folder)
}

/// A program of ours: built beside this one.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("no name of our own")?;
    let path = own.with_file_name(name);
    ensure!(path.exists(), "{} is missing: run `cargo xtask e2e`", path.display());
    Ok(path)
}
