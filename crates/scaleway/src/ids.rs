//! Scaleway's other ids: what it calls a project, an OS image, an SSH key. All of them are safe in
//! a path and in a query.

use applecart_api::checked_text;

/// A text that cannot be an id: empty, or with characters that no id has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Scaleway id: letters, digits and hyphens")]
pub struct TextIdError(String);

fn parse(text: &str) -> Result<String, TextIdError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if !text.is_empty() && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err(TextIdError(text.to_owned()))
    }
}

checked_text! {
    /// A project: who owns hosts and keys.
    ProjectId, TextIdError, parse
}
checked_text! {
    /// An operating-system image that a host can be installed with.
    OsId, TextIdError, parse
}
checked_text! {
    /// An SSH key of a project.
    SshKeyId, TextIdError, parse
}
