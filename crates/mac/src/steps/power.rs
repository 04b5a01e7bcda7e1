//! Nothing that ends the graphical session by itself: no sleep, no screen saver, no lock, no
//! automatic log-out. Without a session no VM starts.

use super::{Applied, Cause, Host, State};
use crate::Command;

/// Energy settings that must be 0, in minutes until something goes to sleep.
const PMSET: [&str; 3] = ["sleep", "displaysleep", "disksleep"];

/// Preferences that must be 0.
const PREFERENCES: [(&str, &str); 3] = [
    ("/Library/Preferences/com.apple.screensaver", "idleTime"),
    ("/Library/Preferences/com.apple.screensaver", "askForPassword"),
    ("/Library/Preferences/.GlobalPreferences", "com.apple.autologout.AutoLogOutDelay"),
];

/// All settings as one text: a new one must reach hosts.
pub(super) fn settings_text() -> String {
    format!("{PMSET:?} {PREFERENCES:?}")
}

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !never_sleeps(host).await? {
        return Ok(State::Differs("the host may go to sleep"));
    }
    for (domain, key) in PREFERENCES {
        if !is_zero(host, domain, key).await? {
            return Ok(State::Differs("the screen may lock or the user be logged out"));
        }
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    if !never_sleeps(host).await? {
        let settings = PMSET.iter().flat_map(|key| [*key, "0"]);
        let argv: Vec<&str> = ["pmset", "-a"].into_iter().chain(settings).collect();
        host.run(Command::root(&argv)).await?;
    }
    for (domain, key) in PREFERENCES {
        if !is_zero(host, domain, key).await? {
            let write = ["defaults", "write", domain, key, "-int", "0"];
            host.run(Command::root(&write)).await?;
        }
    }
    Ok(Applied::Done)
}

async fn never_sleeps(host: &Host<'_>) -> Result<bool, Cause> {
    let shown = host.run(Command::root(&["pmset", "-g"])).await?.text();
    Ok(PMSET.iter().all(|key| setting(&shown, key) == Some("0")))
}

/// The value in a line such as ` sleep   0 (sleep prevented by sharingd)`.
fn setting<'a>(shown: &'a str, key: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.next()).flatten()
    })
}

async fn is_zero(host: &Host<'_>, domain: &str, key: &str) -> Result<bool, Cause> {
    let output = host.ask(Command::root(&["defaults", "read", domain, key])).await?;
    Ok(output.success() && output.text().trim() == "0")
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
