//! launchd jobs as text, byte for byte as running fleets have them: an equal job is not reloaded.
//! No I/O.

use applecart_api::keys::AGENT_JOB;

use crate::UserName;
use crate::steps::paths;

/// The label of the job that loads and enables the firewall at boot: macOS itself loads
/// `/etc/pf.conf`, but leaves pf off.
pub const FIREWALL_JOB: &str = "dev.tuist.pfctl-runners";

const PROLOGUE: &str = concat!(
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
    "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" ",
    "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n",
    "<plist version=\"1.0\">\n<dict>\n",
);
const EPILOGUE: &str = "</dict>\n</plist>\n";

/// Where the agent looks for tools: ours first, then Homebrew's, then Apple's.
const AGENT_PATH: &str = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The agent's job.
#[must_use]
pub fn agent(user: &UserName, arguments: &[String]) -> String {
    let mut program = vec![paths::AGENT.to_owned()];
    program.extend_from_slice(arguments);
    let log = paths::AGENT_LOG;
    let mut text = PROLOGUE.to_owned();
    text += &tall("Label", &format!("  {}\n", string(AGENT_JOB)));
    text += &tall("UserName", &format!("  {}\n", string(user.as_str())));
    text += &tall("ProgramArguments", &array(&program));
    text += &flat("RunAtLoad", "<true/>");
    text += &flat("KeepAlive", "<true/>");
    text += &flat("ThrottleInterval", "<integer>10</integer>");
    text += &flat("StandardOutPath", &string(log));
    text += &flat("StandardErrorPath", &string(log));
    let home = format!("    <key>HOME</key>{}\n", string(&format!("/Users/{user}")));
    let path = format!("    <key>PATH</key>{}\n", string(AGENT_PATH));
    text += &tall("EnvironmentVariables", &format!("  <dict>\n{home}{path}  </dict>\n"));
    text + EPILOGUE
}

/// The firewall's job.
#[must_use]
pub fn firewall() -> String {
    let program = ["/sbin/pfctl", "-f", paths::PF_CONF, "-E"].map(str::to_owned);
    let mut text = PROLOGUE.to_owned();
    text += &tall("Label", &format!("  {}\n", string(FIREWALL_JOB)));
    text += &tall("ProgramArguments", &array(&program));
    text += &flat("RunAtLoad", "<true/>");
    text += &flat("StandardErrorPath", &string("/var/log/tuist-pfctl-runners.log"));
    text + EPILOGUE
}

/// The label of Tailscale's daemon.
pub const TAILSCALE_JOB: &str = "com.tailscale.tailscaled";

/// The label of the node exporter.
pub const NODE_EXPORTER_JOB: &str = "dev.tuist.node-exporter";

/// The job of Tailscale's daemon. It has a log: without one, it dies without a trace (B7).
#[must_use]
pub fn tailscaled() -> String {
    let state = format!("--state={}", paths::TAILSCALE_STATE);
    let socket = format!("--socket={}", paths::TAILSCALE_SOCKET);
    let program = [paths::TAILSCALED.to_owned(), state, socket, "--port=41641".to_owned()];
    daemon(TAILSCALE_JOB, &program, "/var/log/tailscaled.log")
}

/// The node exporter's job.
#[must_use]
pub fn node_exporter() -> String {
    let program = [paths::NODE_EXPORTER_WRAPPER.to_owned()];
    daemon(NODE_EXPORTER_JOB, &program, "/var/log/tuist-node-exporter.log")
}

/// A job that always runs, as root.
fn daemon(label: &str, program: &[String], log: &str) -> String {
    let mut text = PROLOGUE.to_owned();
    text += &tall("Label", &format!("  {}\n", string(label)));
    text += &tall("ProgramArguments", &array(program));
    text += &flat("RunAtLoad", "<true/>");
    text += &flat("KeepAlive", "<true/>");
    text += &flat("ThrottleInterval", "<integer>10</integer>");
    text += &flat("StandardOutPath", &string(log));
    text += &flat("StandardErrorPath", &string(log));
    text + EPILOGUE
}

/// Key and value on lines of their own.
fn tall(key: &str, value: &str) -> String {
    format!("  <key>{key}</key>\n{value}")
}

/// Key and value on one line.
fn flat(key: &str, value: &str) -> String {
    format!("  <key>{key}</key>{value}\n")
}

fn array(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("    {}\n", string(item))).collect();
    format!("  <array>\n{}  </array>\n", items.concat())
}

fn string(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<string>{text}</string>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_job_has_the_bytes_that_running_fleets_have() {
        let text = agent(&"m1".parse().unwrap(), &["--node-name=a".into(), "--x=<&>".into()]);
        let (head, body) = text.split_at(text.find("<plist").unwrap());
        assert_eq!(
            head,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
             \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n"
        );
        assert_eq!(
            body,
            r#"<plist version="1.0">
<dict>
  <key>Label</key>
  <string>dev.tuist.tart-kubelet</string>
  <key>UserName</key>
  <string>m1</string>
  <key>ProgramArguments</key>
  <array>
    <string>/usr/local/bin/tart-kubelet</string>
    <string>--node-name=a</string>
    <string>--x=&lt;&amp;&gt;</string>
  </array>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><true/>
  <key>ThrottleInterval</key><integer>10</integer>
  <key>StandardOutPath</key><string>/var/log/tart-kubelet.log</string>
  <key>StandardErrorPath</key><string>/var/log/tart-kubelet.log</string>
  <key>EnvironmentVariables</key>
  <dict>
    <key>HOME</key><string>/Users/m1</string>
    <key>PATH</key><string>/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin</string>
  </dict>
</dict>
</plist>
"#
        );
    }

    #[test]
    fn the_firewalls_job_loads_and_enables_once_at_boot() {
        let text = firewall();
        assert!(text.contains("    <string>/etc/pf.conf</string>\n    <string>-E</string>\n"));
        assert!(!text.contains("KeepAlive"));
    }
}
