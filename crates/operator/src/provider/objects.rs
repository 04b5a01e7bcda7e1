//! The objects in Kubernetes that belong to one machine: their names, labels and content. No I/O.

use applecart_api::keys::{label, owned};
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

/// One part of an agent's identity.
pub fn identity(part: Identity, machine: &str, settings: &Settings) -> Value {
    let name = owned::agent(machine);
    match part {
        Identity::ServiceAccount => json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "labels": labels(machine)},
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

/// The agent's kubeconfig, in the form that running fleets have.
pub fn kubeconfig(machine: &str, url: &str, ca_base64: &str, token: &SecretString) -> SecretString {
    let user = owned::agent(machine);
    let token = token.expose_secret();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: tart-kubelet\n\
         clusters:\n- name: cluster\n  cluster:\n    server: {url}\n    \
         certificate-authority-data: {ca_base64}\n\
         contexts:\n- name: tart-kubelet\n  context:\n    cluster: cluster\n    user: {user}\n\
         users:\n- name: {user}\n  user:\n    token: {token}\n"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_the_form_that_running_fleets_have() {
        let token = SecretString::from("t0ken");
        let written = kubeconfig("mac-1", "https://api.example:6443", "Q0E=", &token);
        assert_eq!(
            written.expose_secret(),
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
