//! Hosts of an older version over real SSH, while VMs run on them.

use applecart_mac::{
    Command, Done, File, FleetWide, HostConfig, Mac, Owner, Privilege, Report, Script, Step,
    bootstrap, paths, pf, scripts,
};
use futures::future::join_all;
use secrecy::ExposeSecret;

use crate::legacy::{LEGACY, is_converged};
use crate::support::{Macs, until};
use crate::{AGENT, as_root, text};

/// What costs a host its session, and VMs with it, before any run.
const ENDS_VMS: [&str; 2] = ["a sealed password", "a dead login window"];

/// Starts a VM that no connection of ours holds.
const START_VM: Script = Script {
    name: "start a VM",
    text: "setsid /usr/local/bin/tart run one --no-graphics </dev/null >/dev/null 2>&1 &",
};

async fn tart(mac: &dyn Mac, arguments: &[&str]) -> applecart_mac::Output {
    mac.run(&Command::user(&[&["/usr/local/bin/tart"], arguments].concat())).await.expect("an end")
}

async fn root(mac: &dyn Mac, argv: &[&str]) -> String {
    text(&mac.run(&Command::root(argv)).await.expect("an end").stdout)
}

/// Whether the live rules are ours, in our anchor or in what stands in for it, and evaluated.
async fn holds_back(mac: &dyn Mac) -> bool {
    let show = Command::script(scripts::SHOW_RULES, &[], Privilege::Root);
    let live = pf::Live::read(&text(&mac.run(&show).await.expect("an end").stdout));
    let has = |anchor: &str| pf::are_live(&live.rules_of(anchor));
    let own = live.is_attached() && has(pf::ANCHOR);
    let enabled = root(mac, &["pfctl", "-s", "info"]).await.starts_with("Status: Enabled");
    enabled
        && live.decides_before().is_none()
        && (own || (live.evaluates_stand_in() && has(pf::STAND_IN)))
}

/// Takes our firewall away, as if nobody had ever been there.
async fn take_firewall_away(mac: &dyn Mac) {
    let stock = File {
        path: paths::PF_CONF.to_owned(),
        content: pf::STOCK.into(),
        owner: Owner::root(),
        mode: 0o644,
    };
    mac.write(&stock).await.expect("written");
    root(mac, &["pfctl", "-f", paths::PF_CONF]).await;
    root(mac, &["pfctl", "-a", pf::ANCHOR, "-F", "all"]).await;
}

fn done(report: &Report, step: Step) -> &Done {
    &report.steps.iter().find(|report| report.step == step).expect("it was taken").done
}

/// The same host with another Tart.
fn with_other_tart(macs: &Macs, plain: &HostConfig) -> HostConfig {
    let tart = macs.tart(&format!("{}-other", plain.host().node_name), "2.33.0");
    HostConfig::new(FleetWide { tart, ..plain.fleet().clone() }, plain.host().clone())
        .expect("valid")
}

#[tokio::test]
async fn hosts_of_an_older_version_are_closed_under_their_vms_which_survive() {
    // B2, B19, LH5, S22, S24
    let cases: Vec<_> = LEGACY.iter().filter(|(name, _)| !ENDS_VMS.contains(name)).collect();
    let macs = Macs::start(34, u8::try_from(cases.len()).expect("a few"), AGENT).await;
    join_all(cases.into_iter().enumerate().map(async |(index, (name, script))| {
        let host = macs.host_at(index).await;
        let session = macs.dial_to(&macs.target_of(&host)).await;
        let mac = &*session.mac;
        let first = macs.desired_of(&host, &format!("vms-{index}"));
        bootstrap(mac, &first, &|_| {}).await.expect(name);
        take_firewall_away(mac).await;
        let password = host.password.as_ref().expect("a password").expose_secret();
        let left = as_root(mac, password, script).await;
        assert!(left.success(), "{name}: {}", text(&left.stderr));
        assert_eq!(tart(mac, &["clone", "ghcr.example/image", "one"]).await.status, 0);
        mac.run(&Command::script(START_VM, &[], Privilege::User)).await.expect("an end");
        until("a VM", async || tart(mac, &["ip", "one"]).await.status == 0).await;

        let wanted = with_other_tart(&macs, &first);
        for _ in 0..2 {
            let report = bootstrap(mac, &wanted, &|_| {}).await.expect(name);
            let swap = done(&report, Step::Tart);
            assert!(matches!(swap, Done::Postponed(_)), "{name}: {report:?}");
            assert!(!report.converged() && holds_back(mac).await, "{name}: {report:?}");
            assert_eq!(text(&tart(mac, &["--version"]).await.stdout).trim(), "2.32.1", "{name}");
            let listed = text(&tart(mac, &["list", "--format", "json"]).await.stdout);
            assert!(listed.contains("running"), "{name}: {listed}");
            let nat = root(mac, &["pfctl", "-s", "nat"]).await;
            assert!(nat.contains("com.apple.internet-sharing"), "{name}: {nat}");
        }
        macs.lever("POST", &format!("/macs/{}/vms/one/finish", host.id), "{}");
        until("its end", async || tart(mac, &["ip", "one"]).await.status != 0).await;
        let report = bootstrap(mac, &wanted, &|_| {}).await.expect(name);
        assert!(report.converged(), "{name}: {report:?}");
        assert_eq!(text(&tart(mac, &["--version"]).await.stdout).trim(), "2.33.0", "{name}");
        is_converged(mac, &wanted, name).await;
    }))
    .await;
}
