//! Machines whose object asks for a GitHub Actions runner on the host itself.

use std::process::Command;

use applecart_api::keys::owned;
use applecart_mac::paths;
use applecart_operator::provider::{App, Github};
use applecart_sim::github::SimGithub;
use ring::signature::{KeyPair, RsaKeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::time::advance;

use super::*;

const JOB_PREFIX: &str = "actions.runner.tuist.";

/// A new RSA key: in PEM of this form, and its public half as PKCS#1 in DER.
fn rsa_key(form: &str) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", form, "-f"])
        .arg(&file)
        .status();
    assert!(made.unwrap().success());
    let pem = std::fs::read_to_string(&file).unwrap();
    let pair = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap() {
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
        other => panic!("{other:?}"),
    };
    (pem, pair.unwrap().public_key().as_ref().to_vec())
}

fn clock() -> Clock {
    let (start, epoch) = (Instant::now(), Timestamp::from_second(1_800_000_000).unwrap());
    Clock::new(move || epoch + start.elapsed())
}

fn app(pem: &str) -> App {
    App { id: "12".into(), installation: "34".into(), key: pem.to_owned().into() }
}

#[tokio::test(start_paused = true)]
async fn one_token_registers_a_fleet_until_it_is_nearly_spent() {
    for form in ["PEM", "PKCS8"] {
        let (pem, public) = rsa_key(form);
        let sim = SimGithub::new(clock());
        sim.install("12", &public, "34", "tuist");
        let github = Github::new(sim.service(), "https://api.github.com/", clock());
        let first = github.registration_token(&app(&pem), "tuist").await.unwrap();
        assert!(sim.takes(first.expose_secret()));
        advance(Duration::from_mins(30)).await;
        let again = github.registration_token(&app(&pem), "tuist").await.unwrap();
        assert_eq!((again.expose_secret(), sim.calls()), (first.expose_secret(), 2));
        advance(Duration::from_mins(15)).await;
        let next = github.registration_token(&app(&pem), "tuist").await.unwrap();
        assert_ne!((next.expose_secret(), sim.calls()), (first.expose_secret(), 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_what_github_said_and_what_to_check_and_no_secret() {
    let (pem, public) = rsa_key("PEM");
    let sim = SimGithub::new(clock());
    sim.install("12", &public, "34", "tuist");
    let github = Github::new(sim.service(), "https://api.github.com", clock());
    let (stranger, _) = rsa_key("PEM");
    for (app, org, words) in [
        (app(&stranger), "tuist", ["401", "private-key"]),
        (app("no key"), "tuist", ["no RSA key in PEM", "download"]),
        (app(&pem), "another-org", ["404", "ghOrg"]),
        (App { id: "99".into(), ..app(&pem) }, "tuist", ["Integration not found", "app-id"]),
        (App { installation: "9/../9".into(), ..app(&pem) }, "tuist", ["installation-id", "copy"]),
    ] {
        let error = github.registration_token(&app, org).await.unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{error}");
        }
        assert!(!error.contains("ghs_") && !error.contains("PRIVATE KEY"), "{error}");
    }
}

#[test]
fn runners_register_where_people_find_their_github() {
    let (sim, clock) = (SimGithub::new(clock()), clock());
    for (api, server) in [
        ("https://api.github.com/", "https://github.com"),
        ("https://github.example.com/api/v3", "https://github.example.com"),
    ] {
        assert_eq!(Github::new(sim.service(), api, clock.clone()).server(), server);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_asks_for_a_runner_says_what_it_lacks_and_gets_it_when_it_can() {
    let world = world(1, 1);
    let (pem, public) = rsa_key("PEM");
    world.github().install("12", &public, "34", "tuist");
    play(&world, async {
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let machine = machines(&world).remove(0);
        let (name, mac) = (machine.name_any(), mac_of(&world, &machine));
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(world.client(), NAMESPACE);
        let ask = async |runner: serde_json::Value| {
            let change = json!({"spec": {"ghActionsRunner": runner}});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        };
        let says = async |words: &str| {
            reach(words, async || format!("{:?}", machines(&world)[0].status).contains(words))
                .await;
            assert_eq!(ready(&world), 1, "the Mac itself is well");
        };
        ask(json!({"ghAppSecretName": "app"})).await;
        says("ghRunnerVersion is missing: name a release").await;
        ask(json!({"ghRunnerVersion": "2.334.0"})).await;
        says("could not read the GitHub app's Secret").await;
        let data = [("app-id", "12"), ("installation-id", "34\n"), ("private-key", pem.as_str())];
        let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.into())));
        let metadata = ObjectMeta { name: Some("app".into()), ..ObjectMeta::default() };
        let secret = Secret { metadata, data: Some(data.into()), ..Secret::default() };
        secrets(&world).create(&PostParams::default(), &secret).await.unwrap();
        reach("the runner", async || mac.job_runs(&format!("{JOB_PREFIX}{name}"))).await;
        let registered = mac.file(paths::RUNNER_REGISTERED).unwrap().0;
        let wanted = format!("https://github.com/tuist {name} self-hosted,macos,bare-metal");
        assert!(String::from_utf8_lossy(&registered).starts_with(&wanted), "{registered:?}");
        assert_eq!(machines(&world)[0].status.clone().unwrap().bootstrap_attempts, None);
        let credentials = owned::credentials(&name);
        assert!(secrets(&world).get(&credentials).await.is_ok());
        // C5: the runner goes with its host, and nobody else's does.
        world.github().register("tuist", &name);
        world.github().register("tuist", "another");
        remove(&world).await;
        assert_eq!(world.github().runners(), ["another"]);
    })
    .await;
}

/// The only Machine goes, and its host back to the pool.
async fn remove(world: &World) {
    remove_within(world, PATIENCE).await;
}

async fn remove_within(world: &World, limit: Duration) {
    let deployments: Api<DynamicObject> = {
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
        Api::namespaced_with(world.client(), NAMESPACE, &ApiResource::from_gvk(&kind))
    };
    let none = json!({"spec": {"replicas": 0}});
    deployments.patch(FLEET, &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    reach_within(limit, "no Machine", async || machines(world).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_github_that_refuses_holds_a_deletion_up_for_no_longer_than_a_job_may() {
    // LH24, C5: nobody can tell whether there is one.
    let world = world(1, 1);
    play(&world, async {
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let name = machines(&world).remove(0).name_any();
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(world.client(), NAMESPACE);
        let asks = json!({"ghAppSecretName": "app", "ghRunnerVersion": "2.334.0"});
        let change = json!({"spec": {"ghActionsRunner": asks}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        world.github().register("tuist", &name);
        let began = Instant::now();
        remove_within(&world, Duration::from_hours(3)).await;
        let took = began.elapsed();
        assert!(took >= Duration::from_hours(2), "wiped after {took:?}, maybe under a job");
        assert_eq!(world.github().runners(), [name]);
    })
    .await;
}
