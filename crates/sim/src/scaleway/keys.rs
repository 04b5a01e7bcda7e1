//! SSH keys of a project (IAM).

use applecart_scaleway::ProjectId;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use md5::{Digest, Md5};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Performed, time};
use super::route::{Query, body};
use super::seeded::ORGANIZATION;
use super::settings::Accepts;
use super::state::State;

const NAME_MAX: usize = 1_000;
const KEY_MAX: usize = 65_000;

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub id: String,
    pub name: String,
    /// Type and base64, without the comment.
    pub public: String,
    pub project: ProjectId,
    pub disabled: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Key {
    fn to_json(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "public_key": self.public,
            "fingerprint": fingerprint(&self.public), "created_at": time(self.created_at),
            "updated_at": time(self.updated_at), "organization_id": ORGANIZATION,
            "project_id": self.project, "disabled": self.disabled,
        })
    }
}

/// `256 MD5:fd:2d:… (ssh-ed25519)`, as the service prints it.
fn fingerprint(public_key: &str) -> String {
    let (algorithm, blob) = public_key.split_once(' ').unwrap_or((public_key, ""));
    let blob = STANDARD.decode(blob).unwrap_or_default();
    let hex: Vec<String> = Md5::digest(&blob).iter().map(|byte| format!("{byte:02x}")).collect();
    let bits = bits(algorithm, &blob).unwrap_or_default();
    format!("{bits} MD5:{} ({algorithm})", hex.join(":"))
}

/// How long a key of this type is, if the blob is one (RFC 4253, section 6.6).
fn bits(algorithm: &str, blob: &[u8]) -> Option<usize> {
    let fields = fields(blob)?;
    match (algorithm, &fields[..]) {
        (_, [name, ..]) if *name != algorithm.as_bytes() => None,
        ("ssh-rsa", [_, _exponent, modulus]) => Some(length(modulus)),
        ("ssh-dss", [_, prime, _, _, _]) => Some(length(prime)),
        ("ssh-ed25519", [_, key]) if key.len() == 32 => Some(256),
        ("ecdsa-sha2-nistp256", [_, b"nistp256", _]) => Some(256),
        ("ecdsa-sha2-nistp384", [_, b"nistp384", _]) => Some(384),
        ("ecdsa-sha2-nistp521", [_, b"nistp521", _]) => Some(521),
        _ => None,
    }
}

/// The fields of a blob, each of which is written after its length.
fn fields(mut blob: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while !blob.is_empty() {
        let (length, rest) = blob.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (field, rest) = rest.split_at_checked(length)?;
        fields.push(field);
        blob = rest;
    }
    Some(fields)
}

/// The bits of a number, whose first byte may be a zero that keeps it positive.
fn length(number: &[u8]) -> usize {
    let zeros: usize = number.iter().take_while(|byte| **byte == 0).count();
    let first = number.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
    (number.len() - zeros) * 8 - first
}

/// Type and base64 of a key that the service takes.
fn accepted(public_key: &str) -> Option<String> {
    let mut words = public_key.split_whitespace();
    let (algorithm, blob) = (words.next()?, words.next()?);
    let is_key = bits(algorithm, &STANDARD.decode(blob).ok()?).is_some();
    (is_key && public_key.len() <= KEY_MAX).then(|| format!("{algorithm} {blob}"))
}

#[derive(Deserialize)]
struct CreateBody {
    name: String,
    public_key: String,
    project_id: ProjectId,
}

#[derive(Deserialize)]
struct UpdateBody {
    name: Option<String>,
    disabled: Option<bool>,
}

impl State {
    pub(super) fn list_keys(&self, query: &Query) -> Performed {
        let project = query.get("project_id");
        if project.is_some_and(|project| project != self.settings.project.as_str()) {
            return Err(Answer::denied("read", "ssh_key"));
        }
        let with_disabled = query.get("disabled") == Some("true");
        let mut keys: Vec<&Key> = self
            .keys
            .iter()
            .filter(|key| key.project == self.settings.project)
            .filter(|key| query.get("name").is_none_or(|name| key.name.starts_with(name)))
            .filter(|key| with_disabled || !key.disabled)
            .collect();
        match query.get("order_by").unwrap_or("created_at_asc") {
            "created_at_asc" => {}
            "created_at_desc" => keys.reverse(),
            "updated_at_asc" => keys.sort_by_key(|key| key.updated_at),
            "updated_at_desc" => keys.sort_by_key(|key| std::cmp::Reverse(key.updated_at)),
            "name_asc" => keys.sort_by(|a, b| a.name.cmp(&b.name)),
            "name_desc" => keys.sort_by(|a, b| b.name.cmp(&a.name)),
            _ => return Err(Answer::invalid("order_by", "constraint", "unknown order")),
        }
        let page = query.page(&self.settings)?.of(&keys);
        let page: Vec<Value> = page.iter().map(|key| key.to_json()).collect();
        Ok(Answer::ok(&json!({"ssh_keys": page, "total_count": keys.len()})))
    }

    pub(super) fn get_key(&self, id: &str) -> Performed {
        let index = self.find_key(id, "read")?;
        Ok(Answer::ok(&self.keys[index].to_json()))
    }

    pub(super) fn create_key(&mut self, bytes: &[u8]) -> Performed {
        let wanted: CreateBody = body(bytes)?;
        if wanted.project_id != self.settings.project {
            return Err(Answer::denied("write", "ssh_key"));
        }
        if wanted.name.chars().count() > NAME_MAX {
            return Err(Answer::invalid("name", "constraint", "at most 1000 characters"));
        }
        let Some(public_key) = accepted(&wanted.public_key) else {
            return Err(Answer::invalid("public_key", "format", "not an SSH public key"));
        };
        let same = |key: &&Key| key.public == public_key && key.project == wanted.project_id;
        if self.settings.unsure.duplicate_keys == Accepts::No
            && let Some(key) = self.keys.iter().find(same)
        {
            return Err(Answer::already_exists("ssh_key", &key.id));
        }
        let now = self.now;
        self.keys_made += 1;
        let made = self.keys_made;
        let key = Key {
            id: self.seeded().uuid("ssh key", made),
            name: wanted.name,
            public: public_key,
            project: wanted.project_id,
            disabled: false,
            created_at: now,
            updated_at: now,
        };
        let answer = Answer::ok(&key.to_json());
        self.keys.push(key);
        Ok(answer)
    }

    pub(super) fn update_key(&mut self, id: &str, bytes: &[u8]) -> Performed {
        let change: UpdateBody = body(bytes)?;
        let index = self.find_key(id, "write")?;
        let now = self.now;
        let key = &mut self.keys[index];
        key.name = change.name.unwrap_or_else(|| key.name.clone());
        key.disabled = change.disabled.unwrap_or(key.disabled);
        key.updated_at = now;
        Ok(Answer::ok(&key.to_json()))
    }

    pub(super) fn delete_key(&mut self, id: &str) -> Performed {
        let index = self.find_key(id, "delete")?;
        self.keys.remove(index);
        Ok(Answer::no_content())
    }

    fn find_key(&self, id: &str, action: &str) -> Result<usize, Answer> {
        let found = self.keys.iter().position(|key| key.id == id);
        let index = found.ok_or_else(|| Answer::not_found("ssh_key", id))?;
        if self.keys[index].project == self.settings.project {
            Ok(index)
        } else {
            Err(Answer::denied(action, "ssh_key"))
        }
    }
}
