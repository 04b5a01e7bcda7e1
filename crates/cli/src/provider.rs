//! `applecart provider`: the Cluster API infrastructure provider, in the cluster or beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use applecart_api::keys::LEADER_LEASE;
use applecart_core::egress::Tailnet;
use applecart_core::machine::{Limits, Tiers};
use applecart_core::sweep::Policy;
use applecart_mac::{FleetWide, Payload, Ssh, Tailscale, TartBundle};
use applecart_operator::metrics::Metrics;
use applecart_operator::provider::{Egress, Github, Provider, Settings, Spread};
use applecart_operator::sweep;
use applecart_scaleway::{Client, Config, Limit, Profile};
use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::config::Kubeconfig;

use crate::serving::{self, Serving, duration, file, given, named};

/// How often a host that the sweep returns is looked at.
const SWEEP_LOOK: Duration = Duration::from_mins(1);

/// Where the image has the agent.
const AGENT: &str = "/opt/tart-kubelet/tart-kubelet-darwin-arm64";
/// Where the image has Tart.
const TART: &str = "/opt/tart/tart.tar.gz";

const EXAMPLES: &str =
    "Scaleway is named by SCW_SECRET_KEY, SCW_DEFAULT_PROJECT_ID and SCW_API_URL, \
or by Scaleway's own configuration file.

Examples:
  applecart provider --kubeconfig ~/.kube/config --default-adopt-pool-prefix tuist-pool- \\
    --tartkubelet-binary-path ./tart-kubelet --tart-tarball-path ./tart.tar.gz
  applecart provider --observe-only …   on take-over day: tells what it would do, beside the
                                        system that still runs the fleet
  applecart sim scaleway --hosts 3      in another terminal: a Scaleway to try it with, and the
                                        environment to export here";

/// Arguments of `applecart provider`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    serving: serving::Running,
    #[command(flatten)]
    pool: Pool,
    #[command(flatten)]
    macs: Macs,
    #[command(flatten)]
    around: Around,
    #[command(flatten)]
    recovery: Recovery,
    #[command(flatten)]
    sweep: Orphans,
    #[command(flatten)]
    waits: Waits,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Hosts and objects")]
struct Pool {
    /// Pool for objects that name none.
    #[arg(long, env = "CAPI_DEFAULT_ADOPT_POOL_PREFIX", value_name = "PREFIX")]
    default_adopt_pool_prefix: Option<String>,
    /// Looks at the objects of this namespace alone, so that several providers share a cluster.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Namespace of Secrets, of the agents' accounts and of the hosts' Leases.
    #[arg(long, default_value = "default", value_name = "NAMESPACE")]
    secrets_namespace: String,
    /// Secret in that namespace with the token by which Cluster API reaches the Nodes. With it,
    /// each Cluster gets its kubeconfig Secret and an empty Secret `<cluster>-noop-bootstrap` for
    /// Machines to name; without it, both are somebody else's to give.
    #[arg(long, value_name = "NAME")]
    cluster_api_token_secret: Option<String>,
    /// Machines that take a turn at once; none of them waits for a Mac. 0 and less is 1.
    #[arg(long, default_value_t = 32, allow_negative_numbers = true, value_name = "N")]
    machine_max_concurrent_reconciles: i64,
    /// Decides and tells what it would do, but performs nothing: no write to Scaleway, to
    /// Kubernetes or to a Mac, and no part in the election of a leader.
    #[arg(long)]
    observe_only: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sweep: hosts that nobody owns")]
#[allow(clippy::struct_field_names, reason = "the flags are called after them")]
struct Orphans {
    /// Zones that are swept, besides those of all objects.
    #[arg(
        long,
        env = "CAPI_ORPHAN_RECLAIM_ZONES",
        default_value = "fr-par-1",
        value_delimiter = ',',
        value_name = "ZONES"
    )]
    orphan_reclaim_zones: Vec<String>,
    /// Returns hosts that nobody owns to the pool, wiped, if their name begins with this. Without
    /// it they are only reported.
    #[arg(long, env = "CAPI_ORPHAN_RECLAIM_CLAIM_NAME_PREFIX", value_name = "PREFIX")]
    orphan_reclaim_claim_name_prefix: Option<String>,
    /// How often the zones are swept, and how long a host must be nobody's before it is returned; 0
    /// is never.
    #[arg(long, default_value = "15m", value_parser = duration)]
    orphan_reclaim_interval: Duration,
    /// Hosts whose return one sweep may begin.
    #[arg(long, default_value_t = 3, value_name = "N")]
    orphan_reclaim_max_per_cycle: usize,
    /// Returns nothing while orphans are more than this share, in percent, of orphans and objects
    /// together: then it is more likely that objects are missing.
    #[arg(long, default_value_t = 50, value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(..=100))]
    orphan_reclaim_max_share: u8,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Macs")]
struct Macs {
    /// Where Macs reach the API server; looked up in kube-public/cluster-info if not given.
    #[arg(long, env = "CAPI_TARTKUBELET_API_SERVER_URL", value_name = "URL")]
    api_server_url: Option<String>,
    /// Cluster role that each agent is bound to.
    #[arg(long, env = "CAPI_NODE_IDENTITY_CLUSTER_ROLE", default_value = "tart-kubelet")]
    node_identity_cluster_role: String,
    /// The agent's binary for macOS.
    #[arg(
        long,
        env = "CAPI_TARTKUBELET_BINARY_PATH",
        default_value = AGENT,
        value_name = "FILE",
        value_parser = file
    )]
    tartkubelet_binary_path: PathBuf,
    /// Tart, as its makers pack it.
    #[arg(
        long,
        env = "CAPI_TART_TARBALL_PATH",
        default_value = TART,
        value_name = "FILE",
        value_parser = file
    )]
    tart_tarball_path: PathBuf,
    /// What `tart --version` of that tarball prints.
    #[arg(long, default_value = "2.32.1", value_name = "VERSION")]
    tart_version: String,
    /// An archive with tailscale and tailscaled for macOS; used if the Secret below is named.
    #[arg(long, env = "CAPI_TAILSCALE_BINARIES_PATH", value_name = "FILE", value_parser = file)]
    tailscale_binaries_path: Option<PathBuf>,
    /// Secret in the namespace of Secrets with the key `auth-key`, by which Macs join the tailnet.
    /// While it is missing or empty, bootstraps wait for it.
    #[arg(long, env = "CAPI_TAILSCALE_AUTH_KEY_SECRET_NAME", value_name = "NAME")]
    tailscale_auth_key_secret_name: Option<String>,
    /// Tags that Macs join the tailnet with, such as tag:ci,tag:mac.
    #[arg(long, env = "CAPI_TAILSCALE_TAGS", value_name = "TAGS", value_delimiter = ',')]
    tailscale_tags: Vec<String>,
    /// The node exporter's binary for macOS: Macs show their figures in the tailnet, on port 9100.
    #[arg(long, env = "CAPI_NODE_EXPORTER_BINARY_PATH", value_name = "FILE", value_parser = file)]
    node_exporter_binary_path: Option<PathBuf>,
    /// GitHub's API, or /api/v3 of a server of one's own, for Macs that ask for a runner
    /// (ghActionsRunner).
    #[arg(
        long,
        env = "CAPI_GITHUB_API_URL",
        default_value = "https://api.github.com",
        value_name = "URL"
    )]
    github_api_url: String,
    /// CPU cores of a Node, unless its object says otherwise.
    #[arg(long, default_value_t = 8)]
    tartkubelet_host_cpu: u32,
    /// Memory of a Node in MiB, unless its object says otherwise.
    #[arg(long, default_value_t = 16_384)]
    tartkubelet_host_memory_mb: u32,
    /// Pods of a Node.
    #[arg(long, default_value_t = 2)]
    tartkubelet_max_pods: u32,
    /// Port of SSH on a Mac.
    #[arg(long, default_value_t = 22)]
    ssh_port: u16,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Around the fleet (off unless named)")]
struct Around {
    /// Deployment that is rolled when other Macs are Ready, so that its Pods spread over them.
    #[arg(long, env = "CAPI_FLEET_SPREAD_DEPLOYMENT", value_name = "NAME")]
    fleet_spread_deployment: Option<String>,
    /// Its namespace; that of --secrets-namespace if not given.
    #[arg(long, env = "CAPI_FLEET_SPREAD_NAMESPACE", value_name = "NAMESPACE")]
    fleet_spread_namespace: Option<String>,
    /// Tailscale's group of proxies by which the cluster reaches Macs: each gets a Service.
    #[arg(long, env = "CAPI_TAILSCALE_EGRESS_PROXY_GROUP", value_name = "NAME")]
    tailscale_egress_proxy_group: Option<String>,
    /// Namespace of these Services: that of Tailscale's operator.
    #[arg(
        long,
        env = "CAPI_TAILSCALE_EGRESS_NAMESPACE",
        default_value = "tailscale-operator",
        value_name = "NAMESPACE"
    )]
    tailscale_egress_namespace: String,
    /// What follows a Mac's name in the tailnet, such as tail1234.ts.net.
    #[arg(long, env = "CAPI_TAILSCALE_EGRESS_MAGICDNS_SUFFIX", value_name = "SUFFIX")]
    tailscale_egress_magicdns_suffix: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Recovery (0 switches a tier off)")]
struct Recovery {
    /// Failed bootstraps in a row until a host is rebooted, once.
    #[arg(long, default_value_t = 3, value_name = "FAILURES")]
    bootstrap_reboot_after: u32,
    /// Failed bootstraps in a row until a host is wiped and exchanged for another one of the pool;
    /// never after its Machine was first reported provisioned.
    #[arg(long, default_value_t = 8, value_name = "FAILURES")]
    bootstrap_max_attempts: u32,
    /// Failed updates in a row of a Mac that runs until it is left alone for four upkeep intervals
    /// at a time.
    #[arg(long, default_value_t = 5, value_name = "FAILURES")]
    tartkubelet_max_update_attempts: u32,
    /// Owners in a row that a host may fail until it is set aside as tuist-quarantine-….
    #[arg(long, default_value_t = 3, value_name = "OWNERS")]
    quarantine_after: u32,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Waits (15s, 5m, 1h30m)")]
struct Waits {
    /// How long a claim waits for renames by others; 0 where the pool is this cluster's alone. With
    /// 0, a rename that another cluster sent before ours and that lands after it is not waited out:
    /// two clusters that share the pool may then both take one host for theirs.
    #[arg(long, default_value = "15s", value_parser = duration)]
    claim_settle: Duration,
    /// How long a host that is returned keeps its releasing name, at least, while its wipe runs: a
    /// rename that was sent before that must not land after it has its pool name.
    #[arg(long, default_value = "25s", value_parser = duration)]
    release_settle: Duration,
    /// How long a running job may hold up a deletion, unless its Machine says otherwise; 0 waits
    /// for none.
    #[arg(long, default_value = "2h", value_parser = duration)]
    drain_timeout: Duration,
    /// How long a host may take to answer SSH for the first time.
    #[arg(long, default_value = "5m", value_parser = duration)]
    ssh_patience: Duration,
    /// How often something that is on its way is looked at.
    #[arg(long, default_value = "10s", value_parser = duration)]
    look_interval: Duration,
    /// How often a Mac that is well is looked at.
    #[arg(long, default_value = "5m", value_parser = duration)]
    keep_interval: Duration,
    /// How often everything on a Mac that is well is checked, and mended: firewall, login, agent.
    #[arg(long, default_value = "15m", value_parser = duration)]
    upkeep_interval: Duration,
    /// How long a Mac may be out of date because runners keep it busy before its Node is
    /// cordoned, one of a fleet at a time, for as long at most; 0 never does. Idle runners go, jobs
    /// end first.
    #[arg(long, default_value = "1h", value_parser = duration)]
    update_drain_after: Duration,
    /// First wait after a failed bootstrap; it doubles up to ten times as long.
    #[arg(long, default_value = "1m", value_parser = duration)]
    bootstrap_retry: Duration,
    /// How long a host may refuse to be wiped or deleted before it is set aside as
    /// tuist-quarantine-… and its Machine goes.
    #[arg(long, default_value = "30m", value_parser = duration)]
    wipe_patience: Duration,
}

/// Runs the provider until it is told to end.
pub async fn run(arguments: Arguments) -> Result<()> {
    let clock = crate::system_clock();
    let metrics = Metrics::new(clock.clone());
    let serving = Serving::start(&arguments.serving, clock.clone(), metrics).await?;
    let settings = settings(&arguments, &serving.client).await?;
    let profile = Profile::load(|name| std::env::var(name).ok())
        .context("Scaleway is not set up (see `applecart provider --help`)")?;
    tracing::info!(scaleway = profile.api_url(), "hosts come from here");
    let service =
        applecart_scaleway::http_service().map_err(|error| anyhow!("no HTTP client: {error}"))?;
    let config = Config {
        on_call: Some(serving.metrics.on_call()),
        ..Config::new(profile, clock.clone(), Limit::of_process())
    };
    let provider = Provider {
        client: serving.client.clone(),
        github: Github::new(service.clone(), &arguments.macs.github_api_url, clock.clone()),
        scaleway: Client::new(service, config),
        dial: Arc::new(Ssh::default()),
        clock,
        metrics: serving.metrics.clone(),
        settings,
    };
    let work = provider.run().map(|ended| ended.context("the provider cannot begin"));
    if arguments.pool.observe_only {
        tracing::info!("only observes: nothing is performed, and nobody's lead is taken");
        return serving.only_observing().run(LEADER_LEASE, work.boxed()).await;
    }
    serving.run(LEADER_LEASE, work.boxed()).await
}

async fn settings(arguments: &Arguments, client: &kube::Client) -> Result<Settings> {
    let Arguments { pool, macs, recovery, waits, .. } = arguments;
    let api_server_url = match named(macs.api_server_url.as_ref()) {
        Some(url) => url,
        None => cluster_info(client).await?,
    };
    let usual = Limits::default();
    Ok(Settings {
        namespace: pool.secrets_namespace.clone(),
        watch_namespace: named(pool.namespace.as_ref()),
        default_pool_prefix: named(pool.default_adopt_pool_prefix.as_ref()),
        api_server_url,
        agent_role: macs.node_identity_cluster_role.clone(),
        remote_token: named(pool.cluster_api_token_secret.as_ref()),
        host_cpu: macs.tartkubelet_host_cpu,
        host_memory_mb: macs.tartkubelet_host_memory_mb,
        max_pods: macs.tartkubelet_max_pods,
        ssh_port: macs.ssh_port,
        drain_timeout: waits.drain_timeout,
        ssh_patience: waits.ssh_patience,
        list_fresh: Duration::from_secs(2),
        concurrent_turns: u16::try_from(pool.machine_max_concurrent_reconciles.max(1))
            .unwrap_or(u16::MAX),
        observe_only: pool.observe_only,
        spread: spread(arguments),
        egress: egress(arguments)?,
        sweep: sweep(arguments)?,
        limits: Limits {
            claim_settle: waits.claim_settle,
            release_settle: waits.release_settle,
            look: waits.look_interval,
            keep: waits.keep_interval,
            upkeep: waits.upkeep_interval,
            drain: waits.update_drain_after,
            retry: waits.bootstrap_retry,
            retry_cap: waits.bootstrap_retry * 10,
            patience: waits.wipe_patience,
            tiers: Tiers {
                reboot_after: recovery.bootstrap_reboot_after,
                max_attempts: recovery.bootstrap_max_attempts,
                max_updates: recovery.tartkubelet_max_update_attempts,
                quarantine_after: recovery.quarantine_after,
            },
            ..usual
        },
        fleet: FleetWide {
            agent: payload("--tartkubelet-binary-path", or(&macs.tartkubelet_binary_path, AGENT))?,
            tart: TartBundle {
                version: macs.tart_version.clone(),
                archive: payload("--tart-tarball-path", or(&macs.tart_tarball_path, TART))?,
            },
            tailscale: tailscale(macs)?,
            node_exporter: given(macs.node_exporter_binary_path.as_ref())
                .map(|path| payload("--node-exporter-binary-path", path))
                .transpose()?,
        },
        tailscale_key_secret: named(macs.tailscale_auth_key_secret_name.as_ref()),
    })
}

fn sweep(arguments: &Arguments) -> Result<sweep::Settings> {
    let Arguments { pool, recovery, waits, sweep: flags, .. } = arguments;
    let zone = |zone: &String| zone.trim().parse().context("--orphan-reclaim-zones");
    let zones = flags.orphan_reclaim_zones.iter().filter(|zone| !zone.trim().is_empty());
    Ok(sweep::Settings {
        zones: zones.map(zone).collect::<Result<_>>()?,
        policy: Policy {
            interval: flags.orphan_reclaim_interval,
            pool_prefix: named(pool.default_adopt_pool_prefix.as_ref()),
            claim_prefix: named(flags.orphan_reclaim_claim_name_prefix.as_ref()),
            max_per_cycle: flags.orphan_reclaim_max_per_cycle,
            max_share_percent: flags.orphan_reclaim_max_share,
            quarantine_after: recovery.quarantine_after,
            patience: waits.wipe_patience,
        },
        look: SWEEP_LOOK,
    })
}

/// A path that was given, or the usual one.
fn or<'a>(path: &'a Path, usual: &'a str) -> &'a Path {
    if path.as_os_str().is_empty() { Path::new(usual) } else { path }
}

/// Without a Secret there is no tailnet, whatever else is given: the image always has the archive.
fn tailscale(macs: &Macs) -> Result<Option<Tailscale>> {
    let path = given(macs.tailscale_binaries_path.as_ref());
    let secret = named(macs.tailscale_auth_key_secret_name.as_ref());
    match (path, secret) {
        (Some(path), Some(_)) => {
            let archive = payload("--tailscale-binaries-path", path)?;
            let tags = macs.tailscale_tags.iter().filter(|tag| !tag.is_empty());
            Ok(Some(Tailscale { archive, tags: tags.cloned().collect() }))
        }
        (_, None) => Ok(None),
        (None, Some(_)) => {
            Err(anyhow!("--tailscale-auth-key-secret-name needs --tailscale-binaries-path"))
        }
    }
}

fn spread(arguments: &Arguments) -> Option<Spread> {
    let around = &arguments.around;
    let deployment = named(around.fleet_spread_deployment.as_ref())?;
    let namespace = named(around.fleet_spread_namespace.as_ref());
    let namespace = namespace.unwrap_or_else(|| arguments.pool.secrets_namespace.clone());
    Some(Spread { namespace, deployment })
}

fn egress(arguments: &Arguments) -> Result<Option<Egress>> {
    let around = &arguments.around;
    let Some(proxy_group) = named(around.tailscale_egress_proxy_group.as_ref()) else {
        return Ok(None);
    };
    let suffix = named(around.tailscale_egress_magicdns_suffix.as_ref());
    let suffix = suffix.context(
        "--tailscale-egress-proxy-group needs --tailscale-egress-magicdns-suffix, such as \
         tail1234.ts.net",
    )?;
    let suffix = suffix.trim_matches('.').to_owned();
    let namespace = around.tailscale_egress_namespace.clone();
    Ok(Some(Egress { namespace, tailnet: Tailnet { proxy_group, suffix } }))
}

fn payload(flag: &str, path: &Path) -> Result<Payload> {
    Payload::open(path)
        .with_context(|| format!("could not read {}: name the file with {flag}", path.display()))
}

/// The API server's address as kubeadm and its like publish it.
async fn cluster_info(client: &kube::Client) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let hint = "ConfigMap kube-public/cluster-info does not tell where Macs reach the API server: \
                give --api-server-url";
    let map = maps.get("cluster-info").await.context(hint)?;
    let text = map.data.unwrap_or_default().remove("kubeconfig").context(hint)?;
    let config = Kubeconfig::from_yaml(&text).context(hint)?;
    let first = config.clusters.into_iter().next().and_then(|named| named.cluster?.server);
    first.context(hint)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsStr;

    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(flags: &[&str]) -> Arguments {
        let line = ["provider"].iter().chain(flags);
        Line::try_parse_from(line).expect("flags that are known").arguments
    }

    #[test]
    fn the_flags_of_the_system_before_us_are_understood() {
        let arguments = parse(&[
            "--metrics-bind-address=:8080",
            "--health-probe-bind-address=:8081",
            "--leader-elect",
            "--zap-log-level=info",
            "--zap-encoder=console",
            "--secrets-namespace=macs",
            "--api-server-url=https://api.example:6443",
            "--node-identity-cluster-role=tart-kubelet",
            "--tartkubelet-binary-path=/opt/agent",
            "--tart-tarball-path=/opt/tart.tar.gz",
            "--tartkubelet-host-cpu=8",
            "--tartkubelet-host-memory-mb=14336",
            "--tartkubelet-max-pods=3",
            "--machine-max-concurrent-reconciles=-1",
            "--default-adopt-pool-prefix=tuist-pool-",
            "--orphan-reclaim-claim-name-prefix=tuist-tuist-",
            "--orphan-reclaim-zones=fr-par-1, nl-ams-1,",
            "--orphan-reclaim-interval=15m0s",
            "--tartkubelet-max-update-attempts=5",
            "--fleet-spread-deployment=processor",
            "--fleet-spread-namespace=",
            "--tailscale-egress-proxy-group=macmini-egress",
            "--tailscale-egress-namespace=tailscale-operator",
            "--tailscale-egress-magicdns-suffix=tail1234.ts.net",
            "--zap-devel",
            "--zap-stacktrace-level=panic",
            "--zap-time-encoding=rfc3339",
        ]);
        let processor = Spread { namespace: "macs".into(), deployment: "processor".into() };
        assert_eq!(spread(&arguments), Some(processor));
        let egress = egress(&arguments).expect("complete").expect("named");
        assert_eq!(egress.tailnet.suffix, "tail1234.ts.net");
        let sweep = sweep(&arguments).expect("zones that can be read");
        let zones: Vec<String> = sweep.zones.iter().map(ToString::to_string).collect();
        assert_eq!(zones, ["fr-par-1", "nl-ams-1"]);
        assert_eq!(sweep.policy.interval, Duration::from_mins(15));
        assert_eq!(sweep.policy.claim_prefix.as_deref(), Some("tuist-tuist-"));
    }

    #[test]
    fn what_is_around_the_fleet_is_off_unless_it_is_named_and_named_whole() {
        let none = parse(&["--fleet-spread-deployment=", "--tailscale-egress-proxy-group="]);
        assert_eq!((spread(&none), egress(&none).expect("nothing")), (None, None));
        let half = egress(&parse(&["--tailscale-egress-proxy-group=g"])).expect_err("half");
        assert!(half.to_string().contains("--tailscale-egress-magicdns-suffix"), "{half}");
    }

    #[test]
    fn nothing_is_reclaimed_unless_a_prefix_is_named() {
        let sweep = sweep_of(&["--orphan-reclaim-claim-name-prefix="]).expect("zones");
        assert_eq!(sweep.policy.claim_prefix, None);
        assert_eq!(sweep.policy.pool_prefix, None);
        let wrong = sweep_of(&["--orphan-reclaim-zones=paris"]);
        assert!(wrong.is_err_and(|error| error.to_string().contains("--orphan-reclaim-zones")));
    }

    fn sweep_of(flags: &[&str]) -> Result<sweep::Settings> {
        sweep(&parse(flags))
    }

    #[test]
    fn every_flag_has_the_environment_variable_that_deployments_set() {
        let command = Line::command();
        let mut twins = BTreeSet::new();
        for (flag, variable) in [
            ("kubeconfig", "KUBECONFIG"),
            ("api-server-url", "CAPI_TARTKUBELET_API_SERVER_URL"),
            ("node-identity-cluster-role", "CAPI_NODE_IDENTITY_CLUSTER_ROLE"),
            ("tartkubelet-binary-path", "CAPI_TARTKUBELET_BINARY_PATH"),
            ("tart-tarball-path", "CAPI_TART_TARBALL_PATH"),
            ("github-api-url", "CAPI_GITHUB_API_URL"),
            ("default-adopt-pool-prefix", "CAPI_DEFAULT_ADOPT_POOL_PREFIX"),
            ("orphan-reclaim-zones", "CAPI_ORPHAN_RECLAIM_ZONES"),
            ("fleet-spread-deployment", "CAPI_FLEET_SPREAD_DEPLOYMENT"),
            ("fleet-spread-namespace", "CAPI_FLEET_SPREAD_NAMESPACE"),
            ("tailscale-egress-proxy-group", "CAPI_TAILSCALE_EGRESS_PROXY_GROUP"),
            ("tailscale-egress-namespace", "CAPI_TAILSCALE_EGRESS_NAMESPACE"),
            ("tailscale-egress-magicdns-suffix", "CAPI_TAILSCALE_EGRESS_MAGICDNS_SUFFIX"),
            ("orphan-reclaim-claim-name-prefix", "CAPI_ORPHAN_RECLAIM_CLAIM_NAME_PREFIX"),
            ("tailscale-binaries-path", "CAPI_TAILSCALE_BINARIES_PATH"),
            ("tailscale-auth-key-secret-name", "CAPI_TAILSCALE_AUTH_KEY_SECRET_NAME"),
            ("tailscale-tags", "CAPI_TAILSCALE_TAGS"),
            ("node-exporter-binary-path", "CAPI_NODE_EXPORTER_BINARY_PATH"),
            ("leader-namespace", "POD_NAMESPACE"),
            ("identity", "POD_NAME"),
            ("log-level", "RUST_LOG"),
        ] {
            twins.insert(variable);
            let found = command.get_arguments().find(|a| a.get_long() == Some(flag));
            let environment = found.and_then(|argument| argument.get_env());
            assert_eq!(environment.and_then(|name| name.to_str()), Some(variable), "--{flag}");
        }
        let all = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
        assert_eq!(twins, all.collect(), "each twin is in the table above");
    }

    #[test]
    fn empty_is_the_same_as_absent_for_every_variable_and_every_file() {
        // A deployment sets all of them, and leaves those empty that it does not use.
        let some = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("CAPI_TAIL"));
        let command = serving::without_empty_variables(Line::command(), &some);
        let variable = |flag: &str| {
            let found = command.get_arguments().find(|a| a.get_long() == Some(flag));
            found.expect("a flag").get_env()
        };
        assert_eq!(variable("tailscale-binaries-path"), None);
        assert!(variable("node-exporter-binary-path").is_some());
        let arguments = parse(&[
            "--kubeconfig=",
            "--tailscale-binaries-path=",
            "--node-exporter-binary-path=",
            "--tartkubelet-binary-path=",
            "--tart-tarball-path=",
        ]);
        let macs = &arguments.macs;
        assert_eq!(given(macs.tailscale_binaries_path.as_ref()), None);
        assert_eq!(given(macs.node_exporter_binary_path.as_ref()), None);
        assert_eq!(or(&macs.tartkubelet_binary_path, AGENT), Path::new(AGENT));
        assert_eq!(or(&macs.tart_tarball_path, TART), Path::new(TART));
    }
}
