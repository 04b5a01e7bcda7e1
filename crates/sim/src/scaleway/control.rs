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
use super::answer::Answer;
use super::gate::{Operation, Verdict};
use super::host::Phase;
use super::levers::{HostSpec, HostView, Rule};
use super::state::State;

/// What `/sim/` understands, for people.
pub const LEVERS: &str = "\
GET    /sim/state       everything there is, but for passwords
POST   /sim/hosts       pre-order: {'name': 'pool-1', 'type'?: 'M2-L', 'zone'?: 'fr-par-1',
                        'os'?: 'macos-sequoia-15.6', 'project'?: '<id>',
                        'ordered_seconds_ago'?: 172800}
PATCH  /sim/hosts/<id>  out of band: {'name'?: 'x', 'status'?: 'locked'}
DELETE /sim/hosts/<id>  out of band, whatever its floor
POST   /sim/stock       {'zone': 'fr-par-1', 'type': 'M4-M', 'left': 0}
DELETE /sim/os/<id>     withdraw an image
POST   /sim/clock       {'advance_seconds': 3600}
POST   /sim/rules       {'operation'?: 'update_server', 'server'?: '<id>', 'nth'?: 1,
                        'times'?: 1 (0: for ever), 'effect': <effect>}
DELETE /sim/rules       forget all rules

Bodies are JSON, shown here with single quotes; ? marks what may be left out.
<effect>: 'lose_request', 'lose_answer' (the connection breaks), 'hang_request', 'hang_answer'
(never answered), {'delay': <seconds>}, {'error': 'too_many_requests'} (any error type),
{'html': 502}, {'empty': 500}, {'answer': {'status': 429, 'content_type'?: 'text/plain',
'retry_after'?: '7', 'body'?: '...'}}
";

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
                return delay.map(Verdict::Delay).map_err(|error| error.to_string());
            }
            Self::Error(kind) => {
                Answer::error(&kind).ok_or_else(|| format!("there is no error type {kind:?}"))?
            }
            Self::Html(status) => Answer::html(status),
            Self::Empty(status) => Answer::empty(status),
            Self::Answer(answer) => answer,
        };
        if (200..600).contains(&answer.status) {
            Ok(Verdict::FailBefore(answer))
        } else {
            Err(format!("{} is not the status of an answer", answer.status))
        }
    }
}

impl Scaleway {
    /// Pulls the lever that a request names.
    pub(super) fn control(&self, request: &Request<Bytes>) -> Answer {
        let segments: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let pulled = match (request.method().as_str(), &segments[1..]) {
            ("GET", []) => return Answer { body: LEVERS.to_owned(), ..Answer::empty(200) },
            ("GET", ["state"]) => Ok(self.with(|state| state.dump())),
            ("POST", ["hosts"]) => self.pull(request, State::add_host),
            ("PATCH", ["hosts", id]) => {
                self.pull(request, |state, change| state.change_host(id, change))
            }
            ("DELETE", ["hosts", id]) => self.with(|state| state.drop_host(id)),
            ("POST", ["stock"]) => self.pull(request, |state, stock: Stock| {
                state.stock.insert((stock.zone, stock.r#type), stock.left);
                Ok(json!({}))
            }),
            ("DELETE", ["os", id]) => self.with(|state| {
                state.images.retain(|image| image.id != *id);
                Ok(json!({}))
            }),
            ("POST", ["clock"]) => body(request).map(|clock: ClockBody| {
                self.advance(Duration::from_secs(clock.advance_seconds));
                json!({"now": self.with(|state| state.now)})
            }),
            ("POST", ["rules"]) => self.pull(request, State::add_rule),
            ("DELETE", ["rules"]) => {
                self.clear_rules();
                Ok(json!({}))
            }
            _ => Err(format!("there is no such lever; there are:\n{LEVERS}")),
        };
        match pulled {
            Ok(value) => Answer::ok(&value),
            Err(problem) => Answer { body: problem + "\n", ..Answer::empty(400) },
        }
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
    serde_json::from_slice(request.body()).map_err(|error| format!("the body: {error}"))
}

impl State {
    fn add_host(&mut self, body: HostBody) -> Pulled {
        self.pre_order(&body.into()).map(|id| json!({"id": id}))
    }

    fn known(&self, id: &str) -> Result<ServerId, String> {
        let id = id.parse().map_err(|error| format!("{error}"))?;
        if self.hosts.contains_key(&id) { Ok(id) } else { Err(format!("there is no host {id}")) }
    }

    fn change_host(&mut self, id: &str, change: HostChange) -> Pulled {
        let id = self.known(id)?;
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
            let view = HostView::of(&self.hosts[id]);
            json!({
                "id": view.id, "name": view.name, "type": view.server_type, "zone": view.zone,
                "status": view.status.as_str(), "deletion_scheduled": view.deletion_scheduled,
                "wipes": view.generation, "power_cycles": view.power_cycles, "ip": view.ip,
            })
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
        json!({
            "now": self.now, "seed": self.settings.seed, "project": self.settings.project,
            "hosts": self.order.iter().map(host).collect::<Vec<_>>(),
            "deleted": self.gone, "stock": stock.collect::<Vec<_>>(),
            "ssh_keys": self.keys.iter().map(|key| &key.name).collect::<Vec<_>>(),
            "images": self.images.iter().map(|image| &image.name).collect::<Vec<_>>(),
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(), "calls": self.calls,
        })
    }
}
