//! What the fields of Cluster API's own kinds may be, as far as the stand-ins, the provider and
//! people use them. Whatever else an object says is kept, so that a real one loses nothing.

use serde_json::{Value, json};

use super::kind::Kind;

/// The schema of one of the four kinds: its specification, its status, and what they are for.
pub(super) fn schema(kind: Kind) -> Value {
    let (about, spec, status) = match kind {
        Kind::Cluster => (
            "A cluster: where its Nodes come from and how its API server is reached.",
            cluster_spec(),
            cluster_status(),
        ),
        Kind::Deployment => (
            "A fleet of Machines of one template, replaced a few at a time when that changes.",
            deployment_spec(),
            counted_status(),
        ),
        Kind::Set => {
            ("A number of Machines that are all made alike.", set_spec(), counted_status())
        }
        _ => ("One Node and the infrastructure that it runs on.", machine_spec(), machine_status()),
    };
    json!({ "type": "object", "description": about,
        "properties": { "spec": spec, "status": status } })
}

/// An object of which some fields are known and all are kept.
fn object(about: &str, properties: &Value) -> Value {
    json!({ "type": "object", "description": about, "properties": properties,
        "x-kubernetes-preserve-unknown-fields": true })
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn flag(about: &str) -> Value {
    json!({ "type": "boolean", "description": about })
}

/// A number of things or of seconds: whole, and not below zero.
fn count(about: &str) -> Value {
    json!({ "type": "integer", "format": "int32", "minimum": 0, "description": about })
}

fn time(about: &str) -> Value {
    json!({ "type": "string", "format": "date-time", "description": about })
}

fn texts(about: &str) -> Value {
    json!({ "type": "object", "description": about, "additionalProperties": { "type": "string" } })
}

fn reference(about: &str) -> Value {
    let fields = json!({
        "apiGroup": text("The group of the kind."),
        "kind": text("The kind."),
        "name": text("The name, in the same namespace."),
    });
    object(about, &fields)
}

fn generation() -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 0,
        "description": "The generation of the specification that the status is about." })
}

fn conditions() -> Value {
    let fields = json!({
        "type": text("What it is about."),
        "status": { "type": "string", "enum": ["True", "False", "Unknown"],
            "description": "Whether it holds." },
        "reason": text("Why, in one word for programs."),
        "message": text("Why, for people."),
        "lastTransitionTime": time("When the status last changed."),
        "observedGeneration": generation(),
    });
    let mut items = object("One thing that holds or does not.", &fields);
    items["required"] = json!(["type", "status"]);
    json!({ "type": "array", "description": "What holds of it now.", "items": items,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] })
}

fn endpoint() -> Value {
    let fields = json!({
        "host": text("Its name or address."),
        "port": json!({ "type": "integer", "format": "int32", "minimum": 0, "maximum": 65535,
            "description": "Its port." }),
    });
    object("How the API server is reached.", &fields)
}

fn cluster_spec() -> Value {
    let fields = json!({
        "paused": flag("Nothing that belongs to the cluster is changed while this is true."),
        "controlPlaneEndpoint": endpoint(),
        "controlPlaneRef": reference("The object that keeps the control plane, if one does."),
        "infrastructureRef": reference("The provider's part of the cluster."),
    });
    object("What the cluster shall be.", &fields)
}

fn cluster_status() -> Value {
    let counts = |about: &str| {
        let mut fields = counts();
        fields["desiredReplicas"] = count("How many there shall be.");
        object(about, &fields)
    };
    let once = json!({
        "infrastructureProvisioned": flag("The provider's part was ready once."),
        "controlPlaneInitialized": flag("The API server answered once."),
    });
    let fields = json!({
        "phase": text("How far it is, in one word for people."),
        "conditions": conditions(),
        "observedGeneration": generation(),
        "initialization": object("What was reached once and stays.", &once),
        "controlPlane": counts("The Machines of the control plane."),
        "workers": counts("All other Machines."),
    });
    object("What the cluster is.", &fields)
}

/// How many Machines there are, by what is true of them.
fn counts() -> Value {
    json!({
        "replicas": count("How many there are, those that are leaving too."),
        "readyReplicas": count("How many of them are ready."),
        "availableReplicas": count("How many of them have been ready for long enough."),
        "upToDateReplicas": count("How many of them are as the template says."),
    })
}

fn selector() -> Value {
    let fields = json!({ "matchLabels": texts("Labels that all of them have.") });
    object("Which Machines are meant.", &fields)
}

fn template() -> Value {
    let metadata = json!({
        "labels": texts("Labels of every Machine."),
        "annotations": texts("Annotations of every Machine."),
    });
    let fields = json!({
        "metadata": object("What every Machine is marked with.", &metadata),
        "spec": machine_spec(),
    });
    object("What every Machine is made from.", &fields)
}

fn deletion_order() -> Value {
    let order = json!({ "type": "string", "enum": ["Random", "Newest", "Oldest"],
        "description": "Which Machine goes first when there are too many." });
    object("How Machines leave.", &json!({ "order": order }))
}

fn set_spec() -> Value {
    let fields = json!({
        "clusterName": text("The cluster that it belongs to."),
        "replicas": count("How many Machines there shall be; 1 if nothing is said."),
        "selector": selector(),
        "template": template(),
        "deletion": deletion_order(),
    });
    object("What there shall be.", &fields)
}

fn deployment_spec() -> Value {
    let limit = |about: &str| {
        json!({ "x-kubernetes-int-or-string": true, "description": about,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "minimum": 0, "pattern": "^[0-9]+%$" })
    };
    let rolling = json!({
        "maxSurge": limit("How many Machines, or which share, may be too many meanwhile."),
        "maxUnavailable": limit("How many Machines, or which share, may be missing meanwhile."),
    });
    let strategy = json!({
        "type": { "type": "string", "enum": ["RollingUpdate", "OnDelete"],
            "description": "Whether Machines are replaced, or only not made again when deleted." },
        "rollingUpdate": object("Limits of a replacement.", &rolling),
    });
    let rollout = json!({ "strategy": object("How a new template is brought out.", &strategy) });
    let mut spec = set_spec();
    spec["properties"]["paused"] = flag("Nothing is changed while this is true.");
    spec["properties"]["rollout"] = object("How changes reach the Machines.", &rollout);
    spec
}

fn counted_status() -> Value {
    let mut fields = counts();
    fields["phase"] = text("How far it is, in one word for people.");
    fields["selector"] = text("The selector as the scale shows it.");
    fields["conditions"] = conditions();
    fields["observedGeneration"] = generation();
    object("What there is.", &fields)
}

fn machine_spec() -> Value {
    let bootstrap = json!({
        "configRef": reference("The object that writes the bootstrap data, if one does."),
        "dataSecretName": text("The Secret with the bootstrap data."),
    });
    let seconds = |what: &str| count(&format!("{what}, in seconds; 0 is for ever."));
    let deletion = json!({
        "nodeDrainTimeoutSeconds": seconds("How long Pods may take to leave"),
        "nodeVolumeDetachTimeoutSeconds": seconds("How long volumes may take to leave"),
        "nodeDeletionTimeoutSeconds": seconds("How long the Node may take to go"),
    });
    let fields = json!({
        "clusterName": text("The cluster that it belongs to."),
        "version": text("The version of Kubernetes that the Node shall report."),
        "providerID": text("The provider's name of the host; its Node says the same."),
        "failureDomain": text("Where the host shall be."),
        "minReadySeconds": count("How long it is ready before it counts as available, in seconds."),
        "bootstrap": object("How the host becomes a Node.", &bootstrap),
        "infrastructureRef": reference("The provider's part of the Machine."),
        "deletion": object("How it leaves.", &deletion),
    });
    object("What the Machine shall be.", &fields)
}

fn machine_status() -> Value {
    let address = json!({
        "type": text("What kind of address it is."),
        "address": text("The address."),
    });
    let addresses = json!({ "type": "array", "description": "How the host is reached.",
        "items": object("One address.", &address) });
    let once = json!({
        "infrastructureProvisioned": flag("The provider's part was ready once."),
        "bootstrapDataSecretCreated": flag("The bootstrap data was there once."),
    });
    let deletion =
        json!({ "nodeDrainStartTime": time("When its Pods were first asked to leave.") });
    let node = json!({ "name": text("The Node's name.") });
    let fields = json!({
        "phase": text("How far it is, in one word for people."),
        "conditions": conditions(),
        "observedGeneration": generation(),
        "lastUpdated": time("When the phase last changed."),
        "addresses": addresses,
        "nodeRef": object("The Node that it became, for good.", &node),
        "nodeInfo": object("What the Node says of its system.", &json!({})),
        "initialization": object("What was reached once and stays.", &once),
        "deletion": object("How far its deletion is.", &deletion),
    });
    object("What the Machine is.", &fields)
}
