//! What is kept around a fleet: a Deployment that spreads over its Macs, and a Service for each.

use applecart_core::egress::Tailnet;
use applecart_core::spread::FLEET_HASH;
use applecart_operator::provider::{Egress, Settings, Spread};
use applecart_sim::faults::{Faults, Plan, Step};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::ListParams;

use super::*;

const EGRESS: &str = "tailscale-operator";

/// A world whose provider keeps both.
fn world_around(hosts: usize, machines: u32, faults: Option<Arc<Faults>>) -> World {
    let tailnet = Tailnet { proxy_group: "macmini-egress".into(), suffix: "tail1.ts.net".into() };
    let spread = Spread { namespace: NAMESPACE.into(), deployment: "processor".into() };
    let egress = Egress { namespace: EGRESS.into(), tailnet };
    let settings = WorldSettings { deployments: true, faults, ..settings(hosts, machines) };
    World::new(settings).with_provider(move |usual| Settings {
        spread: Some(spread.clone()),
        egress: Some(egress.clone()),
        ..usual
    })
}

fn services(world: &World) -> Api<Service> {
    Api::namespaced(world.client(), EGRESS)
}

async fn names(world: &World) -> BTreeSet<String> {
    let listed = services(world).list(&ListParams::default()).await.unwrap();
    listed.items.iter().map(ResourceExt::name_any).collect()
}

fn machine_names(world: &World) -> BTreeSet<String> {
    machines(world).iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn each_mac_has_its_service_as_long_as_its_machine_and_others_services_stay() {
    // P13, C5
    let faults = Faults::new(Plan::Chosen(Box::new(|_| None)));
    let world = world_around(3, 2, Some(faults.clone()));
    play(&world, async {
        let namespaces: Api<Namespace> = Api::all(world.client());
        let metadata = ObjectMeta { name: Some(EGRESS.into()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let theirs = json!({"metadata": {"name": "theirs"}, "spec": {"type": "ExternalName",
            "externalName": "x.example", "ports": [{"port": 1}]}});
        let theirs = serde_json::from_value(theirs).unwrap();
        services(&world).create(&PostParams::default(), &theirs).await.unwrap();
        reach("both Machines Ready", async || ready(&world) == 2).await;
        let both = async || names(&world).await.len() == 3;
        reach("their Services", both).await;
        let name = machines(&world)[0].name_any();
        let led = json!({"spec": {"externalName": "proxy.example"}});
        let how = PatchParams::default();
        services(&world).patch(&name, &how, &Patch::Merge(&led)).await.unwrap();
        let before = services(&world).get(&name).await.unwrap();
        sleep(Duration::from_mins(10)).await;
        assert_eq!(services(&world).get(&name).await.unwrap(), before, "nothing was written");
        let unsaid = json!({"metadata": {"annotations": {"tailscale.com/proxy-group": "other"}}});
        services(&world).patch(&name, &how, &Patch::Merge(&unsaid)).await.unwrap();
        reach("the mended Service", async || {
            let annotations = services(&world).get(&name).await.unwrap().metadata.annotations;
            annotations.unwrap()["tailscale.com/proxy-group"] == "macmini-egress"
        })
        .await;
        let spec = services(&world).get(&name).await.unwrap().spec.unwrap();
        assert_eq!(spec.external_name.as_deref(), Some("proxy.example"));
        scale(&world, 1).await;
        reach("one Machine", async || machines(&world).len() == 1).await;
        let mut left = machine_names(&world);
        left.insert("theirs".into());
        reach("one Service less", async || names(&world).await == left).await;
        let went = |step: &&Step| step.call.starts_with("delete services ");
        let said = faults.look(|steps| steps.iter().filter(went).all(Step::is_conditional));
        assert!(said, "it may have been another by then");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_rolled_once_for_each_set_of_ready_macs() {
    // P3
    let world = world_around(3, 1, None);
    play(&world, async {
        let deployments: Api<Deployment> = Api::namespaced(world.client(), NAMESPACE);
        let deployment = json!({"metadata": {"name": "processor"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "p"}},
            "template": {"metadata": {"labels": {"app": "p"}}, "spec": {"containers": [
                {"name": "c", "image": "registry.example/p"}]}}}});
        let deployment = serde_json::from_value(deployment).unwrap();
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
        let hash = async || {
            let template = deployments.get("processor").await.unwrap().spec.unwrap().template;
            template.metadata.and_then(|meta| meta.annotations?.remove(FLEET_HASH))
        };
        reach("a Machine Ready", async || ready(&world) == 1).await;
        sleep(Duration::from_mins(2)).await;
        let one = hash().await.expect("a set of one");
        scale(&world, 2).await;
        reach("another set", async || hash().await.is_some_and(|now| now != one)).await;
        // Its Node is Ready a few seconds before the Machine says so.
        reach("both Ready", async || ready(&world) == 2).await;
        let rolled = deployments.get("processor").await.unwrap().metadata.generation;
        sleep(Duration::from_mins(10)).await;
        let after = deployments.get("processor").await.unwrap().metadata.generation;
        assert_eq!(rolled, after, "the same Macs roll nothing");
        scale(&world, 1).await;
        reach("the first set, or that of the other Mac", async || ready(&world) == 1).await;
        sleep(Duration::from_mins(2)).await;
        assert_ne!(deployments.get("processor").await.unwrap().metadata.generation, after);
    })
    .await;
}
