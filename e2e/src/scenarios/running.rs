//! What a process tells of itself: its health pages, with a real API server to lose.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ground::our_definitions;
use crate::installation::{page, program};
use crate::{ControlPlane, Ground, Process, objects, wait};

/// One leads, one stands by; both say so. When the API server hangs, the leader ends, and the other
/// is alive but not ready; when it comes back, that one leads.
pub async fn health_pages_say_what_was_checked(ground: &mut Ground) -> Result<()> {
    // S8, O4
    let mut plane = ground.new_control_plane().await?;
    objects::define(&plane.client(), &our_definitions()?).await?;
    let (mut leader, first) = start(&mut plane, "first")?;
    says(&first, "/readyz", "leader: leading").await?;
    let (mut other, second) = start(&mut plane, "second")?;
    says(&second, "/readyz", "leader: standing by: first leads").await?;
    says(&second, "/readyz", "kubernetes: answered").await?;
    says(&second, "/healthz", "election: last looked").await?;
    freeze(&mut plane, true)?;
    let why = wait::until("the leader to end", async || leader.ended()).await?;
    ensure!(!why.success(), "a lost lead is an error");
    let log = std::fs::read_to_string(leader.log())?;
    ensure!(log.contains("lost the lead"), "{}", leader.tail());
    wait::until("the other not to be ready", async || {
        let told = page(&format!("{second}/readyz")).await;
        let told = told.err().map(|error| error.to_string()).unwrap_or_default();
        Ok((told.contains("503") && told.contains("kubernetes: no answer for")).then_some(()))
    })
    .await?;
    says(&second, "/healthz", "election: last looked").await?;
    freeze(&mut plane, false)?;
    says(&second, "/readyz", "leader: leading").await?;
    other.must_live()?;
    let ended = other.terminate().await?;
    ensure!(ended.success(), "asked to end, it ended with {ended}");
    Ok(())
}

/// A runner-pool controller, and where its pages are.
fn start(plane: &mut ControlPlane, name: &str) -> Result<(Process, String)> {
    let port = plane.free_port()?;
    let mut command = Command::new(program("applecart")?);
    command
        .args(["runner-pools", "--namespace=default", "--dispatch-url=https://ci.example"])
        .arg(format!("--identity={name}"))
        .arg(format!("--health-probe-bind-address=127.0.0.1:{port}"))
        .arg("--metrics-bind-address=0")
        .env("KUBECONFIG", plane.kubeconfig());
    Ok((Process::start(name, &command, plane.folder())?, format!("http://127.0.0.1:{port}")))
}

/// Waits until a page is well and says so.
async fn says(address: &str, path: &str, words: &str) -> Result<()> {
    wait::until(&format!("{path} to say {words:?}"), async || {
        let text = page(&format!("{address}{path}")).await?;
        ensure!(text.contains(words), "{text}");
        Ok(Some(()))
    })
    .await
}

/// The API server takes connections and says nothing, or goes on.
fn freeze(plane: &mut ControlPlane, frozen: bool) -> Result<()> {
    let mut processes = plane.processes().iter();
    let server = processes.find(|process| process.name() == "kube-apiserver");
    server.context("no API server")?.freeze(frozen)
}
