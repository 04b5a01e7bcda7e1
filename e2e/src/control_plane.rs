//! A Kubernetes control plane on loopback: etcd, API server, controller-manager, scheduler.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::binaries::Binaries;
use crate::certificates::{Authority, Pair};
use crate::folder::Folder;
use crate::kubeconfig::{self, Proof};
use crate::ports::Ports;
use crate::process::{Process, write_private};
use crate::{audit, wait};

/// How long a `ServiceAccount`'s token lasts: longer than any run.
const TOKEN_SECONDS: i64 = 12 * 3600;

/// A running control plane.
///
/// # Guarantees
/// - Once started it answers, and the namespace `default` has its `ServiceAccount` (if there is a
///   controller-manager): Pods can be created.
/// - Authorizers are Node and RBAC, admission has `NodeRestriction`, certificate requests are
///   signed, every call is in the audit log.
/// - Dropped, or when this process dies, all of it ends and its data goes.
pub struct ControlPlane {
    // Processes before the folder: they must be gone when their data goes.
    processes: Vec<Process>,
    ports: Ports,
    folder: Folder,
    authority: Authority,
    server: String,
    kubeconfig: PathBuf,
    client: Client,
    binaries: Binaries,
}

impl ControlPlane {
    /// Starts one and waits until it can be used (5 s on an idle machine). Controller-manager and
    /// scheduler are left out if there are no binaries of theirs.
    pub async fn start(binaries: &Binaries) -> Result<Self> {
        let folder = Folder::create()?;
        let mut ports = Ports::take()?;
        let authority = Authority::generate()?;
        let etcd = start_etcd(binaries, folder.path(), &mut ports)?;
        let server_port = ports.free()?;
        let server = format!("https://127.0.0.1:{server_port}");
        write_credentials(&authority, folder.path())?;
        let api_server = start_api_server(binaries, folder.path(), &etcd.1, server_port)?;
        let kubeconfig = folder.path().join("admin.kubeconfig");
        let admin = Proof::Certificate(authority.client("admin", Some("system:masters"))?);
        kubeconfig::write(&kubeconfig, &server, &authority.pair().certificate, "admin", &admin)?;
        let client = kubeconfig::client(&kubeconfig).await?;
        let mut plane = Self {
            processes: vec![etcd.0, api_server],
            ports,
            folder,
            authority,
            server,
            kubeconfig,
            client,
            binaries: binaries.clone(),
        };
        plane.becomes_ready().await?;
        plane.start_controllers().await?;
        Ok(plane)
    }

    async fn becomes_ready(&mut self) -> Result<()> {
        let (client, processes) = (&self.client, &mut self.processes);
        wait::until("the API server to be ready", async || {
            processes.iter_mut().try_for_each(Process::must_live)?;
            let request = Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await?;
            Ok(Some(()))
        })
        .await
    }

    /// They start after the API server is ready: before that, they would only fail and back off.
    async fn start_controllers(&mut self) -> Result<()> {
        for name in ["kube-controller-manager", "kube-scheduler"] {
            let Some(program) = self.binaries.find(name) else { continue };
            let user = format!("system:{name}");
            let kubeconfig = self.kubeconfig_of_user(&user, None)?;
            let port = self.ports.free()?;
            let mut command = controller(&program, &kubeconfig, self.folder(), port);
            if name == "kube-controller-manager" {
                signs(&mut command, self.folder());
            }
            self.processes.push(Process::start(name, &command, self.folder.path())?);
        }
        if !self.has_controllers() {
            return Ok(());
        }
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), "default");
        let processes = &mut self.processes;
        wait::until("the ServiceAccount of the namespace default", async || {
            processes.iter_mut().try_for_each(Process::must_live)?;
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(())
    }

    /// Whether namespaces end, owners' objects are collected and Pods are scheduled.
    #[must_use]
    pub fn has_controllers(&self) -> bool {
        self.processes.iter().any(|process| process.name() == "kube-controller-manager")
    }

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of that client.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Who signs here: the API server, its clients, webhooks.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The programs that it was started from.
    #[must_use]
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Data, kubeconfigs and logs (`<process>.log`) are here. More processes may log here too.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One JSON line for every call that the API server answered.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.log")
    }

    /// A port on loopback that no parallel run takes.
    pub fn free_port(&mut self) -> Result<u16> {
        self.ports.free()
    }

    /// The processes, to look at, to kill, to start again.
    pub fn processes(&mut self) -> &mut Vec<Process> {
        &mut self.processes
    }

    /// Writes a kubeconfig for a user with a client certificate, in one group or none.
    pub fn kubeconfig_of_user(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let pair = self.authority.client(user, group)?;
        self.write_kubeconfig(user, &Proof::Certificate(pair))
    }

    /// Writes a kubeconfig for a `ServiceAccount`, with a token from `TokenRequest`: it may do what
    /// RBAC says, and nothing else.
    pub async fn kubeconfig_of_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<PathBuf> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        let expiration_seconds = Some(TOKEN_SECONDS);
        let spec = TokenRequestSpec { expiration_seconds, ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let user = format!("{namespace}.{name}");
        let status = answer
            .with_context(|| format!("no token for the ServiceAccount {user}"))?
            .status
            .with_context(|| format!("an empty token for the ServiceAccount {user}"))?;
        self.write_kubeconfig(&user, &Proof::Token(status.token))
    }

    /// The last lines of every process, for a failure.
    #[must_use]
    pub fn tails(&self) -> String {
        let tail = |process: &Process| format!("--- {}\n{}\n", process.name(), process.tail());
        self.processes.iter().map(tail).collect()
    }

    fn write_kubeconfig(&self, user: &str, proof: &Proof) -> Result<PathBuf> {
        let path = self.folder().join(format!("{}.kubeconfig", user.replace([':', '/'], "_")));
        let authority = self.authority.pair().certificate;
        kubeconfig::write(&path, &self.server, &authority, user, proof)?;
        Ok(path)
    }
}

/// Keys and certificates that the processes read from files.
fn write_credentials(authority: &Authority, folder: &Path) -> Result<()> {
    let write = |name: &str, pair: &Pair| -> Result<()> {
        write_private(&folder.join(format!("{name}.crt")), &pair.certificate)?;
        write_private(&folder.join(format!("{name}.key")), &pair.key)
    };
    write("ca", &authority.pair())?;
    write("server", &authority.server("kube-apiserver")?)?;
    // Signs the tokens of ServiceAccounts; the API server checks them with the public half.
    let tokens = rcgen::KeyPair::generate().context("could not make a key")?;
    write_private(&folder.join("tokens.key"), &tokens.serialize_pem())?;
    write_private(&folder.join("tokens.pub"), &tokens.public_key_pem())?;
    write_private(&folder.join("audit-policy.json"), &audit::policy().to_string())
}

fn start_etcd(binaries: &Binaries, folder: &Path, ports: &mut Ports) -> Result<(Process, String)> {
    let client = format!("http://127.0.0.1:{}", ports.free()?);
    let peer = format!("http://127.0.0.1:{}", ports.free()?);
    let mut command = Command::new(binaries.path("etcd")?);
    command
        .arg(flag("data-dir", folder.join("etcd").display()))
        .arg(flag("listen-client-urls", &client))
        .arg(flag("advertise-client-urls", &client))
        .arg(flag("listen-peer-urls", &peer))
        .arg(flag("initial-advertise-peer-urls", &peer))
        .arg(flag("initial-cluster", format!("default={peer}")))
        .arg("--unsafe-no-fsync");
    Ok((Process::start("etcd", &command, folder)?, client))
}

fn start_api_server(binaries: &Binaries, folder: &Path, etcd: &str, port: u16) -> Result<Process> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new(binaries.path("kube-apiserver")?);
    command
        .arg(flag("etcd-servers", etcd))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        .arg(flag("secure-port", port))
        .arg(flag("cert-dir", folder.display()))
        .arg(flag("tls-cert-file", file("server.crt")))
        .arg(flag("tls-private-key-file", file("server.key")))
        .arg(flag("client-ca-file", file("ca.crt")))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(flag("service-account-signing-key-file", file("tokens.key")))
        .arg(flag("service-account-key-file", file("tokens.pub")))
        .args(["--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"])
        .args(["--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"])
        .arg(flag("audit-policy-file", file("audit-policy.json")))
        .arg(flag("audit-log-path", file("audit.log")));
    Process::start("kube-apiserver", &command, folder)
}

/// What controller-manager and scheduler have in common.
fn controller(program: &Path, kubeconfig: &Path, folder: &Path, port: u16) -> Command {
    let mut command = Command::new(program);
    command
        .arg(flag("kubeconfig", kubeconfig.display()))
        .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
        .arg(flag("secure-port", port))
        .arg(flag("tls-cert-file", folder.join("server.crt").display()))
        .arg(flag("tls-private-key-file", folder.join("server.key").display()));
    command
}

/// The controller-manager's own flags: it signs tokens and certificates, and each controller acts
/// under its own account.
fn signs(command: &mut Command, folder: &Path) {
    let file = |name: &str| folder.join(name).display().to_string();
    command
        .arg(flag("service-account-private-key-file", file("tokens.key")))
        .arg(flag("root-ca-file", file("ca.crt")))
        .arg(flag("cluster-signing-cert-file", file("ca.crt")))
        .arg(flag("cluster-signing-key-file", file("ca.key")))
        .arg("--use-service-account-credentials=true");
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}
