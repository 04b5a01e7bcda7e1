//! The Node's loop: read it and its Lease, decide, perform one effect, look again.

use std::convert::Infallible;

use applecart_core::node::{Action, LeaseObject, NodeObject, Observed, Reason, decide};
use applecart_core::pod::Outcome;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::api::{Answer, call};
use crate::vm::Vm;

/// Where Nodes' Leases are.
const LEASES: &str = "kube-node-lease";

/// What cannot be read back.
#[derive(Default)]
struct Memory {
    registered: bool,
    missing_since: Option<Timestamp>,
    heartbeat: Option<Timestamp>,
    told: Option<Reason>,
}

pub(crate) async fn run<V: Vm>(agent: &Agent<V>) -> Infallible {
    let mut memory = Memory::default();
    loop {
        let seen = observe(agent, &mut memory).await;
        let decision = decide(agent.clock.now(), &agent.config.timing.of_node(), &seen);
        let outcome = match &decision.action {
            Some(action) => perform(agent, &mut memory, action).await,
            None => Outcome::Done,
        };
        tell(&mut memory, decision.reason, &outcome);
        let wait = match outcome {
            Outcome::Done => decision.wake,
            // The answer to a lost race, a refusal or a silence is the same: look again soon.
            Outcome::Refused | Outcome::Failed(_) | Outcome::Unknown(_) => {
                agent.config.timing.lease.min(agent.config.timing.retry_first)
            }
        };
        tokio::time::sleep(wait).await;
    }
}

async fn observe<V: Vm>(agent: &Agent<V>, memory: &mut Memory) -> Observed {
    let name = agent.config.node_name();
    let node = match call(nodes(agent).get(name)).await {
        Answer::Yes(node) => NodeObject::Live(Box::new(node)),
        Answer::NotFound => NodeObject::Missing,
        Answer::Conflict => NodeObject::Unknown("conflict on a read".to_owned()),
        Answer::No(message) | Answer::Silence(message) => NodeObject::Unknown(message),
    };
    match &node {
        NodeObject::Live(_) => (memory.registered, memory.missing_since) = (true, None),
        NodeObject::Missing if memory.registered => {
            memory.missing_since.get_or_insert_with(|| agent.clock.now());
        }
        NodeObject::Missing | NodeObject::Unknown(_) => {}
    }
    let lease = match &node {
        NodeObject::Live(_) => observe_lease(agent).await,
        NodeObject::Missing | NodeObject::Unknown(_) => {
            LeaseObject::Unknown("not looked at without a Node".to_owned())
        }
    };
    Observed {
        registration: agent.config.registration.clone(),
        address: agent.address.lock().expect("no panic while the address is held").clone(),
        node,
        missing_since: memory.missing_since,
        lease,
        heartbeat: memory.heartbeat,
        health: agent.health.lock().expect("no panic while the health is held").clone(),
    }
}

async fn observe_lease<V>(agent: &Agent<V>) -> LeaseObject {
    match call(leases(agent).get(agent.config.node_name())).await {
        Answer::Yes(lease) => LeaseObject::Live {
            version: lease.metadata.resource_version.unwrap_or_default(),
            renewed: lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0),
        },
        Answer::NotFound => LeaseObject::Missing,
        Answer::Conflict => LeaseObject::Unknown("conflict on a read".to_owned()),
        Answer::No(message) | Answer::Silence(message) => LeaseObject::Unknown(message),
    }
}

async fn perform<V>(agent: &Agent<V>, memory: &mut Memory, action: &Action) -> Outcome {
    let heartbeat = agent.clock.now();
    let outcome = match action {
        Action::Register(node) => {
            call(nodes(agent).create(&PostParams::default(), node)).await.outcome()
        }
        Action::SetLabels(labels) => patch(agent, &json!({"metadata": {"labels": labels}})).await,
        Action::SetProviderId { version, provider_id } => {
            let spec = json!({"providerID": provider_id});
            patch(agent, &json!({"metadata": {"resourceVersion": version}, "spec": spec})).await
        }
        Action::PublishStatus { version, status } => {
            let body = json!({"metadata": {"resourceVersion": version}, "status": status});
            let (name, params) = (agent.config.node_name(), PatchParams::default());
            call(nodes(agent).patch_status(name, &params, &Patch::Merge(body))).await.outcome()
        }
        Action::CreateLease { owner, renewed, seconds } => {
            let lease = lease(agent.config.node_name(), owner, *renewed, *seconds);
            call(leases(agent).create(&PostParams::default(), &lease)).await.outcome()
        }
        Action::RenewLease { version, renewed, seconds } => {
            let name = agent.config.node_name();
            let body = json!({"metadata": {"resourceVersion": version}, "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": seconds,
                "renewTime": MicroTime(*renewed),
            }});
            let params = PatchParams::default();
            call(leases(agent).patch(name, &params, &Patch::Merge(body))).await.outcome()
        }
    };
    let tells_status = matches!(action, Action::PublishStatus { .. } | Action::Register(_));
    if tells_status && outcome == Outcome::Done {
        memory.heartbeat = Some(heartbeat);
    }
    outcome
}

async fn patch<V>(agent: &Agent<V>, body: &Value) -> Outcome {
    let (name, params) = (agent.config.node_name(), PatchParams::default());
    call(nodes(agent).patch(name, &params, &Patch::Merge(body))).await.outcome()
}

/// The Lease goes with its Node.
fn lease(name: &str, owner: &str, renewed: Timestamp, seconds: i32) -> Lease {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: owner.to_owned(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASES.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(seconds),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

/// Says what happened, once: a heartbeat that goes on is no news.
fn tell(memory: &mut Memory, reason: Reason, outcome: &Outcome) {
    match outcome {
        Outcome::Failed(message) | Outcome::Unknown(message) => {
            tracing::warn!(%reason, error = message, "node");
        }
        Outcome::Done | Outcome::Refused => {
            let routine = matches!(reason, Reason::Current | Reason::Heartbeat | Reason::LeaseDue);
            if !routine && memory.told.as_ref() != Some(&reason) {
                tracing::info!(%reason, "node");
            }
        }
    }
    memory.told = Some(reason);
}

fn nodes<V>(agent: &Agent<V>) -> Api<Node> {
    Api::all(agent.client.clone())
}

fn leases<V>(agent: &Agent<V>) -> Api<Lease> {
    Api::namespaced(agent.client.clone(), LEASES)
}
