//! What may follow from a read that is not of this turn.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn may(action: Action) -> bool {
    let decision = Decision { action: Some(action), wake: None, reason: Reason::Preparing };
    decision.may_follow_a_read_of(Duration::ZERO, &Limits::default())
}

#[test]
fn what_changes_a_host_or_gives_something_up_follows_a_read_of_its_own_turn() {
    let server = || SERVER.parse::<applecart_api::ids::ServerId>().unwrap();
    let (was, to) = ("pool-1".to_owned(), NAME.to_owned());
    let uid = || "1".to_owned();
    let guest = |force| Action::DeleteGuest {
        namespace: "runners".into(),
        name: "idle".into(),
        uid: uid(),
        version: "3".into(),
        force,
    };
    for action in [
        Action::Rename { server: server(), was, to },
        Action::RequestWipe { server: server(), image: None },
        Action::Reboot(server()),
        Action::DeleteServer(server()),
        Action::ScheduleDeletion(server()),
        Action::Create { name: NAME.into(), server_type: "M2-L".into(), image: None },
        Action::NoteOrder,
        Action::TakeLease { server: server(), version: None, used: true },
        Action::ClearLease(server()),
        Action::ReturnLease(server()),
        Action::LeaveLease(server()),
        Action::NoteReleasing { server: server(), owners_failed: 0 },
        Action::NoteWiped(server()),
        Action::NoteDelete(server()),
        Action::NoteQuarantined(server()),
        Action::NoteMoving { server: server(), moving: true },
        Action::SetProviderId(None),
        Action::RemoveFinalizer,
        Action::AddFinalizer { block_move: true },
        Action::DeleteCredentials(exactly()),
        Action::DeleteIdentity { part: Identity::Token, exactly: exactly() },
        Action::StartUpkeep(server()),
        Action::Cordon { uid: uid() },
        guest(false),
        guest(true),
        Action::FreeGuest { namespace: "runners".into(), name: "idle".into(), uid: uid() },
        Action::DeleteNode { uid: uid() },
    ] {
        assert!(!may(action.clone()), "{action:?}");
    }
}

#[test]
fn what_is_noted_told_or_prepared_follows_a_read_of_the_last_minute() {
    let seen = prepared();
    let Bound::To { server, .. } = &seen.bound else { panic!("no host in {seen:?}") };
    let status = || Box::new(seen.object.status.clone());
    let id =
        applecart_api::ids::ProviderId { zone: seen.object.zone.clone(), server: server.clone() };
    for action in [
        Action::WriteStatus(status()),
        Action::RecordBootstrap(status()),
        Action::SetProviderId(Some(id)),
        Action::BlockMove(true),
        Action::NoteMarked(server.clone()),
        Action::NoteHealthy(server.clone()),
        Action::StoreCredentials(server.clone()),
        Action::CreateIdentity(Identity::Binding),
        Action::StartBootstrap(server.clone()),
        Action::StopBootstrap,
    ] {
        assert!(may(action.clone()), "{action:?}");
    }
}

#[test]
fn who_waits_for_a_host_reads_it_at_every_look_and_who_waits_for_kubernetes_does_not() {
    let limits = Limits::default();
    let wait = |reason| Decision { action: None, wake: Some(limits.look), reason };
    let state = || "reinstalling".to_owned();
    for reason in [
        Reason::HostChanging(state()),
        Reason::HostStuck(state()),
        Reason::Rebooted,
        Reason::Ordering,
        Reason::NoAddress,
        Reason::MissingSudoPassword,
        Reason::NotOurs("mine".into()),
        Reason::HostRetiring,
        Reason::HostGone,
        Reason::CannotRead("its host".into()),
    ] {
        let decision = wait(reason);
        assert!(
            decision.may_follow_a_read_of(limits.look.saturating_sub(SECOND), &limits),
            "{decision:?}"
        );
        assert!(!decision.may_follow_a_read_of(limits.look, &limits), "{decision:?}");
    }
    for reason in [Reason::Settling, Reason::WaitingForToken, Reason::NodeMissing, Reason::Ready] {
        let decision = wait(reason);
        assert!(
            decision.may_follow_a_read_of(limits.remember.saturating_sub(SECOND), &limits),
            "{decision:?}"
        );
    }
}
