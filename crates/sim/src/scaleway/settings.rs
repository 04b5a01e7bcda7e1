//! How this Scaleway behaves. Where nobody outside knows how the real one does, both ways are here.

use std::collections::BTreeMap;
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
    /// The size of a page that nobody asked a size for. The real one is not documented: 20 or 50.
    pub default_page_size: usize,
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
        }
    }
}

impl Unsure {
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
            default_page_size: 20,
            max_page_size: 100,
            quotas: BTreeMap::new(),
            unsure: Unsure::default(),
        }
    }
}
