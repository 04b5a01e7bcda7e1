//! The optional steps of a bootstrap, and what they need: a tailnet's key, an exporter, and a
//! GitHub that runners register with.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use applecart_api::clock::Clock;
use applecart_sim::github::SimGithub;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::Client;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::program;
use crate::objects;

/// Secret with the key by which Macs join the tailnet.
const TAILNET_SECRET: &str = "tailnet";
/// Secret with the app by which runners register.
const APP_SECRET: &str = "github-app";
/// The app, and where it is installed.
const APP: &str = "12";
const INSTALLATION: &str = "34";
/// The organisation that runners belong to.
const ORGANISATION: &str = "tuist";
/// Lives under its own name, as the real one does.
const EXPORTER: &str = "#!/bin/sh\nwhile :; do sleep 1; done\n";

/// All that the optional steps need, in place.
pub struct OptionalSteps {
    github: SimGithub,
    api: String,
    tailscale: PathBuf,
    exporter: PathBuf,
    _serving: JoinSet<io::Result<Infallible>>,
}

impl OptionalSteps {
    /// Puts Secrets into `namespace` and programs into `folder`, and starts a GitHub.
    pub async fn start(client: &Client, namespace: &str, seed: u64, folder: &Path) -> Result<Self> {
        let tailscale = folder.join("tailscale.tar.gz");
        let mut packer = Command::new(program("applecart")?);
        let status = packer.args(["sim", "tailscale-archive"]).arg(&tailscale).status();
        ensure!(status.context("could not start applecart")?.success(), "no Tailscale to install");
        let exporter = folder.join("node_exporter");
        std::fs::write(&exporter, EXPORTER).context("could not write the exporter")?;
        let random: u128 = SmallRng::seed_from_u64(seed).random();
        let key = json!({"auth-key": format!("tskey-auth-{random:032x}")});
        create_secret(client, namespace, TAILNET_SECRET, key).await?;
        let (private, public) = app_key(folder)?;
        let app = json!({
            "app-id": APP,
            "installation-id": INSTALLATION,
            "private-key": private,
        });
        create_secret(client, namespace, APP_SECRET, app).await?;
        let github = SimGithub::new(system_clock());
        github.install(APP, &public, INSTALLATION, ORGANISATION);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for GitHub")?;
        let api = format!("http://{}", listener.local_addr()?);
        let mut serving = JoinSet::new();
        let served = github.clone();
        serving.spawn(async move { served.serve(listener).await });
        Ok(Self { github, api, tailscale, exporter, _serving: serving })
    }

    /// The provider's arguments for them.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        vec![
            format!("--tailscale-binaries-path={}", self.tailscale.display()),
            format!("--tailscale-auth-key-secret-name={TAILNET_SECRET}"),
            "--tailscale-tags=tag:ci,tag:mac".to_owned(),
            format!("--node-exporter-binary-path={}", self.exporter.display()),
            format!("--github-api-url={}", self.api),
        ]
    }

    /// What an object says that asks for a runner.
    #[must_use]
    pub fn runner() -> Value {
        json!({
            "ghOrg": ORGANISATION,
            "ghRunnerLabels": "macos,builder",
            "ghRunnerVersion": "2.334.0",
            "ghAppSecretName": APP_SECRET,
        })
    }

    /// The organisation's list: nobody here calls GitHub when the stand-in for its program runs.
    pub fn register(&self, runner: &str) {
        self.github.register(ORGANISATION, runner);
    }

    /// Who is in that list.
    #[must_use]
    pub fn runners(&self) -> Vec<String> {
        self.github.runners()
    }

    /// Every token that GitHub gave out, and what the app said of itself.
    #[must_use]
    pub fn secrets(&self) -> Vec<(String, String)> {
        let all = self.github.secrets().into_iter();
        all.map(|secret| ("github-token".to_owned(), secret)).collect()
    }
}

/// Signatures are of the real time: the provider is a process of its own.
#[expect(clippy::disallowed_methods, reason = "a process hands out the system's clock once")]
fn system_clock() -> Clock {
    Clock::new(Timestamp::now)
}

async fn create_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    fields: Value,
) -> Result<Value> {
    let mut secret = objects::named("v1", "Secret", namespace, name);
    secret["stringData"] = fields;
    objects::create(client, &secret, false).await
}

/// A new key of an app: in PEM, as GitHub gives it out, and its public half in DER.
fn app_key(folder: &Path) -> Result<(String, Vec<u8>)> {
    let file = folder.join("github-app-key");
    let keygen = |arguments: &[&str]| {
        let output = Command::new("ssh-keygen").args(arguments).arg("-f").arg(&file).output();
        let output = output.context("ssh-keygen is missing")?;
        ensure!(output.status.success(), "ssh-keygen {arguments:?} failed");
        String::from_utf8(output.stdout).context("ssh-keygen wrote no text")
    };
    keygen(&["-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM"])?;
    let public = keygen(&["-e", "-m", "PEM"])?;
    let encoded: String = public.lines().filter(|line| !line.starts_with("-----")).collect();
    let public = STANDARD.decode(encoded).context("ssh-keygen wrote no PEM")?;
    let private = std::fs::read_to_string(&file).context("ssh-keygen wrote no key")?;
    Ok((private, public))
}
