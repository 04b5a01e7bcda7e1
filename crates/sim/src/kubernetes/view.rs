//! How a client wants to see objects: whole, their metadata alone, or as rows of a table. No I/O.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::column::{Cell, Column};
use super::kind::{Kind, Nature};
use super::refusal::Refusal;
use super::state::present;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Objects as they are.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// A `Table` with a row for each, and beside its cells as much of the object.
    Table(Beside),
}

/// What a row of a table shows beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    Metadata,
    Object,
}

impl View {
    /// Reads an `Accept` header; the first form that we know wins. `beside` is what the query says
    /// of a table's rows.
    pub fn parse(accept: &str, beside: &str) -> Result<Self, Refusal> {
        if accept.is_empty() {
            return Ok(Self::Whole);
        }
        for form in accept.split(',') {
            let mut parts = form.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "application/*" | "*/*") {
                continue;
            }
            match parts.find_map(|part| part.strip_prefix("as=")) {
                Some("Table") => return Ok(Self::Table(Beside::parse(beside)?)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    return Ok(Self::Metadata);
                }
                Some(_) => {}
                None => return Ok(Self::Whole),
            }
        }
        let message = "only the following media types are accepted: application/json";
        Err(Refusal::new(406, "NotAcceptable", message))
    }

    pub fn is_table(self) -> bool {
        matches!(self, Self::Table(_))
    }

    /// One object.
    pub fn one(
        self,
        kind: &Kind,
        version: usize,
        object: &Arc<Value>,
        now: Timestamp,
    ) -> Arc<Value> {
        match self {
            Self::Whole => present(kind, version, object),
            Self::Metadata => Arc::new(metadata(object)),
            Self::Table(beside) => {
                let rows = std::slice::from_ref(object);
                Arc::new(table(kind, version, rows, (beside, &object["metadata"]), now))
            }
        }
    }

    /// Many objects, with the metadata of their list.
    pub fn many(
        self,
        kind: &Kind,
        version: usize,
        objects: &[Arc<Value>],
        list: &Value,
        now: Timestamp,
    ) -> Value {
        match self {
            Self::Table(beside) => table(kind, version, objects, (beside, list), now),
            Self::Metadata => {
                let items: Vec<Value> = objects.iter().map(|object| metadata(object)).collect();
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": list, "items": items})
            }
            Self::Whole => {
                // What a list is of, its items of a built-in kind do not repeat.
                let custom = kind.nature == Nature::Custom;
                let item = |object: &Arc<Value>| {
                    let mut item = Value::clone(&present(kind, version, object));
                    if let (false, Some(fields)) = (custom, item.as_object_mut()) {
                        fields.remove("apiVersion");
                        fields.remove("kind");
                    }
                    item
                };
                let items: Vec<Value> = objects.iter().map(item).collect();
                let mut metadata = list.clone();
                if custom && metadata["continue"].is_null() {
                    metadata["continue"] = json!("");
                }
                json!({"apiVersion": kind.api_version(version), "kind": kind.list_name,
                    "metadata": metadata, "items": items})
            }
        }
    }

    /// An object that only tells how far a watch has come.
    pub fn bookmark(
        self,
        kind: &Kind,
        version: usize,
        at: u64,
        initial_end: bool,
        now: Timestamp,
    ) -> Value {
        let mut metadata = json!({"resourceVersion": at.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"apiVersion": kind.api_version(version), "kind": kind.name,
            "metadata": metadata});
        match self {
            Self::Whole => object,
            Self::Metadata => self::metadata(&object),
            Self::Table(beside) => {
                let empty = [Arc::new(object)];
                table(kind, version, &empty, (beside, &empty[0]["metadata"]), now)
            }
        }
    }
}

impl Beside {
    fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::Nothing),
            other => Err(Refusal::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

fn metadata(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": object["metadata"]})
}

fn table(
    kind: &Kind,
    version: usize,
    objects: &[Arc<Value>],
    (beside, list): (Beside, &Value),
    now: Timestamp,
) -> Value {
    let columns = &kind.versions[version].columns;
    let head: Vec<Value> = columns
        .iter()
        .map(|column| {
            let format = if column.name == "Name" { "name" } else { "" };
            json!({"name": column.name, "type": column.kind, "format": format,
                "description": column.description, "priority": column.priority})
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> =
                columns.iter().map(|column| cell(column, object, now)).collect();
            let object = match beside {
                Beside::Nothing => Value::Null,
                Beside::Metadata => metadata(object),
                Beside::Object => Value::clone(&present(kind, version, object)),
            };
            json!({"cells": cells, "object": object})
        })
        .collect();
    let version = &list["resourceVersion"];
    let mut metadata = json!({"resourceVersion": version});
    for field in ["continue", "remainingItemCount"] {
        if let Some(value) = list.get(field) {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": metadata,
        "columnDefinitions": head, "rows": rows})
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    match &column.cell {
        Cell::Computed(compute) => compute(object),
        Cell::Age(paths) => {
            let found = paths.iter().find_map(|path| path.first(object)?.as_str());
            match found.map(str::parse::<Timestamp>) {
                Some(Ok(since)) => json!(age(now.duration_since(since).as_secs())),
                Some(Err(_)) => json!("<invalid>"),
                // Of custom resources nothing is shown that is not there.
                None if column.kind == "date" => Value::Null,
                None => json!("<unknown>"),
            }
        }
        Cell::Path(path) => match (path.first(object), column.kind.as_str()) {
            (None | Some(Value::Null), _) if column.name == "Name" => json!(""),
            (None | Some(Value::Null), _) => Value::Null,
            (Some(value), "integer" | "number" | "boolean") => value.clone(),
            (Some(Value::String(text)), _) => json!(text),
            (Some(value), _) => json!(value.to_string()),
        },
    }
}

/// An age as kubectl shows it: two units while it is young, one later.
pub(crate) fn age(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let days = hours / 24;
    let two = |big: i64, unit: &str, small: i64, below: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{below}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        252_288_000.. => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (700, "11m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn the_accept_header_chooses_the_form() {
        let parse = |accept: &str| View::parse(accept, "").map_err(|refusal| refusal.code);
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(parse(table), Ok(View::Table(Beside::Metadata)));
        let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(parse(metadata), Ok(View::Metadata));
        let binary = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(parse(binary), Ok(View::Whole));
        assert_eq!(parse("application/json"), Ok(View::Whole));
        assert_eq!(parse("text/html"), Err(406));
        assert_eq!(View::parse(table, "Object"), Ok(View::Table(Beside::Object)));
        assert!(View::parse(table, "Everything").is_err());
    }
}
