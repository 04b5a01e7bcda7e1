//! A host's Lease, between Kubernetes and `core`.

use std::collections::BTreeMap;

use applecart_api::ids::{CrUid, ServerId, Zone};
use applecart_api::keys::lease as key;
use applecart_core::machine::{Lease, LeaseHolder, OwnerNote};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease as Stored;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Which object holds a Lease: `namespace/name/uid`.
pub fn holder(namespace: &str, name: &str, uid: &CrUid) -> String {
    format!("{namespace}/{name}/{uid}")
}

/// The host that a Lease is about.
pub fn server(stored: &Stored) -> Option<ServerId> {
    stored.name_any().strip_prefix("host-")?.parse().ok()
}

/// The zone that its host stands in.
pub fn zone(stored: &Stored) -> Option<Zone> {
    stored.annotations().get(key::ZONE)?.parse().ok()
}

/// Reads a Lease from the point of view of the object `us`, or of nobody.
pub fn read(stored: &Stored, us: Option<&CrUid>) -> Lease {
    let identity = stored.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    let holder = match identity.filter(|holder| !holder.is_empty()) {
        None => LeaseHolder::Nobody,
        Some(holder) if us.is_some_and(|us| holder.ends_with(us.as_str())) => LeaseHolder::Us,
        Some(holder) => LeaseHolder::Other(holder),
    };
    let annotation = |name: &str| stored.annotations().get(name);
    let is = |name: &str| annotation(name).is_some_and(|text| text == "true");
    let time = |name: &str| annotation(name).and_then(|text| text.parse::<Timestamp>().ok());
    Lease {
        holder,
        version: stored.resource_version(),
        marked_at: time(key::MARKED_AT),
        wiped_at: time(key::WIPED_AT),
        unwiped: is(key::UNWIPED),
        releasing_at: time(key::RELEASING_AT),
        delete_requested_at: time(key::DELETE_REQUESTED_AT),
        moved: is(key::MOVED),
        quarantined: is(key::QUARANTINED),
        owners_failed: annotation(key::OWNERS_FAILED)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        note: OwnerNote {
            owner: annotation(key::LAST_OWNER).cloned(),
            pool: annotation(key::POOL).cloned(),
            builder: is(key::BUILDER),
        },
    }
}

/// What an owner says of itself, as annotations; null where it has nothing to say.
pub fn noted(note: &OwnerNote) -> Value {
    let OwnerNote { owner, pool, builder } = note;
    let builder = builder.then_some("true");
    json!({key::LAST_OWNER: owner, key::POOL: pool, key::BUILDER: builder})
}

/// Adds annotations to the document of a Lease. One that is created has no nulls.
pub fn note(lease: &mut Value, annotations: Value) {
    let exists = lease["metadata"]["resourceVersion"].is_string();
    let Value::Object(annotations) = annotations else { return };
    for (key, value) in annotations.into_iter().filter(|(_, value)| exists || !value.is_null()) {
        lease["metadata"]["annotations"][key] = value;
    }
}

/// Reads Leases by host, from nobody's point of view: the result is shared.
pub fn by_server(stored: &[Stored]) -> BTreeMap<ServerId, Lease> {
    stored.iter().filter_map(|lease| Some((server(lease)?, read(lease, None)))).collect()
}

/// The document of a Lease that `us` takes, at `version` if it exists.
pub fn taken(
    (zone, server): (&Zone, &ServerId),
    us: &str,
    uid: &CrUid,
    version: Option<&str>,
    now: Timestamp,
) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": key::name(server),
            "labels": {key::HOST: "true", key::HOLDER: uid.as_str()},
            "annotations": {
                key::ZONE: zone,
                key::MARKED_AT: Value::Null,
                key::RELEASING_AT: Value::Null,
                key::MOVED: Value::Null,
                key::QUARANTINED: Value::Null,
            },
        },
        "spec": {"holderIdentity": us, "acquireTime": micro(now)},
    });
    match version {
        Some(version) => lease["metadata"]["resourceVersion"] = json!(version),
        None => {
            lease["metadata"]["annotations"] = json!({key::ZONE: zone});
        }
    }
    lease
}

/// Kubernetes takes microseconds here, neither more nor less.
fn micro(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
