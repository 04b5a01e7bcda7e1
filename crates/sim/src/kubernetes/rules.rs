//! A custom resource's own validation rules (`x-kubernetes-validations`). No I/O.

use kube_cel::{CompiledSchema, compile_schema, validate_compiled};
use serde_json::Value;

use super::refusal::Fault;
use super::schema::SchemaError;

/// The rules of a schema, compiled once.
pub(crate) struct Rules(Option<CompiledSchema>);

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rules({})", if self.0.is_some() { "some" } else { "none" })
    }
}

impl Rules {
    /// Compiles the rules in a schema; a schema without any costs nothing later.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if !has_rules(schema) {
            return Ok(Self(None));
        }
        let compiled = compile_schema(schema);
        if let Some(error) = compiled.compilation_errors().first() {
            let rule = "x-kubernetes-validations".to_owned();
            return Err(SchemaError::Rule { rule, error: error.to_string() });
        }
        Ok(Self(Some(compiled)))
    }

    /// The rules that `object` breaks, as a change of `old` where there is one.
    pub fn check(&self, object: &Value, old: Option<&Value>) -> Vec<Fault> {
        let Some(compiled) = &self.0 else { return Vec::new() };
        let Err(errors) = validate_compiled(compiled, object, old) else { return Vec::new() };
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
    fn a_rule_that_cannot_be_read_is_refused_with_its_definition() {
        let schema = json!({"x-kubernetes-validations": [{"rule": "self ==", "message": "x"}]});
        assert!(Rules::compile(&schema).is_err());
    }
}
