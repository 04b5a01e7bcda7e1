//! Every field says what it is for, wherever a person looks.

use anyhow::{Context, Result, ensure};
use http::Request;
use serde_json::Value;

use crate::ground::{Ground, our_definitions};

/// Fewer words than this say no more than the field's name does.
const FEWEST_WORDS: usize = 2;

/// In the definitions, in what the API server publishes, and in `kubectl explain`.
pub async fn every_field_says_what_it_is_for(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let client = ground.client().await?;
    for definition in our_definitions()? {
        let spec = &definition["spec"];
        let (group, kind) = (text(&spec["group"])?, text(&spec["names"]["kind"])?);
        let plural = text(&spec["names"]["plural"])?;
        let version = &spec["versions"][0];
        let written = walk(&version["schema"]["openAPIV3Schema"], plural);
        ensure!(written.fields > 10, "{kind} has {} fields only", written.fields);
        ensure!(written.silent.is_empty(), "the definition is silent on {:?}", written.silent);

        let path = format!("/openapi/v3/apis/{group}/{}", text(&version["name"])?);
        let published: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        let schemas = published["components"]["schemas"].as_object().context("no schemas")?;
        let ours = |schema: &&Value| {
            schema["x-kubernetes-group-version-kind"][0]["kind"].as_str() == Some(kind)
        };
        let schema = schemas.values().find(ours).with_context(|| format!("no schema of {kind}"))?;
        let served = walk(schema, plural);
        ensure!(served.fields >= written.fields, "the API server dropped fields of {kind}");
        ensure!(served.silent.is_empty(), "the API server is silent on {:?}", served.silent);

        for object in &written.objects {
            let told = ground.kubectl(&["explain", object]).await?;
            let silent = told.contains("<empty>") || told.contains("<no description>");
            ensure!(!silent, "kubectl explain {object}:\n{told}");
        }
        ground.kubectl(&["explain", plural, "--recursive"]).await?;
    }
    Ok(())
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a definition without a name")
}

/// What a schema says of its fields.
#[derive(Default)]
struct Said {
    fields: usize,
    /// Paths of fields without a useful description.
    silent: Vec<String>,
    /// Paths with fields below them.
    objects: Vec<String>,
}

fn walk(schema: &Value, path: &str) -> Said {
    let mut said = Said::default();
    said.of(schema, path);
    said
}

impl Said {
    fn of(&mut self, schema: &Value, path: &str) {
        let Some(properties) = schema["properties"].as_object() else {
            if schema["items"].is_object() {
                self.of(&schema["items"], path);
            }
            return;
        };
        self.objects.push(path.to_owned());
        for (name, field) in properties {
            let path = format!("{path}.{name}");
            self.fields += 1;
            let description = field["description"].as_str().unwrap_or_default();
            if description.split_whitespace().count() < FEWEST_WORDS {
                self.silent.push(path.clone());
            }
            self.of(field, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_without_words_is_found_however_deep() {
        let field = json!({"description": "Says something.", "type": "string"});
        let items = json!({"properties": {"good": field, "bad": {"description": "Bad."}}});
        let list = json!({"description": "A list.", "items": items});
        let said = walk(&json!({"properties": {"list": list, "none": {}}}), "kind");
        assert_eq!(said.silent, ["kind.list.bad", "kind.none"]);
        assert_eq!(said.objects, ["kind", "kind.list"]);
        assert_eq!(said.fields, 4);
    }
}
