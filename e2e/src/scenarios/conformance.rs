//! The simulated API server beside a real one.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use applecart_api::clock::Clock;
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use serde_json::{Value, json};

use crate::conformance::{Difference, KNOWN, Known, Report, Server, compare, widgets};
use crate::ground::{Ground, our_definitions};
use crate::{objects, wait};

/// Differences that are printed one by one; of the rest only their number.
const PRINTED: usize = 50;

/// The same requests get the same answers, but for what is known to differ.
pub async fn the_simulated_api_server_answers_as_the_real_one(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let real = ground.client().await?;
    objects::define(&real, &[widgets()]).await?;
    let namespace = ground.namespace("conformance").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(real.clone(), &namespace);
    wait::until("the namespace's default account", async || {
        Ok(accounts.get_opt("default").await?.map(drop))
    })
    .await?;
    let simulated = simulated(&namespace).await?;
    let kubeconfig = ground.kubeconfig().await?;
    let (simulated, real) = (Server::Simulated(simulated), Server::Real(real, kubeconfig));
    let report = compare(&simulated, &real, &namespace).await?;
    print(&report);
    ensure!(report.cases >= 500, "only {} cases", report.cases);
    for (known, seen) in KNOWN.iter().zip(&report.excused) {
        ensure!(*seen > 0, "a difference that is no more: {known:?}");
    }
    match report.differences.len() {
        0 => Ok(()),
        number => bail!("{number} differences that nobody knows"),
    }
}

/// A simulated cluster with the same definitions and the same namespace.
async fn simulated(namespace: &str) -> Result<ApiServer> {
    let mut definitions = our_definitions()?;
    definitions.push(widgets());
    let typed = |definition: Value| serde_json::from_value(definition).context("a definition");
    let definitions = definitions.into_iter().map(typed).collect::<Result<_>>()?;
    let noon = Timestamp::from_second(1_800_000_000)?;
    let registry: Arc<Registry> = Registry::new(definitions)?;
    let server = ApiServer::new(Clock::new(move || noon), 1, registry);
    server.enforce_roles();
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    objects::apply(&server.client(Identity::admin()), &body).await?;
    Ok(server)
}

fn print(report: &Report) {
    let Report { cases, requests, equal, excused, differences } = report;
    let known: usize = excused.iter().sum();
    println!(
        "{cases} cases, {requests} requests: {equal} cases equal in every byte, {known} known \
         differences, {} others",
        differences.len()
    );
    for (difference, times) in KNOWN.iter().zip(excused) {
        let Known { case, path, place, reason, .. } = difference;
        println!("  {times:5}  {case} at {path:?}: {place}: {reason}");
    }
    for Difference { case, request, path, said } in differences.iter().take(PRINTED) {
        println!("{case}\n  {request}\n  {path}: simulated {}, real {}", said.0, said.1);
    }
}
