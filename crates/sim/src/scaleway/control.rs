//! The levers over HTTP, under `/sim/`. They need no key: this Scaleway listens on loopback.

use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use applecart_scaleway::{ProjectId, ServerStatus};
use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Scaleway;
use super::answer::{Answer, time};
use super::catalogue::{self, Image};
use super::gate::{Operation, Verdict};
use super::host::Phase;
use super::keys::Key;
use super::levers::{HostSpec, Rule};
use super::seeded::ORGANIZATION;
use super::settings::Shown;
use super::state::State;

const LEVERS: &str = "\
GET    /sim/state       everything there is, but for passwords
GET    /sim/macs        what it takes to be the Macs: addresses, passwords, keys
POST   /sim/hosts       pre-order: {'name': 'pool-1', 'type'?: 'M2-L', 'zone'?: 'fr-par-1',
                        'os'?: 'macos-sequoia-15.6', 'project'?: '<id>',
                        'ordered_seconds_ago'?: 172800}
PATCH  /sim/hosts/<id>  out of band: {'name'?: 'x', 'status'?: 'locked'}, until something
                        changes it
DELETE /sim/hosts/<id>  out of band, whatever its floor
POST   /sim/stock       {'zone': 'fr-par-1', 'type': 'M4-M', 'left': 0}
DELETE /sim/os/<id>     withdraw an image, by its id or name
POST   /sim/clock       {'advance_seconds': 3600}, ten years at most
POST   /sim/rules       {'operation'?: 'update_server', 'server'?: '<id>', 'nth'?: 1,
                        'times'?: 1 (0: for ever), 'effect': <effect>}
DELETE /sim/rules       forget all rules

Bodies are JSON, shown here with single quotes; ? marks what may be left out.
<effect>: 'lose_request', 'lose_answer' (the connection breaks), 'hang_request', 'hang_answer'
(never answered), {'delay': <seconds>}, {'error': 'too_many_requests'} (any error type),
{'html': 502}, {'empty': 500}, {'answer': {'status': 429, 'content_type'?: 'text/plain',
'retry_after'?: '7', 'body'?: '...'}}
";

/// The furthest that the clock moves at once.
const ADVANCE_MAX_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// The states that a lever can put a server into.
const STATUSES: &[&str] = &[
    "unknown_status",
    "starting",
    "ready",
    "error",
    "rebooting",
    "updating",
    "locking",
    "locked",
    "unlocking",
    "reinstalling",
    "busy",
];

/// What `/sim/` understands, for people: every lever, and every word that one takes.
#[must_use]
pub fn levers() -> String {
    let operations: Vec<&str> = Operation::ALL.iter().map(|operation| operation.label()).collect();
    let types: Vec<&str> = catalogue::server_types().collect();
    let images: Vec<&str> = catalogue::images().iter().map(|image| image.name).collect();
    format!(
        "{LEVERS}\nOperations: {}.\nError types: {}.\nStatus: {}.\nTypes: {}.\nImages: {}.\n",
        operations.join(", "),
        Answer::ERRORS.join(", "),
        STATUSES.join(", "),
        types.join(", "),
        images.join(", "),
    )
}

type Pulled = Result<Value, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostBody {
    name: String,
    r#type: Option<String>,
    zone: Option<Zone>,
    os: Option<String>,
    project: Option<ProjectId>,
    ordered_seconds_ago: Option<u64>,
}

impl From<HostBody> for HostSpec {
    fn from(body: HostBody) -> Self {
        let plain = Self::named(body.name);
        Self {
            server_type: body.r#type.unwrap_or(plain.server_type),
            zone: body.zone.unwrap_or(plain.zone),
            os: body.os,
            project: body.project,
            ordered_ago: body.ordered_seconds_ago.map_or(plain.ordered_ago, Duration::from_secs),
            name: plain.name,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostChange {
    name: Option<String>,
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stock {
    zone: Zone,
    r#type: String,
    left: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    advance_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleBody {
    operation: Option<Operation>,
    server: Option<ServerId>,
    #[serde(default = "one")]
    nth: u64,
    #[serde(default = "one")]
    times: u64,
    effect: Effect,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Effect {
    LoseRequest,
    LoseAnswer,
    HangRequest,
    HangAnswer,
    Delay(f64),
    Error(String),
    Html(u16),
    Empty(u16),
    Answer(Answer),
}

impl Effect {
    fn verdict(self) -> Result<Verdict, String> {
        let answer = match self {
            Self::LoseRequest => return Ok(Verdict::LoseBefore),
            Self::LoseAnswer => return Ok(Verdict::LoseAfter),
            Self::HangRequest => return Ok(Verdict::HangBefore),
            Self::HangAnswer => return Ok(Verdict::HangAfter),
            Self::Delay(seconds) => {
                let delay = Duration::try_from_secs_f64(seconds);
                return delay.map(Verdict::Delay).map_err(|error| format!("delay: {error}"));
            }
            Self::Error(kind) => {
                let types = || Answer::ERRORS.join(", ");
                let none = || format!("error: there is no {kind:?}; the types are {}", types());
                Answer::error(&kind).ok_or_else(none)?
            }
            Self::Html(status) => Answer::html(status),
            Self::Empty(status) => Answer::empty(status),
            Self::Answer(answer) => answer,
        };
        if (200..600).contains(&answer.status) {
            Ok(Verdict::FailBefore(answer))
        } else {
            Err(format!("status: {} is not the one of an answer: 200 to 599", answer.status))
        }
    }
}

impl Scaleway {
    /// Pulls the lever that a request names.
    pub(super) fn control(&self, request: &Request<Bytes>) -> Answer {
        let segments: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let pulled = match (request.method().as_str(), &segments[1..]) {
            ("GET", []) => return Answer::raw(200, "text/plain", &levers()),
            ("GET", ["state"]) => Ok(self.with(|state| state.dump())),
            ("GET", ["macs"]) => Ok(self.macs()),
            ("POST", ["hosts"]) => self.pull(request, State::add_host),
            ("PATCH", ["hosts", id]) => {
                self.pull(request, |state, change| state.change_host(id, change))
            }
            ("DELETE", ["hosts", id]) => self.with(|state| state.drop_host(id)),
            ("POST", ["stock"]) => self.pull(request, State::put_stock),
            ("DELETE", ["os", id]) => self.with(|state| state.drop_image(id)),
            ("POST", ["clock"]) => body(request).and_then(|clock| self.move_clock(&clock)),
            ("POST", ["rules"]) => self.pull(request, State::add_rule),
            ("DELETE", ["rules"]) => {
                self.clear_rules();
                Ok(json!({}))
            }
            (method, _) => {
                let path = request.uri().path();
                Err(format!("there is no lever {method} {path}; there are:\n{}", levers()))
            }
        };
        match pulled {
            Ok(value) => Answer::ok(&value),
            Err(problem) => Answer::raw(400, "text/plain", &(problem + "\n")),
        }
    }

    fn move_clock(&self, clock: &ClockBody) -> Pulled {
        if clock.advance_seconds > ADVANCE_MAX_SECONDS {
            return Err(format!("advance_seconds: at most {ADVANCE_MAX_SECONDS} at once"));
        }
        self.advance(Duration::from_secs(clock.advance_seconds));
        Ok(json!({"now": self.with(|state| time(state.now))}))
    }

    fn pull<T: DeserializeOwned>(
        &self,
        request: &Request<Bytes>,
        lever: impl FnOnce(&mut State, T) -> Pulled,
    ) -> Pulled {
        let body = body(request)?;
        self.with(|state| lever(state, body))
    }
}

fn body<T: DeserializeOwned>(request: &Request<Bytes>) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(request.body());
    let whole = |problem: &dyn std::fmt::Display| {
        format!("the body: {problem}; GET /sim/ shows what each lever takes")
    };
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| match error.path().to_string().as_str() {
        "." | "?" => whole(error.inner()),
        field => format!("{field}: {}", error.inner()),
    })?;
    json.end().map_err(|error| whole(&error))?;
    Ok(read)
}

impl State {
    fn add_host(&mut self, body: HostBody) -> Pulled {
        self.pre_order(&body.into()).map(|id| json!({"id": id}))
    }

    fn known(&self, id: &str) -> Result<ServerId, String> {
        let id = id.parse().map_err(|error| format!("{error}"))?;
        if self.hosts.contains_key(&id) {
            Ok(id)
        } else {
            Err(format!("there is no host {id}; GET /sim/state lists them"))
        }
    }

    fn put_stock(&mut self, stock: Stock) -> Pulled {
        let kind = catalogue::known(&stock.r#type)?;
        if kind.zone != stock.zone.as_str() {
            return Err(format!("zone: {} stands in {} alone", kind.name, kind.zone));
        }
        self.stock.insert((stock.zone, stock.r#type), stock.left);
        Ok(json!({}))
    }

    fn drop_image(&mut self, wanted: &str) -> Pulled {
        let known: Vec<String> =
            self.images.iter().map(|image| format!("{} ({})", image.id, image.name)).collect();
        let before = self.images.len();
        self.images.retain(|image| image.id != wanted && image.name != wanted);
        if self.images.len() == before {
            return Err(format!("there is no image {wanted:?}; there are {}", known.join(", ")));
        }
        Ok(json!({}))
    }

    fn change_host(&mut self, id: &str, change: HostChange) -> Pulled {
        let id = self.known(id)?;
        if let Some(status) = change.status.as_deref().filter(|it| !STATUSES.contains(it)) {
            let known = STATUSES.join(", ");
            return Err(format!("status: there is no {status:?}; there are {known}"));
        }
        self.change(&id, |host| {
            host.name = change.name.unwrap_or_else(|| host.name.clone());
            if let Some(status) = change.status {
                host.phase = Phase::Steady(ServerStatus::from(status.as_str()));
            }
        });
        Ok(json!({}))
    }

    fn drop_host(&mut self, id: &str) -> Pulled {
        let id = self.known(id)?;
        self.remove(&id);
        Ok(json!({}))
    }

    fn add_rule(&mut self, body: RuleBody) -> Pulled {
        if body.nth == 0 {
            return Err("nth: 0 is no call; the next one is 1".to_owned());
        }
        if let Some(id) = body.server.as_ref().filter(|id| !self.gone.contains(id)) {
            self.known(id.as_str()).map_err(|problem| format!("server: {problem}"))?;
        }
        let rule = Rule {
            operation: body.operation,
            server: body.server,
            nth: body.nth,
            times: Some(body.times).filter(|times| *times > 0),
            ..Rule::any(body.effect.verdict()?)
        };
        self.rules.push(rule);
        Ok(json!({}))
    }

    /// Everything, but for passwords.
    pub(super) fn dump(&self) -> Value {
        let host = |id: &ServerId| {
            let host = &self.hosts[id];
            let mut seen = host.to_json(self.seeded(), Shown::Empty);
            let fields = seen.as_object_mut().expect("a server is an object");
            fields.retain(|name, _| !matches!(name.as_str(), "sudo_password" | "vnc_url"));
            seen["os"] = host.image.name.into();
            seen["wipes"] = host.wipes.into();
            seen["power_cycles"] = host.power_cycles.into();
            seen["next_change_at"] = host.due().map(time).into();
            seen
        };
        let rule = |rule: &Rule| {
            json!({
                "operation": rule.operation, "server": rule.server, "nth": rule.nth,
                "times": rule.times.unwrap_or(0), "seen": rule.seen,
                "effect": format!("{:?}", rule.verdict),
            })
        };
        let stock = self
            .stock
            .iter()
            .map(|((zone, kind), left)| json!({"zone": zone, "type": kind, "left": left}));
        let image = |image: &Image| json!({"id": image.id, "name": image.name});
        let key = |key: &Key| {
            json!({"id": key.id, "name": key.name, "project": key.project,
                   "disabled": key.disabled, "created_at": time(key.created_at)})
        };
        let settings = &self.settings;
        json!({
            "now": time(self.now), "seed": settings.seed, "project": settings.project,
            "organization": ORGANIZATION, "unsure": settings.unsure, "quotas": settings.quotas,
            "max_page_size": settings.max_page_size, "seconds": settings.durations.in_seconds(),
            "hosts": self.order.iter().map(host).collect::<Vec<_>>(),
            "deleted": self.gone, "stock": stock.collect::<Vec<_>>(),
            "ssh_keys": self.keys.iter().map(key).collect::<Vec<_>>(),
            "images": self.images.iter().map(image).collect::<Vec<_>>(),
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(), "calls": self.calls,
        })
    }
}
