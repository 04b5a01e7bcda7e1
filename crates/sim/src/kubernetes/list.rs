//! Reading many objects, in pages. No I/O.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::state::{Ask, State};
use super::store::ObjectKey;
use super::view::View;

/// The version that a page which goes on from another one speaks of.
pub(super) fn page_version(ask: &Ask) -> Option<u64> {
    read_token(ask.options.continue_from.as_deref()?)?["v"].as_u64()
}

/// What a continue token says.
fn read_token(token: &str) -> Option<Value> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// An object and where it is: its namespace and its name.
type Placed<'a> = (&'a (String, String), &'a Arc<Value>);

impl State {
    /// The list that is asked for.
    pub fn list(&self, ask: &Ask, view: View) -> Result<Value, Refusal> {
        self.check_not_future(ask.options.resource_version)?;
        let (version, after) = self.page_start(ask)?;
        let limit = match ask.options.limit {
            0 => usize::MAX,
            limit => limit,
        };
        let mut found = self.select(ask, after.as_ref());
        let mut page: Vec<Placed<'_>> = Vec::new();
        let mut rest = 0_usize;
        for next in &mut found {
            if page.len() < limit {
                page.push(next);
            } else {
                rest += 1;
            }
        }
        drop(found);
        let mut list = json!({"resourceVersion": version.to_string()});
        if let (Some((last, _)), true) = (page.last(), rest > 0) {
            let token = json!({"v": version, "ns": last.0, "n": last.1}).to_string();
            list["continue"] = json!(URL_SAFE_NO_PAD.encode(token));
            // Nobody counts on what a selector would leave out.
            if ask.options.selector.is_empty() {
                list["remainingItemCount"] = json!(rest);
            }
        }
        let objects: Vec<Arc<Value>> = page.into_iter().map(|(_, object)| object.clone()).collect();
        Ok(view.many(ask.kind(), ask.target.version, &objects, &list, ask.now))
    }

    /// The selected objects after a place, in order.
    fn select<'a>(
        &'a self,
        ask: &'a Ask,
        after: Option<&'a (String, String)>,
    ) -> Box<dyn Iterator<Item = Placed<'a>> + 'a> {
        let target = &ask.target;
        let selector = &ask.options.selector;
        if let (Some(name), true) =
            (selector.only_name(), target.namespace.is_some() || !target.kind.namespaced)
        {
            let key = target.key_of(name);
            let place = (key.namespace, key.name);
            let collection = self.store.collection(&target.kind.store);
            let found = collection.and_then(|collection| collection.objects.get_key_value(&place));
            return Box::new(found.into_iter().filter(|(_, object)| selector.matches(object)));
        }
        let objects = self.store.objects(&target.kind.store, target.namespace.as_deref());
        Box::new(
            objects
                .filter(move |(place, _)| after.is_none_or(|after| *place > after))
                .filter(|(_, object)| selector.matches(object)),
        )
    }

    /// Where a page starts, and the version that the whole list speaks of: that of its first page,
    /// so that a watch from there misses nothing that happened between pages.
    fn page_start(&self, ask: &Ask) -> Result<(u64, Option<(String, String)>), Refusal> {
        let Some(token) = &ask.options.continue_from else {
            return Ok((self.store.version(), None));
        };
        let token =
            read_token(token).ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
        let text = |field: &str| token[field].as_str().unwrap_or_default().to_owned();
        let version = token["v"].as_u64().unwrap_or_default();
        let forgotten =
            self.store.collection(&ask.kind().store).map_or(0, |collection| collection.forgotten);
        if version < forgotten {
            let message = "The provided continue parameter is too old to display a consistent list \
                           result. You must start a new list without the continue parameter.";
            return Err(Refusal::new(410, "Expired", message));
        }
        Ok((version, Some((text("ns"), text("n")))))
    }

    /// Nobody can ask for a version that does not exist yet.
    pub fn check_not_future(&self, version: Option<u64>) -> Result<(), Refusal> {
        match version {
            Some(version) if version > self.store.version() => {
                let message = format!(
                    "Too large resource version: {version}, current: {}",
                    self.store.version()
                );
                let mut refusal = Refusal::new(504, "Timeout", message);
                refusal.details = json!({"retryAfterSeconds": 1, "causes": [{"reason":
                    "ResourceVersionTooLarge", "message": "Too large resource version"}]});
                Err(refusal)
            }
            _ => Ok(()),
        }
    }

    /// Deletes all that a list would show; the list of what was there.
    pub fn delete_collection(&mut self, ask: &Ask) -> Result<Value, Refusal> {
        let list = self.list(ask, View::Whole)?;
        if ask.options.dry_run {
            return Ok(list);
        }
        let keys: Vec<ObjectKey> = self
            .select(ask, None)
            .map(|((namespace, name), _)| ObjectKey {
                resource: ask.kind().store.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
            })
            .collect();
        for key in keys {
            self.begin_delete(&ask.kind().clone(), &key, &ask.options.delete, ask.now);
        }
        self.settle(ask.now);
        Ok(list)
    }
}
