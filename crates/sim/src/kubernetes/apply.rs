//! Server-side apply: who owns which field of an object. No I/O.
//!
//! Owners are kept beside the object, and only of objects that were ever applied: what was there
//! before the first apply belongs to whoever wrote it, as one owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::patch::{ListMerge, list_merge, merge};
use super::refusal::{Fault, Refusal};
use super::schema::Schema;
use super::state::{Ask, State, present};
use super::store::{ObjectKey, uid_of};
use super::write::{Part, remove};

/// The way to a field: `f:name`; `k:{…}` for an item of a list with keys, `v:…` for one of a set
type Path = Vec<String>;

/// Who wrote something: a name, whether by apply, and whether into the status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    name: String,
    applies: bool,
    status: bool,
}

/// The owner of what was there before anybody applied.
const BEFORE: &str = "before-first-apply";

/// The owners of one object's fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(BTreeMap<Owner, BTreeSet<Path>>);

impl State {
    /// Applies `applied` to the object that the path names, or creates it.
    pub fn apply(
        &mut self,
        ask: &Ask,
        part: Part,
        applied: &Value,
    ) -> Result<(u16, Arc<Value>), Refusal> {
        let kind = ask.kind().clone();
        let Some(name) = ask.options.writing.field_manager.clone() else {
            let why = "is required for apply patch";
            let told = format!(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: {why}"
            );
            let cause = Fault::required("fieldManager", why);
            let causes = json!([{"reason": cause.reason, "message": cause.message,
                "field": cause.field}]);
            let details = json!({"group": "meta.k8s.io", "kind": "PatchOptions", "causes": causes});
            return Err(Refusal { details, ..Refusal::new(422, "Invalid", told) });
        };
        let owner = Owner { name, applies: true, status: part == Part::Status };
        let schema = kind.versions[ask.target.version].schema();
        let fields = fields(applied, part, schema);
        let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
        let Some(old) = self.store.get(&key).cloned() else {
            if part == Part::Status {
                return Err(Refusal::not_found(&kind, &key.name));
            }
            let mut object = applied.clone();
            object["metadata"]["name"] = json!(key.name);
            remove(&mut object["metadata"], "resourceVersion");
            let created = self.create(ask, object)?;
            if !ask.options.dry_run {
                let owners = Owners(BTreeMap::from([(owner, fields)]));
                self.note_owners(uid_of(&created), owners);
            }
            return Ok((201, created));
        };
        let uid = uid_of(&old).to_owned();
        let mut owners = self.owners.get(&uid).cloned().unwrap_or_else(|| {
            let before = Owner { name: BEFORE.to_owned(), applies: false, status: false };
            let mut all = self::fields(&old, Part::Whole, schema);
            all.extend(self::fields(&old, Part::Status, schema));
            Owners(BTreeMap::from([(before, all)]))
        });
        let conflicts = owners.conflicts(&owner, &fields, &old, applied);
        if !conflicts.is_empty() && !ask.options.writing.force {
            return Err(conflict(&conflicts));
        }
        for (other, path) in &conflicts {
            if let Some(paths) = owners.0.get_mut(other) {
                paths.remove(path);
            }
        }
        let mut merged = merge(Some(Value::clone(&old)), applied, "", schema);
        owners.give_up(&owner, &fields, &mut merged);
        let known = self.owners.get(&uid).and_then(|owners| owners.0.get(&owner));
        let owns_more = known != Some(&fields);
        owners.0.insert(owner, fields);
        let changed = self.update(ask, part, |_| Ok(merged))?;
        if ask.options.dry_run {
            return Ok((200, changed));
        }
        self.note_owners(&uid, owners);
        let written = if owns_more { self.touch(ask, &key, &old) } else { None };
        Ok((200, written.unwrap_or(changed)))
    }

    /// Notes who owns the fields of an object, unless it went with the same request: its owner is
    /// gone, or nobody holds it any more.
    fn note_owners(&mut self, uid: &str, owners: Owners) {
        if self.store.by_uid(uid).is_some() {
            self.owners.insert(uid.to_owned(), owners);
        }
    }

    /// Writes an object as it was, unless it is another by now: who owns what is a part of it,
    /// though it is not shown.
    fn touch(&mut self, ask: &Ask, key: &ObjectKey, old: &Arc<Value>) -> Option<Arc<Value>> {
        self.store.get(key).filter(|stored| *stored == old)?;
        let stored = self.put(key, Value::clone(old));
        self.settle(ask.now);
        Some(present(ask.kind(), ask.target.version, &stored))
    }

    /// Notes who changed what, if anybody ever applied the object.
    pub fn own_changes(&mut self, ask: &Ask, part: Part, old: &Value, new: &Value) {
        let Some(owners) = self.owners.get_mut(uid_of(new)) else { return };
        let schema = ask.kind().versions[ask.target.version].schema();
        let name =
            ask.options.writing.field_manager.clone().unwrap_or_else(|| ask.who.user.clone());
        let writer = Owner { name, applies: false, status: part == Part::Status };
        let mut changed = fields(new, part, schema);
        changed.retain(|path| get(old, path) != get(new, path));
        for paths in owners.0.values_mut() {
            paths.retain(|path| !changed.contains(path) && get(new, path).is_some());
        }
        owners.0.entry(writer).or_default().extend(changed);
    }
}

impl Owners {
    /// Fields that others own and that would get another value.
    fn conflicts(
        &self,
        owner: &Owner,
        fields: &BTreeSet<Path>,
        old: &Value,
        applied: &Value,
    ) -> Vec<(Owner, Path)> {
        let others = self.0.iter().filter(|(other, _)| *other != owner);
        let contested = others.flat_map(|(other, paths)| {
            paths.intersection(fields).map(|path| (other.clone(), path.clone()))
        });
        contested
            .filter(|(_, path)| {
                let (before, after) = (get(old, path), get(applied, path));
                before.is_some() && before != after && !is_item(path)
            })
            .collect()
    }

    /// Takes what the owner applied before and does not any more, unless others own it too.
    fn give_up(&self, owner: &Owner, fields: &BTreeSet<Path>, object: &mut Value) {
        let Some(before) = self.0.get(owner) else { return };
        let others: Vec<&Path> = self
            .0
            .iter()
            .filter(|(other, _)| *other != owner)
            .flat_map(|(_, paths)| paths)
            .collect();
        for path in before.iter().filter(|path| !fields.contains(*path)) {
            let held = others.iter().any(|other| other.starts_with(path))
                || fields.iter().any(|field| field.starts_with(path));
            if !held {
                take(object, path);
            }
        }
    }
}

fn conflict(conflicts: &[(Owner, Path)]) -> Refusal {
    let cause = |(owner, path): &(Owner, Path)| {
        json!({"reason": "FieldManagerConflict", "field": shown(path),
            "message": format!("conflict with \"{}\"", owner.name)})
    };
    let causes: Vec<Value> = conflicts.iter().map(cause).collect();
    let told: Vec<String> = conflicts.iter().map(|(_, path)| shown(path)).collect();
    let noun = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
    let message = format!("Apply failed with {} {noun}: {}", conflicts.len(), told.join(", "));
    Refusal { details: json!({"causes": causes}), ..Refusal::new(409, "Conflict", message) }
}

/// `.spec.parts[name="a"].size`.
fn shown(path: &Path) -> String {
    let step = |step: &String| match step.split_at(2) {
        ("f:", field) => format!(".{field}"),
        (_, item) => format!("[{item}]"),
    };
    path.iter().map(step).collect()
}

/// Whether a path means an item of a list as a whole: its fields are compared one by one.
fn is_item(path: &Path) -> bool {
    path.last().is_some_and(|step| step.starts_with("k:"))
}

/// The fields that an object sets, as far as they can be owned.
fn fields(object: &Value, part: Part, schema: Option<&Schema>) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for (field, value) in object.as_object().into_iter().flatten() {
        let path = vec![format!("f:{field}")];
        let wanted = match (field.as_str(), part) {
            ("apiVersion" | "kind", _) => false,
            ("status", part) => part == Part::Status,
            (_, part) => part == Part::Whole,
        };
        if !wanted {
            continue;
        }
        if field == "metadata" {
            for below in ["labels", "annotations", "finalizers", "ownerReferences"] {
                if let Some(value) = value.get(below).filter(|value| !value.is_null()) {
                    let path = vec!["f:metadata".to_owned(), format!("f:{below}")];
                    leaves(value, path, below, None, &mut found);
                }
            }
            continue;
        }
        let below = schema.and_then(|schema| schema.below(field));
        leaves(value, path, field, below, &mut found);
    }
    found
}

fn leaves(
    value: &Value,
    path: Path,
    field: &str,
    schema: Option<&Schema>,
    found: &mut BTreeSet<Path>,
) {
    let deeper = |step: String| {
        let mut path = path.clone();
        path.push(step);
        path
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let below = schema.and_then(|schema| schema.below(name));
                leaves(value, deeper(format!("f:{name}")), name, below, found);
            }
        }
        Value::Array(items) if !items.is_empty() => match list_merge(field, items, schema) {
            ListMerge::Replace => drop(found.insert(path)),
            ListMerge::Set => found.extend(items.iter().map(|item| deeper(format!("v:{item}")))),
            ListMerge::ByKeys(keys) => {
                let below = schema.and_then(|schema| schema.items.as_deref());
                for item in items {
                    let place = deeper(key(item, &keys));
                    found.insert(place.clone());
                    leaves(item, place, "", below, found);
                }
            }
        },
        _ => drop(found.insert(path)),
    }
}

/// How an item of a list is found again.
fn key(item: &Value, keys: &[&str]) -> String {
    let keys: BTreeMap<&str, &Value> = keys.iter().map(|key| (*key, &item[*key])).collect();
    format!("k:{}", json!(keys))
}

fn is_at(item: &Value, step: &str) -> bool {
    match step.split_at(2) {
        ("k:", keys) => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            keys.iter().all(|(key, value)| item[key.as_str()] == *value)
        }
        (_, text) => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *item),
    }
}

fn get<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |at, step| match (step.split_at(2), at) {
        (("f:", field), at) => at.get(field),
        (_, Value::Array(items)) => items.iter().find(|item| is_at(item, step)),
        _ => None,
    })
}

/// Takes the field away, and what is empty without it.
fn take(object: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else { return };
    let place = above.iter().try_fold(object, |at, step| match (step.split_at(2), at) {
        (("f:", field), at) => at.get_mut(field),
        (_, Value::Array(items)) => items.iter_mut().find(|item| is_at(item, step)),
        _ => None,
    });
    match (place, last.split_at(2)) {
        (Some(place), ("f:", field)) => remove(place, field),
        (Some(Value::Array(items)), _) => items.retain(|item| !is_at(item, last)),
        _ => {}
    }
}
