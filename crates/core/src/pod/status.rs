//! What we tell people about a Pod. Derived from what was seen and why; never a source of truth,
//! but for what it commits us to (see [`super::observed::Published`]).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::Reason;
use super::observed::{Exit, Observed, PodSeen, READY_TO_START};

/// What a kubelet writes for a container whose end nobody saw.
const UNKNOWN_EXIT_CODE: i32 = 137;

/// The status that a Pod shall have, or `None` if this reason tells people nothing new.
///
/// Phase, conditions and container status always agree (K10). Conditions of others are kept; times
/// change only with what they date.
pub(super) fn status(
    now: Timestamp,
    seen: &Observed,
    pod: &PodSeen,
    reason: &Reason,
) -> Option<PodStatus> {
    let draft = Draft::new(now, seen, pod);
    let text = reason.to_string();
    Some(match reason {
        Reason::NoSlot(_) => draft.pending(false, "NoVmSlot", &text),
        Reason::Creating => draft.pending(false, "VmCreating", &text),
        Reason::CreateFailed(_) => draft.pending(false, "TartCreateFailed", &text),
        Reason::StartFailed(_) => draft.pending(false, "VmStartFailed", &text),
        Reason::Booting => draft.pending(true, "VmBooting", &text),
        Reason::Running { address } => {
            draft.running(address.map(|address| address.to_string()), &text)
        }
        Reason::Exited { exit, at } => match exit {
            Exit::Code { code: 0, .. } => draft.ended(&Ending::good(&text), *at),
            Exit::Code { code, .. } => {
                draft.ended(&Ending::bad("TartRunExited", "Error", *code, &text), *at)
            }
            Exit::Crashed(_) => draft.ended(&Ending::bad("VmCrashed", "Error", 1, &text), *at),
            Exit::Unknown => draft.ended(&Ending::unknown("ExitUnknown", &text), *at),
        },
        Reason::Lost => draft.ended(&Ending::unknown("VmLost", &text), None),
        Reason::BootDeadline(_) => {
            draft.ended(&Ending::bad("BootDeadlineExceeded", "Error", 1, &text), None)
        }
        Reason::Refused(_) => draft.refused(&text),
        Reason::PodUnknown(_)
        | Reason::VmsUnknown(_)
        | Reason::Claiming
        | Reason::Removing
        | Reason::Releasing
        | Reason::Deleting
        | Reason::HeldByOthers
        | Reason::BackingOff(_)
        | Reason::Finished
        | Reason::Forgotten => return None,
    })
}

/// How a Pod's end is told.
struct Ending<'a> {
    phase: &'static str,
    reason: &'static str,
    container_reason: &'static str,
    code: i32,
    message: &'a str,
}

impl<'a> Ending<'a> {
    fn good(message: &'a str) -> Self {
        let (reason, container_reason) = ("TartRunExited", "Completed");
        Self { phase: "Succeeded", reason, container_reason, code: 0, message }
    }

    fn bad(
        reason: &'static str,
        container_reason: &'static str,
        code: i32,
        message: &'a str,
    ) -> Self {
        Self { phase: "Failed", reason, container_reason, code, message }
    }

    fn unknown(reason: &'static str, message: &'a str) -> Self {
        Self::bad(reason, "ContainerStatusUnknown", UNKNOWN_EXIT_CODE, message)
    }
}

/// A status in the making: the stored one, changed only where we have something to say.
struct Draft<'a> {
    now: Time,
    seen: &'a Observed,
    pod: &'a PodSeen,
    status: PodStatus,
}

impl<'a> Draft<'a> {
    fn new(now: Timestamp, seen: &'a Observed, pod: &'a PodSeen) -> Self {
        // Kubernetes keeps whole seconds; anything finer would differ from what is read back.
        let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
        let mut status = pod.status.clone();
        status.start_time.get_or_insert_with(|| now.clone());
        if let Some(ip) = seen.node_ip {
            status.host_ip = Some(ip.to_string());
            status.host_ips = Some(vec![HostIP { ip: ip.to_string() }]);
        }
        Self { now, seen, pod, status }
    }

    fn pending(mut self, started: bool, reason: &str, message: &str) -> PodStatus {
        self.status.phase = Some("Pending".to_owned());
        (self.status.reason, self.status.message) = (None, None);
        self.conditions(started, false, reason, message);
        self.container(false, |_| ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
            }),
            ..ContainerState::default()
        });
        self.status
    }

    fn running(mut self, address: Option<String>, message: &str) -> PodStatus {
        self.status.phase = Some("Running".to_owned());
        (self.status.reason, self.status.message) = (None, None);
        if let Some(ip) = address {
            self.status.pod_ip = Some(ip.clone());
            self.status.pod_ips = Some(vec![PodIP { ip }]);
        }
        self.conditions(true, true, "VmHasAddress", message);
        let started = self.now.clone();
        self.container(true, |before| {
            let since = before.and_then(|state| state.running).and_then(|run| run.started_at);
            let started_at = Some(since.unwrap_or(started));
            ContainerState {
                running: Some(ContainerStateRunning { started_at }),
                ..ContainerState::default()
            }
        });
        self.status
    }

    fn ended(mut self, ending: &Ending<'_>, at: Option<Timestamp>) -> PodStatus {
        self.terminal(ending.phase, ending.reason, ending.message);
        let finished = at.map_or(self.now.clone(), Time);
        let id = self.seen.vm.container_id();
        self.container(false, |before| ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: ending.code,
                reason: Some(ending.container_reason.to_owned()),
                message: Some(ending.message.to_owned()),
                started_at: before.and_then(|state| state.running).and_then(|run| run.started_at),
                finished_at: Some(finished),
                container_id: Some(id),
                signal: None,
            }),
            ..ContainerState::default()
        });
        self.status
    }

    /// As a kubelet does for a Pod that it does not admit: no container was ever there.
    fn refused(mut self, message: &str) -> PodStatus {
        self.terminal("Failed", "UnsupportedPod", message);
        self.status
    }

    fn terminal(&mut self, phase: &str, reason: &str, message: &str) {
        self.status.phase = Some(phase.to_owned());
        self.status.reason = Some(reason.to_owned());
        self.status.message = Some(message.to_owned());
        let reason = if phase == "Succeeded" { "PodCompleted" } else { "PodFailed" };
        self.conditions(false, false, reason, message);
    }

    fn conditions(&mut self, started: bool, ready: bool, reason: &str, message: &str) {
        let why = Some((reason, message));
        self.condition(READY_TO_START, started, None);
        self.condition("Initialized", true, None);
        self.condition("ContainersReady", ready, why);
        self.condition("Ready", ready, why);
    }

    fn condition(&mut self, type_: &str, status: bool, why: Option<(&str, &str)>) {
        let status = if status { "True" } else { "False" };
        let all = self.status.conditions.get_or_insert_with(Vec::new);
        let at = all.iter().position(|c| c.type_ == type_).unwrap_or_else(|| {
            all.push(PodCondition { type_: type_.to_owned(), ..PodCondition::default() });
            all.len() - 1
        });
        let condition = &mut all[at];
        if condition.status != status {
            condition.last_transition_time = Some(self.now.clone());
        }
        status.clone_into(&mut condition.status);
        condition.reason = why.map(|(reason, _)| reason.to_owned());
        condition.message = why.map(|(_, message)| message.to_owned());
    }

    fn container(
        &mut self,
        ready: bool,
        state: impl FnOnce(Option<ContainerState>) -> ContainerState,
    ) {
        let Ok(template) = &self.pod.template else { return };
        let stored = self.status.container_statuses.take().into_iter().flatten();
        let mut container = stored
            .into_iter()
            .find(|container| container.name == template.container)
            .unwrap_or_else(|| ContainerStatus {
                name: template.container.clone(),
                ..ContainerStatus::default()
            });
        container.image.clone_from(&template.image);
        container.ready = ready;
        container.started = Some(ready);
        container.container_id = Some(self.seen.vm.container_id());
        container.state = Some(state(container.state.take()));
        self.status.container_statuses = Some(vec![container]);
    }
}
