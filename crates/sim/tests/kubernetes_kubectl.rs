//! The simulated API server over HTTPS, asked by the real `kubectl`.

#![expect(clippy::disallowed_methods, reason = "kubectl tells ages by the system's clock")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::cluster_api;
use applecart_sim::kubernetes::{ApiServer, Authority, EVENT_LIFE, Identity, Registry, Setup};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_mins(1);

fn widget_definition() -> CustomResourceDefinition {
    let column = |name: &str, kind: &str, path: &str, priority: i32| {
        json!({"name": name, "type": kind, "jsonPath": path,
            "priority": priority})
    };
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget",
                "shortNames": ["wd"], "categories": ["toys"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "additionalPrinterColumns": [
                    column("Colour", "string", ".spec.colour", 0),
                    column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", 0),
                    column("Replicas", "integer", ".spec.replicas", 1),
                    column("Age", "date", ".metadata.creationTimestamp", 0)],
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"],
                    "description": "A thing for tests.",
                    "properties": {
                        "spec": {"type": "object", "required": ["colour"], "properties": {
                            "colour": {"type": "string", "enum": ["red", "blue"],
                                "description": "What it looks like."},
                            "replicas": {"type": "integer", "minimum": 0, "default": 2}}},
                        "status": {"type": "object", "properties": {
                            "replicas": {"type": "integer"},
                            "conditions": {"type": "array", "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["type"],
                                "items": {"type": "object", "required": ["type"], "properties": {
                                    "type": {"type": "string"},
                                    "status": {"type": "string"}}}}}}}}}}]},
    }))
    .unwrap()
}

/// A server on a socket, and a kubectl that is set up for it.
struct Cluster {
    server: ApiServer,
    home: Arc<TempDir>,
    _serving: JoinSet<()>,
}

impl Cluster {
    async fn start() -> Self {
        Self::defined_by(vec![widget_definition()]).await
    }

    async fn defined_by(definitions: Vec<CustomResourceDefinition>) -> Self {
        let server = ApiServer::set_up(Setup {
            clock: Clock::new(Timestamp::now),
            seed: 1,
            registry: Registry::new(definitions).unwrap(),
            event_life: EVENT_LIFE,
            gate: None,
            authority: Some(Authority::generate().unwrap()),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let home = TempDir::new().unwrap();
        let config = server.kubeconfig(&url).unwrap();
        std::fs::write(home.path().join("config"), config.expose_secret()).unwrap();
        let mut serving = JoinSet::new();
        let serve = server.clone();
        serving.spawn(async move { drop(serve.serve(listener).await) });
        Self { server, home: Arc::new(home), _serving: serving }
    }

    fn widgets(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("test.dev", "v1", "Widget");
        let resource = ApiResource::from_gvk_with_plural(&kind, "widgets");
        Api::namespaced_with(self.server.client(Identity::admin()), "default", &resource)
    }

    async fn make_widget(&self, name: &str) -> Api<DynamicObject> {
        let widget = serde_json::from_value(json!({"apiVersion": "test.dev/v1", "kind": "Widget",
            "metadata": {"name": name}, "spec": {"colour": "red"}}));
        let api = self.widgets();
        api.create(&PostParams::default(), &widget.unwrap()).await.unwrap();
        api
    }

    async fn make_pod_on_node(&self) {
        let client = self.server.client(Identity::admin());
        let node = serde_json::from_value(json!({"metadata": {"name": "mac-1"}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "architecture": "arm64", "bootID": "",
                "containerRuntimeVersion": "tart://2", "kernelVersion": "25", "machineID": "",
                "kubeProxyVersion": "", "operatingSystem": "darwin", "osImage": "macOS",
                "systemUUID": ""}}}));
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &node.unwrap()).await.unwrap();
        let pod = serde_json::from_value(json!({"metadata": {"name": "runner", "uid": "x"},
            "spec": {"nodeName": "mac-1", "containers": [{"name": "vm", "image": "macos"}]}}));
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pod = pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
        let event = serde_json::from_value(json!({"metadata": {"name": "runner.1"},
            "type": "Normal", "reason": "Cloned", "message": "the image is here",
            "involvedObject": {"kind": "Pod", "name": "runner", "namespace": "default",
                "uid": pod.metadata.uid},
            "lastTimestamp": Timestamp::now().to_string(),
            "source": {"component": "tart-kubelet"}}));
        let events: Api<Event> = Api::default_namespaced(client);
        events.create(&PostParams::default(), &event.unwrap()).await.unwrap();
    }

    fn command(&self, arguments: &str) -> Command {
        command(self.home.path(), arguments)
    }

    /// Runs kubectl to its end: whether it succeeded, and all it said.
    async fn run(&self, arguments: &str) -> (bool, String) {
        self.finish(self.command(arguments)).await
    }

    /// The same for `kubectl edit`, with a person who does what `sed` is told.
    async fn edit(&self, what: &str, sed: &str) -> (bool, String) {
        let mut command = self.command(&format!("edit {what}"));
        command.env("KUBE_EDITOR", format!("sed -i '{sed}'"));
        self.finish(command).await
    }

    async fn finish(&self, mut command: Command) -> (bool, String) {
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = tokio::time::timeout(PATIENCE, run).await.expect("kubectl hangs").unwrap();
        let output = output.unwrap_or_else(|error| missing(&error));
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    /// What kubectl says when it succeeds.
    async fn kubectl(&self, arguments: &str) -> String {
        let (success, said) = self.run(arguments).await;
        assert!(success, "kubectl {arguments}: {said}");
        said
    }
}

fn command(home: &Path, arguments: &str) -> Command {
    let mut command = Command::new("kubectl");
    command
        .args(arguments.split_whitespace())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("KUBECONFIG", home.join("config"))
        .current_dir(home);
    command
}

fn missing(error: &std::io::Error) -> ! {
    panic!("could not run kubectl ({error}): install kubectl 1.32 or later (kubernetes-client)")
}

/// A kubectl that runs on, and is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The cells of each line.
fn table(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the level was never reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_tables_with_the_definitions_columns() {
    let cluster = Cluster::start().await;
    let api = cluster.make_widget("a").await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    api.patch_status("a", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    let said = cluster.kubectl("get wd").await;
    let rows = table(&said);
    assert_eq!(rows[0], ["NAME", "COLOUR", "READY", "AGE"]);
    assert_eq!(rows[1][..3], ["a", "red", "True"]);
    let said = cluster.kubectl("get toys -A -o wide").await;
    assert_eq!(table(&said)[0], ["NAMESPACE", "NAME", "COLOUR", "READY", "REPLICAS", "AGE"]);
    let replicas = cluster.kubectl("get widget a -o jsonpath={.spec.replicas}").await;
    assert_eq!(replicas, "2");
    let yaml = cluster.kubectl("get wd/a -o yaml").await;
    assert!(yaml.contains("colour: red") && yaml.contains("kind: Widget"), "{yaml}");
    let (success, said) = cluster.run("get wd/b").await;
    assert!(!success && said.contains("widgets.test.dev \"b\" not found"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_built_in_kinds_as_people_know_them() {
    let cluster = Cluster::start().await;
    cluster.make_pod_on_node().await;
    for (arguments, head, row) in [
        ("get pods -o wide", "NAME READY STATUS RESTARTS AGE IP NODE", "runner 0/1 Pending 0"),
        ("get nodes", "NAME STATUS ROLES AGE VERSION", "mac-1 Ready <none>"),
        ("get ns", "NAME STATUS AGE", "default Active"),
        ("get events", "LAST SEEN TYPE REASON OBJECT MESSAGE", ""),
        ("get sa", "NAME AGE", "default"),
        ("get crd", "NAME CREATED AT", "widgets.test.dev"),
        ("get all", "NAME READY STATUS RESTARTS AGE", "pod/runner 0/1 Pending 0"),
    ] {
        let said = cluster.kubectl(arguments).await;
        let lines: Vec<String> = table(&said).iter().map(|cells| cells.join(" ")).collect();
        assert!(lines[0].starts_with(head), "{arguments}: {said}");
        assert!(lines[1].starts_with(row), "{arguments}: {said}");
    }
    let version = cluster.kubectl("version").await;
    assert!(version.contains("Server Version: v1.36.4"), "{version}");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_w_follows_changes() {
    let cluster = Cluster::start().await;
    let api = cluster.make_widget("a").await;
    let mut command = cluster.command("get wd -w");
    command.stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| missing(&error));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let running = Running(child);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let reader = tokio::task::spawn_blocking(move || {
        for line in lines.map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    let mut next = async || tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert!(next().await.starts_with("NAME"));
    assert_eq!(table(&next().await)[0][..2], ["a", "red"]);
    let blue = json!({"spec": {"colour": "blue"}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&blue)).await.unwrap();
    assert_eq!(table(&next().await)[0][..2], ["a", "blue"]);
    drop(running);
    reader.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_tells_the_object_and_its_events() {
    let cluster = Cluster::start().await;
    cluster.make_widget("a").await;
    cluster.make_pod_on_node().await;
    let said = cluster.kubectl("describe wd a").await;
    assert!(said.contains("Colour:") && said.contains("Events:"), "{said}");
    let said = cluster.kubectl("describe pod runner").await;
    assert!(said.contains("mac-1") && said.contains("the image is here"), "{said}");
    let said = cluster.kubectl("describe node mac-1").await;
    assert!(said.contains("runner") && said.contains("v1.36.4"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_creates_changes_and_refuses_what_the_schema_does_not_know() {
    let cluster = Cluster::start().await;
    let write = |file: &str, content: Value| {
        std::fs::write(cluster.home.path().join(file), content.to_string()).unwrap();
    };
    let widget = |spec: Value| {
        json!({"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": spec})
    };
    write("widget.json", widget(json!({"colour": "red", "replicas": 3})));
    assert!(cluster.kubectl("apply -f widget.json").await.contains("created"));
    assert!(cluster.kubectl("apply -f widget.json").await.contains("unchanged"));
    write("widget.json", widget(json!({"colour": "blue"})));
    assert!(cluster.kubectl("apply -f widget.json").await.contains("configured"));
    let spec = cluster.widgets().get("a").await.unwrap().data["spec"].clone();
    assert_eq!(spec, json!({"colour": "blue", "replicas": 2}));
    write("widget.json", widget(json!({"colour": "blue", "colours": 1})));
    let (success, said) = cluster.run("apply -f widget.json").await;
    assert!(!success && said.contains("unknown field \"spec.colours\""), "{said}");
    write("widget.json", widget(json!({"colour": "green"})));
    let (success, said) = cluster.run("apply -f widget.json").await;
    assert!(!success && said.contains("supported values: \"red\", \"blue\""), "{said}");
    write("widget.json", widget(json!({"colour": "red"})));
    let said = cluster.kubectl("apply --server-side --force-conflicts -f widget.json").await;
    assert!(said.contains("serverside-applied"), "{said}");
    let pod = |image: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a", "image": image}, {"name": "b", "image": "x"}]}})
    };
    write("pod.json", pod("one"));
    cluster.kubectl("apply -f pod.json").await;
    write("pod.json", pod("two"));
    assert!(cluster.kubectl("apply -f pod.json").await.contains("configured"));
    let images = cluster.kubectl("get pod p -o jsonpath={.spec.containers[*].image}").await;
    assert_eq!(images, "two x");
}

#[tokio::test(flavor = "multi_thread")]
async fn annotate_label_scale_and_cordon_change_what_they_say() {
    let cluster = Cluster::start().await;
    let api = cluster.make_widget("a").await;
    cluster.make_pod_on_node().await;
    cluster.kubectl("annotate wd a note=hello").await;
    cluster.kubectl("label wd a fleet=x").await;
    cluster.kubectl("label pod runner fleet=x").await;
    cluster.kubectl("annotate node mac-1 note=hello").await;
    cluster.kubectl("scale wd a --replicas=7").await;
    let widget = api.get("a").await.unwrap();
    assert_eq!(widget.data["spec"]["replicas"], json!(7));
    assert_eq!(widget.metadata.annotations.unwrap()["note"], "hello");
    assert_eq!(table(&cluster.kubectl("get wd,pods -l fleet=x --no-headers").await).len(), 2);
    let (success, said) = cluster.run("scale wd a --current-replicas=6 --replicas=1").await;
    assert!(!success && said.contains("Expected replicas to be 6"), "{said}");
    cluster.kubectl("cordon mac-1").await;
    assert!(cluster.kubectl("get nodes").await.contains("Ready,SchedulingDisabled"));
    cluster.kubectl("uncordon mac-1").await;
    assert!(!cluster.kubectl("get nodes").await.contains("SchedulingDisabled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_saves_what_a_person_changed_and_only_what_the_schema_takes() {
    let cluster = Cluster::start().await;
    let api = cluster.make_widget("a").await;
    cluster.make_pod_on_node().await;
    let colour = async || api.get("a").await.unwrap().data["spec"]["colour"].clone();
    let (success, said) = cluster.edit("wd a", "s/colour: red/colour: blue/").await;
    assert!(success && said.contains("widget.test.dev/a edited"), "{said}");
    assert_eq!(colour().await, "blue");
    let before = api.get("a").await.unwrap().metadata.resource_version;
    let (success, said) = cluster.edit("wd a", "s/colour: red/colour: blue/").await;
    assert!(success && said.contains("no changes made"), "{said}");
    // The editor opens again with the refusal, and the person gives up.
    let (success, said) = cluster.edit("wd a", "s/colour: blue/colour: green/").await;
    assert!(!success && said.contains("no valid changes were saved"), "{said}");
    assert_eq!(api.get("a").await.unwrap().metadata.resource_version, before);
    // A built-in kind, by a strategic merge patch.
    let (success, said) =
        cluster.edit("node mac-1", "s/^  name: mac-1/&\\n  labels: {a: b}/").await;
    assert!(success && said.contains("node/mac-1 edited"), "{said}");
    assert!(cluster.kubectl("get nodes -l a=b").await.contains("mac-1"));
    // Only the status of a widget.
    let phase = "s/^spec:/status: {replicas: 3}\\n&/";
    let (success, said) = cluster.edit("wd a --subresource=status", phase).await;
    assert!(success, "{said}");
    assert_eq!(api.get("a").await.unwrap().data["status"]["replicas"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_waits_until_the_object_is_gone() {
    let cluster = Cluster::start().await;
    let api = cluster.make_widget("a").await;
    let hold = json!({"metadata": {"finalizers": ["test.dev/hold"]}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&hold)).await.unwrap();
    let mut command = cluster.command("delete wd a");
    command.stdout(Stdio::null());
    let mut running = Running(command.spawn().unwrap_or_else(|error| missing(&error)));
    until(async || api.get("a").await.unwrap().metadata.deletion_timestamp.is_some()).await;
    // It waits by a watch: the level at which a delete that does not wait would be over.
    let watches = |cluster: &Cluster| {
        let requests = cluster.server.requests();
        requests.iter().any(|((verb, resource), _)| {
            verb.to_string() == "watch" && resource == "widgets.test.dev"
        })
    };
    until(async || watches(&cluster)).await;
    assert!(running.0.try_wait().unwrap().is_none(), "kubectl did not wait");
    let free = json!({"metadata": {"finalizers": null}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    until(async || running.0.try_wait().unwrap().is_some()).await;
    assert!(running.0.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_evicts_and_waits_for_the_kubelet() {
    let cluster = Cluster::start().await;
    cluster.make_pod_on_node().await;
    let mut command = cluster.command("drain mac-1 --force");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap_or_else(|error| missing(&error)));
    let pods: Api<Pod> = Api::default_namespaced(cluster.server.client(Identity::admin()));
    until(async || pods.get("runner").await.unwrap().metadata.deletion_timestamp.is_some()).await;
    assert!(running.0.try_wait().unwrap().is_none(), "kubectl did not wait");
    pods.delete("runner", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(async || running.0.try_wait().unwrap().is_some()).await;
    assert!(running.0.wait().unwrap().success());
    assert!(cluster.kubectl("get nodes").await.contains("SchedulingDisabled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_knows_custom_and_built_in_fields() {
    let cluster = Cluster::start().await;
    let said = cluster.kubectl("explain wd.spec.colour").await;
    assert!(said.contains("What it looks like."), "{said}");
    let said = cluster.kubectl("explain widgets").await;
    assert!(said.contains("A thing for tests.") && said.contains("metadata"), "{said}");
    let said = cluster.kubectl("explain pod.spec.nodeName").await;
    assert!(said.contains("FIELD: nodeName <string>"), "{said}");
    let said = cluster.kubectl("explain deployment.spec.replicas").await;
    assert!(said.contains("FIELD: replicas <integer>"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_apis_kinds_explain_themselves_and_refuse_what_is_no_number_of_machines() {
    let cluster = Cluster::defined_by(cluster_api::crds()).await;
    for (field, said) in [
        ("md.spec.replicas", "FIELD: replicas <integer>"),
        ("md.spec.template.spec.version", "the Node shall report"),
        ("ms.status.readyReplicas", "are ready"),
        ("ma.status.conditions.reason", "in one word for programs"),
        ("cl.spec.paused", "FIELD: paused <boolean>"),
    ] {
        let explained = cluster.kubectl(&format!("explain {field}")).await;
        assert!(explained.contains(said), "{explained}");
    }
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
    let resource = ApiResource::from_gvk(&kind);
    let client = cluster.server.client(Identity::admin());
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
    let fleet = DynamicObject::new("macs", &resource).data(json!({"spec": {"replicas": 3}}));
    api.create(&PostParams::default(), &fleet).await.unwrap();
    let patch = r#"{"spec":{"replicas":"three","bogus":1}}"#;
    let (done, said) = cluster.run(&format!("patch md macs --type merge -p {patch}")).await;
    assert!(!done && said.contains("spec.replicas") && said.contains("integer"), "{said}");
    assert_eq!(api.get("macs").await.unwrap().data["spec"], json!({"replicas": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_answered_without_a_known_token() {
    let cluster = Cluster::start().await;
    let config = std::fs::read_to_string(cluster.home.path().join("config")).unwrap();
    let at = config.find("    token: ").unwrap();
    let end = at + config[at..].find('\n').unwrap();
    // Without any credentials kubectl would ask for some.
    let others = "get ns --username=x --password=y";
    for (token, arguments) in [("", others), ("    token: wrong", "get ns")] {
        let changed = format!("{}{token}{}", &config[..at], &config[end..]);
        std::fs::write(cluster.home.path().join("config"), changed).unwrap();
        let (success, said) = cluster.run(arguments).await;
        assert!(!success && said.contains("You must be logged in to the server"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_certificate_was_approved_is_known_by_it_and_has_a_nodes_rights() {
    let cluster = Cluster::start().await;
    cluster.make_pod_on_node().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:mac-1");
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let ask = |name: &str, usage: &str| {
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name}, "spec": {"request": STANDARD.encode(&request),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", usage], "expirationSeconds": 604_800}})
    };
    for (name, usage) in [("good", "client auth"), ("bad", "server auth")] {
        let file = cluster.home.path().join(name);
        std::fs::write(&file, ask(name, usage).to_string()).unwrap();
        let (ok, said) = cluster.run(&format!("create -f {}", file.display())).await;
        assert!(ok, "{said}");
        // As the provider approves for a host that it bootstraps.
        let requests: Api<CertificateSigningRequest> =
            Api::all(cluster.server.client(Identity::admin()));
        let approved = json!({"status": {"conditions": [{"type": "Approved", "status": "True",
            "reason": "Bootstrap", "message": "for a host of ours"}]}});
        let how = PatchParams::default();
        requests.patch_approval(name, &how, &Patch::Merge(&approved)).await.unwrap();
    }
    let (_, said) = cluster.run("get csr").await;
    let bad = table(&said).into_iter().find(|row| row[0] == "bad").unwrap().join(" ");
    assert!(bad.contains("Approved,Failed"), "{said}");
    let (ok, certificate) = cluster.run("get csr good -o jsonpath={.status.certificate}").await;
    assert!(ok && !certificate.is_empty(), "{certificate}");

    cluster.server.enforce_roles();
    let config = std::fs::read_to_string(cluster.home.path().join("config")).unwrap();
    let token = config.lines().find(|line| line.contains("token: ")).unwrap();
    let shown = format!(
        "    client-certificate-data: {certificate}\n    client-key-data: {}",
        STANDARD.encode(key.serialize_pem())
    );
    let config = config.replace(token, &shown);
    std::fs::write(cluster.home.path().join("config"), config).unwrap();
    let (ok, said) = cluster.run("get node mac-1").await;
    assert!(ok, "{said}");
    let (ok, said) = cluster.run("get node").await;
    assert!(!ok && said.contains("Forbidden"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_say_why_there_are_none() {
    let cluster = Cluster::start().await;
    cluster.make_pod_on_node().await;
    let (ok, said) = cluster.run("logs runner").await;
    assert!(!ok && said.contains("waiting to start"), "{said}");
    let pods: Api<Pod> = Api::default_namespaced(cluster.server.client(Identity::admin()));
    let running = json!({"status": {"phase": "Running"}});
    let how = PatchParams::default();
    pods.patch_status("runner", &how, &Patch::Merge(&running)).await.unwrap();
    let (ok, said) = cluster.run("logs runner").await;
    assert!(!ok && said.contains("serves no log"), "{said}");
}
