//! Where nobody knows how the real service behaves, both behaviours are simulated, and what the
//! client guarantees holds under both.

#[path = "support/scaleway_key.rs"]
mod scaleway_key;
#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use std::time::Duration;

use applecart_api::credential::SEALED;
use applecart_api::ids::ServerId;
use applecart_scaleway::{Error, ErrorKind, Order, ServerStatus};
use applecart_sim::scaleway::{
    Accepts, Answer, ExistsStatus, Gone, HostSpec, Message, NewPassword, Operation, PageSize,
    Question, RateLimitReset, Rule, Scaleway, Settings, Shown, Unsure, Verdict,
};
use bytes::Bytes;
use http::{Method, Request};
use scaleway_key::KEY;
use scaleway_world::{world, zone};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::time::sleep;
use tower::ServiceExt;

const WIPE: Duration = Duration::from_mins(20);

fn unsure(change: impl FnOnce(&mut Unsure)) -> Scaleway {
    let mut settings = Settings::new(1);
    change(&mut settings.unsure);
    world(settings)
}

/// The answer as it is on the wire.
async fn wire(scaleway: &Scaleway, method: Method, path: &str, body: &str) -> Value {
    let request = Request::builder()
        .method(method)
        .uri(format!("/apple-silicon/v1alpha1/zones/fr-par-1/{path}"))
        .header("x-auth-token", Settings::new(1).secret_key.expose_secret())
        .body(Bytes::from(body.to_owned()))
        .unwrap();
    let answer = scaleway.service().oneshot(request).await.unwrap();
    serde_json::from_slice(answer.body()).unwrap()
}

async fn password(scaleway: &Scaleway, id: &ServerId) -> String {
    let server = scaleway.client().server(&zone(), id).await.unwrap();
    server.password.unwrap().expose_secret().to_owned()
}

fn refused<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

/// The likelier world; every question answered in each other way, one at a time; and all of them
/// answered in the last way.
fn worlds() -> Vec<Unsure> {
    let answers = |(question, answers, _): &Question| {
        // Without a password in a read there is nothing to log in with: that has its own test.
        let told = |answer: &&str| *question != "get_credentials" || answer.contains("vnc");
        let others = answers[1..].iter().copied().filter(told);
        others.map(|answer| (*question, answer)).collect::<Vec<_>>()
    };
    let others: Vec<_> = Unsure::QUESTIONS.iter().flat_map(answers).collect();
    let one = |(question, answer): &(&str, &str)| Unsure::default().answer(question, answer);
    let all = others.iter().fold(Unsure::default(), |unsure, (question, answer)| {
        unsure.answer(question, answer).unwrap()
    });
    let ones = others.iter().map(one).map(Result::unwrap);
    [Unsure::default()].into_iter().chain(ones).chain([all]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hosts_life_is_the_same_to_the_client_in_every_world() {
    assert!(worlds().len() > Unsure::QUESTIONS.len());
    for unsure in worlds() {
        let scaleway = world(Settings { unsure, ..Settings::new(1) });
        let client = scaleway.client();
        let order = Order { name: "box".into(), server_type: "M4-M".into(), os: None };
        let id = client.create(&zone(), &order).await.unwrap().id;
        sleep(Duration::from_secs(130)).await;
        let listed = client.list_servers(&zone()).await.unwrap();
        assert!(listed.iter().all(|server| server.password.is_none()), "{unsure:?}");
        assert!(client.server(&zone(), &id).await.unwrap().password.is_some(), "{unsure:?}");
        let renamed = client.rename(&zone(), &id, "tuist-pool-1").await.unwrap();
        assert!(renamed.password.is_none(), "{unsure:?}");
        let wiped = client.reinstall(&zone(), &id, None).await.unwrap();
        assert_eq!(wiped.status, ServerStatus::Reinstalling);
        assert!(wiped.password.is_none(), "{unsure:?}");
        sleep(WIPE).await;
        let ready = client.server(&zone(), &id).await.unwrap();
        assert_eq!((ready.status, ready.delivered), (ServerStatus::Ready, true));
        let mac = scaleway.mac_secrets(&id).unwrap();
        assert_eq!(password(&scaleway, &id).await, mac.password.expose_secret(), "{unsure:?}");
        sleep(Duration::from_hours(24)).await;
        client.delete(&zone(), &id).await.unwrap();
        assert!(client.list_servers(&zone()).await.unwrap().is_empty());
        let gone = refused(client.server(&zone(), &id).await).unwrap();
        assert!(matches!(gone, ErrorKind::Permission | ErrorKind::NotFound), "{unsure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_keys_and_refusals_mean_the_same_to_the_client_in_every_world() {
    for unsure in worlds() {
        let scaleway = world(Settings { unsure, ..Settings::new(1) });
        let client = scaleway.client();
        let ids: Vec<ServerId> = (0..120)
            .map(|number| scaleway.order_host(&HostSpec::named(format!("box-{number}"))))
            .collect();
        let listed = client.list_servers(&zone()).await.unwrap();
        assert!(listed.iter().map(|server| &server.id).eq(&ids), "{unsure:?}");
        let key = client.create_ssh_key("fleet", KEY).await.unwrap();
        let twice = refused(client.create_ssh_key("fleet", KEY).await);
        assert!(matches!(twice, None | Some(ErrorKind::AlreadyExists)), "{unsure:?} {twice:?}");
        client.delete_ssh_key(&key.id).await.unwrap();
        for (error, expected) in [
            ("quotas_exceeded", ErrorKind::Quota),
            ("denied_authentication", ErrorKind::Authentication),
            ("already_exists", ErrorKind::AlreadyExists),
            ("locked", ErrorKind::Locked),
            ("out_of_stock", ErrorKind::OutOfStock),
            ("expired", ErrorKind::Expired),
        ] {
            fail_next(&scaleway, Operation::UpdateServer, error);
            let seen = refused(client.rename(&zone(), &ids[0], "new").await);
            assert_eq!(seen, Some(expected), "{unsure:?}");
        }
        fail_next(&scaleway, Operation::UpdateServer, "too_many_requests");
        let limited = refused(client.rename(&zone(), &ids[0], "new").await);
        assert!(matches!(limited, Some(ErrorKind::RateLimited { .. })), "{unsure:?} {limited:?}");
        // A read waits for as long as it is told to, and then goes through.
        fail_next(&scaleway, Operation::GetServer, "too_many_requests");
        assert!(client.server(&zone(), &ids[0]).await.is_ok(), "{unsure:?}");
    }
}

fn fail_next(scaleway: &Scaleway, operation: Operation, error: &str) {
    let answer = Answer::error(error).unwrap();
    scaleway.add_rule(Rule::next(operation, Verdict::FailBefore(answer)));
}

#[tokio::test(start_paused = true)]
async fn a_429_says_when_to_come_back_in_its_body_its_header_or_not_at_all() {
    for (reset, told) in [
        (RateLimitReset::Body, true),
        (RateLimitReset::Header, true),
        (RateLimitReset::Nowhere, false),
        (RateLimitReset::Html, false),
    ] {
        let scaleway = unsure(|it| it.rate_limit_reset = reset);
        let expected = told.then(|| scaleway.clock().now() + Duration::from_secs(2));
        fail_next(&scaleway, Operation::UpdateServer, "too_many_requests");
        let id = scaleway.order_host(&HostSpec::named("box"));
        let limited = refused(scaleway.client().rename(&zone(), &id, "new").await);
        assert_eq!(limited, Some(ErrorKind::RateLimited { reset: expected }), "{reset:?}");
    }
    let scaleway = unsure(|_| ());
    fail_next(&scaleway, Operation::ListServers, "too_many_requests");
    let body = wire(&scaleway, Method::GET, "servers", "").await;
    assert_eq!((&body["reset_seconds"], &body["limit"]["quota"]), (&2.into(), &100.into()));
    assert_eq!(body["reset_at"], "2026-03-05T08:25:49.808092Z");
}

#[tokio::test(start_paused = true)]
async fn what_is_there_already_is_a_409_or_a_400_and_unrecorded_messages_are_words_or_empty() {
    for (status, message, expected) in [
        (ExistsStatus::Conflict, Message::Words, 409),
        (ExistsStatus::BadRequest, Message::Empty, 400),
    ] {
        let scaleway = unsure(|it| {
            it.already_exists_status = status;
            it.unrecorded_message = message;
        });
        let client = scaleway.client();
        client.create_ssh_key("fleet", KEY).await.unwrap();
        let twice = client.create_ssh_key("fleet", KEY).await.unwrap_err();
        assert_eq!(twice.status.unwrap().as_u16(), expected);
        for error in Answer::ERRORS {
            fail_next(&scaleway, Operation::ListServers, error);
            let body = wire(&scaleway, Method::GET, "servers", "").await;
            assert_eq!(body["type"], *error);
            let recorded = matches!(
                *error,
                "invalid_arguments"
                    | "permissions_denied"
                    | "not_found"
                    | "transient_state"
                    | "precondition_failed"
                    | "conflict"
            );
            let is_empty = body["message"] == "";
            assert_eq!(is_empty, message == Message::Empty && !recorded, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_in_lists_and_after_a_reinstall_are_sealed_empty_or_plain() {
    for shown in [Shown::Sealed, Shown::Empty, Shown::Plain, Shown::VncOnly] {
        let scaleway = unsure(|it| {
            it.list_credentials = shown;
            it.reinstall_credentials = shown;
        });
        let id = scaleway.order_host(&HostSpec::named("box"));
        let list = wire(&scaleway, Method::GET, "servers", "").await;
        let path = format!("servers/{id}/reinstall");
        let wiped = wire(&scaleway, Method::POST, &path, "{}").await;
        for server in [&list["servers"][0], &wiped] {
            let sudo = server["sudo_password"].as_str().unwrap();
            let vnc = server["vnc_url"].as_str().unwrap();
            match shown {
                Shown::Sealed => assert_eq!((sudo, vnc), (SEALED, SEALED)),
                Shown::Empty => assert_eq!((sudo, vnc), ("", "")),
                Shown::Plain => assert!(vnc.contains(sudo) && sudo.len() == 12),
                Shown::VncOnly => assert!(sudo.is_empty() && vnc.starts_with("vnc://m1:")),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_tells_the_password_from_either_field_and_never_a_placeholder() {
    // P8, P19
    for (shown, told) in [
        (Shown::Plain, true),
        (Shown::VncOnly, true),
        (Shown::Sealed, false),
        (Shown::Empty, false),
    ] {
        let scaleway = unsure(|it| it.get_credentials = shown);
        let id = scaleway.order_host(&HostSpec::named("box"));
        let server = scaleway.client().server(&zone(), &id).await.unwrap();
        assert_eq!(server.password.is_some(), told, "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wipe_changes_the_password_when_the_host_is_ready_or_at_once_or_never() {
    for (when, changed_at_once, changed_at_last) in [
        (NewPassword::WhenReady, false, true),
        (NewPassword::AtOnce, true, true),
        (NewPassword::Never, false, false),
    ] {
        let scaleway = unsure(|it| it.new_password = when);
        let id = scaleway.order_host(&HostSpec::named("box"));
        let before = password(&scaleway, &id).await;
        scaleway.client().reinstall(&zone(), &id, None).await.unwrap();
        assert_eq!(password(&scaleway, &id).await != before, changed_at_once, "{when:?}");
        sleep(WIPE).await;
        assert_eq!(password(&scaleway, &id).await != before, changed_at_last, "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_os_of_a_server_is_the_present_or_the_first_one() {
    for (follows, family) in [(Accepts::Yes, "Tahoe"), (Accepts::No, "Sequoia")] {
        let scaleway = unsure(|it| it.os_follows_reinstall = follows);
        let client = scaleway.client();
        let id = scaleway.order_host(&HostSpec::named("box"));
        let images = client.list_os(&zone(), None).await.unwrap();
        let tahoe = images.iter().find(|os| os.family == "Tahoe").unwrap();
        client.reinstall(&zone(), &id, Some(&tahoe.id)).await.unwrap();
        assert_eq!(client.server(&zone(), &id).await.unwrap().os.unwrap().family, family);
    }
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_busy_host_is_refused_with_its_state_or_accepted() {
    let busy = Some(ErrorKind::TransientState { state: ServerStatus::Reinstalling });
    for (accepts, expected) in [(Accepts::No, busy), (Accepts::Yes, None)] {
        let scaleway = unsure(|it| {
            it.update_while_transient = accepts;
            it.reboot_while_transient = accepts;
            it.reinstall_while_transient = accepts;
            it.delete_while_transient = accepts;
        });
        let client = scaleway.client();
        let wiped = async || {
            let id = scaleway.order_host(&HostSpec::named("box"));
            client.reinstall(&zone(), &id, None).await.unwrap();
            id
        };
        let id = wiped().await;
        assert_eq!(refused(client.rename(&zone(), &id, "new").await), expected);
        assert_eq!(refused(client.schedule_deletion(&zone(), &wiped().await).await), expected);
        assert_eq!(refused(client.reboot(&zone(), &wiped().await).await), expected);
        assert_eq!(refused(client.reinstall(&zone(), &wiped().await, None).await), expected);
        assert_eq!(refused(client.delete(&zone(), &wiped().await).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_free_or_restricted_and_unique_or_not() {
    for (accepts, odd, twice) in [
        (Accepts::Yes, None, None),
        (Accepts::No, Some(ErrorKind::InvalidArgument), Some(ErrorKind::AlreadyExists)),
    ] {
        let scaleway = unsure(|it| {
            it.free_names = accepts;
            it.duplicate_names = accepts;
        });
        let client = scaleway.client();
        let [id, _other] = ["one", "two"].map(|name| scaleway.order_host(&HostSpec::named(name)));
        let long = "x".repeat(64);
        for name in ["a name", "naïve", long.as_str()] {
            assert_eq!(refused(client.rename(&zone(), &id, name).await), odd, "{name}");
        }
        assert_eq!(refused(client.rename(&zone(), &id, "two").await), twice);
        assert_eq!(refused(client.rename(&zone(), &id, &"x".repeat(63)).await), None);
        let own = scaleway.host(&id).unwrap().name;
        assert_eq!(refused(client.rename(&zone(), &id, &own).await), None, "its own name");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_twice_is_refused_or_accepted() {
    for (accepts, expected) in [(Accepts::No, Some(ErrorKind::AlreadyExists)), (Accepts::Yes, None)]
    {
        let client = unsure(|it| it.duplicate_keys = accepts).client();
        client.create_ssh_key("fleet", &format!("{KEY} one")).await.unwrap();
        assert_eq!(refused(client.create_ssh_key("other", KEY).await), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_cut_or_refused_and_the_default_is_a_setting() {
    for (accepts, size, default) in
        [(Accepts::Yes, PageSize::Twenty, 20), (Accepts::No, PageSize::Fifty, 50)]
    {
        let scaleway = unsure(|it| {
            it.default_page_size = size;
            it.oversized_pages = accepts;
        });
        for number in 0..120 {
            scaleway.order_host(&HostSpec::named(format!("box-{number}")));
        }
        let plain = wire(&scaleway, Method::GET, "servers", "").await;
        assert_eq!(plain["servers"].as_array().unwrap().len(), default);
        let large = wire(&scaleway, Method::GET, "servers?page_size=101", "").await;
        match accepts {
            Accepts::Yes => assert_eq!(large["servers"].as_array().unwrap().len(), 100),
            Accepts::No => assert_eq!(large["type"], "invalid_arguments"),
        }
        assert_eq!(scaleway.client().list_servers(&zone()).await.unwrap().len(), 120);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_server_is_forbidden_or_not_found() {
    for (gone, expected) in
        [(Gone::Permission, ErrorKind::Permission), (Gone::NotFound, ErrorKind::NotFound)]
    {
        let scaleway = unsure(|it| it.gone = gone);
        let id = scaleway.order_host(&HostSpec::named("box"));
        scaleway.delete_host(&id);
        let client = scaleway.client();
        assert_eq!(refused(client.server(&zone(), &id).await), Some(expected.clone()));
        assert_eq!(refused(client.delete(&zone(), &id).await), Some(expected));
    }
}

#[test]
fn every_question_has_its_answers_in_the_help_and_a_wrong_word_is_told_the_right_ones() {
    let default = serde_json::to_value(Unsure::default()).unwrap();
    let fields: Vec<&String> = default.as_object().unwrap().keys().collect();
    let mut named: Vec<&str> = Unsure::QUESTIONS.iter().map(|(name, ..)| *name).collect();
    named.sort_unstable();
    assert_eq!(fields, named, "all questions, and no others");
    for (name, answers, _) in Unsure::QUESTIONS {
        assert_eq!(default[name], answers[0], "{name}: the default comes first");
        for answer in *answers {
            let answered = Unsure::default().answer(name, answer).unwrap();
            assert_eq!(serde_json::to_value(answered).unwrap()[name], *answer);
        }
        let wrong = Unsure::default().answer(name, "fishing").unwrap_err();
        assert!(answers.iter().all(|answer| wrong.contains(answer)), "{name}: {wrong}");
        assert!(Unsure::default().answer("weather", "fine").unwrap_err().contains(name));
    }
}
