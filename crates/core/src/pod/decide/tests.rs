use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use super::super::observed::PodId;
use super::*;

const UID: &str = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";
const LIMITS: Limits = Limits {
    slots: 2,
    boot_deadline: Duration::from_mins(15),
    poll: Duration::from_secs(10),
    retry_first: Duration::from_secs(10),
    retry_longest: Duration::from_mins(5),
};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn at(seconds_ago: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds_ago)
}

fn id() -> PodId {
    PodId { namespace: "ci".into(), name: "job".into(), uid: UID.into() }
}

fn spec() -> Value {
    json!({"nodeName": "mac-1", "containers": [{"name": "runner", "image": "img"}]})
}

/// A Pod and the world around it, to be changed by each test in what matters to it.
#[derive(Clone)]
struct Scene {
    pod: Pod,
    seen: Observed,
}

/// A Pod that the scheduler has just placed here.
fn fresh() -> Scene {
    let pod = serde_json::from_value(json!({
        "metadata": {"namespace": "ci", "name": "job", "uid": UID, "resourceVersion": "7"},
        "spec": spec(),
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    }))
    .unwrap();
    let seen = Observed {
        pod: PodObject::Gone,
        vm: VmName::of(&id()),
        vms: Vms::Known(BTreeMap::new()),
        address: Address::NotAsked,
        slots_taken: Vec::new(),
        node_ip: Some("10.0.0.7".parse().unwrap()),
        failures: BTreeMap::new(),
    };
    Scene { pod, seen }
}

/// A Pod that carries our finalizer.
fn taken() -> Scene {
    let mut scene = fresh();
    scene.pod.metadata.finalizers = Some(vec![finalizer::POD_VM.to_owned()]);
    scene
}

impl Scene {
    fn vm(mut self, state: VmState) -> Self {
        self.seen.vms = Vms::Known(BTreeMap::from([(self.seen.vm.clone(), state)]));
        self
    }

    fn no_vm(mut self) -> Self {
        self.seen.vms = Vms::Known(BTreeMap::new());
        self
    }

    fn address(mut self, address: Address) -> Self {
        self.seen.address = address;
        self
    }

    fn slots_taken(mut self, names: &[&str]) -> Self {
        self.seen.slots_taken = names.iter().map(|name| VmName::new(*name)).collect();
        self
    }

    fn failed(mut self, of: Effect, attempts: u32, seconds_ago: i64) -> Self {
        let message = "it broke".to_owned();
        self.seen.failures.insert(of, Failure { message, attempts, at: at(seconds_ago) });
        self
    }

    fn deleted(mut self) -> Self {
        self.pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
        self.pod.metadata.deletion_grace_period_seconds = Some(30);
        self
    }

    fn status(mut self, status: Value) -> Self {
        self.pod.status = Some(serde_json::from_value(status).unwrap());
        self
    }

    /// The status that this scene publishes becomes the stored one.
    fn told(mut self) -> Self {
        self.pod.status = Some(published(&self.decide()));
        self
    }

    fn seen(&self) -> Observed {
        let mut seen = self.seen.clone();
        seen.pod = PodObject::Live(Box::new(PodSeen::read(&self.pod).unwrap()));
        seen
    }

    fn decide(&self) -> Decision {
        decide(now(), &LIMITS, &self.seen())
    }
}

fn booting() -> Scene {
    taken().vm(VmState::Created).told().vm(VmState::Running)
}

fn running() -> Scene {
    booting().address(Address::Known("192.168.64.2".parse().unwrap())).told()
}

fn exited(code: i32, message: &str) -> VmState {
    let exit = Exit::Code { code, message: message.into() };
    VmState::Ended { exit, at: Some(at(5)) }
}

fn published(decision: &Decision) -> PodStatus {
    match &decision.action {
        Some(Action::PublishStatus { version, status }) => {
            assert_eq!(version, "7", "a write without the version that was read");
            (**status).clone()
        }
        other => panic!("nothing was published but {other:?}: {}", decision.reason),
    }
}

fn container(status: &PodStatus) -> Value {
    serde_json::to_value(&status.container_statuses.as_ref().unwrap()[0]).unwrap()
}

fn condition(status: &PodStatus, type_: &str) -> String {
    let all = status.conditions.as_ref().unwrap();
    all.iter().find(|c| c.type_ == type_).map(|c| c.status.clone()).unwrap_or_default()
}

#[test]
fn the_finalizer_comes_before_anything_else() {
    let decision = fresh().decide();
    let finalizers = vec![finalizer::POD_VM.to_owned()];
    let claim = Action::SetFinalizers { version: "7".into(), finalizers };
    assert_eq!((decision.action, decision.reason), (Some(claim), Reason::Claiming));
}

#[test]
fn finalizers_of_others_stay() {
    let mut scene = fresh();
    scene.pod.metadata.finalizers = Some(vec!["other".into()]);
    let finalizers = vec!["other".to_owned(), finalizer::POD_VM.to_owned()];
    let claim = Action::SetFinalizers { version: "7".into(), finalizers };
    assert_eq!(scene.decide().action, Some(claim));
    let mut scene = taken().deleted();
    scene.pod.metadata.finalizers = Some(vec!["other".into(), finalizer::POD_VM.into()]);
    let release = Action::SetFinalizers { version: "7".into(), finalizers: vec!["other".into()] };
    assert_eq!(scene.decide().action, Some(release));
}

#[test]
fn a_vm_is_made_after_the_pod_says_so_and_holds_its_slot_meanwhile() {
    let told = taken().decide();
    assert_eq!(told.reason, Reason::Creating);
    assert_eq!(told.slot, Slot::Hold);
    let status = published(&told);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(container(&status)["state"]["waiting"]["reason"], "VmCreating");
    assert_eq!(condition(&status, "PodScheduled"), "True");
    let decision = taken().told().decide();
    assert!(matches!(decision.action, Some(Action::CreateVm(..))));
    assert_eq!(decision.slot, Slot::Hold);
}

#[test]
fn a_vm_is_started_after_the_pod_says_that_it_boots() {
    let told = taken().told().vm(VmState::Created).decide();
    let status = published(&told);
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "True");
    assert_eq!(container(&status)["state"]["waiting"]["reason"], "VmBooting");
    let decision = taken().vm(VmState::Created).told().decide();
    assert!(matches!(decision.action, Some(Action::StartVm(..))));
    assert_eq!(decision.slot, Slot::Hold);
}

#[test]
fn a_vm_with_an_address_makes_a_running_pod_whose_status_agrees_with_itself() {
    let status =
        published(&booting().address(Address::Known("192.168.64.2".parse().unwrap())).decide());
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("192.168.64.2"));
    assert_eq!(status.host_ip.as_deref(), Some("10.0.0.7"));
    for type_ in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&status, type_), "True", "{type_}");
    }
    let container = container(&status);
    assert_eq!(container["ready"], true);
    assert_eq!(container["containerID"], format!("tart://job-{UID}"));
    assert!(container["state"]["running"]["startedAt"].is_string());
}

#[test]
fn a_running_pod_is_left_alone_and_looked_at_again() {
    let decision = running().address(Address::NotAsked).decide();
    assert_eq!(decision.action, None);
    assert_eq!(decision.reason, Reason::Running { address: None });
    assert_eq!(decision.wake, Some(LIMITS.poll));
}

#[test]
fn what_did_not_change_keeps_its_time_and_is_not_written_again() {
    let later = now() + SignedDuration::from_hours(3);
    for scene in [taken().told().failed(Effect::Create, 9, 0), booting(), running()] {
        let before = scene.pod.status.clone().unwrap();
        let seen = scene.address(Address::NotAsked).seen();
        if let Some(Action::PublishStatus { status, .. }) = decide(later, &LIMITS, &seen).action {
            let since = |status: &PodStatus| {
                let all = status.conditions.clone().unwrap_or_default();
                let initialized = all.into_iter().find(|c| c.type_ == "Initialized");
                initialized.and_then(|c| c.last_transition_time)
            };
            assert_eq!(since(&status), since(&before));
            assert_eq!(status.start_time, before.start_time);
        }
    }
    let seen = running().address(Address::NotAsked).seen();
    assert_eq!(decide(later, &LIMITS, &seen).action, None);
}

#[test]
fn a_guest_without_an_address_boots_until_its_deadline_and_not_a_second_longer() {
    for (seconds, reason) in
        [(899, Reason::Booting), (900, Reason::BootDeadline(LIMITS.boot_deadline))]
    {
        for address in [Address::NotYet, Address::Unknown("hung".into())] {
            let mut scene = booting().address(address);
            let conditions = scene.pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
            for condition in conditions {
                condition.last_transition_time.as_mut().unwrap().0 = at(seconds);
            }
            assert_eq!(scene.decide().reason, reason, "LH12: {seconds}");
        }
    }
}

#[test]
fn how_a_vm_ended_is_told_before_it_is_removed() {
    // LH7, K27, LH17.
    for (state, phase, reason, code, message) in [
        (exited(0, ""), "Succeeded", "TartRunExited", 0, "exit code 0"),
        (exited(7, "boom"), "Failed", "TartRunExited", 7, "exit code 7: boom"),
        (
            VmState::Ended { exit: Exit::Crashed("panic".into()), at: None },
            "Failed",
            "VmCrashed",
            1,
            "crashed: panic",
        ),
        (
            VmState::Ended { exit: Exit::Unknown, at: None },
            "Failed",
            "ExitUnknown",
            137,
            "is unknown",
        ),
    ] {
        for scene in [running(), booting(), taken()] {
            let ended = scene.vm(state.clone());
            let status = published(&ended.decide());
            assert_eq!(status.phase.as_deref(), Some(phase));
            assert_eq!(status.reason.as_deref(), Some(reason));
            assert!(status.message.as_ref().unwrap().contains(message), "{:?}", status.message);
            assert_eq!(container(&status)["state"]["terminated"]["exitCode"], code);
            assert_eq!(condition(&status, "Ready"), "False");
            let after = ended.told().decide();
            assert_eq!(after.action, Some(Action::RemoveVm(VmName::of(&id()))));
            assert_eq!(after.reason, Reason::Removing);
        }
    }
}

#[test]
fn the_time_of_the_end_is_the_recorded_one() {
    let status = published(&running().vm(exited(0, "")).decide());
    let finished = &container(&status)["state"]["terminated"]["finishedAt"];
    assert_eq!(finished, "2026-01-01T11:59:55Z");
}

#[test]
fn an_ended_pod_gives_up_its_vm_then_its_finalizer_and_then_nothing_is_left_to_do() {
    let over = running().vm(exited(0, "")).told();
    let release = over.clone().no_vm().decide();
    let finalizers = Vec::new();
    let expected = Action::SetFinalizers { version: "7".into(), finalizers };
    assert_eq!((release.action, release.reason), (Some(expected), Reason::Releasing));
    let mut done = over.no_vm();
    done.pod.metadata.finalizers = None;
    let decision = done.decide();
    assert_eq!((decision.action, decision.wake), (None, None));
    assert_eq!(decision.reason, Reason::Finished);
}

#[test]
fn a_pod_that_ended_never_gets_another_vm() {
    // S28: whatever is or is not on the host.
    for scene in [running().vm(exited(0, "")).told(), running().no_vm().told()] {
        for state in [None, Some(VmState::Partial), Some(VmState::Created), Some(VmState::Running)]
        {
            let scene = state.map_or(scene.clone().no_vm(), |state| scene.clone().vm(state));
            let action = scene.decide().action;
            assert!(!matches!(action, Some(Action::CreateVm(..) | Action::StartVm(..))));
        }
    }
}

#[test]
fn a_vm_that_was_started_and_is_gone_is_lost_and_not_made_again() {
    for scene in [running(), booting()] {
        for scene in [scene.clone().no_vm(), scene.clone().vm(VmState::Partial)] {
            let decision = scene.decide();
            assert_eq!(decision.reason, Reason::Lost);
            let status = published(&decision);
            assert_eq!(status.reason.as_deref(), Some("VmLost"));
            assert_eq!(status.phase.as_deref(), Some("Failed"));
        }
    }
    assert_eq!(running().vm(VmState::Created).decide().reason, Reason::Lost);
}

#[test]
fn a_vm_whose_creation_was_cut_short_is_made_again_from_the_start() {
    let decision = taken().told().vm(VmState::Partial).decide();
    assert!(matches!(decision.action, Some(Action::CreateVm(..))));
}

#[test]
fn a_third_pod_waits_and_says_for_whom() {
    for scene in [taken(), taken().vm(VmState::Created)] {
        let waiting = scene.slots_taken(&["a", "b"]);
        let decision = waiting.decide();
        assert_eq!(decision.slot, Slot::Free);
        let status = published(&decision);
        assert_eq!(container(&status)["state"]["waiting"]["reason"], "NoVmSlot");
        assert!(decision.reason.to_string().contains("running: a, b"));
        let after = waiting.told().decide();
        assert_eq!((after.action, after.wake), (None, Some(LIMITS.poll)));
    }
    assert_eq!(running().slots_taken(&["a", "b"]).decide().action, None, "a running one stays");
}

#[test]
fn deletion_is_looked_at_first_in_every_state() {
    // K8, LH10, S29: by name, whatever the status says.
    let states = [VmState::Partial, VmState::Created, VmState::Running, exited(0, "")];
    let scenes = vec![fresh(), taken(), booting(), running(), running().vm(exited(1, "")).told()];
    for scene in scenes {
        for state in &states {
            let decision = scene.clone().deleted().vm(state.clone()).decide();
            assert_eq!(decision.action, Some(Action::RemoveVm(VmName::of(&id()))));
        }
    }
}

#[test]
fn a_deleted_pod_loses_its_finalizer_and_then_its_grace_once_its_vm_is_gone() {
    let decision = running().no_vm().deleted().decide();
    assert_eq!(decision.reason, Reason::Releasing);
    let mut released = running().no_vm().deleted();
    released.pod.metadata.finalizers = None;
    let decision = released.decide();
    assert_eq!(decision.action, Some(Action::DeletePod { uid: UID.into() }));
    assert_eq!(decision.reason, Reason::Deleting);
    released.pod.metadata.deletion_grace_period_seconds = Some(0);
    released.pod.metadata.finalizers = Some(vec!["other".into()]);
    let decision = released.decide();
    assert_eq!((decision.action, decision.reason), (None, Reason::HeldByOthers));
    assert_eq!(decision.wake, Some(LIMITS.poll));
}

#[test]
fn not_knowing_the_vms_is_never_taken_for_having_none() {
    // LH20, S26.
    for scene in [fresh(), taken(), running(), running().deleted()] {
        let mut scene = scene;
        scene.seen.vms = Vms::Unknown("hung".into());
        let decision = scene.decide();
        assert_eq!(decision.action, None);
        assert_eq!(decision.reason, Reason::VmsUnknown("hung".into()));
        assert_eq!((decision.wake, decision.slot), (Some(LIMITS.poll), Slot::Keep));
    }
}

#[test]
fn not_knowing_the_pod_changes_nothing() {
    let mut seen = running().seen();
    seen.pod = PodObject::Unknown("timed out".into());
    let decision = decide(now(), &LIMITS, &seen);
    assert_eq!((decision.action, decision.slot), (None, Slot::Keep));
    assert_eq!(decision.reason, Reason::PodUnknown("timed out".into()));
    assert_eq!(decision.wake, Some(LIMITS.poll));
}

#[test]
fn a_pod_that_vanished_leaves_no_vm_behind() {
    let mut seen = running().seen();
    seen.pod = PodObject::Gone;
    let remove = decide(now(), &LIMITS, &seen);
    assert_eq!(remove.action, Some(Action::RemoveVm(VmName::of(&id()))));
    seen.vms = Vms::Known(BTreeMap::new());
    let decision = decide(now(), &LIMITS, &seen);
    assert_eq!((decision.action, decision.wake), (None, None));
    assert_eq!((decision.reason, decision.slot), (Reason::Forgotten, Slot::Free));
}

#[test]
fn a_pod_that_cannot_be_a_vm_is_told_which_field_and_what_to_do() {
    let mut scene = fresh();
    let spec = json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]});
    scene.pod.spec = Some(serde_json::from_value(spec).unwrap());
    let decision = scene.decide();
    let status = published(&decision);
    assert!(matches!(decision.reason, Reason::Refused(_)));
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("UnsupportedPod"));
    let message = status.message.unwrap();
    assert!(message.contains("spec.containers") && message.contains("exactly one"), "{message}");
}

#[test]
fn a_failed_effect_waits_for_its_turn_whatever_woke_us() {
    // LH21: 10 s, then 20, 40 … at most 300.
    for (attempts, seconds_ago, wakes_in) in
        [(1, 9, Some(1)), (1, 10, None), (2, 19, Some(1)), (2, 20, None), (30, 299, Some(1))]
    {
        let scene = running().deleted().failed(Effect::Remove, attempts, seconds_ago);
        let decision = scene.decide();
        match wakes_in {
            Some(seconds) => {
                assert_eq!(decision.action, None);
                assert_eq!(decision.wake, Some(Duration::from_secs(seconds)));
                assert_eq!(decision.reason, Reason::BackingOff("it broke".into()));
            }
            None => assert!(matches!(decision.action, Some(Action::RemoveVm(_)))),
        }
    }
}

#[test]
fn a_failed_creation_is_told_frees_its_slot_and_is_tried_again() {
    let failed = taken().failed(Effect::Create, 1, 5);
    let decision = failed.decide();
    assert_eq!(decision.reason, Reason::CreateFailed("it broke".into()));
    assert_eq!(decision.slot, Slot::Free);
    let status = published(&decision);
    assert_eq!(container(&status)["state"]["waiting"]["reason"], "TartCreateFailed");
    let waiting = failed.clone().told().decide();
    assert_eq!((waiting.action, waiting.wake), (None, Some(Duration::from_secs(5))));
    let due = failed.told().failed(Effect::Create, 1, 10).decide();
    assert!(matches!(due.action, Some(Action::CreateVm(..))), "no status write in between");
}

#[test]
fn a_failed_start_is_told_and_does_not_use_up_the_boot_deadline() {
    let failed = taken().vm(VmState::Created).told().failed(Effect::Start, 1, 5);
    let decision = failed.decide();
    assert_eq!(decision.reason, Reason::StartFailed("it broke".into()));
    let status = published(&decision);
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "False");
    assert_eq!(container(&status)["state"]["waiting"]["reason"], "VmStartFailed");
    let due = failed.told().failed(Effect::Start, 1, 10);
    assert_eq!(condition(&published(&due.decide()), "PodReadyToStartContainers"), "True");
    assert!(matches!(due.told().decide().action, Some(Action::StartVm(..))));
}

#[test]
fn a_failed_creation_does_not_delay_a_deletion() {
    let scene = taken().vm(VmState::Partial).failed(Effect::Create, 9, 0).deleted();
    assert!(matches!(scene.decide().action, Some(Action::RemoveVm(_))));
}

/// Statuses as the original wrote them, on Pods that it runs while we take over.
fn by_original(status: Value) -> Scene {
    let mut scene = taken().status(status);
    scene.seen.vm = scene_vm(&scene);
    scene
}

fn scene_vm(scene: &Scene) -> VmName {
    PodSeen::read(&scene.pod).unwrap().vm()
}

#[test]
fn a_running_vm_of_the_original_is_adopted_under_its_name() {
    let running = json!({
        "phase": "Running", "startTime": "2026-01-01T11:00:00Z", "podIP": "192.168.64.9",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "runner", "image": "img", "imageID": "", "ready": true,
            "restartCount": 0, "containerID": "tart://ci-job"}],
    });
    let pending = json!({"phase": "Pending", "startTime": "2026-01-01T11:50:00Z"});
    for (status, phase) in [(running, "Running"), (pending, "Pending")] {
        let scene = by_original(status).vm(VmState::Running);
        assert_eq!(scene.seen.vm.as_str(), "ci-job");
        let told = published(&scene.decide());
        assert_eq!(told.phase.as_deref(), Some(phase));
        assert_eq!(container(&told)["containerID"], "tart://ci-job");
        let after = scene.told();
        assert_eq!(scene_vm(&after).as_str(), "ci-job", "our own status still names it");
        assert_eq!(after.decide().action, None, "and touches nothing");
        let ended = after.no_vm().decide();
        assert_eq!(ended.reason, Reason::Lost, "a vanished one is unknown, not succeeded: LH17");
    }
}

#[test]
fn a_vm_of_a_pod_that_had_the_same_name_is_not_adopted() {
    // LH11: nothing in a fresh Pod's status speaks for the original's VM.
    assert_eq!(scene_vm(&taken()), VmName::of(&id()));
    let named = json!({"containerStatuses": [{"name": "runner", "image": "i", "imageID": "",
        "ready": true, "restartCount": 0, "containerID": "tart://somebody-else"}]});
    assert_eq!(scene_vm(&taken().status(named)), VmName::of(&id()));
    // A status of ours that lost its container still means our VM.
    let mut stripped = booting();
    stripped.pod.status.as_mut().unwrap().container_statuses = None;
    assert_eq!(scene_vm(&stripped), VmName::of(&id()));
}

#[test]
fn every_state_has_an_answer_a_timer_and_a_status_that_agrees_with_itself() {
    let states = [
        None,
        Some(VmState::Partial),
        Some(VmState::Created),
        Some(VmState::Running),
        Some(exited(0, "")),
        Some(exited(9, "x")),
        Some(VmState::Ended { exit: Exit::Unknown, at: None }),
    ];
    let scenes = vec![
        fresh(),
        taken(),
        taken().told(),
        booting(),
        running(),
        running().vm(exited(0, "")).told(),
        by_original(json!({"phase": "Pending", "startTime": "2026-01-01T11:50:00Z"})),
    ];
    let addresses = [Address::NotAsked, Address::NotYet, Address::Unknown("x".into())];
    let failures = [None, Some(Effect::Write), Some(Effect::Create), Some(Effect::Remove)];
    for scene in &scenes {
        for state in &states {
            for address in &addresses {
                for failure in failures {
                    for deleted in [false, true] {
                        let mut scene = scene.clone().no_vm().address(address.clone());
                        if let Some(state) = state {
                            scene = scene.vm(state.clone());
                        }
                        if let Some(of) = failure {
                            scene = scene.failed(of, 1, 3);
                        }
                        if deleted {
                            scene = scene.deleted();
                        }
                        holds(&scene, state.as_ref(), deleted);
                    }
                }
            }
        }
    }
}

fn holds(scene: &Scene, state: Option<&VmState>, deleted: bool) {
    let decision = scene.decide();
    assert!(decision.wake.is_some() || decision.reason == Reason::Finished, "V6: {decision:?}");
    match &decision.action {
        Some(Action::CreateVm(..) | Action::StartVm(..)) => {
            assert!(!deleted && decision.slot == Slot::Hold);
            assert!(!matches!(state, Some(VmState::Running | VmState::Ended { .. })));
        }
        Some(Action::RemoveVm(_)) => {
            let phase = scene.pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap();
            assert!(deleted || phase == "Succeeded" || phase == "Failed", "LH7");
        }
        Some(Action::PublishStatus { status, .. }) => agrees(status),
        Some(Action::SetFinalizers { finalizers, .. }) if finalizers.is_empty() => {
            assert!(state.is_none(), "S29: released with its VM there");
        }
        Some(Action::DeletePod { .. }) => assert!(state.is_none()),
        Some(Action::SetFinalizers { .. }) | None => {}
    }
}

fn agrees(status: &PodStatus) {
    let ready = condition(status, "Ready") == "True";
    assert_eq!(ready, status.phase.as_deref() == Some("Running"));
    assert_eq!(condition(status, "ContainersReady"), condition(status, "Ready"));
    let container = container(status);
    assert_eq!(container["ready"], ready);
    let state = container["state"].as_object().unwrap();
    let expected = match status.phase.as_deref() {
        Some("Pending") => "waiting",
        Some("Running") => "running",
        _ => "terminated",
    };
    assert_eq!(state.keys().collect::<Vec<_>>(), [expected]);
}
