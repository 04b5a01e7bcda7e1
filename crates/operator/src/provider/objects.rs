//! The objects in Kubernetes that belong to one machine: their names, labels and content. No I/O.

use applecart_api::keys::{annotation, label, of_cluster, owned};
use applecart_core::machine::Identity;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::settings::Settings;

fn labels(machine: &str) -> Value {
    json!({
        label::MANAGED_BY: label::MANAGED_BY_PROVIDER,
        label::MACHINE: machine,
        "app.kubernetes.io/component": "tart-kubelet",
    })
}

/// One part of an agent's identity; its account is signed by the object, `owner`, that has the
/// name.
pub fn identity(part: Identity, machine: &str, owner: &str, settings: &Settings) -> Value {
    let name = owned::agent(machine);
    match part {
        Identity::ServiceAccount => json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": name,
                "labels": labels(machine),
                "annotations": {annotation::OWNER: owner},
            },
        }),
        Identity::Binding => json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels(machine)},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": settings.agent_role,
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": name, "namespace": settings.namespace}
            ],
        }),
        Identity::Token => json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": owned::agent_token(machine),
                "labels": labels(machine),
                "annotations": {"kubernetes.io/service-account.name": name},
            },
        }),
    }
}

/// The Secret with a host's password. Only the request body ever holds it in the clear.
pub fn credentials(machine: &str, user: &str, password: &SecretString) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": owned::credentials(machine),
            "labels": {
                label::MANAGED_BY: label::MANAGED_BY_PROVIDER,
                label::MACHINE: machine,
            },
        },
        "stringData": {owned::PASSWORD: password.expose_secret(), owned::USER: user},
    })
}

/// A kubeconfig, in the form that running fleets have.
pub struct Kubeconfig<'a> {
    /// Name of its context.
    pub context: &'a str,
    /// Name of its user.
    pub user: &'a str,
    /// Where the API server answers.
    pub url: &'a str,
    /// Who signed its certificate, in PEM, base64.
    pub ca_base64: &'a str,
    /// Who one is.
    pub token: &'a SecretString,
}

impl Kubeconfig<'_> {
    /// Its text.
    pub fn text(&self) -> SecretString {
        let Self { context, user, url, ca_base64, token } = self;
        let token = token.expose_secret();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters:\n- name: cluster\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca_base64}\n\
             contexts:\n- name: {context}\n  context:\n    cluster: cluster\n    user: {user}\n\
             users:\n- name: {user}\n  user:\n    token: {token}\n"
        )
        .into()
    }
}

/// A Secret that Cluster API wants of a Cluster, with its one value.
pub fn of_cluster(cluster: &str, name: &str, value: &SecretString) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": of_cluster::TYPE,
        "metadata": {
            "name": name,
            "labels": {
                label::MANAGED_BY: label::MANAGED_BY_PROVIDER,
                label::CLUSTER_NAME: cluster,
            },
        },
        "stringData": {of_cluster::VALUE: value.expose_secret()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_the_form_that_running_fleets_have() {
        let token = SecretString::from("t0ken");
        let written = Kubeconfig {
            context: "tart-kubelet",
            user: "tart-kubelet-mac-1",
            url: "https://api.example:6443",
            ca_base64: "Q0E=",
            token: &token,
        };
        assert_eq!(
            written.text().expose_secret(),
            "apiVersion: v1
kind: Config
current-context: tart-kubelet
clusters:
- name: cluster
  cluster:
    server: https://api.example:6443
    certificate-authority-data: Q0E=
contexts:
- name: tart-kubelet
  context:
    cluster: cluster
    user: tart-kubelet-mac-1
users:
- name: tart-kubelet-mac-1
  user:
    token: t0ken
"
        );
    }
}
