//! The chart as a person meets it: wrong values are refused with a word about them, odd ones are
//! text like any other.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::binaries::package_folder;
use crate::folder::Folder;
use crate::process::write_private;
use crate::{Ground, objects};

/// Values that cannot be meant, and what must be said of each.
fn wrong() -> [(Value, &'static str); 10] {
    [
        (json!({"macosFleet": {"replica": 3}}), "replica"),
        (json!({"macosFleet": {"replicas": "three"}}), "replicas"),
        (json!({"macosFleet": {"replicas": -1}}), "replicas"),
        (json!({"macosFlete": {"enabled": true}}), "macosFlete"),
        (json!({"provider": {"extraArgs": "--claim-settle=1s"}}), "extraArgs"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "pullPolicy"),
        (json!({"fullnameOverride": "Not A Name"}), "fullnameOverride"),
        (json!({"runnersFleet": {"pools": [{"name": "a"}]}}), "runnerImage"),
        (json!({"clusterNamespaces": ["a: b"]}), "clusterNamespaces"),
        (json!({"macosFleet": {"kubernetesVersion": "1.36"}}), "kubernetesVersion"),
    ]
}

/// Text that YAML would take for something else, or for more than one thing.
const HOSTILE: [&str; 7] =
    ["true", "0123", "null", "a: b", "{x: y}", "# no comment", "x\"\n  injected: 'yes'\n#"];

/// helm refuses unknown and mistyped values by name.
pub async fn the_chart_refuses_wrong_values_by_name(ground: &mut Ground) -> Result<()> {
    let helm = Helm::new(ground)?;
    helm.lint(&json!({})).context("the chart's own values")?;
    helm.template(&json!({})).context("the chart's own values")?;
    for (values, word) in wrong() {
        for refused in [helm.lint(&values), helm.template(&values).map(|_| ())] {
            let told = refused.err().with_context(|| format!("helm took {values}"))?.to_string();
            ensure!(told.contains(word), "{values}: {word} is not in {told}");
        }
    }
    Ok(())
}

/// Whatever text a value is, it comes out as that text, in its one place.
pub async fn the_chart_takes_hostile_values_as_text(ground: &mut Ground) -> Result<()> {
    let helm = Helm::new(ground)?;
    let usual = helm.template(&values("usual"))?;
    for text in HOSTILE {
        let rendered = helm.template(&values(text)).with_context(|| format!("{text:?}"))?;
        ensure!(rendered.len() == usual.len(), "{text:?} made {} objects", rendered.len());
        for (usual, hostile) in usual.iter().zip(&rendered) {
            let expected = with_text(usual, text);
            ensure!(*hostile == expected, "{text:?}:\n{hostile:#}\nis not\n{expected:#}");
        }
    }
    Ok(())
}

/// Every value that is free text.
fn values(text: &str) -> Value {
    json!({
        "image": {"repository": text, "tag": text},
        "provider": {"extraArgs": [text]},
        "macosFleet": {
            "enabled": true, "adoptPoolPrefix": text, "apiServerURL": text,
            "machine": {"type": text, "zone": text, "os": text},
        },
        "runnersFleet": {"enabled": true, "pools": [{
            "name": "pool", "runnerImage": text, "dispatchLabel": text, "runnerLabels": [text],
        }]},
        "server": {"appUrl": text},
    })
}

/// What was rendered for `usual`, with another text in its places.
fn with_text(value: &Value, text: &str) -> Value {
    match value {
        Value::String(known) => json!(known.replace("usual", text)),
        Value::Array(items) => items.iter().map(|item| with_text(item, text)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, inner)| (key.clone(), with_text(inner, text))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

struct Helm {
    program: std::path::PathBuf,
    folder: Folder,
}

impl Helm {
    fn new(ground: &Ground) -> Result<Self> {
        Ok(Self { program: ground.binaries()?.path("helm")?, folder: Folder::create()? })
    }

    fn lint(&self, values: &Value) -> Result<()> {
        self.run(&["lint"], values).map(|_| ())
    }

    fn template(&self, values: &Value) -> Result<Vec<Value>> {
        objects::read(&self.run(&["template", "release"], values)?)
    }

    fn run(&self, arguments: &[&str], values: &Value) -> Result<String> {
        let path = self.folder.path().join("values.json");
        write_private(&path, &values.to_string())?;
        let mut command = Command::new(&self.program);
        command.args(arguments).arg(package_folder().join("../chart")).arg("--values").arg(&path);
        command.args(["--namespace", "macs", "--kube-version", crate::installation::VERSION]);
        let output = command.output().context("could not start helm")?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (text, errors) = (said(&output.stdout), said(&output.stderr));
        ensure!(output.status.success(), "helm {}: {text}{errors}", arguments.join(" "));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> Value {
        let path = package_folder().join("../chart").join(file);
        let text = std::fs::read_to_string(path).unwrap();
        objects::read(&text).unwrap().remove(0)
    }

    fn known(value: &Value, schema: &Value, path: &str) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            let inside = &schema["properties"][key];
            assert!(inside.is_object(), "values.schema.json does not know {path}: add it there");
            if inside["properties"].is_object() {
                known(inner, inside, &path);
            }
        }
    }

    #[test]
    fn the_schema_knows_every_value_that_the_chart_has() {
        known(&read("values.yaml"), &read("values.schema.json"), "");
    }
}
