//! What VM a Pod asks for. Pure: a Pod that asks for more than a VM can be is refused by name of
//! the field, never run in part.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::observed::PodId;

const MIB: u128 = 1024 * 1024;

/// The VM that a Pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The name of the Pod's one container.
    pub container: String,
    /// The image to clone.
    pub image: String,
    /// Cores; `None` leaves the image's own number.
    pub cpu: Option<u32>,
    /// Memory in MiB; `None` leaves the image's own size.
    pub memory_mib: Option<u32>,
    /// The environment, in the Pod's order; a later entry of a name wins.
    pub env: Vec<EnvEntry>,
    /// The service account whose token goes into the share, if one was asked for.
    pub token_of: Option<String>,
}

/// One variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvEntry {
    /// The variable's name.
    pub name: String,
    /// Where its value comes from.
    pub source: EnvSource,
}

/// Where a value comes from. References to the Pod itself are already resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvSource {
    /// Written in the Pod.
    Value(String),
    /// A key of a Secret.
    SecretKey {
        /// The Secret.
        name: String,
        /// The key in it.
        key: String,
        /// If it is missing, so is the variable.
        optional: bool,
    },
    /// A key of a `ConfigMap`.
    ConfigMapKey {
        /// The `ConfigMap`.
        name: String,
        /// The key in it.
        key: String,
        /// If it is missing, so is the variable.
        optional: bool,
    },
}

/// Why a Pod cannot be a VM: the field, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The field of the Pod.
    pub field: String,
    /// What is wrong with it, and the fix.
    pub fix: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.fix)
    }
}

impl Template {
    /// Reads what a Pod asks for.
    pub fn read(id: &PodId, spec: &PodSpec) -> Result<Self, Refusal> {
        if spec.init_containers.as_ref().is_some_and(|all| !all.is_empty()) {
            let fix = "a Pod on a Mac is one VM and has no init containers; do their work in the \
                       image or in the container";
            return Err(refusal("spec.initContainers", fix));
        }
        let [container] = &spec.containers[..] else {
            let fix = format!(
                "a Pod on a Mac is one VM and has exactly one container, not {}; make each a Pod",
                spec.containers.len()
            );
            return Err(refusal("spec.containers", fix));
        };
        if container.env_from.as_ref().is_some_and(|all| !all.is_empty()) {
            let fix = "not supported on a Mac; name each variable under env";
            return Err(refusal("spec.containers[0].envFrom", fix));
        }
        let Some(image) = container.image.clone() else {
            return Err(refusal("spec.containers[0].image", "name the VM image to run"));
        };
        let env = container.env.iter().flatten().enumerate();
        // Unlike a kubelet, absent means no: a guest is given a credential only if it asks.
        let token = spec.automount_service_account_token == Some(true);
        Ok(Self {
            container: container.name.clone(),
            image,
            cpu: resource(container, "cpu", 1_000)?,
            memory_mib: resource(container, "memory", MIB * 1_000)?,
            env: env.map(|(at, var)| env_entry(id, spec, at, var)).collect::<Result<_, _>>()?,
            token_of: token.then(|| service_account(spec)),
        })
    }
}

fn refusal(field: impl Into<String>, fix: impl Into<String>) -> Refusal {
    Refusal { field: field.into(), fix: fix.into() }
}

fn service_account(spec: &PodSpec) -> String {
    spec.service_account_name.clone().unwrap_or_else(|| "default".to_owned())
}

fn env_entry(id: &PodId, spec: &PodSpec, at: usize, var: &EnvVar) -> Result<EnvEntry, Refusal> {
    let from = var.value_from.clone().unwrap_or_default();
    let unsupported = |what: &str| {
        let fix = "supported are value, secretKeyRef, configMapKeyRef and fieldRef of \
                   metadata.name, metadata.namespace, metadata.uid, spec.serviceAccountName and \
                   spec.nodeName";
        refusal(format!("spec.containers[0].env[{at}].{what}"), fix)
    };
    let source = if let Some(secret) = from.secret_key_ref {
        let optional = secret.optional == Some(true);
        EnvSource::SecretKey { name: secret.name, key: secret.key, optional }
    } else if let Some(map) = from.config_map_key_ref {
        let optional = map.optional == Some(true);
        EnvSource::ConfigMapKey { name: map.name, key: map.key, optional }
    } else if let Some(field) = from.field_ref {
        EnvSource::Value(match field.field_path.as_str() {
            "metadata.name" => id.name.clone(),
            "metadata.namespace" => id.namespace.clone(),
            "metadata.uid" => id.uid.clone(),
            "spec.serviceAccountName" => service_account(spec),
            "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
            _ => return Err(unsupported("valueFrom.fieldRef")),
        })
    } else if var.value_from.is_some() {
        return Err(unsupported("valueFrom"));
    } else {
        EnvSource::Value(var.value.clone().unwrap_or_default())
    };
    Ok(EnvEntry { name: var.name.clone(), source })
}

/// The limit, else the request, in whole units of `unit_milli`, rounded down; 0 is none.
fn resource(container: &Container, name: &str, unit_milli: u128) -> Result<Option<u32>, Refusal> {
    let resources = container.resources.clone().unwrap_or_default();
    let named = [("limits", resources.limits), ("requests", resources.requests)];
    let found = named.iter().find_map(|(list, all)| Some((list, all.as_ref()?.get(name)?)));
    let Some((list, Quantity(text))) = found else { return Ok(None) };
    let amount = milli(text).and_then(|milli| u32::try_from(milli / unit_milli).ok());
    match amount {
        Some(0) => Ok(None),
        Some(amount) => Ok(Some(amount)),
        None => {
            let field = format!("spec.containers[0].resources.{list}.{name}");
            Err(refusal(field, format!("{text:?} is not an amount that a VM can have")))
        }
    }
}

/// A Kubernetes quantity in thousandths, rounded down. `None` if it is none, or beyond all measure.
fn milli(text: &str) -> Option<u128> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let scale: u128 = match suffix {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        "Ti" => 1_000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let tenths = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let all: u128 = format!("{whole}{fraction}").parse().ok()?;
    Some(all.checked_mul(scale)? / tenths)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Result<Template, Refusal> {
        let id = PodId { namespace: "ci".into(), name: "job".into(), uid: "u-1".into() };
        Template::read(&id, &serde_json::from_value(spec).unwrap())
    }

    fn with_env(env: &Value) -> Result<Template, Refusal> {
        read(json!({
            "nodeName": "mac-1",
            "containers": [{"name": "runner", "image": "img", "env": env}],
        }))
    }

    #[test]
    fn a_pod_of_one_container_is_a_vm() {
        let template = read(json!({
            "serviceAccountName": "runner-7",
            "automountServiceAccountToken": true,
            "containers": [{"name": "runner", "image": "img", "resources": {
                "limits": {"cpu": "4500m"}, "requests": {"cpu": "2", "memory": "14336Mi"},
            }}],
        }))
        .unwrap();
        assert_eq!(template.cpu, Some(4));
        assert_eq!(template.memory_mib, Some(14_336));
        assert_eq!(template.token_of.as_deref(), Some("runner-7"));
    }

    #[test]
    fn a_token_is_given_only_if_it_is_asked_for() {
        let template = read(json!({"containers": [{"name": "c", "image": "i"}]})).unwrap();
        assert_eq!(template.token_of, None);
    }

    #[test]
    fn each_refusal_names_the_field_and_the_fix() {
        let one = json!({"name": "a", "image": "i"});
        for (spec, field, fix) in [
            (json!({"containers": [one, one]}), "spec.containers", "exactly one container, not 2"),
            (
                json!({"initContainers": [one], "containers": [one]}),
                "spec.initContainers",
                "no init containers",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "envFrom": [{}]}]}),
                "spec.containers[0].envFrom",
                "under env",
            ),
            (json!({"containers": [{"name": "a"}]}), "spec.containers[0].image", "image to run"),
            (
                json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "X",
                    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}]}),
                "spec.containers[0].env[0].valueFrom.fieldRef",
                "metadata.uid",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "X",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}]}),
                "spec.containers[0].env[0].valueFrom",
                "secretKeyRef",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i",
                    "resources": {"limits": {"cpu": "1e400"}}}]}),
                "spec.containers[0].resources.limits.cpu",
                "1e400",
            ),
        ] {
            let refusal = read(spec).unwrap_err();
            assert_eq!(refusal.field, field);
            assert!(refusal.to_string().contains(fix), "{refusal}");
        }
    }

    #[test]
    fn references_to_the_pod_are_resolved_and_those_to_others_are_kept() {
        let field =
            |path: &str| json!({"name": path, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let template = with_env(&json!([
            {"name": "plain", "value": "x"},
            {"name": "empty"},
            field("metadata.name"),
            field("metadata.namespace"),
            field("metadata.uid"),
            field("spec.serviceAccountName"),
            field("spec.nodeName"),
            {"name": "s", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
            {"name": "m", "valueFrom": {"configMapKeyRef":
                {"name": "c", "key": "d", "optional": true}}},
        ]))
        .unwrap();
        let values: Vec<&str> = template
            .env
            .iter()
            .filter_map(|entry| match &entry.source {
                EnvSource::Value(value) => Some(value.as_str()),
                EnvSource::SecretKey { .. } | EnvSource::ConfigMapKey { .. } => None,
            })
            .collect();
        assert_eq!(values, ["x", "", "job", "ci", "u-1", "default", "mac-1"]);
        let secret = EnvSource::SecretKey { name: "a".into(), key: "b".into(), optional: false };
        assert_eq!(template.env[7].source, secret);
        let map = EnvSource::ConfigMapKey { name: "c".into(), key: "d".into(), optional: true };
        assert_eq!(template.env[8].source, map);
    }

    #[test]
    fn quantities_are_read_in_every_spelling() {
        for (text, expected) in [
            ("8", Some(8_000)),
            ("8000m", Some(8_000)),
            ("1.5", Some(1_500)),
            (".5", Some(500)),
            ("2Ki", Some(2_048_000)),
            ("1k", Some(1_000_000)),
            ("14Gi", Some(14 * 1024 * 1024 * 1024 * 1000)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1e3", None),
            ("1.2.3", None),
        ] {
            assert_eq!(milli(text), expected, "{text}");
        }
    }
}
