//! The ground itself: what a control plane gives, and that nothing of it stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::folder::{Folder, started};
use crate::{Ground, Process, kubeconfig, objects, wait};

/// The first look: the server is there, and so is the identity that everything below uses.
pub async fn the_api_server_answers_and_knows_who_asks(ground: &mut Ground) -> Result<()> {
    let version = ground.client().await?.apiserver_version().await?;
    ensure!(version.major == "1", "{version:?}");
    let answer = ground.kubectl(&["auth", "can-i", "*", "*", "--all-namespaces"]).await?;
    ensure!(answer.trim() == "yes", "{answer}");
    Ok(())
}

/// A program under a `ServiceAccount` gets what a role gives it; what it is refused is in the audit
/// log, by name.
pub async fn an_account_may_do_what_its_role_says_and_refusals_are_on_record(
    ground: &mut Ground,
) -> Result<()> {
    let namespace = ground.namespace("account").await?;
    let plane = ground.control_plane().await?;
    let client = plane.client();
    let object = |version: &str, kind: &str| objects::named(version, kind, &namespace, "teller");
    objects::create(&client, &object("v1", "ServiceAccount"), false).await?;
    let mut role = object("rbac.authorization.k8s.io/v1", "Role");
    role["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    objects::create(&client, &role, false).await?;
    let mut binding = object("rbac.authorization.k8s.io/v1", "RoleBinding");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "teller"});
    binding["subjects"] =
        json!([{"kind": "ServiceAccount", "name": "teller", "namespace": namespace}]);
    objects::create(&client, &binding, false).await?;

    let path = plane.kubeconfig_of_service_account(&namespace, "teller").await?;
    let teller = kubeconfig::client(&path).await?;
    wait::until("the role to act", async || {
        let pods = objects::list(&teller, &objects::named("v1", "Pod", &namespace, "")).await?;
        Ok(Some(pods))
    })
    .await?;
    let secrets = objects::named("v1", "Secret", &namespace, "");
    let error = format!("{:#}", objects::list(&teller, &secrets).await.err().context("allowed")?);
    ensure!(error.contains("forbidden"), "{error}");
    let log = plane.audit_log();
    let user = format!("system:serviceaccount:{namespace}:teller");
    wait::until("the refusal in the audit log", async || {
        let text = fs::read_to_string(&log)?;
        let calls = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let refused = |call: &Value| {
            call["user"]["username"] == user.as_str()
                && call["objectRef"]["resource"] == "secrets"
                && call["responseStatus"]["code"] == 403
        };
        Ok(calls.into_iter().find(refused))
    })
    .await?;
    Ok(())
}

/// A Mac's certificate comes from the kubelet signer: asked for, approved, signed.
pub async fn a_nodes_certificate_is_signed_once_it_is_approved(ground: &mut Ground) -> Result<()> {
    let client = ground.client().await?;
    let name = ground.namespace("node").await?;
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{name}"));
    let request = params.serialize_request(&rcgen::KeyPair::generate()?)?.pem()?;
    let asked = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64_of(&request), "expirationSeconds": 3600,
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    objects::create(&client, &asked, false).await?;
    ground.kubectl(&["certificate", "approve", &name]).await?;
    objects::until(&client, &asked, "a signed certificate", |request| {
        request["status"]["certificate"].is_string()
    })
    .await?;
    Ok(())
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// The real scheduler places a Pod on the one Node that fits.
pub async fn the_scheduler_places_a_pod_on_the_node_that_fits(ground: &mut Ground) -> Result<()> {
    let (client, namespace) = (ground.client().await?, ground.namespace("schedule").await?);
    let node: Node = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": namespace, "labels": {"story": namespace}},
    }))?;
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&kube::api::PostParams::default(), &node).await?;
    let capacity = json!({"cpu": "8", "memory": "16Gi", "pods": "2"});
    let status = json!({"status": {"capacity": capacity, "allocatable": capacity}});
    let merge = kube::api::Patch::Merge(&status);
    nodes.patch_status(&namespace, &kube::api::PatchParams::default(), &merge).await?;
    let mut pod = objects::named("v1", "Pod", &namespace, "job");
    pod["spec"] = json!({
        "nodeSelector": {"story": namespace},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "runner", "image": "x", "resources": {"requests": {"cpu": "4"}}}],
    });
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    wait::until("the Pod to be created", async || {
        // Its ServiceAccount comes a moment after its namespace.
        Ok(Some(objects::create(&client, &pod, false).await?))
    })
    .await?;
    let placed = wait::until("the Pod to be placed", async || {
        Ok(pods.get("job").await?.spec.and_then(|spec| spec.node_name))
    })
    .await;
    nodes.delete(&namespace, &kube::api::DeleteParams::default()).await?;
    assert_eq!(placed?, namespace);
    Ok(())
}

/// Parallel runs do not collide: two control planes at once, and neither knows the other's objects.
pub async fn two_control_planes_run_side_by_side(ground: &mut Ground) -> Result<()> {
    let first = ground.new_control_plane().await?;
    let second = ground.new_control_plane().await?;
    ensure!(first.server() != second.server(), "both are at {}", first.server());
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}});
    objects::create(&first.client(), &namespace, false).await?;
    ensure!(objects::get(&first.client(), &namespace).await?.is_some(), "not in the first");
    ensure!(objects::get(&second.client(), &namespace).await?.is_none(), "in the second too");
    let folder = first.folder().to_owned();
    drop(first);
    ensure!(!folder.exists(), "{} is left", folder.display());
    let answer: Result<Value> = still_answers(&second.client()).await;
    answer.map(|_| ())
}

async fn still_answers(client: &Client) -> Result<Value> {
    Ok(client.request(http::Request::get("/version").body(Vec::new())?).await?)
}

/// A run that is killed leaves no process behind.
pub async fn kill_9_of_the_runner_leaves_no_process(_: &mut Ground) -> Result<()> {
    let (_folder, mut runner) = second_runner().await?;
    let children = children_of(runner.id())?;
    ensure!(children.len() >= 2, "a runner with {} children", children.len());
    kill_process(pid(runner.id())?, Signal::KILL).context("could not kill the runner")?;
    wait::until("the runner's end", async || runner.ended()).await?;
    all_gone(&children).await
}

/// A run that is interrupted ends everything in order, and leaves no data either.
pub async fn ctrl_c_ends_everything_and_leaves_no_data(_: &mut Ground) -> Result<()> {
    let (_folder, mut runner) = second_runner().await?;
    let children = children_of(runner.id())?;
    let data = data_of(runner.id());
    ensure!(!data.is_empty(), "a runner without data");
    kill_process(pid(runner.id())?, Signal::INT).context("could not interrupt the runner")?;
    let status = wait::until("the runner's end", async || runner.ended()).await?;
    assert_eq!(status.code(), Some(130), "{}", runner.tail());
    all_gone(&children).await?;
    ensure!(data.iter().all(|folder| !folder.exists()), "some of {data:?} is left");
    Ok(())
}

/// Another run, with its own control plane, that keeps it up.
async fn second_runner() -> Result<(Folder, Process)> {
    let folder = Folder::create()?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["--keep", "the_api_server_answers_and_knows_who_asks"]);
    let mut runner = Process::start("second-runner", &command, folder.path())?;
    let log = runner.log().to_owned();
    wait::until("the second runner's control plane", async || {
        runner.must_live()?;
        Ok(fs::read_to_string(&log)?.contains("export KUBECONFIG=").then_some(()))
    })
    .await?;
    Ok((folder, runner))
}

/// Processes by id and start, whose parent this is.
fn children_of(parent: u32) -> Result<Vec<(u32, u64)>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("no /proc")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
        let is_child = fields.split_whitespace().nth(1) == Some(parent.to_string().as_str());
        if let (true, Some(start)) = (is_child, started(process)) {
            children.push((process, start));
        }
    }
    Ok(children)
}

async fn all_gone(processes: &[(u32, u64)]) -> Result<()> {
    wait::until("every process of the runner to end", async || {
        let left: Vec<_> =
            processes.iter().filter(|(id, start)| started(*id) == Some(*start)).collect();
        ensure!(left.is_empty(), "{left:?} are left");
        Ok(Some(()))
    })
    .await
}

/// Folders that a run made.
fn data_of(process: u32) -> Vec<PathBuf> {
    let base = std::env::temp_dir();
    let ours = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&format!("applecart-e2e-{process}-"))
    };
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| ours(path)).collect()
}

fn pid(process: u32) -> Result<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw).context("an odd process id")
}
