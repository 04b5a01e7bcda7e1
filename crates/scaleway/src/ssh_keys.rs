//! The project's SSH keys, which Scaleway writes to its Macs when it installs them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::call::Operation;
use crate::client::{Client, Request};
use crate::error::Error;
use crate::ids::{ProjectId, SshKeyId};
use crate::pages::Listed;

const PATH: &str = "/iam/v1alpha1/ssh-keys";

/// An SSH key of the project.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SshKey {
    /// Which key.
    pub id: SshKeyId,
    /// Its name. Not unique.
    pub name: String,
    /// Type and base64, without the comment: Scaleway drops it.
    pub public_key: String,
    /// Whose it is.
    pub project_id: ProjectId,
    /// Not written to Macs.
    #[serde(default)]
    pub disabled: bool,
    /// When it was added.
    pub created_at: Option<Timestamp>,
}

impl SshKey {
    /// Whether this is the key in `public_key`, whose comment does not matter.
    #[must_use]
    pub fn is(&self, public_key: &str) -> bool {
        let bare = |key: &'_ str| -> Vec<String> {
            key.split_whitespace().take(2).map(str::to_owned).collect()
        };
        bare(&self.public_key) == bare(public_key)
    }
}

#[derive(Serialize)]
struct CreateBody<'a> {
    name: &'a str,
    public_key: &'a str,
    project_id: &'a ProjectId,
}

impl Listed for SshKey {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Client {
    /// All keys of the project, disabled ones included.
    pub async fn all_ssh_keys(&self) -> Result<Vec<SshKey>, Error> {
        self.all_pages::<SshKey>(&self.listing()).await
    }

    fn listing(&self) -> Request {
        Request::get(Operation::ListSshKeys, PATH.to_owned())
            .query("order_by", "created_at_asc")
            .query("project_id", self.project().as_str())
            .query("disabled", "true")
    }

    /// The project's keys of exactly this name, disabled ones included. There may be several.
    pub async fn ssh_keys(&self, name: &str) -> Result<Vec<SshKey>, Error> {
        let mut keys = self.all_pages::<SshKey>(&self.listing().query("name", name)).await?;
        // The filter's exact meaning is the server's; ours is equality.
        keys.retain(|key| key.name == name);
        Ok(keys)
    }

    /// Adds a key to the project.
    pub async fn create_ssh_key(&self, name: &str, public_key: &str) -> Result<SshKey, Error> {
        let body = CreateBody { name, public_key, project_id: self.project() };
        let request = Request::post(Operation::CreateSshKey, PATH.to_owned(), &body);
        self.write(&request).await
    }

    /// Removes a key from the project. Macs that have it keep it until they are installed anew.
    pub async fn delete_ssh_key(&self, id: &SshKeyId) -> Result<(), Error> {
        let request = Request::delete(Operation::DeleteSshKey, format!("{PATH}/{id}"));
        self.remove(&request).await
    }
}
