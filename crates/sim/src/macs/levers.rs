//! The levers over HTTP: what a test or a person can do to a Mac.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use applecart_core::pod::VmName;
use applecart_mac::scripts;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::host::Order;
use super::{Fleet, Handle};
use crate::mac::{Effect, Gate, Verdict};

/// What the levers are, for people.
pub const LEVERS: &str = "\
GET   /macs             every Mac: address, power, agent, VMs
GET   /macs/<mac>/calls the tools that were run on it, oldest first
PATCH /macs/<mac>       {'latency_seconds'?: 2.5      every tool takes so long
                         'hangs'?: true               takes connections and says nothing
                         'refuses_keys'?: true        lets nobody in
                         'password'?: 'another'       the account's, which Scaleway does not know
                         'locked'?: true              the account, as after wrong passwords
                         'disk_full'?: true           no room for a byte more
                         'loginwindow_dead'?: true    nobody is logged in on the screen any more
                         'pgrep_status'?: 3           how every look for VMs ends, 0: well
                         'leftovers_status'?: 3       the same for what earlier runs left
                         'firewall_busy'?: 2          so many loads of rules meet another pfctl
                         'reboot_at'?: 'pfctl -f'}    loses its power when a tool is run whose
                                                      command line has this in it, once
POST  /macs/<mac>/reboot
POST  /macs/<mac>/kill-agent            its launchd starts it again
POST  /macs/<mac>/flush-firewall        as a person or an update might
POST  /macs/<mac>/vms/<vm>/finish       {'code'?: 0} ends its job
POST  /macs/<mac>/vms/<vm>/kill         it is gone, and nobody knows how it ended

<mac> is a host's id, name or address. Bodies are JSON, shown here with single quotes; ? marks what
may be left out, and false or another value takes a fault back.
";

type Answered = Result<Json<Value>, (StatusCode, String)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    latency_seconds: Option<f64>,
    hangs: Option<bool>,
    refuses_keys: Option<bool>,
    password: Option<String>,
    locked: Option<bool>,
    disk_full: Option<bool>,
    loginwindow_dead: Option<bool>,
    firewall_busy: Option<u32>,
    pgrep_status: Option<i32>,
    leftovers_status: Option<i32>,
    reboot_at: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    #[serde(default)]
    code: i32,
}

/// Serves until dropped.
pub(super) async fn serve(
    listener: TcpListener,
    fleet: Fleet,
) -> io::Result<std::convert::Infallible> {
    let router = Router::new()
        .route("/", get(async || LEVERS))
        .route("/macs", get(list))
        .route("/macs/{mac}", axum::routing::patch(change))
        .route("/macs/{mac}/calls", get(calls))
        .route("/macs/{mac}/reboot", post(reboot))
        .route("/macs/{mac}/kill-agent", post(kill_agent))
        .route("/macs/{mac}/flush-firewall", post(flush_firewall))
        .route("/macs/{mac}/vms/{vm}/finish", post(finish))
        .route("/macs/{mac}/vms/{vm}/kill", post(kill))
        .fallback(async || (StatusCode::NOT_FOUND, LEVERS))
        .with_state(fleet);
    axum::serve(listener, router).await?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn find(fleet: &Fleet, which: &str) -> Result<Handle, (StatusCode, String)> {
    let found = fleet.with(|macs| {
        let is = |(id, mac): &(&applecart_api::ids::ServerId, &Handle)| {
            id.as_str() == which || mac.name == which || mac.address.to_string() == which
        };
        macs.iter().find(is).map(|(_, mac)| mac.clone())
    });
    found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no Mac {which}\n")))
}

async fn list(State(fleet): State<Fleet>) -> Json<Value> {
    let macs = fleet.with(|macs| macs.clone());
    let macs = macs.into_iter().map(|(id, mac)| {
        let vms = mac.tart.vms().into_iter().map(|(name, vm)| {
            json!({
                "name": name.as_str(), "image": vm.image, "address": vm.address,
                "state": format!("{:?}", vm.state),
            })
        });
        json!({
            "id": id, "name": mac.name, "address": mac.address, "on": mac.mac.is_on(),
            "session": mac.mac.has_session(), "agent_pid": mac.mac.agent_pid(),
            "wrong_passwords": mac.mac.wrong_passwords(), "vms": vms.collect::<Vec<_>>(),
        })
    });
    Json(macs.collect())
}

async fn calls(State(fleet): State<Fleet>, Path(mac): Path<String>) -> Answered {
    let calls = find(&fleet, &mac)?.mac.calls();
    let call = |call: Effect| json!({"what": call.what, "mutates": call.mutates});
    Ok(Json(calls.into_iter().map(call).collect()))
}

async fn change(
    State(fleet): State<Fleet>,
    Path(mac): Path<String>,
    Json(change): Json<Change>,
) -> Answered {
    let Handle { mac, orders, .. } = find(&fleet, &mac)?;
    if let Some(seconds) = change.latency_seconds {
        let latency = Duration::try_from_secs_f64(seconds)
            .map_err(|error| (StatusCode::BAD_REQUEST, format!("latency_seconds: {error}\n")))?;
        mac.set_latency(latency);
    }
    if let Some(password) = change.password {
        mac.set_password(&password);
    }
    if let Some(locked) = change.locked {
        mac.set_locked(locked);
    }
    if change.loginwindow_dead == Some(true) {
        mac.kill_loginwindow();
    }
    if let Some(loads) = change.firewall_busy {
        mac.set_firewall_busy(loads);
    }
    for (pattern, status) in [
        (scripts::VM_PATTERN, change.pgrep_status),
        (scripts::COMMAND_PATTERN, change.leftovers_status),
    ] {
        if let Some(status) = status {
            let trouble = (status != 0).then_some((status, "pgrep: Cannot get process list\n"));
            mac.set_pgrep_trouble(pattern, trouble);
        }
    }
    if let Some(text) = change.reboot_at {
        let orders = orders.clone();
        mac.set_gate(Arc::new(RebootAt { text, orders, done: AtomicBool::new(false) }));
    }
    let told = [
        change.hangs.map(Order::Hang),
        change.refuses_keys.map(Order::RefuseKeys),
        change.disk_full.map(Order::FillDisk),
    ];
    for order in told.into_iter().flatten() {
        let _told = obey(&orders, order)?;
    }
    Ok(Json(json!({})))
}

fn obey(orders: &mpsc::UnboundedSender<Order>, order: Order) -> Answered {
    let gone = |_| (StatusCode::GONE, "the Mac is gone\n".to_owned());
    orders.send(order).map(|()| Json(json!({}))).map_err(gone)
}

async fn reboot(State(fleet): State<Fleet>, Path(mac): Path<String>) -> Answered {
    obey(&find(&fleet, &mac)?.orders, Order::Reboot)
}

async fn kill_agent(State(fleet): State<Fleet>, Path(mac): Path<String>) -> Answered {
    obey(&find(&fleet, &mac)?.orders, Order::KillAgent)
}

async fn flush_firewall(State(fleet): State<Fleet>, Path(mac): Path<String>) -> Answered {
    find(&fleet, &mac)?.mac.flush_firewall();
    Ok(Json(json!({})))
}

async fn finish(
    State(fleet): State<Fleet>,
    Path((mac, vm)): Path<(String, String)>,
    body: Option<Json<Finish>>,
) -> Answered {
    let code = body.map(|Json(finish)| finish).unwrap_or_default().code;
    let ended = find(&fleet, &mac)?.tart.finish(&VmName::new(vm.clone()), code);
    running(ended, &vm)
}

async fn kill(State(fleet): State<Fleet>, Path((mac, vm)): Path<(String, String)>) -> Answered {
    let ended = find(&fleet, &mac)?.tart.kill(&VmName::new(vm.clone()));
    running(ended, &vm)
}

fn running(ended: bool, vm: &str) -> Answered {
    if ended {
        Ok(Json(json!({})))
    } else {
        Err((StatusCode::CONFLICT, format!("no VM {vm} runs there\n")))
    }
}

/// Cuts the power once, when a certain tool is run.
struct RebootAt {
    text: String,
    orders: mpsc::UnboundedSender<Order>,
    done: AtomicBool,
}

impl Gate for RebootAt {
    fn verdict(&self, effect: &Effect) -> Verdict {
        if !effect.what.contains(&self.text) || self.done.swap(true, Ordering::SeqCst) {
            return Verdict::Pass;
        }
        // A Mac that is gone has no power to lose.
        let _ = self.orders.send(Order::Reboot);
        Verdict::HangBefore
    }
}
