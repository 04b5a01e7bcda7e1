//! Nothing that ends the graphical session by itself, or the host: no sleep, no screen saver, no
//! lock, no automatic log-out, no update that restarts it. Without a session no VM starts. And what
//! VMs need of the host: addresses that are given back soon, and a way to them.

use super::{Applied, Cause, Host, State, paths, pending, scripts};
use crate::{Command, Privilege};

/// Energy settings, and what each must be. The first three are minutes until something goes to
/// sleep.
const PMSET: [(&str, &str); 5] = [
    ("sleep", "0"),
    ("displaysleep", "0"),
    ("disksleep", "0"),
    ("powernap", "0"),
    // After a power cut nobody is there to press its button.
    ("autorestart", "1"),
];

/// Settings that a Mac without the means for them does not show.
const NOT_EVERYWHERE: [&str; 2] = ["powernap", "autorestart"];

/// One preference as it shall be.
#[derive(Clone, Copy, Debug)]
struct Preference {
    whose: Whose,
    domain: &'static str,
    key: &'static str,
    /// What `defaults write` is given.
    value: &'static [&'static str],
    /// What `defaults read` prints then, without blanks.
    shown: &'static str,
}

/// Whose a preference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The host's: root writes it.
    Host,
    /// The user's on this host.
    User,
}

const SCREENSAVER: &str = "com.apple.screensaver";
const HOST_SCREENSAVER: &str = "/Library/Preferences/com.apple.screensaver";
const UPDATES: &str = "/Library/Preferences/com.apple.SoftwareUpdate";
const VM_ADDRESSES: &str =
    "/Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist";
const LOCAL_NETWORK: &str = "com.apple.network.local-network";

/// The networks that VMs and the host's neighbours are in.
const LOCAL: &[&str] = &["-array", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];
const LOCAL_SHOWN: &str = r#"("10.0.0.0/8","172.16.0.0/12","192.168.0.0/16")"#;

/// Every preference. Which programs may talk to the local network is asked by macOS at boot: a
/// change counts from the next one on. The agent, a daemon, may anyway.
const PREFERENCES: [Preference; 14] = [
    zero(Whose::Host, HOST_SCREENSAVER, "idleTime"),
    zero(Whose::Host, HOST_SCREENSAVER, "askForPassword"),
    zero(Whose::User, SCREENSAVER, "idleTime"),
    zero(Whose::User, SCREENSAVER, "askForPassword"),
    zero(
        Whose::Host,
        "/Library/Preferences/.GlobalPreferences",
        "com.apple.autologout.AutoLogOutDelay",
    ),
    off(UPDATES, "AutomaticCheckEnabled"),
    off(UPDATES, "AutomaticDownload"),
    off(UPDATES, "AutomaticallyInstallMacOSUpdates"),
    off(UPDATES, "CriticalUpdateInstall"),
    off(UPDATES, "ConfigDataInstall"),
    off("/Library/Preferences/com.apple.commerce", "AutoUpdate"),
    // A day is the default, and 253 VMs in a day leave no address for the next one.
    Preference {
        whose: Whose::Host,
        domain: VM_ADDRESSES,
        key: "bootpd",
        value: &["-dict", "DHCPLeaseTimeSecs", "-int", "600"],
        shown: "{DHCPLeaseTimeSecs=600;}",
    },
    Preference {
        whose: Whose::Host,
        domain: LOCAL_NETWORK,
        key: "AllowedEthernetLocalNetworkAddresses",
        value: LOCAL,
        shown: LOCAL_SHOWN,
    },
    Preference {
        whose: Whose::Host,
        domain: LOCAL_NETWORK,
        key: "AllowedWiFiLocalNetworkAddresses",
        value: LOCAL,
        shown: LOCAL_SHOWN,
    },
];

const fn zero(whose: Whose, domain: &'static str, key: &'static str) -> Preference {
    Preference { whose, domain, key, value: &["-int", "0"], shown: "0" }
}

const fn off(domain: &'static str, key: &'static str) -> Preference {
    Preference { whose: Whose::Host, domain, key, value: &["-bool", "false"], shown: "0" }
}

/// All settings as one text: a new one must reach hosts.
pub(super) fn settings_text() -> String {
    format!("{PMSET:?} {PREFERENCES:?}")
}

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !never_sleeps(host).await? {
        return Ok(State::Differs("the host may go to sleep"));
    }
    if !differing(host).await?.is_empty() {
        return Ok(State::Differs(
            "a setting would end the session, or leave VMs without addresses",
        ));
    }
    if awaits_boot(host).await? {
        return Ok(State::AwaitsBoot("programs may use the local network after the next boot"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    if !never_sleeps(host).await? {
        let settings = PMSET.iter().flat_map(|(key, value)| [*key, *value]);
        let argv: Vec<&str> = ["pmset", "-a"].into_iter().chain(settings).collect();
        host.run(Command::root(&argv)).await?;
    }
    let differing = differing(host).await?;
    if differing.iter().any(|preference| preference.domain == LOCAL_NETWORK) {
        pending::mark(host, paths::BOOT_PENDING, &boot(host).await?).await?;
    }
    for preference in differing {
        let write = [&["write", preference.domain, preference.key], preference.value].concat();
        host.run(match preference.whose {
            Whose::Host => Command::root(&[&["defaults"], &write[..]].concat()),
            Whose::User => Command::user(&[&["defaults", "-currentHost"], &write[..]].concat()),
        })
        .await?;
    }
    Ok(Applied::Done)
}

async fn never_sleeps(host: &Host<'_>) -> Result<bool, Cause> {
    let shown = host.run(Command::root(&["pmset", "-g"])).await?.text();
    Ok(PMSET.iter().all(|(key, value)| match setting(&shown, key) {
        Some(found) => found == *value,
        None => NOT_EVERYWHERE.contains(key),
    }))
}

/// Whether the host has not booted since a setting changed that it reads then.
async fn awaits_boot(host: &Host<'_>) -> Result<bool, Cause> {
    let Some(since) = pending::read(host, paths::BOOT_PENDING).await? else { return Ok(false) };
    Ok(since == boot(host).await?)
}

/// What the present boot is called: another one each time, whatever the clock says.
async fn boot(host: &Host<'_>) -> Result<String, Cause> {
    let ask = Command::user(&["sysctl", "-n", "kern.bootsessionuuid"]);
    let boot = host.run(ask.clone()).await?;
    let name = boot.text().trim().to_owned();
    if name.is_empty() { Err(super::failed(&ask, &boot)) } else { Ok(name) }
}

/// The value in a line such as ` sleep   0 (sleep prevented by sharingd)`.
fn setting<'a>(shown: &'a str, key: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.next()).flatten()
    })
}

/// The preferences that are not as they shall be; read in one go for each owner.
async fn differing(host: &Host<'_>) -> Result<Vec<Preference>, Cause> {
    let mut differing = Vec::new();
    for (whose, flag, privilege) in
        [(Whose::Host, "", Privilege::Root), (Whose::User, "-currentHost", Privilege::User)]
    {
        let wanted = PREFERENCES.iter().filter(|preference| preference.whose == whose);
        let wanted: Vec<Preference> = wanted.copied().collect();
        let names = wanted.iter().flat_map(|preference| [preference.domain, preference.key]);
        let arguments: Vec<&str> = std::iter::once(flag).chain(names).collect();
        let read = Command::script(scripts::READ_PREFERENCES, &arguments, privilege);
        let text = host.run(read).await?.text();
        let mut found = text.lines();
        differing.extend(wanted.into_iter().filter(|wanted| found.next() != Some(wanted.shown)));
    }
    Ok(differing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_by_its_whole_name_and_without_its_remark() {
        let shown = "Currently in use:\n displaysleep         10\n sleep   0 (prevented by x)\n";
        assert_eq!(setting(shown, "sleep"), Some("0"));
        assert_eq!(setting(shown, "displaysleep"), Some("10"));
        assert_eq!(setting(shown, "disksleep"), None);
    }
}
