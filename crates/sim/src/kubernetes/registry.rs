//! Which kinds a server knows: the built-in ones, and those that definitions add.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::Value;

use super::aftermath;
use super::builtin::BUILT_IN;
use super::column::{self, Cell, Column};
use super::jsonpath::Path;
use super::kind::{Kind, Nature, Scale, Shape, StatusRule, Structural, Version, key};
use super::rules::Rules;
use super::schema::{Schema, SchemaError};

/// The kinds of a server. Made once, shared by any number of servers; a server that gets a new
/// definition copies the list, not the schemas.
#[derive(Clone, Debug)]
pub struct Registry {
    kinds: BTreeMap<Arc<str>, Arc<Kind>>,
    /// The definitions that it was made with.
    definitions: Vec<CustomResourceDefinition>,
    /// The same, as objects of a cluster that was installed at some time.
    installed: Arc<Mutex<Option<Installed>>>,
}

#[derive(Clone, Debug)]
struct Installed {
    at: Timestamp,
    objects: Arc<[Arc<Value>]>,
}

impl Registry {
    /// The built-in kinds and those of `definitions`.
    pub fn new(definitions: Vec<CustomResourceDefinition>) -> Result<Arc<Self>, SchemaError> {
        let kinds = BUILT_IN.iter().map(|kind| (kind.key.clone(), kind.clone())).collect();
        let installed = Arc::default();
        let mut registry = Self { kinds, definitions: Vec::new(), installed };
        for definition in &definitions {
            registry.define(definition)?;
        }
        registry.definitions = definitions;
        Ok(Arc::new(registry))
    }

    /// The definitions as objects of a cluster that is installed `now`. Servers that start at the
    /// same time share them: a sweep starts thousands.
    pub(crate) fn installed(&self, now: Timestamp) -> Arc<[Arc<Value>]> {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = installed.as_ref().filter(|installed| installed.at == now) {
            return installed.objects.clone();
        }
        let objects = (1_u64..).zip(&self.definitions);
        let objects: Arc<[Arc<Value>]> = objects
            .map(|(version, definition)| Arc::new(aftermath::installed(definition, version, now)))
            .collect();
        *installed = Some(Installed { at: now, objects: objects.clone() });
        objects
    }

    pub(crate) fn define(
        &mut self,
        definition: &CustomResourceDefinition,
    ) -> Result<(), SchemaError> {
        let kind = custom_kind(definition)?;
        self.kinds.insert(kind.key.clone(), Arc::new(kind));
        Ok(())
    }

    pub(crate) fn forget(&mut self, key: &str) {
        self.kinds.remove(key);
    }

    pub(crate) fn by_key(&self, key: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(key)
    }

    /// The kind at a path, and which of its versions.
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<(&Arc<Kind>, usize)> {
        let kind = self.kinds.get(&key(group, plural))?;
        let at = kind.versions.iter().position(|known| known.name == version)?;
        Some((kind, at))
    }

    /// Every kind, by key.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    /// The groups with their versions, the preferred one first.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for kind in self.kinds() {
            let versions = groups.entry(&kind.group).or_default();
            for version in &kind.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        groups
    }
}

fn custom_kind(definition: &CustomResourceDefinition) -> Result<Kind, SchemaError> {
    let spec = &definition.spec;
    let names = &spec.names;
    let key = key(&spec.group, &names.plural);
    let mut served: Vec<_> = spec.versions.iter().filter(|version| version.served).collect();
    // The stored version first: it is the preferred one.
    served.sort_by_key(|version| !version.storage);
    let has_status = served
        .iter()
        .any(|v| v.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()));
    let versions = served.into_iter().map(custom_version).collect::<Result<_, _>>()?;
    let lower = names.kind.to_lowercase();
    Ok(Kind {
        store: key.clone(),
        key,
        group: spec.group.clone(),
        name: names.kind.clone(),
        list_name: names.list_kind.clone().unwrap_or_else(|| format!("{}List", names.kind)),
        plural: names.plural.clone(),
        singular: names.singular.clone().filter(|name| !name.is_empty()).unwrap_or(lower),
        short_names: names.short_names.clone().unwrap_or_default(),
        categories: names.categories.clone().unwrap_or_default(),
        namespaced: spec.scope == "Namespaced",
        versions,
        nature: Nature::Custom,
        status: if has_status { StatusRule::Isolated } else { StatusRule::None },
        generation: true,
        unconditional_update: false,
    })
}

fn custom_version(version: &CustomResourceDefinitionVersion) -> Result<Version, SchemaError> {
    let props = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = match props {
        Some(props) => Schema::compile(props, "")?,
        None => Schema::default(),
    };
    let document = serde_json::to_value(props).unwrap_or_default();
    let rules = Rules::compile(&document)?;
    let mut columns = vec![column::name()];
    match &version.additional_printer_columns {
        Some(extra) => {
            for column in extra {
                columns.push(custom_column(column)?);
            }
        }
        None => columns.push(column::age()),
    }
    let scale = version.subresources.as_ref().and_then(|subresources| subresources.scale.as_ref());
    let scale = match scale {
        None => None,
        Some(scale) => Some(Scale {
            spec_replicas: path(&scale.spec_replicas_path)?,
            status_replicas: path(&scale.status_replicas_path)?,
            selector: scale.label_selector_path.as_deref().map(path).transpose()?,
        }),
    };
    Ok(Version {
        name: version.name.clone(),
        columns,
        shape: Shape::Structural(Arc::new(Structural { schema, rules, document })),
        scale,
        actions: &[],
    })
}

fn path(text: &str) -> Result<Path, SchemaError> {
    Path::parse(text).ok_or_else(|| SchemaError::Path(text.to_owned()))
}

/// How the real server begins the description of a column that has none.
const UNDESCRIBED: &str = "Custom resource definition column (in JSONPath format): ";

fn custom_column(column: &CustomResourceColumnDefinition) -> Result<Column, SchemaError> {
    let path = path(&column.json_path)?;
    Ok(Column {
        name: column.name.clone(),
        kind: column.type_.clone(),
        description: match column.description.as_deref() {
            None | Some("") => format!("{UNDESCRIBED}{}", column.json_path),
            Some(said) => said.to_owned(),
        },
        priority: column.priority.unwrap_or_default(),
        cell: if column.type_ == "date" { Cell::Age(vec![path]) } else { Cell::Path(path) },
    })
}
