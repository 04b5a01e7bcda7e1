//! How this Scaleway behaves. Where nobody outside knows how the real one does, both ways are here.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use applecart_scaleway::ProjectId;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Everything about a simulated Scaleway that does not change while it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Ids, addresses, passwords and host keys come from this: same seed, same world.
    pub seed: u64,
    /// The project that the secret key may see and change.
    pub project: ProjectId,
    /// The one secret key that is accepted.
    pub secret_key: SecretString,
    /// How long things take.
    pub durations: Durations,
    /// The address of the first host; the others follow it.
    pub first_address: Ipv4Addr,
    /// The largest page.
    pub max_page_size: usize,
    /// How many of a kind a project may have in a zone; no entry, no limit.
    pub quotas: BTreeMap<String, usize>,
    /// Answers to what is not known of the real one.
    pub unsure: Unsure,
}

/// How long things take, as recorded from the real one.
#[derive(Clone, Copy, Debug)]
pub struct Durations {
    /// Delivery with the kind's default image.
    pub starting: Duration,
    /// Delivery with any other image.
    pub starting_other_os: Duration,
    /// A power cycle.
    pub rebooting: Duration,
    /// A wipe and a new installation.
    pub reinstalling: Duration,
    /// Switching the private network on or off.
    pub vpc_updating: Duration,
    /// From order to the first moment at which a host may be deleted.
    pub floor: Duration,
}

impl Durations {
    /// Each by its name, for people.
    pub(super) fn in_seconds(&self) -> BTreeMap<&'static str, f64> {
        BTreeMap::from([
            ("starting", self.starting.as_secs_f64()),
            ("starting_other_os", self.starting_other_os.as_secs_f64()),
            ("rebooting", self.rebooting.as_secs_f64()),
            ("reinstalling", self.reinstalling.as_secs_f64()),
            ("vpc_updating", self.vpc_updating.as_secs_f64()),
            ("floor", self.floor.as_secs_f64()),
        ])
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            starting: Duration::from_secs(130),
            starting_other_os: Duration::from_hours(1),
            rebooting: Duration::from_secs(105),
            reinstalling: Duration::from_mins(20),
            vpc_updating: Duration::from_secs(20),
            floor: Duration::from_hours(24),
        }
    }
}

/// What credentials look like in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// The literal `<sealed>`.
    #[default]
    Sealed,
    /// Empty.
    Empty,
    /// The real values.
    Plain,
    /// The password is empty, and in the VNC address alone.
    VncOnly,
}

/// When a wipe changes the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewPassword {
    /// When the host is ready again: until then a read gives the old one.
    #[default]
    WhenReady,
    /// As soon as the wipe is accepted.
    AtOnce,
    /// Not at all.
    Never,
}

/// What a deleted server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// 403, as every recording shows.
    #[default]
    Permission,
    /// 404, as Scaleway's own command line waits for.
    NotFound,
}

/// What happens to a value that the service may or may not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepts {
    /// It is accepted.
    Yes,
    /// It is refused.
    No,
}

/// The size of a page that nobody asked a size for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageSize {
    /// As Scaleway's newer APIs have it.
    #[default]
    #[serde(rename = "20")]
    Twenty,
    /// As its older ones do.
    #[serde(rename = "50")]
    Fifty,
}

impl PageSize {
    /// How many items that is.
    #[must_use]
    pub fn items(self) -> usize {
        match self {
            Self::Twenty => 20,
            Self::Fifty => 50,
        }
    }
}

/// The status of an `already_exists`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExistsStatus {
    /// As other APIs of Scaleway have it.
    #[default]
    #[serde(rename = "409")]
    Conflict,
    /// As for any other argument that cannot be accepted.
    #[serde(rename = "400")]
    BadRequest,
}

/// Where a 429 says when to come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitReset {
    /// In its JSON, in seconds and as a date.
    #[default]
    Body,
    /// In its `Retry-After`.
    Header,
    /// Nowhere.
    Nowhere,
    /// Nowhere: it is a gateway's, in HTML.
    Html,
}

/// The `message` of an error whose text nobody has recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Some words.
    #[default]
    Words,
    /// None.
    Empty,
}

/// Both answers to each question that the facts leave open. The default is the likelier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsure {
    /// Credentials in a `GET` of one server.
    pub get_credentials: Shown,
    /// Credentials in a list.
    pub list_credentials: Shown,
    /// Credentials in the answer to a reinstall.
    pub reinstall_credentials: Shown,
    /// When a wipe changes the password.
    pub new_password: NewPassword,
    /// Whether `os` tells what is installed now, or what was installed first.
    pub os_follows_reinstall: Accepts,
    /// A rename, or any other update, while the host is in a transient state.
    pub update_while_transient: Accepts,
    /// A reboot while the host is in a transient state.
    pub reboot_while_transient: Accepts,
    /// A reinstall while the host is in a transient state.
    pub reinstall_while_transient: Accepts,
    /// A deletion while the host is in a transient state.
    pub delete_while_transient: Accepts,
    /// Two servers of one name.
    pub duplicate_names: Accepts,
    /// Names with other characters than letters, digits, dash and dot, or longer than 63.
    pub free_names: Accepts,
    /// One public key twice in a project.
    pub duplicate_keys: Accepts,
    /// A page larger than the largest: cut down to it, or refused.
    pub oversized_pages: Accepts,
    /// What a deleted server answers.
    pub gone: Gone,
    /// The size of a page that nobody asked a size for.
    pub default_page_size: PageSize,
    /// The status of a name or key that is there already.
    pub already_exists_status: ExistsStatus,
    /// Where a 429 says when to come back.
    pub rate_limit_reset: RateLimitReset,
    /// The `message` of an error whose text nobody has recorded.
    pub unrecorded_message: Message,
}

impl Default for Unsure {
    fn default() -> Self {
        Self {
            get_credentials: Shown::Plain,
            list_credentials: Shown::Sealed,
            reinstall_credentials: Shown::Sealed,
            new_password: NewPassword::WhenReady,
            os_follows_reinstall: Accepts::No,
            update_while_transient: Accepts::Yes,
            reboot_while_transient: Accepts::No,
            reinstall_while_transient: Accepts::No,
            delete_while_transient: Accepts::Yes,
            duplicate_names: Accepts::Yes,
            free_names: Accepts::Yes,
            duplicate_keys: Accepts::No,
            oversized_pages: Accepts::Yes,
            gone: Gone::Permission,
            default_page_size: PageSize::Twenty,
            already_exists_status: ExistsStatus::Conflict,
            rate_limit_reset: RateLimitReset::Body,
            unrecorded_message: Message::Words,
        }
    }
}

/// A question that the facts leave open, for people: its name, its answers (the likelier one
/// first), and what it is about.
pub type Question = (&'static str, &'static [&'static str], &'static str);

impl Unsure {
    /// Every question.
    #[rustfmt::skip]
    pub const QUESTIONS: &[Question] = &[
        ("get_credentials", &["plain", "vnc_only", "sealed", "empty"], "password in a GET"),
        ("list_credentials", &["sealed", "empty", "plain", "vnc_only"], "in a list"),
        ("reinstall_credentials", &["sealed", "empty", "plain", "vnc_only"], "after a reinstall"),
        ("new_password", &["when_ready", "at_once", "never"], "when a wipe changes the password"),
        ("os_follows_reinstall", &["no", "yes"], "whether os is what is installed now, or first"),
        ("update_while_transient", &["yes", "no"], "whether a busy server takes it"),
        ("reboot_while_transient", &["no", "yes"], "likewise"),
        ("reinstall_while_transient", &["no", "yes"], "likewise"),
        ("delete_while_transient", &["yes", "no"], "likewise"),
        ("duplicate_names", &["yes", "no"], "two servers of one name"),
        ("free_names", &["yes", "no"], "other names than letters, digits, dash, dot, up to 63"),
        ("duplicate_keys", &["no", "yes"], "one public key twice"),
        ("oversized_pages", &["yes", "no"], "page_size over the largest: cut, or refused"),
        ("gone", &["permission", "not_found"], "what a deleted server answers"),
        ("default_page_size", &["20", "50"], "the page that nobody asked a size for"),
        ("already_exists_status", &["409", "400"], "of a name or key that is there already"),
        ("rate_limit_reset", &["body", "header", "nowhere", "html"], "when to come back, in a 429"),
        ("unrecorded_message", &["words", "empty"], "message of an error that nobody recorded"),
    ];

    /// The same world, but for one answer: `answer("gone", "not_found")`.
    pub fn answer(self, question: &str, answer: &str) -> Result<Self, String> {
        let mut answers = serde_json::to_value(self).expect("words and words");
        let questions = answers.as_object_mut().expect("a struct is an object");
        let known: Vec<&str> = questions.keys().map(String::as_str).collect();
        if !known.contains(&question) {
            return Err(format!("the questions are {}", known.join(", ")));
        }
        questions.insert(question.to_owned(), answer.into());
        serde_json::from_value(answers).map_err(|error| error.to_string())
    }
}

impl Settings {
    /// The likelier world, with the durations of the real one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            project: "5c000000-0000-4000-8000-00000000c0de".parse().expect("an id"),
            secret_key: "5ec2e7ca-0000-4000-8000-0000000ca9a2".into(),
            durations: Durations::default(),
            // The range that is set aside for tests of networks.
            first_address: Ipv4Addr::new(198, 18, 0, 1),
            max_page_size: 100,
            quotas: BTreeMap::new(),
            unsure: Unsure::default(),
        }
    }
}
