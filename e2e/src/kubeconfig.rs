//! Who one is to an API server: a kubeconfig, and a client from it.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::certificates::Pair;
use crate::process::write_private;

/// How a user proves who it is.
pub enum Proof {
    /// By a client certificate.
    Certificate(Pair),
    /// By a bearer token.
    Token(String),
}

/// Writes a kubeconfig for one user at `path`. JSON is YAML too, and kubectl reads it.
pub fn write(path: &Path, server: &str, authority: &str, user: &str, proof: &Proof) -> Result<()> {
    let encode = |text: &str| STANDARD.encode(text);
    let credential: Value = match proof {
        Proof::Certificate(pair) => json!({
            "client-certificate-data": encode(&pair.certificate),
            "client-key-data": encode(&pair.key),
        }),
        Proof::Token(token) => json!({"token": token}),
    };
    let cluster = json!({"server": server, "certificate-authority-data": encode(authority)});
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": user, "user": credential}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        "current-context": "e2e",
    });
    write_private(path, &format!("{config:#}\n"))
}

/// Refuses a kubeconfig whose server is not on this machine: scenarios write definitions and
/// delete what they find in their namespaces.
pub async fn must_be_on_loopback(path: &Path) -> Result<()> {
    let config = read(path).await?;
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    ensure!(
        host == "localhost" || address.is_some_and(|address| address.is_loopback()),
        "KUBECONFIG names {host}, and scenarios run on a cluster on loopback only: unset KUBECONFIG"
    );
    Ok(())
}

/// A client of whoever a kubeconfig names. It repeats nothing by itself.
pub async fn client(path: &Path) -> Result<Client> {
    // Somebody else may have chosen before us, and then chose the same: there is one in the tree.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = read(path).await?;
    config.default_retry = false;
    Client::try_from(config).with_context(|| unusable(path))
}

/// A client of whoever has `token`, at the server that a kubeconfig names.
pub async fn client_with_token(path: &Path, token: String) -> Result<Client> {
    let mut config = read(path).await?;
    config.default_retry = false;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    Client::try_from(config).with_context(|| unusable(path))
}

async fn read(path: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| unusable(path))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(|| unusable(path))
}

fn unusable(path: &Path) -> String {
    format!("could not use the kubeconfig {}", path.display())
}
