//! A custom resource's own validation rules (`x-kubernetes-validations`). No I/O.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube_cel::{CompiledSchema, compile_schema, validate_compiled};
use serde_json::Value;

use super::refusal::Fault;
use super::schema::SchemaError;

/// How many changes that broke no rule are remembered.
const REMEMBERED: usize = 8_192;

/// The rules of a schema, compiled once.
pub(crate) struct Rules(Option<Compiled>);

struct Compiled {
    schema: CompiledSchema,
    /// The top-level fields that rules look at; `None` if one looks at the whole object.
    fields: Option<Vec<String>>,
    /// Changes that broke no rule, as [`Compiled::part`] tells them: most writes are of a status,
    /// and rules are of the spec.
    sound: Mutex<BTreeSet<String>>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rules({})", if self.0.is_some() { "some" } else { "none" })
    }
}

impl Compiled {
    fn sound(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.sound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of an object, and of what it was, that rules can tell apart.
    fn part(&self, object: &Value, old: Option<&Value>) -> Option<String> {
        let part = |object: &Value| {
            let fields = self.fields.as_ref()?.iter();
            let seen: Vec<Option<&Value>> = fields.map(|field| object.get(field)).collect();
            serde_json::to_string(&seen).ok()
        };
        let before = old.map_or_else(|| Some("nothing".to_owned()), part)?;
        Some(format!("{} was {before}", part(object)?))
    }

    fn note_sound(&self, part: Option<String>) {
        let mut sound = self.sound();
        if sound.len() >= REMEMBERED {
            sound.clear();
        }
        sound.extend(part);
    }
}

impl Rules {
    /// Compiles the rules in a schema; a schema without any costs nothing later.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if !has_rules(schema) {
            return Ok(Self(None));
        }
        let compiled = Compiled {
            schema: compile_schema(schema),
            fields: fields(schema),
            sound: Mutex::default(),
        };
        if let Some(error) = compiled.schema.compilation_errors().first() {
            let rule = "x-kubernetes-validations".to_owned();
            return Err(SchemaError::Rule { rule, error: error.to_string() });
        }
        Ok(Self(Some(compiled)))
    }

    /// The rules that `object` breaks, as a change of `old` where there is one.
    pub fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Fault> {
        let Some(compiled) = &self.0 else { return Vec::new() };
        let part = compiled.part(object, old);
        if part.as_ref().is_some_and(|part| compiled.sound().contains(part)) {
            return Vec::new();
        }
        let Err(errors) = validate_compiled(&compiled.schema, object, old) else {
            compiled.note_sound(part);
            return Vec::new();
        };
        errors
            .into_vec()
            .into_iter()
            .map(|error| {
                let pointer = format!("/{}", error.field_path.replace('.', "/"));
                let value = object.pointer(&pointer).unwrap_or(&Value::Null);
                let value = if value.is_object() { &Value::from("object") } else { value };
                Fault::invalid(error.field_path, value, &error.message)
            })
            .collect()
    }
}

/// The top-level fields with rules of their own; `None` if the object itself has some.
fn fields(schema: &Value) -> Option<Vec<String>> {
    if schema.get("x-kubernetes-validations").is_some() {
        return None;
    }
    let properties = schema["properties"].as_object()?;
    let ruled = properties.iter().filter(|(_, schema)| has_rules(schema));
    Some(ruled.map(|(field, _)| field.clone()).collect())
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.contains_key("x-kubernetes-validations") || map.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_checked_against_the_object_and_against_what_it_was() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"zone": {"type": "string", "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "zone is immutable"}]},
                "low": {"type": "integer"}, "high": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.low <= self.high", "message": "low is above high"}]}}});
        let rules = Rules::compile(&schema).unwrap();
        let object = |zone: &str, low| json!({"spec": {"zone": zone, "low": low, "high": 5}});
        assert_eq!(rules.check(&object("a", 1), None), []);
        assert_eq!(rules.check(&object("a", 1), Some(&object("a", 2))), []);
        let faults = rules.check(&object("b", 7), Some(&object("a", 1)));
        let told: Vec<String> =
            faults.iter().map(|f| format!("{}: {}", f.field, f.message)).collect();
        assert_eq!(
            told,
            [
                r#"spec: Invalid value: "object": low is above high"#,
                r#"spec.zone: Invalid value: "b": zone is immutable"#,
            ]
        );
    }

    #[test]
    fn what_broke_no_rule_is_remembered_with_what_it_was_before() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"n": {"type": "integer",
                "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "shrinks"}]}}},
            "status": {"type": "object", "properties": {"m": {"type": "integer"}}}}});
        let rules = Rules::compile(&schema).unwrap();
        let object = |n, m| json!({"spec": {"n": n}, "status": {"m": m}});
        for m in 0..3 {
            assert_eq!(rules.check(&object(2, m), Some(&object(1, 0))), []);
            assert_eq!(rules.check(&object(1, m), Some(&object(2, 0))).len(), 1);
        }
        assert_eq!(rules.check(&object(1, 0), None), []);
        let whole = json!({"type": "object", "properties": {"n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n < 3", "message": "too many"}]});
        let rules = Rules::compile(&whole).unwrap();
        assert_eq!(rules.check(&json!({"n": 1}), None), []);
        assert_eq!(rules.check(&json!({"n": 5}), None).len(), 1);
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_refused_with_its_definition() {
        let schema = json!({"x-kubernetes-validations": [{"rule": "self ==", "message": "x"}]});
        assert!(Rules::compile(&schema).is_err());
    }
}
