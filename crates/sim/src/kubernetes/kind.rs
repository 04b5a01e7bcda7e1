//! What a kind of object is: its names, its versions, and how writes to it are treated.

use std::sync::Arc;

use k8s_openapi::{ListableResource, Resource};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::column::Column;
use super::jsonpath::Path;
use super::rules::Rules;
use super::schema::Schema;

/// One kind of object that the server knows.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// `pods`, `machines.cluster.x-k8s.io`: how messages name it, and where it is registered.
    pub key: Arc<str>,
    /// The key under which its objects are stored: another kind's for a second view of the same.
    pub store: Arc<str>,
    pub group: String,
    pub name: String,
    pub list_name: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Served versions; the first one is stored and preferred.
    pub versions: Vec<Version>,
    pub nature: Nature,
    pub status: StatusRule,
    /// `metadata.generation` counts changes of the specification.
    pub generation: bool,
    /// A replace may leave out the resource version.
    pub unconditional_update: bool,
}

/// One version of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub name: String,
    pub columns: Vec<Column>,
    pub shape: Shape,
    pub scale: Option<Scale>,
    /// Subresources beside `status` and `scale`.
    pub actions: &'static [&'static str],
}

/// How a body of this version is read and described.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A Rust type: unknown fields go, wrong types are refused.
    Typed {
        read: fn(Value) -> Result<Value, serde_json::Error>,
        describe: fn(&mut SchemaGenerator) -> schemars::Schema,
    },
    /// A custom resource's own schema.
    Structural(Arc<Structural>),
}

/// A custom resource's schema, in the three forms that are needed.
#[derive(Debug)]
pub(crate) struct Structural {
    pub schema: Schema,
    pub rules: Rules,
    /// As it was written.
    pub document: Value,
}

/// Where a custom resource keeps its scale.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub spec_replicas: Path,
    pub status_replicas: Path,
    pub selector: Option<Path>,
}

/// What the server itself does with objects of a kind, beyond storing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Nothing.
    Plain,
    /// Removed gracefully, bound once, evicted under budgets.
    Pod,
    /// Contains others and goes after them.
    Namespace,
    /// May hold a service account's token.
    Secret,
    /// Has tokens.
    ServiceAccount,
    /// Asks for a certificate.
    SigningRequest,
    /// Defines a kind.
    Definition,
    /// An object of a defined kind.
    Custom,
    /// Goes by itself after a while.
    Event,
    /// The same Events, in their newer words.
    NewerEvent,
}

/// What a write to the object and a write to its `status` may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// There is no `status` subresource.
    None,
    /// A status write changes the status alone.
    Isolated,
    /// A status write changes metadata too, as a kubelet's writes to Pods and Nodes do.
    WithMetadata,
}

impl Kind {
    /// Whether a PUT of an object that is not there makes it.
    pub fn is_put_to_create(&self) -> bool {
        let groups = ["rbac.authorization.k8s.io", "coordination.k8s.io"];
        groups.contains(&self.group.as_str()) || &*self.key == "services"
    }

    /// A built-in kind, with what its Rust type tells about it.
    pub fn built_in<T>(singular: &str) -> Self
    where
        T: Resource + ListableResource + Serialize + DeserializeOwned + JsonSchema,
    {
        let key = key(T::GROUP, T::URL_PATH_SEGMENT);
        Self {
            store: key.clone(),
            key,
            group: T::GROUP.to_owned(),
            name: T::KIND.to_owned(),
            list_name: T::LIST_KIND.to_owned(),
            plural: T::URL_PATH_SEGMENT.to_owned(),
            singular: singular.to_owned(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            versions: vec![Version {
                name: T::VERSION.to_owned(),
                columns: Vec::new(),
                shape: Shape::Typed {
                    read: round_trip::<T>,
                    describe: SchemaGenerator::subschema_for::<T>,
                },
                scale: None,
                actions: &[],
            }],
            nature: Nature::Plain,
            status: StatusRule::None,
            generation: false,
            unconditional_update: true,
        }
    }

    pub fn short(mut self, names: &[&str]) -> Self {
        self.short_names = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    pub fn in_all(self) -> Self {
        self.category("all")
    }

    pub fn category(mut self, name: &str) -> Self {
        self.categories = vec![name.to_owned()];
        self
    }

    pub fn cluster_wide(mut self) -> Self {
        self.namespaced = false;
        self
    }

    pub fn nature(mut self, nature: Nature) -> Self {
        self.nature = nature;
        self
    }

    pub fn status(mut self, rule: StatusRule) -> Self {
        self.status = rule;
        self
    }

    pub fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    pub fn actions(mut self, actions: &'static [&'static str]) -> Self {
        self.versions[0].actions = actions;
        self
    }

    pub fn columns(mut self, columns: Vec<Column>) -> Self {
        self.versions[0].columns = columns;
        self
    }

    /// `apps/v1`.
    pub fn api_version(&self, version: usize) -> String {
        let version = &self.versions[version].name;
        if self.group.is_empty() { version.clone() } else { format!("{}/{version}", self.group) }
    }

    /// Whether kubectl may send strategic merge patches: not for custom resources.
    pub fn strategic(&self) -> bool {
        self.nature != Nature::Custom
    }
}

/// `pods` or `deployments.apps`.
pub(crate) fn key(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

/// Reads a body as `T` and writes it back: what `T` does not know is gone.
fn round_trip<T: Serialize + DeserializeOwned>(body: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(body)?)
}

impl Version {
    /// A custom resource's schema.
    pub fn schema(&self) -> Option<&Schema> {
        match &self.shape {
            Shape::Structural(structural) => Some(&structural.schema),
            Shape::Typed { .. } => None,
        }
    }
}
