//! What scenarios stand on: a control plane that is shared, or one that somebody named.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::json;

use crate::binaries::package_folder;
use crate::scenarios::Contract;
use crate::{Binaries, ClusterApi, ControlPlane, kubeconfig, objects};

/// What a scenario cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Any API server.
    ApiServer,
    /// An API server with Kubernetes' own controllers behind it.
    Controllers,
    /// Control planes of its own, with nothing in them.
    OwnControlPlane,
    /// Cluster API's own manager on the shared control plane.
    ClusterApi,
    /// The same, and a fleet on it that all such scenarios share, in their order.
    Contract,
    /// All programs, and no control plane: those that it needs it starts itself.
    Programs,
}

/// Where control planes come from.
enum Origin {
    /// All programs, built by us.
    Built(Binaries),
    /// `KUBEBUILDER_ASSETS`: an API server without controllers.
    Assets(Binaries),
    /// `KUBECONFIG`: a cluster of somebody's.
    Existing { kubeconfig: PathBuf, client: Client },
}

/// The ground of a run. What is shared is started by whoever first needs it.
pub struct Ground {
    /// The fleet that the contract's lines share.
    pub contract: Option<Contract>,
    // Before the control plane, which it talks to.
    cluster_api: Option<ClusterApi>,
    plane: Option<ControlPlane>,
    origin: Origin,
    namespaces: Vec<String>,
    seed: u64,
}

impl Ground {
    /// As the environment says: `KUBECONFIG`, else `KUBEBUILDER_ASSETS`, else all of our own.
    /// `seed` is for what scenarios do at random.
    pub async fn from_environment(seed: u64) -> Result<Self> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let origin = if let Some(path) = set("KUBECONFIG") {
            let kubeconfig = PathBuf::from(path);
            kubeconfig::must_be_on_loopback(&kubeconfig).await?;
            let client = kubeconfig::client(&kubeconfig).await?;
            Origin::Existing { kubeconfig, client }
        } else if let Some(folder) = set("KUBEBUILDER_ASSETS") {
            Origin::Assets(Binaries::from_folder(Path::new(&folder))?)
        } else {
            Origin::Built(Binaries::obtain().await?)
        };
        let namespaces = Vec::new();
        Ok(Self { contract: None, cluster_api: None, plane: None, origin, namespaces, seed })
    }

    /// What the run was seeded with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether scenarios may run beside on another ground: a cluster of somebody's is the only one.
    #[must_use]
    pub fn may_have_a_second(&self) -> bool {
        !matches!(self.origin, Origin::Existing { .. })
    }

    /// Why this ground cannot carry what a scenario needs, if it cannot.
    #[must_use]
    pub fn cannot_carry(&self, needs: Needs) -> Option<&'static str> {
        match (&self.origin, needs) {
            (Origin::Built(_), _)
            | (_, Needs::ApiServer)
            | (Origin::Assets(_), Needs::OwnControlPlane)
            | (Origin::Existing { .. }, Needs::Controllers) => None,
            (Origin::Assets(_), Needs::Controllers) => {
                Some("KUBEBUILDER_ASSETS has no controller-manager")
            }
            (Origin::Existing { .. }, Needs::OwnControlPlane) => {
                Some("it starts control planes of its own, and KUBECONFIG names an existing one")
            }
            (Origin::Assets(_) | Origin::Existing { .. }, Needs::ClusterApi | Needs::Contract) => {
                Some("only a control plane of our own can reach Cluster API's webhooks here")
            }
            (Origin::Assets(_) | Origin::Existing { .. }, Needs::Programs) => {
                Some("only what is built here has helm and Cluster API's manager")
            }
        }
    }

    /// The shared control plane.
    pub async fn control_plane(&mut self) -> Result<&mut ControlPlane> {
        if self.plane.is_none() {
            self.plane = Some(self.new_control_plane().await?);
        }
        self.plane.as_mut().context("it was just started")
    }

    /// Another one, with nothing in it; it ends when it is dropped.
    pub async fn new_control_plane(&self) -> Result<ControlPlane> {
        match &self.origin {
            Origin::Built(binaries) | Origin::Assets(binaries) => {
                ControlPlane::start(binaries).await
            }
            Origin::Existing { .. } => bail!("KUBECONFIG names a cluster: none is started here"),
        }
    }

    /// The programs that we built.
    pub fn binaries(&self) -> Result<&Binaries> {
        match &self.origin {
            Origin::Built(binaries) => Ok(binaries),
            Origin::Assets(_) | Origin::Existing { .. } => bail!("nothing was built here"),
        }
    }

    /// Cluster API's own manager, and our definitions, on the shared control plane.
    pub async fn cluster_api(&mut self) -> Result<&mut ClusterApi> {
        if self.cluster_api.is_none() {
            let started = ClusterApi::start(self.control_plane().await?).await?;
            self.cluster_api = Some(started);
            self.definitions().await?;
        }
        self.cluster_api.as_mut().context("it was just started")
    }

    /// Starts what is shared by scenarios with this need.
    pub async fn prepare(&mut self, needs: Needs) -> Result<()> {
        match (needs, &self.origin) {
            (Needs::ClusterApi | Needs::Contract, _) => self.cluster_api().await.map(|_| ()),
            (Needs::OwnControlPlane | Needs::Programs, _) | (_, Origin::Existing { .. }) => Ok(()),
            (Needs::ApiServer | Needs::Controllers, _) => self.control_plane().await.map(|_| ()),
        }
    }

    /// A client of the shared API server that may do everything.
    pub async fn client(&mut self) -> Result<Client> {
        match &self.origin {
            Origin::Existing { client, .. } => Ok(client.clone()),
            Origin::Built(_) | Origin::Assets(_) => Ok(self.control_plane().await?.client()),
        }
    }

    /// The kubeconfig of that client.
    pub async fn kubeconfig(&mut self) -> Result<PathBuf> {
        match &self.origin {
            Origin::Existing { kubeconfig, .. } => Ok(kubeconfig.clone()),
            Origin::Built(_) | Origin::Assets(_) => {
                Ok(self.control_plane().await?.kubeconfig().to_owned())
            }
        }
    }

    /// What `kubectl <arguments>` prints, if it succeeds.
    pub async fn kubectl(&mut self, arguments: &[&str]) -> Result<String> {
        let program = match &self.origin {
            Origin::Built(binaries) | Origin::Assets(binaries) => binaries.path("kubectl")?,
            Origin::Existing { .. } => PathBuf::from("kubectl"),
        };
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", self.kubeconfig().await?);
        let output = command.output().context("could not start kubectl")?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {}: {}", arguments.join(" "), complaint.trim());
        }
        String::from_utf8(output.stdout).context("kubectl wrote no UTF-8")
    }

    /// A new namespace for one story; its name begins with `story`.
    pub async fn namespace(&mut self, story: &str) -> Result<String> {
        // The process id tells runs apart that share an existing cluster.
        let name = format!("{story}-{}-{}", std::process::id(), self.namespaces.len() + 1);
        let client = self.client().await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        objects::apply(&client, &namespace).await?;
        self.namespaces.push(name.clone());
        Ok(name)
    }

    /// Deletes the run's namespaces from a cluster that outlives it. Our definitions stay.
    pub async fn leave(&mut self) -> Result<()> {
        if let Origin::Existing { client, .. } = &self.origin {
            for name in self.namespaces.drain(..) {
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                objects::delete(client, &namespace).await?;
            }
        }
        Ok(())
    }

    /// Applies our definitions to the shared API server, and waits until they are served.
    pub async fn definitions(&mut self) -> Result<()> {
        let client = self.client().await?;
        objects::define(&client, &our_definitions()?).await
    }

    /// The last lines of every shared process.
    #[must_use]
    pub fn tails(&self) -> String {
        let plane = self.plane.as_ref().map(ControlPlane::tails).unwrap_or_default();
        plane + &self.cluster_api.as_ref().map(ClusterApi::tail).unwrap_or_default()
    }
}

/// The chart's definitions.
pub fn our_definitions() -> Result<Vec<serde_json::Value>> {
    objects::read_folder(&package_folder().join("../chart/crds"))
}
