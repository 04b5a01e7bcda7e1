//! Tailscale's command line as the agent asks it, by a stand-in.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tart_kubelet::{Tailnet, TailnetError, Tailscale};

/// What the agent is told if Tailscale is this script.
async fn told(script: &str) -> Result<String, TailnetError> {
    let home = tempfile::tempdir().unwrap();
    let binary = home.path().join("tailscale");
    std::fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755)).unwrap();
    Tailscale::new(&binary).address().await.map(|address| address.to_string())
}

// One test: while another one starts a process, a script that was just written may be busy.
#[tokio::test]
async fn the_address_is_what_tailscale_tells_of_its_own_daemon_and_nothing_else_is_one() {
    // K6: a pinned source that fails is no reason to take another.
    let asked = r#"[ "$*" = "--socket=/var/run/tailscaled.socket ip -4" ] && echo 100.100.1.2"#;
    assert_eq!(told(asked).await.unwrap(), "100.100.1.2");
    let error = told("echo 'no current Tailscale IPs; state: NeedsLogin' >&2; exit 1").await;
    assert!(matches!(&error, Err(TailnetError::NotJoined(said)) if said.contains("NeedsLogin")));
    assert!(matches!(told("exit 0").await, Err(TailnetError::NotJoined(_))));
    assert!(matches!(told("echo 100.100.1.2; exit 1").await, Err(TailnetError::NotJoined(_))));
    for foreign in ["51.159.120.2", "192.168.64.1", "fd7a:115c:a1e0::1", "soon"] {
        let error = told(&format!("echo {foreign}")).await.unwrap_err();
        assert!(matches!(&error, TailnetError::Foreign(text) if text == foreign), "{error}");
    }
    let missing = Tailscale::new(Path::new("/nonexistent/tailscale")).address().await;
    assert!(matches!(missing, Err(TailnetError::Silent(_))));
}
