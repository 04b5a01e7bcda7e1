//! All steps over real SSH: from what older versions left on hosts, and cut off after any effect.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use applecart_mac::{
    Answer, Command, Done, File, HostConfig, Mac, MacError, Output, Program, Report, Step,
    bootstrap, pf, scripts,
};
use applecart_scaleway::Server;
use bytes::Bytes;
use futures::future::join_all;
use secrecy::ExposeSecret;

use crate::support::{Macs, until};
use crate::{AGENT, as_root, text};

/// What older versions and accidents left, as a script that leaves it.
pub const LEGACY: [(&str, &str); 7] = [
    // B19, and the first follow-up of seed 001's review.
    (
        "an unmarked stanza",
        r#"printf 'anchor "tuist.runners"\nload anchor "tuist.runners" from "%s"\n' \
             /etc/pf.anchors/tuist.runners >>/etc/pf.conf
           printf 'table <vm_sources> { 192.168.64.0/22 }\n' >/etc/pf.anchors/tuist.runners
           pfctl -f /etc/pf.conf"#,
    ),
    // Seed 001, 1.
    (
        "the block twice",
        r#"block='# BEGIN tuist.runners
anchor "tuist.runners"
load anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"
# END tuist.runners'
           printf 'table <vm_sources> { 192.168.64.0/22 }\n' >/etc/pf.anchors/tuist.runners
           printf '%s\n%s\n' "$block" "$block" >>/etc/pf.conf
           if pfctl -f /etc/pf.conf 2>/dev/null; then exit 1; fi"#,
    ),
    ("half a block", r#"printf '# BEGIN tuist.runners\nanchor "tuist.run' >>/etc/pf.conf"#),
    // Seed 000, 1.
    (
        "tables that outlive their rules, in both scopes",
        r#"cp /etc/pf.conf /etc/pf.old
           printf 'table <vm_sources> persist { 192.168.64.0/22 }\n' >/etc/pf.anchors/tuist.runners
           printf '%s\n' 'table <vm_sources> persist { 192.168.64.0/22 }' \
             'table <blocked_dst> persist { 10.0.0.0/8 }' 'anchor "tuist.runners"' \
             'load anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"' >>/etc/pf.conf
           pfctl -f /etc/pf.conf && pfctl -s Tables | grep -q vm_sources"#,
    ),
    // Seed 001, 2: what macOS makes of a password that is not the account's.
    (
        "a sealed password",
        r"defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser -string m1
           printf 'wrong' >/etc/kcpassword; chmod 0600 /etc/kcpassword
           launchctl kickstart -k system/com.apple.loginwindow",
    ),
    // Seed 001, 3; pulled by a lever.
    ("a dead login window", "true"),
    // LH5: the password itself became a rule.
    (
        "old and broken sudo rules",
        r"printf 'm1 ALL=(ALL) NOPASSWD: ALL\nthe password itself\n' >/etc/sudoers.d/m1-nopasswd
           chmod 0644 /etc/sudoers.d/m1-nopasswd",
    ),
];

#[tokio::test]
async fn every_host_that_an_older_version_left_behind_converges() {
    let macs = Macs::start(31, 7, AGENT).await;
    join_all(LEGACY.iter().enumerate().map(async |(index, (name, script))| {
        let host = macs.host_at(index).await;
        let session = macs.dial_to(&macs.target_of(&host)).await;
        let password = host.password.as_ref().expect("a password").expose_secret();
        let left = as_root(&*session.mac, password, script).await;
        assert!(left.success(), "{name}: {}", text(&left.stderr));
        if *name == "a dead login window" {
            let path = format!("/macs/{}", host.id);
            macs.lever("PATCH", &path, r#"{"loginwindow_dead": true}"#);
        }
        let desired = macs.desired_of(&host, &format!("legacy-{index}"));
        let report = bootstrap(&*session.mac, &desired, &|_| {}).await;
        assert!(report.expect(name).changed(), "{name}");
        is_converged(&*session.mac, &desired, name).await;
    }))
    .await;
}

/// A second run finds nothing to do.
pub async fn is_converged(mac: &dyn Mac, desired: &HostConfig, name: &str) {
    let report = bootstrap(mac, desired, &|_| {}).await.expect(name);
    assert!(report.steps.iter().all(|step| step.done == Done::Unchanged), "{name}: {report:?}");
    is_guarded(mac, name).await;
}

/// The firewall is live, and there once.
async fn is_guarded(mac: &dyn Mac, name: &str) {
    let look =
        async |argv: &[&str]| text(&mac.run(&Command::root(argv)).await.expect("an end").stdout);
    assert_eq!(look(&["cat", "/etc/pf.conf"]).await, pf::with_block(pf::STOCK), "{name}");
    assert_eq!(look(&["pfctl", "-s", "Tables"]).await, "", "{name}");
    let rules = look(&["pfctl", "-a", pf::ANCHOR, "-s", "rules"]).await;
    assert!(pf::are_live(&rules), "{name}: {rules}");
    assert!(look(&["pfctl", "-s", "info"]).await.starts_with("Status: Enabled"), "{name}");
}

/// A Mac whose caller dies after the n-th effect: it happened, and nobody knows.
struct CutAfter<'a> {
    mac: &'a dyn Mac,
    effects: AtomicUsize,
    at: usize,
    what: Mutex<String>,
}

impl CutAfter<'_> {
    async fn effect<T>(&self, what: String, done: Answer<'_, T>) -> Result<T, MacError> {
        let number = self.effects.fetch_add(1, Ordering::SeqCst);
        if number <= self.at {
            let result = done.await;
            if number < self.at {
                return result;
            }
            what.clone_into(&mut self.what.lock().expect("no panic"));
        }
        // Whoever is gone does nothing more.
        Err(MacError::Unknown { doing: what })
    }
}

impl Mac for CutAfter<'_> {
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>> {
        self.mac.read(path)
    }

    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()> {
        Box::pin(self.effect(format!("writing {}", file.path), self.mac.write(file)))
    }

    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output> {
        if only_looks(command) {
            return self.mac.run(command);
        }
        Box::pin(self.effect(command.describe(), self.mac.run(command)))
    }
}

fn only_looks(command: &Command) -> bool {
    let argv = match &command.program {
        Program::Script(script, _) => return scripts::LOOKS.contains(script),
        Program::Argv(argv) => argv.join(" "),
    };
    let looks =
        ["true", "stat ", "id ", "pgrep ", "shasum ", "defaults read", "pmset -g", "sysctl"];
    let looks_too = ["scutil --get", "launchctl print", "codesign --verify", "pfctl -n"];
    looks.iter().chain(&looks_too).any(|start| argv.starts_with(start))
        || argv.ends_with("--version")
        || argv.ends_with(" ip -4")
        || (argv.starts_with("pfctl") && [" -s ", " show"].iter().any(|word| argv.contains(word)))
}

/// One host, cut off after effect number `at`. What the effect was and in which step, if that ended
/// the run, or `None` if there are not so many.
async fn cut_and_converge(
    macs: &Macs,
    host: &Server,
    desired: &HostConfig,
    at: usize,
) -> Option<(String, Option<Step>)> {
    let session = macs.dial_to(&macs.target_of(host)).await;
    let effects = AtomicUsize::new(0);
    let cut = CutAfter { mac: &*session.mac, effects, at, what: Mutex::default() };
    // What is no part of being a node fails alone.
    let step = match bootstrap(&cut, desired, &|_| {}).await {
        Ok(report) if report.converged() => return None,
        Ok(_) => None,
        Err(error) => Some(error.step),
    };
    let what = cut.what.into_inner().expect("no panic");
    drop(session);
    let session = macs.dial_to(&macs.target_of(host)).await;
    let report = bootstrap(&*session.mac, desired, &|_| {}).await;
    assert!(report.as_ref().is_ok_and(Report::converged), "cut off after {what}: {report:?}");
    is_guarded(&*session.mac, &format!("cut off after {what}")).await;
    Some((what, step))
}

/// The same host, as the factory delivers it, with another password.
async fn wiped(macs: &Macs, host: &Server, index: usize) -> Server {
    let session = macs.dial_to(&macs.target_of(host)).await;
    macs.wipe(host).await;
    until("a new password", async || {
        let now = macs.host_at(index).await;
        let text = |host: &Server| {
            host.password.as_ref().map(|password| password.expose_secret().to_owned())
        };
        text(&now).is_some() && text(&now) != text(host)
    })
    .await;
    until("the wipe", async || session.mac.run(&Command::user(&["true"])).await.is_err()).await;
    macs.host_at(index).await
}

#[tokio::test]
async fn cut_off_after_any_effect_the_next_run_converges() {
    const HOSTS: u8 = 8;
    let macs = Macs::start(32, HOSTS, AGENT).await;
    let found = join_all((0..usize::from(HOSTS)).map(async |index| {
        let mut found = Vec::new();
        let mut host = macs.host_at(index).await;
        for at in (index..).step_by(usize::from(HOSTS)) {
            let plain = macs.desired_of(&host, &format!("cut-{at}"));
            let desired = macs.in_tailnet(&plain, &["tag:ci"], "tskey-auth-canary");
            let cut = cut_and_converge(&macs, &host, &desired, at).await;
            let Some((what, _)) = cut else { return found };
            found.push(what);
            // The next one begins at the factory's state again.
            host = wiped(&macs, &host, index).await;
        }
        found
    }))
    .await;
    let all: BTreeSet<String> = found.iter().flatten().cloned().collect();
    let count = found.iter().flatten().count();
    assert!(count >= 50, "{count} effects: {all:?}");
    let beside = ["unpack Tailscale", "join the tailnet", "tailscale.sha256", "node-exporter"];
    let parts = ["sudo rule", "kcpassword", "Tart", "pf.conf", "kubeconfig", "launchctl bootstrap"];
    for part in parts.into_iter().chain(beside) {
        assert!(all.iter().any(|what| what.contains(part)), "{part} is not in {all:?}");
    }
}

/// Leaves on a factory host, one after the other, what can be there at once.
async fn leave_everything(macs: &Macs, host: &Server) {
    let session = macs.dial_to(&macs.target_of(host)).await;
    let password = host.password.as_ref().expect("a password").expose_secret();
    let pf = ["tables that outlive their rules, in both scopes", "the block twice", "half a block"];
    for name in pf.into_iter().chain(["a sealed password", "old and broken sudo rules"]) {
        let (_, script) = LEGACY.iter().find(|(known, _)| *known == name).expect("it is known");
        let left = as_root(&*session.mac, password, script).await;
        assert!(left.success(), "{name}: {}", text(&left.stderr));
    }
    macs.lever("PATCH", &format!("/macs/{}", host.id), r#"{"loginwindow_dead": true}"#);
}

#[tokio::test]
async fn cut_off_on_a_host_of_an_older_version_the_next_run_converges() {
    // B2, B4, B19, LH5
    const HOSTS: u8 = 8;
    let macs = Macs::start(33, HOSTS, AGENT).await;
    let found = join_all((0..usize::from(HOSTS)).map(async |index| {
        let mut found: Vec<String> = Vec::new();
        let mut host = macs.host_at(index).await;
        for at in (index..).step_by(usize::from(HOSTS)) {
            leave_everything(&macs, &host).await;
            let desired = macs.desired_of(&host, &format!("older-{at}"));
            let cut = cut_and_converge(&macs, &host, &desired, at).await;
            let (what, step) = cut.expect("an effect");
            found.push(what);
            // What comes then meets nothing that older versions left.
            let after = [Step::Kubeconfig, Step::AgentBinary, Step::AgentJob];
            if step.is_some_and(|step| after.contains(&step)) {
                return found;
            }
            host = wiped(&macs, &host, index).await;
        }
        found
    }))
    .await;
    let all: BTreeSet<String> = found.into_iter().flatten().collect();
    let parts = ["sudo rule", "kcpassword", "pf.conf", "load the firewall", "pfctl -E"];
    for part in parts {
        assert!(all.iter().any(|what| what.contains(part)), "{part} is not in {all:?}");
    }
}
