//! Cluster API's own manager, outside a cluster.

use std::process::Command;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::binaries::CLUSTER_API_MANIFESTS;
use crate::process::write_private;
use crate::{ControlPlane, Process, objects, wait};

/// Where its manifests put it.
const NAMESPACE: &str = "capi-system";
const SERVICE_ACCOUNT: &str = "capi-manager";
/// What has no meaning outside the cluster: it runs here, and its certificate is ours.
const LEFT_OUT: &[&str] = &["Deployment", "Service", "Certificate", "Issuer"];

/// The running manager, under its own `ServiceAccount` and its own rights.
pub struct ClusterApi {
    process: Process,
}

impl ClusterApi {
    /// Applies its definitions, rights and webhooks, starts it and waits until it is ready.
    pub async fn start(plane: &mut ControlPlane) -> Result<Self> {
        let webhooks = plane.free_port()?;
        let health = plane.free_port()?;
        let diagnostics = plane.free_port()?;
        let certificates = plane.folder().join("cluster-api-webhooks");
        std::fs::create_dir_all(&certificates).context("could not create a folder")?;
        let pair = plane.authority().server("cluster-api")?;
        write_private(&certificates.join("tls.crt"), &pair.certificate)?;
        write_private(&certificates.join("tls.key"), &pair.key)?;
        apply_manifests(plane, webhooks).await?;
        let kubeconfig = plane.kubeconfig_of_service_account(NAMESPACE, SERVICE_ACCOUNT).await?;
        let mut command = Command::new(plane.binaries().path("cluster-api-manager")?);
        command
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--webhook-port={webhooks}"))
            .arg(format!("--webhook-cert-dir={}", certificates.display()))
            .arg(format!("--health-addr=127.0.0.1:{health}"))
            .arg(format!("--diagnostics-address=127.0.0.1:{diagnostics}"))
            .arg("--insecure-diagnostics")
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", "cluster-api")
            .env("POD_UID", "00000000-0000-0000-0000-000000000000");
        let mut process = Process::start("cluster-api", &command, plane.folder())?;
        wait::until("Cluster API's manager to be ready", async || {
            process.must_live()?;
            Ok(answers_ok(health).await?.then_some(()))
        })
        .await
        .with_context(|| process.tail())?;
        Ok(Self { process })
    }

    /// Its process, to look at or to kill.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The last lines of its log, for a failure.
    #[must_use]
    pub fn tail(&self) -> String {
        format!("--- {}\n{}\n", self.process.name(), self.process.tail())
    }
}

async fn apply_manifests(plane: &ControlPlane, webhooks: u16) -> Result<()> {
    let path = plane.binaries().path(CLUSTER_API_MANIFESTS)?;
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("could not read {}", path.display()))?;
    let bundle = STANDARD.encode(plane.authority().pair().certificate);
    let all = objects::read(&text).context("in Cluster API's manifests")?;
    let mut definitions = Vec::new();
    let mut others = Vec::new();
    for mut object in all {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if LEFT_OUT.contains(&kind.as_str()) {
            continue;
        }
        call_by_url(&mut object, webhooks, &bundle);
        // As `clusterctl init` does: by this its other commands know what there is.
        object["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] = json!("");
        if kind == "CustomResourceDefinition" { &mut definitions } else { &mut others }
            .push(object);
    }
    // A Namespace comes before what is in it.
    others.sort_by_key(|object| object["kind"] != "Namespace");
    let client = plane.client();
    objects::define(&client, &definitions).await?;
    for object in &others {
        objects::apply(&client, object).await?;
    }
    Ok(())
}

/// Webhooks are called through a Service in a cluster, and by address here.
fn call_by_url(object: &mut Value, port: u16, bundle: &str) {
    if let Some(config) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        replace_service(config, port, bundle);
    }
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        replace_service(&mut webhook["clientConfig"], port, bundle);
    }
}

fn replace_service(config: &mut Value, port: u16, bundle: &str) {
    let path = config.pointer("/service/path").and_then(Value::as_str).unwrap_or("/");
    let url = format!("https://127.0.0.1:{port}{path}");
    *config = json!({"url": url, "caBundle": bundle});
}

/// Asks a health endpoint. Plain HTTP on loopback: a client would be more than this takes.
async fn answers_ok(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET /readyz HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().is_some_and(|line| line.contains(" 200 ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_keep_their_paths_and_lose_their_service() {
        let service = json!({"service": {"name": "s", "namespace": "n", "path": "/convert"}});
        let mut object = json!({
            "spec": {"conversion": {"webhook": {"clientConfig": service}}},
            "webhooks": [{"name": "w", "clientConfig": service}],
        });
        call_by_url(&mut object, 7, "Yg==");
        let direct = json!({"url": "https://127.0.0.1:7/convert", "caBundle": "Yg=="});
        assert_eq!(object["spec"]["conversion"]["webhook"]["clientConfig"], direct);
        assert_eq!(object["webhooks"], json!([{"name": "w", "clientConfig": direct}]));
        let mut plain = json!({"kind": "Namespace"});
        call_by_url(&mut plain, 7, "Yg==");
        assert_eq!(plain, json!({"kind": "Namespace"}));
    }
}
