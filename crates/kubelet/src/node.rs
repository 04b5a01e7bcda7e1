//! The Node's loop: read it and its Lease, decide, perform one effect, look again.

use std::convert::Infallible;
use std::time::Duration;

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

/// What cannot be read back, and what need not be: the answer to a write says how things are, and
/// whatever is written names that version, so a change by others is met as a conflict.
#[derive(Default)]
struct Memory {
    registered: bool,
    missing_since: Option<Timestamp>,
    heartbeat: Option<Timestamp>,
    told: Option<Reason>,
    /// The Node as it was last read or written, and when.
    node: Option<(Timestamp, Box<Node>)>,
    /// The Lease as it was last read or written.
    lease: Option<LeaseObject>,
}

impl Memory {
    /// The Node, if what was said of it last still counts: it is read with every renewal of the
    /// Lease, so that whoever calls it Unknown is contradicted by then (K17, V11).
    fn recall_node<V>(&self, agent: &Agent<V>) -> Option<Box<Node>> {
        let fresh = agent.config.timing.of_node().lease;
        let (at, node) = self.node.as_ref()?;
        let age = Duration::try_from(agent.clock.now().duration_since(*at)).ok()?;
        (age < fresh).then(|| node.clone())
    }

    /// What an answer to a read or a write of the Node says.
    fn note_node<V>(&mut self, agent: &Agent<V>, answer: &Answer<Node>) {
        self.node = match answer {
            Answer::Yes(node) => Some((agent.clock.now(), Box::new(node.clone()))),
            Answer::NotFound | Answer::Conflict | Answer::No(_) | Answer::Silence(_) => None,
        };
    }

    /// The same of the Lease. One that is gone went with its Node.
    fn note_lease(&mut self, answer: &Answer<Lease>) {
        self.lease = match answer {
            Answer::Yes(lease) => Some(LeaseObject::Live {
                version: lease.metadata.resource_version.clone().unwrap_or_default(),
                renewed: lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|t| t.0),
            }),
            Answer::NotFound | Answer::Conflict | Answer::No(_) | Answer::Silence(_) => {
                self.node = None;
                None
            }
        };
    }
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
    let node = match memory.recall_node(agent) {
        Some(node) => NodeObject::Live(node),
        None => observe_node(agent, memory).await,
    };
    match &node {
        NodeObject::Live(_) => (memory.registered, memory.missing_since) = (true, None),
        NodeObject::Missing if memory.registered => {
            memory.missing_since.get_or_insert_with(|| agent.clock.now());
        }
        NodeObject::Missing | NodeObject::Unknown(_) => {}
    }
    let lease = match &node {
        NodeObject::Live(_) => match memory.lease.clone() {
            Some(lease) => lease,
            None => observe_lease(agent, memory).await,
        },
        NodeObject::Missing | NodeObject::Unknown(_) => {
            memory.lease = None;
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

async fn observe_node<V>(agent: &Agent<V>, memory: &mut Memory) -> NodeObject {
    let answer = call(nodes(agent).get(agent.config.node_name())).await;
    memory.note_node(agent, &answer);
    match answer {
        Answer::Yes(node) => NodeObject::Live(Box::new(node)),
        Answer::NotFound => NodeObject::Missing,
        Answer::Conflict => NodeObject::Unknown("conflict on a read".to_owned()),
        Answer::No(message) | Answer::Silence(message) => NodeObject::Unknown(message),
    }
}

async fn observe_lease<V>(agent: &Agent<V>, memory: &mut Memory) -> LeaseObject {
    let answer = call(leases(agent).get(agent.config.node_name())).await;
    memory.note_lease(&answer);
    match answer {
        Answer::Yes(_) => memory.lease.clone().unwrap_or(LeaseObject::Missing),
        Answer::NotFound => LeaseObject::Missing,
        Answer::Conflict => LeaseObject::Unknown("conflict on a read".to_owned()),
        Answer::No(message) | Answer::Silence(message) => LeaseObject::Unknown(message),
    }
}

async fn perform<V>(agent: &Agent<V>, memory: &mut Memory, action: &Action) -> Outcome {
    let heartbeat = agent.clock.now();
    let (name, params) = (agent.config.node_name(), PatchParams::default());
    let outcome = match action {
        Action::Register(node) => {
            let answer = call(nodes(agent).create(&PostParams::default(), node)).await;
            memory.note_node(agent, &answer);
            answer.outcome()
        }
        Action::SetLabels(labels) => {
            patch(agent, memory, &json!({"metadata": {"labels": labels}})).await
        }
        Action::SetProviderId { version, provider_id } => {
            let spec = json!({"providerID": provider_id});
            let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
            patch(agent, memory, &body).await
        }
        Action::PublishStatus { version, status } => {
            let body = json!({"metadata": {"resourceVersion": version}, "status": status});
            let patch = Patch::Merge(body);
            let answer = call(nodes(agent).patch_status(name, &params, &patch)).await;
            memory.note_node(agent, &answer);
            answer.outcome()
        }
        Action::CreateLease { owner, renewed, seconds } => {
            let lease = lease(name, owner, *renewed, *seconds);
            let answer = call(leases(agent).create(&PostParams::default(), &lease)).await;
            memory.note_lease(&answer);
            answer.outcome()
        }
        Action::RenewLease { version, renewed, seconds } => {
            let body = json!({"metadata": {"resourceVersion": version}, "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": seconds,
                "renewTime": MicroTime(*renewed),
            }});
            let answer = call(leases(agent).patch(name, &params, &Patch::Merge(body))).await;
            memory.note_lease(&answer);
            answer.outcome()
        }
    };
    let tells_status = matches!(action, Action::PublishStatus { .. } | Action::Register(_));
    if tells_status && outcome == Outcome::Done {
        memory.heartbeat = Some(heartbeat);
    }
    outcome
}

async fn patch<V>(agent: &Agent<V>, memory: &mut Memory, body: &Value) -> Outcome {
    let (name, params) = (agent.config.node_name(), PatchParams::default());
    let answer = call(nodes(agent).patch(name, &params, &Patch::Merge(body))).await;
    memory.note_node(agent, &answer);
    answer.outcome()
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
