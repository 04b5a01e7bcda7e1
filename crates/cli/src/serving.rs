//! What every long-running verb of ours needs: a client, a leader's Lease, a health page, an end.

mod health;

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use applecart_api::clock::Clock;
use applecart_operator::leader::{Election, Pulse};
use applecart_operator::metrics::{self, Metrics};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use self::health::Health;

/// Longest wait for the leader's Lease to be given up: it runs out by itself.
const RESIGN_WITHIN: Duration = Duration::from_secs(3);

/// Flags that all long-running verbs share.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Running")]
pub struct Running {
    /// The cluster, if not the one that this runs in.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", value_parser = file)]
    kubeconfig: Option<PathBuf>,
    /// Acts only while it holds the leader's Lease. `false` is for a single process on a laptop.
    #[arg(
        long,
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    leader_elect: bool,
    /// Namespace of the leader's Lease; the Pod's own if not given, and `default` outside a Pod.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    leader_namespace: Option<String>,
    /// How this process is called in the Lease; its host name and process id if not given.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    identity: Option<String>,
    /// Where `/healthz` (the election turns) and `/readyz` (the API server answers; who leads)
    /// answer, and `/metrics`; `0` switches them off.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    health_probe_bind_address: String,
    /// Where `/metrics` answers besides; `0` is nowhere.
    #[arg(long, default_value = ":8080", value_name = "ADDRESS")]
    metrics_bind_address: String,
    /// What is logged on standard error, such as `warn` or `info,applecart_operator=debug`.
    #[arg(
        long,
        visible_alias = "zap-log-level",
        env = "RUST_LOG",
        default_value = "info",
        default_value_if("zap_devel", "true", "debug"),
        value_name = "FILTER"
    )]
    log_level: String,
    /// How a log line looks.
    #[arg(long, visible_alias = "zap-encoder", default_value = "text", value_name = "FORM")]
    log_format: LogFormat,
    /// The same as --log-level=debug, where no level is given.
    #[arg(long, hide = true)]
    zap_devel: bool,
    /// Taken for the sake of old command lines: no line of ours carries a stack trace.
    #[arg(long, hide = true, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// Taken for the sake of old command lines: times are always RFC 3339.
    #[arg(long, hide = true, value_name = "FORM")]
    zap_time_encoding: Option<String>,
}

impl Running {
    /// The original's Lease is in its Pod's own namespace, and ours must be the same one.
    fn leader_namespace(&self, told_in: &Path) -> String {
        let own = || named(Some(&std::fs::read_to_string(told_in).ok()?.trim().to_owned()));
        named(self.leader_namespace.as_ref()).or_else(own).unwrap_or_else(|| "default".to_owned())
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogFormat {
    /// For people
    #[value(alias = "console")]
    Text,
    /// For programs, one object a line
    Json,
}

/// Where Kubernetes tells a Pod its namespace.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A file. Empty is the same as absent, as in the environment of running fleets: see [`given`].
#[allow(clippy::unnecessary_wraps, reason = "the form of a parser")]
pub fn file(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

/// A file that was really given.
pub fn given(path: Option<&PathBuf>) -> Option<&PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// What was really given: deployments pass empty values for what they do not use.
pub fn named(given: Option<&String>) -> Option<String> {
    given.filter(|text| !text.is_empty()).cloned()
}

/// The same command, to which a variable of the environment that `is_empty` is none at all: neither
/// a default nor a parser sees it.
pub fn without_empty_variables(
    command: clap::Command,
    is_empty: &impl Fn(&OsStr) -> bool,
) -> clap::Command {
    let command = command.mut_args(|argument| match argument.get_env() {
        Some(variable) if is_empty(variable) => argument.env(None::<&str>),
        Some(_) | None => argument,
    });
    command.mut_subcommands(|verb| without_empty_variables(verb, is_empty))
}

/// A duration such as `15s`, `5m` or `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 15s, 5m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}

/// A client of the cluster. kube's own retries are off: they would repeat any verb.
pub async fn client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path)
                .with_context(|| format!("could not read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("could not use the kubeconfig {}", path.display()))?
        }
        None => kube::Config::incluster()
            .context("not inside a cluster: name one with --kubeconfig, or set KUBECONFIG")?,
    };
    config.default_retry = false;
    kube::Client::try_from(config).context("could not make a Kubernetes client")
}

/// One long-running verb.
pub struct Serving {
    /// Its client.
    pub client: kube::Client,
    /// What it tells Prometheus.
    pub metrics: Metrics,
    arguments: Running,
    clock: Clock,
    only_observes: bool,
}

impl Serving {
    /// Logs, connects, and makes sure that the cluster answers.
    pub async fn start(arguments: &Running, clock: Clock, metrics: Metrics) -> Result<Self> {
        log(arguments)?;
        let client = client(given(arguments.kubeconfig.as_ref()).map(PathBuf::as_path)).await?;
        let version = client
            .apiserver_version()
            .await
            .context("the Kubernetes API server does not answer: check --kubeconfig")?;
        tracing::info!(version = version.git_version, "connected to Kubernetes");
        let arguments = arguments.clone();
        Ok(Self { client, metrics, arguments, clock, only_observes: false })
    }

    /// The same, for work that changes nothing: it takes no part in the election of a leader.
    pub fn only_observing(self) -> Self {
        let arguments = Running { leader_elect: false, ..self.arguments };
        Self { arguments, only_observes: true, ..self }
    }

    /// Runs `work` while this process leads, until it is told to end. Losing the lead is an error:
    /// `work` is dropped at once, and a restarted process stands by.
    pub async fn run(
        &self,
        lease: &'static str,
        work: BoxFuture<'static, Result<()>>,
    ) -> Result<()> {
        let mut election = self.election(lease);
        tokio::select! {
            biased;
            told = ended() => told?,
            served = self.health(election.pulse()) => served?,
            served = self.serve_metrics() => served?,
            outcome = self.lead(&mut election, work) => outcome?,
        }
        if self.arguments.leader_elect {
            // The Lease runs out by itself if this takes too long.
            let _ = tokio::time::timeout(RESIGN_WITHIN, election.resign()).await;
        }
        tracing::info!("ended");
        Ok(())
    }

    fn election(&self, lease: &'static str) -> Election {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = || format!("{host}_{}", std::process::id());
        let us = named(self.arguments.identity.as_ref()).unwrap_or_else(own);
        let namespace = self.arguments.leader_namespace(Path::new(POD_NAMESPACE_FILE));
        Election::new(self.client.clone(), &namespace, lease, us, self.clock.clone())
    }

    async fn lead(
        &self,
        election: &mut Election,
        work: BoxFuture<'static, Result<()>>,
    ) -> Result<()> {
        if !self.arguments.leader_elect {
            self.metrics.set_leads(!self.only_observes);
            let pulse = election.pulse();
            return tokio::select! {
                never = pulse.listen(&self.client) => match never {},
                outcome = work => outcome,
            };
        }
        let stand_by = |holder: &str| tracing::info!(holder, "standing by: another leads");
        let since = election.win(stand_by).await;
        tracing::info!("leading");
        self.metrics.set_leads(true);
        tokio::select! {
            biased;
            why = election.keep(since) => bail!("lost the lead: {why}; nothing more is done here"),
            outcome = work => outcome,
        }
    }

    /// Serves the health pages for ever, or nothing at all.
    async fn health(&self, pulse: Pulse) -> Result<()> {
        let given = &self.arguments.health_probe_bind_address;
        let Some(listener) = listen("--health-probe-bind-address", given).await? else {
            return std::future::pending().await;
        };
        let pages = Health::new(pulse, self.arguments.leader_elect).pages();
        let pages = pages.merge(metrics_page(&self.metrics));
        axum::serve(listener, pages).await.context("the health page ended")
    }

    /// Serves metrics for ever where they are asked for by themselves, or nothing at all.
    async fn serve_metrics(&self) -> Result<()> {
        let Running { metrics_bind_address: given, health_probe_bind_address: health, .. } =
            &self.arguments;
        // The health pages have them already.
        let given = if given == health { "0" } else { given };
        let Some(listener) = listen("--metrics-bind-address", given).await? else {
            return std::future::pending().await;
        };
        let page = metrics_page(&self.metrics);
        axum::serve(listener, page).await.context("the metrics page ended")
    }
}

fn metrics_page(metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let page = move || {
        let answer = ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text());
        std::future::ready(answer)
    };
    Router::new().route("/metrics", get(page))
}

/// Listens where a flag says; `None` if it says nowhere.
async fn listen(flag: &str, given: &str) -> Result<Option<TcpListener>> {
    if given == "0" {
        return Ok(None);
    }
    let listener = TcpListener::bind(address(given)?).await;
    listener.map(Some).with_context(|| format!("could not listen on {flag}={given}"))
}

/// An address as the original's flags have it: `:8081` is every interface.
fn address(text: &str) -> Result<SocketAddr> {
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().with_context(|| format!("{text:?} is not an address such as :8081"))
}

/// SIGTERM, or Ctrl-C.
pub async fn ended() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("could not wait for SIGTERM")?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.context("could not wait for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}

/// A level as the system before us had it, in our words: there a number is a depth of debugging,
/// and the highest level is a panic.
fn in_our_words(level: &str) -> &str {
    match (level, level.parse::<u32>()) {
        ("panic" | "dpanic" | "fatal", _) => "error",
        (_, Ok(1)) => "debug",
        (_, Ok(2..)) => "trace",
        (_, Ok(0) | Err(_)) => level,
    }
}

fn log(arguments: &Running) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(in_our_words(&arguments.log_level))
        .with_context(|| format!("--log-level {:?} is not a filter", arguments.log_level))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match arguments.log_format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
    let meaningless = [
        ("--zap-stacktrace-level", &arguments.zap_stacktrace_level),
        ("--zap-time-encoding", &arguments.zap_time_encoding),
    ];
    for (flag, _) in meaningless.into_iter().filter(|(_, given)| given.is_some()) {
        tracing::warn!(flag, "an old flag that means nothing here: take it off the command line");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn levels_of_the_system_before_us_mean_what_they_meant_there() {
        let levels = [("1", "debug"), ("5", "trace"), ("panic", "error"), ("info", "info")];
        for (theirs, ours) in levels {
            assert_eq!(in_our_words(theirs), ours);
        }
        assert_eq!(in_our_words("warn,applecart_operator=debug"), "warn,applecart_operator=debug");
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        running: Running,
    }

    /// What is typed, and nothing of this process's own environment.
    fn parse(flags: &[&str]) -> Running {
        use clap::{CommandFactory, FromArgMatches};
        let command = without_empty_variables(Line::command(), &|_| true);
        let typed = command.try_get_matches_from(["x"].iter().chain(flags)).expect("known flags");
        Line::from_arg_matches(&typed).expect("well formed").running
    }

    #[test]
    fn the_leaders_lease_is_in_the_namespace_of_its_pod() {
        let folder = std::env::temp_dir().join(format!("applecart-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let told = folder.join("namespace");
        std::fs::write(&told, "macs\n").expect("a file");
        assert_eq!(parse(&[]).leader_namespace(&told), "macs");
        assert_eq!(parse(&["--leader-namespace="]).leader_namespace(&told), "macs");
        assert_eq!(parse(&["--leader-namespace=here"]).leader_namespace(&told), "here");
        std::fs::write(&told, "").expect("a file");
        assert_eq!(parse(&[]).leader_namespace(&told), "default");
        std::fs::remove_dir_all(&folder).expect("nothing left");
        assert_eq!(parse(&[]).leader_namespace(&told), "default");
    }

    #[cfg(feature = "demo")]
    mod leading {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};

        use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
        use futures::FutureExt;
        use jiff::Timestamp;
        use k8s_openapi::api::coordination::v1::Lease;
        use kube::Api;
        use kube::api::{Patch, PatchParams};
        use serde_json::json;
        use tokio::time::Instant;

        use super::*;

        fn serving(flags: &[&str]) -> Serving {
            let start = Instant::now();
            let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
            let clock = Clock::new(move || epoch + start.elapsed());
            let server = ApiServer::new(clock.clone(), 1, Registry::new(vec![]).expect("kinds"));
            Serving {
                client: server.client(Identity::admin()),
                metrics: Metrics::new(clock.clone()),
                arguments: parse(flags),
                clock,
                only_observes: false,
            }
        }

        #[tokio::test(start_paused = true)]
        async fn who_loses_the_lead_does_nothing_more() {
            // S8
            let serving = serving(&["--leader-namespace=default", "--identity=us"]);
            let effects = Arc::new(AtomicU32::new(0));
            let counted = effects.clone();
            let work = async move {
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            let mut election = serving.election("leader");
            let leases: Api<Lease> = Api::namespaced(serving.client.clone(), "default");
            let usurp = async {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let taken = Patch::Merge(json!({"spec": {"holderIdentity": "them"}}));
                leases.patch("leader", &PatchParams::default(), &taken).await.expect("taken");
                std::future::pending::<()>().await;
            };
            let lost = tokio::select! {
                outcome = serving.lead(&mut election, work.boxed()) => outcome,
                () = usurp => unreachable!("it has no end"),
            };
            let why = lost.expect_err("the lead is lost").to_string();
            assert!(why.contains("lost the lead: them holds it now"), "{why}");
            let done = effects.load(Ordering::Relaxed);
            assert!(done > 50, "it worked while it led: {done}");
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(effects.load(Ordering::Relaxed), done, "it goes on");
        }

        #[tokio::test(start_paused = true)]
        async fn who_has_no_name_takes_one_of_its_own() {
            // An empty holder is nobody: everybody would lead.
            let serving = serving(&["--leader-namespace=default", "--identity="]);
            serving.election("leader").win(|_| {}).await;
            let leases: Api<Lease> = Api::namespaced(serving.client.clone(), "default");
            let held = leases.get("leader").await.expect("a Lease");
            let holder = held.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            assert!(holder.ends_with(&format!("_{}", std::process::id())), "{holder:?}");
        }
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for wrong in ["", "15", "-3s", "soon"] {
            assert!(duration(wrong).is_err_and(|why| why.contains("such as 15s")), "{wrong}");
        }
    }

    #[tokio::test]
    async fn metrics_are_scraped_in_the_form_that_prometheus_asks_for() {
        let metrics = Metrics::new(crate::system_clock());
        metrics.set_leads(true);
        let request = Request::get("/metrics").body(Body::empty()).expect("a request");
        let answer = metrics_page(&metrics).oneshot(request).await.expect("an answer");
        assert_eq!(answer.headers()[CONTENT_TYPE], metrics::CONTENT_TYPE);
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        let text = String::from_utf8(body.to_vec()).expect("text");
        assert!(text.contains("\napplecart_leader 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_port_alone_is_every_interface() {
        assert_eq!(address(":8081").unwrap().to_string(), "0.0.0.0:8081");
        assert_eq!(address("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert!(address("8081").is_err());
    }
}
