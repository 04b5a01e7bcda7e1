//! A custom resource's structural schema: defaulting, pruning and validation. No I/O.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::{Map, Value};

use super::format::Format;
use super::refusal::Fault;

/// A schema, compiled once and shared by all servers of a registry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    kind: Option<Type>,
    properties: BTreeMap<String, Schema>,
    additional: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    choices: Vec<Value>,
    pattern: Option<Regex>,
    format: Option<Format>,
    numbers: Numbers,
    lengths: Sizes,
    counts: Sizes,
    fields: Sizes,
    also: Also,
    nullable: bool,
    keeps_unknown: bool,
    embedded: bool,
    pub list: List,
}

/// Which numbers are meant.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// And whether it must be more than that.
    least: Option<(f64, bool)>,
    /// And whether it must be less than that.
    most: Option<(f64, bool)>,
    multiple_of: Option<f64>,
    /// Whether they fit into 32 bits.
    is_small: bool,
}

/// How much is meant: of characters, items or fields.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    least: Option<usize>,
    most: Option<usize>,
}

/// Other schemas that speak of the same value: they judge it, and fill in or drop nothing.
#[derive(Clone, Debug, Default)]
struct Also {
    all: Vec<Schema>,
    any: Vec<Schema>,
    one: Vec<Schema>,
    not: Option<Box<Schema>>,
}

/// What identifies the items of a list.
#[derive(Clone, Debug, Default)]
pub(crate) enum List {
    /// Nothing: it is one value.
    #[default]
    Atomic,
    /// Their value.
    Set,
    /// Some of their fields.
    Map(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// Why a schema cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A `pattern` that is not a regular expression.
    #[error("{field}: {pattern:?} is not a regular expression")]
    Pattern {
        /// Where it stands.
        field: String,
        /// The pattern.
        pattern: String,
    },
    /// A `type` that JSON does not have.
    #[error("{field}: {name:?} is not a type")]
    Type {
        /// Where it stands.
        field: String,
        /// The type.
        name: String,
    },
    /// `uniqueItems`, which takes too long to look for: a list of the type `set` says the same.
    #[error("{field}: uniqueItems cannot be set to true")]
    Unique {
        /// Where it stands.
        field: String,
    },
    /// A validation rule that cannot be compiled.
    #[error("rule {rule:?} cannot be compiled: {error}")]
    Rule {
        /// The rule.
        rule: String,
        /// What the compiler says.
        error: String,
    },
    /// A column's or scale's path that cannot be read.
    #[error("{0:?} is not a JSONPath")]
    Path(String),
}

impl Schema {
    /// Compiles `props`, which stands at `path`.
    pub fn compile(props: &JSONSchemaProps, path: &str) -> Result<Self, SchemaError> {
        let field = || if path.is_empty() { "schema".to_owned() } else { path.to_owned() };
        if props.unique_items == Some(true) {
            return Err(SchemaError::Unique { field: field() });
        }
        let pattern =
            match props.pattern.as_deref() {
                None => None,
                Some(text) => Some(Regex::new(text).map_err(|_| SchemaError::Pattern {
                    field: field(),
                    pattern: text.to_owned(),
                })?),
            };
        Ok(Self {
            kind: compile_type(props).map_err(|name| SchemaError::Type { field: field(), name })?,
            pattern,
            properties: compile_properties(props, path)?,
            additional: compile_additional(props, path)?,
            items: compile_items(props, path)?,
            required: props.required.clone().unwrap_or_default(),
            default: props.default.as_ref().map(|json| json.0.clone()),
            choices: props.enum_.iter().flatten().map(|json| json.0.clone()).collect(),
            format: props.format.as_deref().and_then(Format::named),
            numbers: Numbers {
                least: props.minimum.zip(Some(props.exclusive_minimum == Some(true))),
                most: props.maximum.zip(Some(props.exclusive_maximum == Some(true))),
                multiple_of: props.multiple_of,
                is_small: props.format.as_deref() == Some("int32"),
            },
            lengths: Sizes::new(props.min_length, props.max_length),
            counts: Sizes::new(props.min_items, props.max_items),
            fields: Sizes::new(props.min_properties, props.max_properties),
            also: Also::compile(props, path)?,
            nullable: props.nullable.unwrap_or_default(),
            keeps_unknown: props.x_kubernetes_preserve_unknown_fields.unwrap_or_default(),
            embedded: props.x_kubernetes_embedded_resource.unwrap_or_default(),
            list: match props.x_kubernetes_list_type.as_deref() {
                Some("map") => {
                    List::Map(props.x_kubernetes_list_map_keys.clone().unwrap_or_default())
                }
                Some("set") => List::Set,
                _ => List::Atomic,
            },
        })
    }

    /// The schema of one field of an object.
    pub fn below(&self, field: &str) -> Option<&Self> {
        self.properties.get(field).or(self.additional.as_deref())
    }

    /// Fills in defaults, below what is there.
    pub fn fill_in(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, below) in &self.properties {
                    if map.get(name).is_some_and(Value::is_null) && !below.nullable {
                        map.remove(name);
                    }
                    if let (None, Some(default)) = (map.get(name), &below.default) {
                        map.insert(name.clone(), default.clone());
                    }
                }
                for (name, value) in map {
                    if let Some(below) = self.below(name) {
                        below.fill_in(value);
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    if let Some(below) = &self.items {
                        below.fill_in(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// Removes what the schema does not know, and tells the paths that it removed.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut removed = Vec::new();
        if let Value::Object(map) = value {
            // The server itself knows these three of every object.
            self.prune_map(map, &["apiVersion", "kind", "metadata"], "", &mut removed);
        }
        removed
    }

    fn prune_map(
        &self,
        map: &mut Map<String, Value>,
        known: &[&str],
        path: &str,
        removed: &mut Vec<String>,
    ) {
        if self.additional.is_none() && !self.keeps_unknown {
            map.retain(|name, _| {
                let keep = self.properties.contains_key(name) || known.contains(&name.as_str());
                if !keep {
                    removed.push(join(path, name));
                }
                keep
            });
        }
        for (name, value) in map {
            let skip = known.contains(&name.as_str());
            if let (false, Some(below)) = (skip, self.below(name)) {
                below.prune_below(value, &join(path, name), removed);
            }
        }
    }

    fn prune_below(&self, value: &mut Value, path: &str, removed: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                let known: &[&str] =
                    if self.embedded { &["apiVersion", "kind", "metadata"] } else { &[] };
                self.prune_map(map, known, path, removed);
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    if let Some(below) = &self.items {
                        below.prune_below(item, &format!("{path}[{at}]"), removed);
                    }
                }
            }
            _ => {}
        }
    }

    /// Everything that is wrong with `value`.
    pub fn check(&self, value: &Value) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.check_at(value, "", &mut faults);
        faults
    }

    fn check_at(&self, value: &Value, path: &str, faults: &mut Vec<Fault>) {
        if value.is_null() && self.nullable {
            return;
        }
        if !self.kind.is_none_or(|kind| kind.admits(value)) {
            let wanted = self.kind.map_or("", Type::name);
            let why = format!("{path} in body must be of type {wanted}: {:?}", type_name(value));
            let mut fault = Fault::invalid(path, &Value::from(type_name(value)), &why);
            fault.reason = "FieldValueTypeInvalid";
            faults.push(fault);
            return;
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            let choices: Vec<String> = self.choices.iter().map(Value::to_string).collect();
            faults.push(Fault {
                field: path.to_owned(),
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {value}: supported values: {}",
                    choices.join(", ")
                ),
            });
        }
        self.also.check(value, path, faults);
        match value {
            Value::Object(map) => self.check_map(map, path, faults),
            Value::Array(items) => self.check_list(items, path, faults),
            Value::String(text) => self.check_text(text, path, faults),
            Value::Number(number) => {
                self.check_number(number.as_f64().unwrap_or(0.0), value, path, faults);
            }
            _ => {}
        }
    }

    fn check_map(&self, map: &Map<String, Value>, path: &str, faults: &mut Vec<Fault>) {
        let count = map.len();
        if let Some(least) = self.fields.least.filter(|&least| count < least) {
            let why = format!("{path} in body should have at least {least} properties");
            faults.push(Fault::invalid(path, &Value::from(count), &why));
        }
        if let Some(most) = self.fields.most.filter(|&most| count > most) {
            faults.push(too_many(path, count, most));
        }
        for name in &self.required {
            if !map.contains_key(name) {
                faults.push(Fault::required(join(path, name), ""));
            }
        }
        for (name, value) in map {
            if path.is_empty() && name == "metadata" {
                continue;
            }
            if let Some(below) = self.below(name) {
                below.check_at(value, &join(path, name), faults);
            }
        }
    }

    fn check_list(&self, items: &[Value], path: &str, faults: &mut Vec<Fault>) {
        let count = items.len();
        if let Some(least) = self.counts.least.filter(|&least| count < least) {
            let why = format!("{path} in body should have at least {least} items");
            faults.push(Fault::invalid(path, &Value::from(count), &why));
        }
        if let Some(most) = self.counts.most.filter(|&most| count > most) {
            faults.push(too_many(path, count, most));
        }
        for (at, item) in items.iter().enumerate() {
            if let Some(below) = &self.items {
                below.check_at(item, &format!("{path}[{at}]"), faults);
            }
            if self.repeats(&items[..at], item) {
                faults.push(Fault {
                    field: format!("{path}[{at}]"),
                    reason: "FieldValueDuplicate",
                    message: format!("Duplicate value: {item}"),
                });
            }
        }
    }

    fn repeats(&self, before: &[Value], item: &Value) -> bool {
        match &self.list {
            List::Map(keys) => {
                before.iter().any(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
            }
            List::Set => before.contains(item),
            List::Atomic => false,
        }
    }

    fn check_text(&self, text: &str, path: &str, faults: &mut Vec<Fault>) {
        let length = text.chars().count();
        let mut wrong = |why: String| faults.push(Fault::invalid(path, &Value::from(text), &why));
        if let Some(least) = self.lengths.least.filter(|&least| length < least) {
            wrong(format!("{path} in body should be at least {least} chars long"));
        }
        if let Some(most) = self.lengths.most.filter(|&most| length > most) {
            wrong(format!("{path} in body should be at most {most} chars long"));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            wrong(format!("{path} in body should match '{pattern}'"));
        }
        if let Some(format) = self.format.as_ref().filter(|format| !format.fits(text)) {
            wrong(format!("{path} in body must be of type {}: {text:?}", format.name));
        }
    }

    fn check_number(&self, number: f64, value: &Value, path: &str, faults: &mut Vec<Fault>) {
        let mut wrong = |why: String| {
            let why = format!("{path} in body should be {why}");
            faults.push(Fault::invalid(path, value, &why));
        };
        match self.numbers.least {
            Some((least, true)) if number <= least => wrong(format!("greater than {least}")),
            Some((least, false)) if number < least => {
                wrong(format!("greater than or equal to {least}"));
            }
            _ => {}
        }
        match self.numbers.most {
            Some((most, true)) if number >= most => wrong(format!("less than {most}")),
            Some((most, false)) if number > most => wrong(format!("less than or equal to {most}")),
            _ => {}
        }
        let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
        let is_integer = self.kind == Some(Type::Integer);
        if self.numbers.is_small && is_integer && !range.contains(&number) {
            wrong("of type integer with format int32".to_owned());
        }
        // As the real server does, for which 0.3 is a multiple of 0.1.
        let times = |of: f64| if of < 1.0 { 1.0 / of * number } else { number / of };
        let is_multiple = |of: f64| times(of).fract() == 0.0;
        if let Some(of) = self.numbers.multiple_of.filter(|of| !is_multiple(*of)) {
            wrong(format!("a multiple of {of}"));
        }
    }
}

impl Sizes {
    fn new(least: Option<i64>, most: Option<i64>) -> Self {
        let size = |limit: Option<i64>| limit.and_then(|limit| usize::try_from(limit).ok());
        Self { least: size(least), most: size(most) }
    }
}

impl Also {
    fn compile(props: &JSONSchemaProps, path: &str) -> Result<Self, SchemaError> {
        let each = |schemas: &Option<Vec<JSONSchemaProps>>| {
            let schemas = schemas.iter().flatten();
            schemas.map(|schema| Schema::compile(schema, path)).collect::<Result<Vec<_>, _>>()
        };
        let not = props.not.as_ref().map(|not| Schema::compile(not, path)).transpose()?;
        Ok(Self {
            all: each(&props.all_of)?,
            any: each(&props.any_of)?,
            one: each(&props.one_of)?,
            not: not.map(Box::new),
        })
    }

    fn check(&self, value: &Value, path: &str, faults: &mut Vec<Fault>) {
        let takes = |schema: &Schema| {
            let mut faults = Vec::new();
            schema.check_at(value, path, &mut faults);
            faults.is_empty()
        };
        for schema in &self.all {
            schema.check_at(value, path, faults);
        }
        let mut must = |what: &str| {
            let why = format!("{path:?} must {what}");
            faults.push(Fault::invalid(path, &Value::from(""), &why));
        };
        if !self.any.is_empty() && !self.any.iter().any(takes) {
            must("validate at least one schema (anyOf)");
        }
        let one = self.one.iter().filter(|schema| takes(schema)).count();
        if !self.one.is_empty() && one != 1 {
            must("validate one and only one schema (oneOf)");
        }
        if self.not.as_deref().is_some_and(takes) {
            must("not validate the schema (not)");
        }
    }
}

impl Type {
    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::IntOrString => value.is_string() || value.is_i64() || value.is_u64(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn too_many(path: &str, count: usize, most: usize) -> Fault {
    Fault {
        field: path.to_owned(),
        reason: "FieldValueTooMany",
        message: format!("Too many: {count}: must have at most {most} items"),
    }
}

/// The type, or its name if JSON does not have it.
fn compile_type(props: &JSONSchemaProps) -> Result<Option<Type>, String> {
    Ok(Some(match (props.x_kubernetes_int_or_string, props.type_.as_deref()) {
        (Some(true), _) => Type::IntOrString,
        (_, None | Some("")) => return Ok(None),
        (_, Some("object")) => Type::Object,
        (_, Some("array")) => Type::Array,
        (_, Some("string")) => Type::String,
        (_, Some("integer")) => Type::Integer,
        (_, Some("number")) => Type::Number,
        (_, Some("boolean")) => Type::Boolean,
        (_, Some(name)) => return Err(name.to_owned()),
    }))
}

fn compile_properties(
    props: &JSONSchemaProps,
    path: &str,
) -> Result<BTreeMap<String, Schema>, SchemaError> {
    let properties = props.properties.iter().flatten();
    properties
        .map(|(name, below)| Ok((name.clone(), Schema::compile(below, &join(path, name))?)))
        .collect()
}

fn compile_additional(
    props: &JSONSchemaProps,
    path: &str,
) -> Result<Option<Box<Schema>>, SchemaError> {
    match &props.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(below)) => {
            Ok(Some(Box::new(Schema::compile(below, &join(path, "*"))?)))
        }
        Some(JSONSchemaPropsOrBool::Bool(true)) => {
            Ok(Some(Box::new(Schema { keeps_unknown: true, ..Schema::default() })))
        }
        Some(JSONSchemaPropsOrBool::Bool(false)) | None => Ok(None),
    }
}

fn compile_items(props: &JSONSchemaProps, path: &str) -> Result<Option<Box<Schema>>, SchemaError> {
    match &props.items {
        Some(JSONSchemaPropsOrArray::Schema(below)) => {
            Ok(Some(Box::new(Schema::compile(below, &format!("{path}[]"))?)))
        }
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn takes(schema: Value, value: &Value) -> bool {
        let props = serde_json::from_value(schema).unwrap();
        Schema::compile(&props, "").unwrap().check(value).is_empty()
    }

    #[test]
    fn what_a_schema_says_of_a_value_in_other_schemas_counts() {
        let limits = json!([{"minimum": 3}, {"maximum": 5}]);
        for (schema, good, bad) in [
            (json!({"allOf": limits}), json!(4), json!(6)),
            (json!({"anyOf": [{"maximum": 3}, {"minimum": 5}]}), json!(3), json!(4)),
            (json!({"oneOf": limits}), json!(6), json!(4)),
            (json!({"not": {"enum": ["none"]}}), json!("some"), json!("none")),
            (
                json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                json!({"a": 1, "c": 1}),
                json!({"a": 1, "b": 1}),
            ),
            (
                json!({"type": "object", "anyOf": [{"properties": {"a": {"pattern": "^x"}}}]}),
                json!({"a": "xy"}),
                json!({"a": "y"}),
            ),
        ] {
            assert!(takes(schema.clone(), &good), "{schema}: {good}");
            assert!(!takes(schema.clone(), &bad), "{schema}: {bad}");
        }
    }

    #[test]
    fn numbers_and_objects_have_limits_too() {
        for (schema, good, bad) in [
            (json!({"minimum": 3, "exclusiveMinimum": true}), json!(3.5), json!(3)),
            (json!({"maximum": 3, "exclusiveMaximum": true}), json!(2), json!(3)),
            (json!({"minimum": 3, "exclusiveMinimum": false}), json!(3), json!(2)),
            (json!({"multipleOf": 4}), json!(8), json!(6)),
            (
                json!({"type": "integer", "format": "int32"}),
                json!(2_147_483_647),
                json!(2_147_483_648_i64),
            ),
            (json!({"multipleOf": 0.1}), json!(0.3), json!(0.35)),
            (json!({"minProperties": 1}), json!({"a": 1}), json!({})),
            (json!({"maxProperties": 1}), json!({"a": 1}), json!({"a": 1, "b": 2})),
            (json!({"type": "string", "format": "ipv4"}), json!("10.0.0.1"), json!("ten")),
        ] {
            assert!(takes(schema.clone(), &good), "{schema}: {good}");
            assert!(!takes(schema.clone(), &bad), "{schema}: {bad}");
        }
    }

    #[test]
    fn a_list_whose_items_must_differ_is_no_schema() {
        let props = serde_json::from_value(json!({"type": "array", "uniqueItems": true})).unwrap();
        let refused = Schema::compile(&props, "spec.tags").unwrap_err();
        assert_eq!(refused, SchemaError::Unique { field: "spec.tags".to_owned() });
    }
}
