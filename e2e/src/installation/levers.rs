//! What a test or a person can ask of the world around: Scaleway, the Macs, health pages.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Installation;
use super::optional::OptionalSteps;

/// Longest wait for one answer of a simulator.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

impl Installation {
    /// Ends the job of a Mac's VM.
    pub async fn finish(&self, mac: &str, vm: &str) -> Result<()> {
        let url = format!("{}/macs/{mac}/vms/{vm}/finish", self.macs_url);
        request("POST", &url, &[], Some(&json!({"code": 0}))).await.map(|_| ())
    }

    /// Something goes wrong with a Mac, or is well again: see `applecart sim macs --help`.
    pub async fn change_mac(&self, mac: &str, change: &Value) -> Result<()> {
        let url = format!("{}/macs/{mac}", self.macs_url);
        request("PATCH", &url, &[], Some(change)).await.map(|_| ())
    }

    /// All hosts at Scaleway.
    pub async fn hosts(&self) -> Result<Vec<Value>> {
        let path = "/apple-silicon/v1alpha1/zones/fr-par-1/servers?page_size=100";
        let listed = self.scaleway("GET", path, None).await?;
        Ok(listed["servers"].as_array().cloned().unwrap_or_default())
    }

    /// One call to the simulated Scaleway.
    pub async fn scaleway(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let url = format!("{}{path}", self.scaleway_environment["SCW_API_URL"]);
        let key = self.scaleway_environment["SCW_SECRET_KEY"].as_str();
        request(method, &url, &[("X-Auth-Token", key)], body).await
    }

    /// What each of its programs says on one of its health pages, if that is well.
    pub async fn pages(&self, path: &str) -> Result<Vec<String>> {
        let mut pages = Vec::new();
        for program in &self.programs {
            let url = format!("http://127.0.0.1:{}{path}", program.health_port);
            pages.push(page(&url).await?);
        }
        Ok(pages)
    }

    /// Everything there is at Scaleway, by host: what nobody but a test may know.
    pub async fn state(&self) -> Result<Value> {
        self.scaleway("GET", "/sim/state", None).await
    }

    /// How often each host was wiped so far, by its id.
    pub async fn wipes(&self) -> Result<BTreeMap<String, u64>> {
        let state = self.state().await?;
        let hosts = state["hosts"].as_array().context("the state has no hosts")?;
        let wipes = |host: &Value| Some((host["id"].as_str()?.to_owned(), host["wipes"].as_u64()?));
        hosts.iter().map(|host| wipes(host).context("a host without wipes")).collect()
    }

    /// The Macs as a person beside them would see them.
    pub async fn macs(&self) -> Result<Vec<Value>> {
        let macs = request("GET", &format!("{}/macs", self.macs_url), &[], None).await?;
        Ok(macs.as_array().cloned().unwrap_or_default())
    }

    /// Runs a command on the Mac at `address`, by the real client of OpenSSH and the fleet's key.
    pub fn ssh(&self, address: &str, command: &str) -> Result<String> {
        let ran = Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
            .args(["-p", &self.ssh_port.to_string(), "-i"])
            .arg(self.folder.join("fleet-key"))
            .args([&format!("m1@{address}"), command])
            .output();
        let ran = ran.context("ssh is missing")?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "{command} on {address}: {}: {said}", ran.status);
        String::from_utf8(ran.stdout).context("no text")
    }

    /// What is secret of the world around, with its name: the key to Scaleway, the passwords that
    /// Macs have now, and GitHub's tokens.
    pub async fn secrets(&self) -> Result<Vec<(String, String)>> {
        let key = self.scaleway_environment["SCW_SECRET_KEY"].clone();
        let mut all = vec![("the key to Scaleway".to_owned(), key)];
        let macs = self.scaleway("GET", "/sim/macs", None).await?;
        passwords(&macs, &mut all);
        ensure!(all.len() > self.plan.hosts, "Scaleway does not tell the Macs' passwords: {macs}");
        all.extend(self.optional.iter().flat_map(OptionalSteps::secrets));
        Ok(all)
    }

    /// What it tells, with the place: its pages, and what was run on its Macs.
    pub async fn told(&self) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for path in ["/metrics", "/readyz", "/healthz"] {
            all.extend(self.pages(path).await?.into_iter().map(|page| (path.to_owned(), page)));
        }
        for mac in self.macs().await? {
            let id = mac["id"].as_str().context("a Mac without an id")?;
            all.push((format!("what was run on {id}"), self.calls(id).await?.to_string()));
        }
        Ok(all)
    }

    /// What was run on a Mac, oldest first.
    pub async fn calls(&self, mac: &str) -> Result<Value> {
        let url = format!("{}/macs/{mac}/calls", self.macs_url);
        request("GET", &url, &[], None).await
    }
}

/// Every password in what Scaleway tells of Macs.
fn passwords(value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                match inner.as_str().filter(|_| name.contains("password")) {
                    Some(text) => found.push((name.clone(), text.to_owned())),
                    None => passwords(inner, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| passwords(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A page that is answered with 200; anything else is an error with what it says.
pub async fn page(url: &str) -> Result<String> {
    let answer = reqwest::Client::new().get(url).timeout(ANSWER_WITHIN).send().await;
    let answer = answer.with_context(|| format!("GET {url}"))?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{url}: {status} {text}");
    Ok(text)
}

/// The answer of a simulator, if it is a success.
pub async fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Value> {
    let mut request = reqwest::Client::new().request(method.parse()?, url).timeout(ANSWER_WITHIN);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.header("Content-Type", "application/json").body(body.to_string());
    }
    let answer = request.send().await.with_context(|| format!("{method} {url}"))?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{method} {url}: {status} {text}");
    Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
}
