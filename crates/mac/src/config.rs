//! What a host shall be: one value, built by one function for first bootstrap and update alike.
//! No I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use applecart_api::credential::is_told;
use applecart_api::ids::ProviderId;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::{GithubRunner, Payload, Step, kcpassword, pf, plist, steps};

/// The agent's sizes where nobody gave any.
const USUAL_CPU: u32 = 8;
const USUAL_MEMORY_MB: u32 = 16_384;
const USUAL_MAX_PODS: u32 = 3;

/// Why a configuration cannot be brought to any host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No password, or the marker that stands for one that was never told.
    #[error("the host's password is missing: read it from the API, or from the console")]
    PasswordMissing,
    /// A password that `sudo -S` (one line) or kcpassword (up to a NUL) would cut short.
    #[error("the host's password contains a line break or a NUL")]
    PasswordUnusable,
    /// Not an account name such as `m1`.
    #[error("{0:?} is not a user name of lower-case letters, digits, `_` and `-`")]
    NotUserName(String),
    /// Not a name that a Node can have.
    #[error("{0:?} is not a node name")]
    NotNodeName(String),
    /// Not a label that fits on a command line of `key=value,key=value`.
    #[error("{0:?} is not a label key or value")]
    NotLabel(String),
    /// Not a version that a Node can report.
    #[error("{0:?} is not a version such as v1.36.4: mend the Machine's spec.version")]
    NotVersion(String),
    /// The tailnet's key is not there yet: that is waited for, and never read as "no tailnet".
    #[error("the tailnet's key is missing: fill its Secret")]
    TailscaleKeyMissing,
    /// A key that is no line of text.
    #[error("the tailnet's key contains a line break or a NUL")]
    TailscaleKeyUnusable,
    /// An OAuth client's secret can only make tagged hosts.
    #[error("the tailnet's key is an OAuth client's, which needs tags: give --tailscale-tags")]
    TailscaleNeedsTags,
    /// Not a tag of a tailnet.
    #[error("{0:?} is not a tag such as tag:ci-mac")]
    NotTag(String),
    /// The exporter listens in the tailnet alone.
    #[error("a node exporter needs a tailnet: give --tailscale-binaries-path too")]
    ExporterWithoutTailscale,
    /// A GitHub Actions runner that cannot be.
    #[error("{field} {text:?} cannot be used: mend spec.ghActionsRunner")]
    NotRunner {
        /// Which of its fields.
        field: &'static str,
        /// What it says.
        text: String,
    },
    /// Nothing that would register a runner.
    #[error("the runner's registration token is missing")]
    RunnerTokenMissing,
    /// No kubeconfig text.
    #[error("the kubeconfig is empty")]
    KubeconfigMissing,
}

/// An account's name on a Mac: safe in a path, a sudoers line and a shell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserName(String);

impl UserName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let starts = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let holds = text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
        if starts && holds && text.len() <= 31 {
            Ok(Self(text.to_owned()))
        } else {
            Err(ConfigError::NotUserName(text.to_owned()))
        }
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A password that was really told to us. Does not print.
#[derive(Clone, Debug)]
pub struct Password(SecretString);

impl Password {
    /// Refuses what is no password, before any host is touched: blanks, and `<sealed>`.
    pub fn new(password: SecretString) -> Result<Self, ConfigError> {
        match password.expose_secret() {
            text if !is_told(text) => Err(ConfigError::PasswordMissing),
            text if text.contains(['\n', '\r', '\0']) => Err(ConfigError::PasswordUnusable),
            _ => Ok(Self(password)),
        }
    }

    /// The password itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Every text that would give it away.
    pub(crate) fn forms(&self) -> Vec<String> {
        let mut forms = vec![self.expose().to_owned()];
        forms.extend(encoded_forms(self.expose().as_bytes()));
        forms.extend(encoded_forms(&kcpassword::encode(self.expose())));
        forms
    }
}

/// Tart as its makers pack it: a `.tar.gz` with `tart.app` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TartBundle {
    /// What `tart --version` prints.
    pub version: String,
    /// The archive.
    pub archive: Payload,
}

/// Tailscale, and what a host is in the tailnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tailscale {
    /// A `.tar.gz` with `tailscale` and `tailscaled` in it.
    pub archive: Payload,
    /// The tags that a host joins with.
    pub tags: Vec<String>,
}

/// What is the same on every host of an operator.
#[derive(Clone, Debug)]
pub struct FleetWide {
    /// The agent's binary.
    pub agent: Payload,
    /// Tart.
    pub tart: TartBundle,
    /// Tailscale, if hosts join a tailnet.
    pub tailscale: Option<Tailscale>,
    /// The node exporter's binary, if hosts run one; it listens in the tailnet alone.
    pub node_exporter: Option<Payload>,
}

/// What is this host's own.
#[derive(Clone, Debug)]
pub struct PerHost {
    /// The Node's name, and the host's.
    pub node_name: String,
    /// The account that logs in, and that the agent runs as.
    pub user: UserName,
    /// That account's password.
    pub password: Password,
    /// The Node's provider ID.
    pub provider_id: Option<ProviderId>,
    /// The Node's labels, besides those that the agent sets by itself.
    pub labels: BTreeMap<String, String>,
    /// The Node's CPUs; 0 means the usual number.
    pub cpu: u32,
    /// The Node's memory in MiB; 0 means the usual size.
    pub memory_mb: u32,
    /// The Node's Pods; 0 means the usual number.
    pub max_pods: u32,
    /// The version that the Node reports; the agent's own if `None`.
    pub kubelet_version: Option<String>,
    /// The agent's kubeconfig, with its credential in it.
    pub kubeconfig: SecretString,
    /// What lets the host join the tailnet, if it shall.
    pub tailscale_key: Option<SecretString>,
    /// The host's own GitHub Actions runner, if it builds images.
    pub github_runner: Option<GithubRunner>,
}

/// A digest of all that is put on a host. Equal digests: equal hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(String);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one host shall be. Valid by construction.
#[derive(Clone, Debug)]
pub struct HostConfig {
    fleet: FleetWide,
    host: PerHost,
}

impl HostConfig {
    /// Puts a host's configuration together; the only way to get one.
    pub fn new(fleet: FleetWide, host: PerHost) -> Result<Self, ConfigError> {
        if !is_node_name(&host.node_name) {
            return Err(ConfigError::NotNodeName(host.node_name));
        }
        let words = host.labels.iter().flat_map(|(key, value)| [key, value]);
        if let Some(word) = words.into_iter().find(|word| !is_label_text(word)) {
            return Err(ConfigError::NotLabel(word.clone()));
        }
        if let Some(version) = host.kubelet_version.as_ref().filter(|text| !is_version(text)) {
            return Err(ConfigError::NotVersion(version.clone()));
        }
        if host.kubeconfig.expose_secret().trim().is_empty() {
            return Err(ConfigError::KubeconfigMissing);
        }
        check_tailscale(&fleet, &host)?;
        let or = |given, usual| if given == 0 { usual } else { given };
        let host = PerHost {
            cpu: or(host.cpu, USUAL_CPU),
            memory_mb: or(host.memory_mb, USUAL_MEMORY_MB),
            max_pods: or(host.max_pods, USUAL_MAX_PODS),
            ..host
        };
        Ok(Self { fleet, host })
    }

    /// The fleet's part.
    #[must_use]
    pub fn fleet(&self) -> &FleetWide {
        &self.fleet
    }

    /// The host's own part.
    #[must_use]
    pub fn host(&self) -> &PerHost {
        &self.host
    }

    /// The steps of this host: those that every host takes, then those that its fleet or its
    /// object asks for.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let tailscale = self.fleet.tailscale.as_ref().map(|_| Step::Tailscale);
        let node_exporter = self.fleet.node_exporter.as_ref().map(|_| Step::NodeExporter);
        let runner = self.host.github_runner.as_ref().map(|_| Step::GithubRunner);
        Step::ALL.into_iter().chain(tailscale).chain(node_exporter).chain(runner).collect()
    }

    /// The agent's arguments, in the order in which running fleets have them.
    #[must_use]
    pub fn agent_arguments(&self) -> Vec<String> {
        let host = &self.host;
        let mut arguments = vec![
            format!("--node-name={}", host.node_name),
            format!("--kubeconfig={}", steps::paths::KUBECONFIG),
            format!("--host-cpu={}", host.cpu),
            format!("--host-memory-mb={}", host.memory_mb),
            format!("--max-pods={}", host.max_pods),
        ];
        if !host.labels.is_empty() {
            let labels: Vec<_> = host.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            arguments.push(format!("--node-labels={}", labels.join(",")));
        }
        // K6: such a host is reached in its tailnet, or not at all.
        if self.fleet.tailscale.is_some() {
            arguments.push("--node-ip-source=tailscale".to_owned());
        }
        if let Some(id) = &host.provider_id {
            arguments.push(format!("--provider-id={id}"));
        }
        if let Some(version) = &host.kubelet_version {
            arguments.push(format!("--kubelet-version={version}"));
        }
        arguments
    }

    /// The agent's launchd job.
    #[must_use]
    pub fn agent_plist(&self) -> String {
        plist::agent(&self.host.user, &self.agent_arguments())
    }

    /// A digest of all that a bootstrap puts on this host.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let Self { fleet, host } = self;
        let mut digest = Digester::default();
        fleet.digest(&mut digest);
        host.digest(&mut digest);
        // The rendered job, so that a new way to write it reaches hosts too.
        digest.field("agent job", self.agent_plist().as_bytes());
        digest.finish()
    }

    /// Every text that must never be shown, the encoded forms included.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut secrets = self.host.password.forms();
        let kubeconfig = self.host.kubeconfig.expose_secret();
        // Tokens and keys are the last word of a line; short words there are not secret.
        let words = kubeconfig.lines().filter_map(|line| line.split_whitespace().last());
        secrets.extend(words.filter(|word| word.len() >= 20).map(str::to_owned));
        let key = self.host.tailscale_key.as_ref().map(ExposeSecret::expose_secret);
        secrets.extend(key.filter(|key| !key.is_empty()).map(str::to_owned));
        let runner = self.host.github_runner.as_ref();
        secrets.extend(runner.map(|runner| runner.token().expose_secret().to_owned()));
        secrets
    }
}

/// A fleet that has a tailnet needs a key that can be used, before any host is touched (P11, B21).
fn check_tailscale(fleet: &FleetWide, host: &PerHost) -> Result<(), ConfigError> {
    let Some(tailscale) = &fleet.tailscale else {
        return if fleet.node_exporter.is_some() {
            Err(ConfigError::ExporterWithoutTailscale)
        } else {
            Ok(())
        };
    };
    if let Some(tag) = tailscale.tags.iter().find(|tag| !is_tag(tag)) {
        return Err(ConfigError::NotTag(tag.clone()));
    }
    match host.tailscale_key.as_ref().map(|key| key.expose_secret().trim()) {
        None | Some("") => Err(ConfigError::TailscaleKeyMissing),
        Some(key) if key.contains(['\n', '\r', '\0']) => Err(ConfigError::TailscaleKeyUnusable),
        Some(key) if key.starts_with("tskey-client-") && tailscale.tags.is_empty() => {
            Err(ConfigError::TailscaleNeedsTags)
        }
        Some(_) => Ok(()),
    }
}

fn is_tag(text: &str) -> bool {
    let usual = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    text.strip_prefix("tag:").is_some_and(|name| !name.is_empty() && name.bytes().all(usual))
}

fn encoded_forms(bytes: &[u8]) -> Vec<String> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    let percent = bytes.iter().fold(String::new(), |text, &byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text + &char::from(byte).to_string()
        } else {
            text + &format!("%{byte:02X}")
        }
    });
    vec![STANDARD_NO_PAD.encode(bytes), hex(bytes), percent]
}

impl FleetWide {
    /// A digest of what is the same on all hosts; what is a host's own does not move it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut digest = Digester::default();
        self.digest(&mut digest);
        digest.finish()
    }

    /// Destructures without `..`: a new field does not compile until it is counted here.
    fn digest(&self, digest: &mut Digester) {
        let Self { agent, tart: TartBundle { version, archive }, tailscale, node_exporter } = self;
        digest.field("agent", agent.sha256().as_bytes());
        if let Some(Tailscale { archive, tags }) = tailscale {
            digest.field("tailscale", archive.sha256().as_bytes());
            digest.field("tailscale tags", tags.join(",").as_bytes());
            digest.field("tailscale job", plist::tailscaled().as_bytes());
        }
        if let Some(binary) = node_exporter {
            digest.field("node exporter", binary.sha256().as_bytes());
            digest.field("node exporter job", plist::node_exporter().as_bytes());
        }
        digest.field("tart version", version.as_bytes());
        digest.field("tart", archive.sha256().as_bytes());
        // What every host gets besides: a new version of ours must reach hosts like a new binary.
        for (name, text) in steps::constants() {
            digest.field(name, text.as_bytes());
        }
        digest.field("firewall rules", pf::ANCHOR_RULES.as_bytes());
        digest.field("firewall block", pf::BLOCK.as_bytes());
        digest.field("firewall job", plist::firewall().as_bytes());
    }
}

impl PerHost {
    /// Destructures without `..`: a new field does not compile until it is counted here.
    fn digest(&self, digest: &mut Digester) {
        let Self {
            node_name,
            user,
            password,
            provider_id,
            labels,
            cpu,
            memory_mb,
            max_pods,
            kubelet_version,
            kubeconfig,
            // Used for a join and thrown away: a new one changes nothing on a host that is in.
            tailscale_key: _,
            github_runner,
        } = self;
        digest.field("node name", node_name.as_bytes());
        digest.field("user", user.as_str().as_bytes());
        digest.field("password", password.expose().as_bytes());
        let id = provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
        digest.field("provider ID", id.as_bytes());
        for (key, value) in labels {
            digest.field("label key", key.as_bytes());
            digest.field("label value", value.as_bytes());
        }
        for (name, number) in [("cpu", cpu), ("memory", memory_mb), ("pods", max_pods)] {
            digest.field(name, &number.to_be_bytes());
        }
        digest.field("version", kubelet_version.as_deref().unwrap_or_default().as_bytes());
        digest.field("kubeconfig", kubeconfig.expose_secret().as_bytes());
        // Neither its release nor its token: it updates itself, and a token registers once (P34).
        if let Some(runner) = github_runner {
            digest.field("GitHub runner", runner.registered_as().as_bytes());
            digest.field("GitHub runner's shells", steps::ZSHENV_LINE.as_bytes());
        }
    }
}

/// A digest over named fields; lengths are part of it, so that no two lists of fields look alike.
#[derive(Default)]
struct Digester(Sha256);

impl Digester {
    fn field(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.0.update(part.len().to_be_bytes());
            self.0.update(part);
        }
    }

    fn finish(self) -> Fingerprint {
        Fingerprint(hex(&self.0.finalize()))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn is_node_name(name: &str) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn is_label_text(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}

fn is_version(text: &str) -> bool {
    let usual = |b: u8| b.is_ascii_alphanumeric() || b"-_.+".contains(&b);
    !text.is_empty() && text.bytes().all(usual)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn fleet() -> FleetWide {
        FleetWide {
            agent: Payload::new("agent"),
            tart: TartBundle { version: "2.32.1".into(), archive: Payload::new("tart 2.32.1") },
            tailscale: None,
            node_exporter: None,
        }
    }

    pub(crate) fn host() -> PerHost {
        PerHost {
            node_name: "mac-a".into(),
            user: "m1".parse().unwrap(),
            password: Password::new("pass word".into()).unwrap(),
            provider_id: Some(
                "scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().unwrap(),
            ),
            labels: BTreeMap::from([("tuist.dev/fleet".into(), "ci".into())]),
            cpu: 0,
            memory_mb: 0,
            max_pods: 0,
            kubelet_version: None,
            kubeconfig: "apiVersion: v1\nkind: Config\n".into(),
            tailscale_key: None,
            github_runner: None,
        }
    }

    pub(crate) fn desired() -> HostConfig {
        HostConfig::new(fleet(), host()).unwrap()
    }

    #[test]
    fn a_sealed_or_empty_password_is_refused_before_any_host_is_touched() {
        for text in ["", " ", kcpassword::SEALED, "<Sealed>\n"] {
            assert_eq!(Password::new(text.into()).unwrap_err(), ConfigError::PasswordMissing);
        }
        for text in ["a\nb", "a\0b"] {
            assert_eq!(Password::new(text.into()).unwrap_err(), ConfigError::PasswordUnusable);
        }
    }

    #[test]
    fn names_that_would_break_a_path_or_a_command_line_are_refused() {
        for name in ["", "m 1", "M1", "../x", "-n", "root:wheel"] {
            assert!(name.parse::<UserName>().is_err(), "{name}");
        }
        for name in ["", "a b", "-a", "a..b", "UPPER"] {
            let host = PerHost { node_name: name.into(), ..host() };
            assert!(HostConfig::new(fleet(), host).is_err(), "{name}");
        }
        let labels = BTreeMap::from([("a".to_owned(), "b,c=d".to_owned())]);
        assert!(HostConfig::new(fleet(), PerHost { labels, ..host() }).is_err());
    }

    #[test]
    fn a_version_is_told_to_the_agent_if_it_is_one() {
        let with = |version: &str| PerHost { kubelet_version: Some(version.into()), ..host() };
        let config = HostConfig::new(fleet(), with("v1.36.4+k3s1")).unwrap();
        let last = config.agent_arguments().pop();
        assert_eq!(last.as_deref(), Some("--kubelet-version=v1.36.4+k3s1"));
        assert!(HostConfig::new(fleet(), with("v1 <b>")).is_err());
    }

    #[test]
    fn the_agents_arguments_have_the_order_that_running_fleets_have() {
        assert_eq!(
            desired().agent_arguments(),
            [
                "--node-name=mac-a",
                "--kubeconfig=/etc/tart-kubelet/kubeconfig",
                "--host-cpu=8",
                "--host-memory-mb=16384",
                "--max-pods=3",
                "--node-labels=tuist.dev/fleet=ci",
                "--provider-id=scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e",
            ]
        );
        let joined = in_tailnet(&["tag:ci"], Some("tskey-auth-x")).unwrap().agent_arguments();
        assert_eq!(joined[6], "--node-ip-source=tailscale");
        assert!(joined[5].starts_with("--node-labels=") && joined[7].starts_with("--provider-id="));
    }

    #[test]
    fn every_field_moves_the_hosts_fingerprint_and_only_the_fleets_move_the_fleets() {
        // P33
        let base = desired();
        let own: Vec<PerHost> = vec![
            PerHost { node_name: "mac-b".into(), ..host() },
            PerHost { user: "m2".parse().unwrap(), ..host() },
            PerHost { password: Password::new("other".into()).unwrap(), ..host() },
            PerHost { provider_id: None, ..host() },
            PerHost { labels: BTreeMap::new(), ..host() },
            PerHost { cpu: 4, ..host() },
            PerHost { memory_mb: 8192, ..host() },
            PerHost { max_pods: 1, ..host() },
            PerHost { kubelet_version: Some("v1.36.4".into()), ..host() },
            PerHost { kubeconfig: "kind: Config\n".into(), ..host() },
        ];
        for changed in own {
            let changed = HostConfig::new(fleet(), changed).unwrap();
            assert_ne!(changed.fingerprint(), base.fingerprint());
            assert_eq!(changed.fleet().fingerprint(), base.fleet().fingerprint());
        }
        let tart = fleet().tart;
        for changed in [
            FleetWide { agent: Payload::new("agent 2"), ..fleet() },
            FleetWide { tart: TartBundle { version: "3".into(), ..tart.clone() }, ..fleet() },
            FleetWide { tart: TartBundle { archive: Payload::new("x"), ..tart }, ..fleet() },
        ] {
            assert_ne!(changed.fingerprint(), base.fleet().fingerprint());
            let changed = HostConfig::new(changed, host()).unwrap();
            assert_ne!(changed.fingerprint(), base.fingerprint());
        }
    }

    fn in_tailnet(tags: &[&str], key: Option<&str>) -> Result<HostConfig, ConfigError> {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        let tailscale = Some(Tailscale { archive: Payload::new("tailscale"), tags });
        let own = PerHost { tailscale_key: key.map(Into::into), ..host() };
        HostConfig::new(FleetWide { tailscale, ..fleet() }, own)
    }

    #[test]
    fn a_tailnet_whose_key_is_missing_or_cannot_be_used_touches_no_host() {
        // P11, B21
        use ConfigError::{NotTag, TailscaleKeyMissing, TailscaleKeyUnusable, TailscaleNeedsTags};
        for (tags, key, error) in [
            (&["tag:ci"][..], None, TailscaleKeyMissing),
            (&["tag:ci"], Some(" "), TailscaleKeyMissing),
            (&["tag:ci"], Some("a\nb"), TailscaleKeyUnusable),
            (&[], Some("tskey-client-x"), TailscaleNeedsTags),
            (&["ci; rm"], Some("tskey-auth-x"), NotTag("ci; rm".into())),
        ] {
            assert_eq!(in_tailnet(tags, key).unwrap_err(), error);
        }
        let joined = in_tailnet(&["tag:ci"], Some("tskey-auth-x")).unwrap();
        assert_eq!(joined.steps().last(), Some(&Step::Tailscale));
        assert_ne!(joined.fingerprint(), desired().fingerprint());
        let rotated = in_tailnet(&["tag:ci"], Some("tskey-auth-y")).unwrap();
        assert_eq!(rotated.fingerprint(), joined.fingerprint());
        let tagged = in_tailnet(&["tag:other"], Some("tskey-auth-x")).unwrap();
        assert_ne!(tagged.fingerprint(), joined.fingerprint(), "B22");
    }

    #[test]
    fn an_exporter_without_a_tailnet_would_listen_to_everybody_and_is_refused() {
        let fleet = FleetWide { node_exporter: Some(Payload::new("x")), ..fleet() };
        let error = HostConfig::new(fleet, host()).unwrap_err();
        assert_eq!(error, ConfigError::ExporterWithoutTailscale);
    }

    #[test]
    fn a_given_zero_is_the_usual_number() {
        let given = PerHost { cpu: 8, memory_mb: 16_384, max_pods: 3, ..host() };
        let given = HostConfig::new(fleet(), given).unwrap();
        assert_eq!(given.fingerprint(), desired().fingerprint());
    }

    #[test]
    fn nothing_secret_prints() {
        let shown = format!("{:?}", desired());
        assert!(!shown.contains("pass word") && !shown.contains("apiVersion"), "{shown}");
    }
}
