//! The programs that a control plane is made of: built once, kept outside the clone.
//!
//! # Flow
//! `modules/<module>/{go.mod,go.sum}` pin everything; their version and digest name a folder of
//! the cache; what is missing there is built by Go and put in its place by a rename.
//!
//! # Guarantees
//! - A file in the cache is whole: a run that is cut off, or two at once, leave no half of one.
//! - Of several runs one makes what is missing, and the others wait for it. One that was killed
//!   leaves an unfinished file, which the next removes; Go's own cache makes it go on from there.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::guard;

/// A line of progress at least this often, so that nobody takes a slow build for a hung one.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// Between two looks whether Go is done.
const PAUSE: Duration = Duration::from_millis(200);

/// How the names of files end that are being made.
const UNFINISHED: &str = ".partial";

/// What is built from one module file.
struct Module {
    /// Its folder under `modules/`.
    folder: &'static str,
    /// The module whose version counts.
    pinned: &'static str,
    /// Files to make, and what each is made from.
    files: &'static [(&'static str, Source)],
}

enum Source {
    /// A Go package.
    Package(&'static str),
    /// A folder of the pinned module, rendered by `kubectl kustomize`.
    Manifests(&'static str),
}

const MODULES: &[Module] = &[
    Module {
        folder: "etcd",
        pinned: "go.etcd.io/etcd/server/v3",
        files: &[("etcd", Source::Package("go.etcd.io/etcd/server/v3"))],
    },
    Module {
        folder: "kubernetes",
        pinned: "k8s.io/kubernetes",
        files: &[
            ("kube-apiserver", Source::Package("k8s.io/kubernetes/cmd/kube-apiserver")),
            (
                "kube-controller-manager",
                Source::Package("k8s.io/kubernetes/cmd/kube-controller-manager"),
            ),
            ("kube-scheduler", Source::Package("k8s.io/kubernetes/cmd/kube-scheduler")),
            ("kubectl", Source::Package("k8s.io/kubernetes/cmd/kubectl")),
        ],
    },
    Module {
        folder: "cluster-api",
        pinned: "sigs.k8s.io/cluster-api",
        files: &[
            ("cluster-api-manager", Source::Package("sigs.k8s.io/cluster-api/core")),
            ("clusterctl", Source::Package("sigs.k8s.io/cluster-api/cmd/clusterctl")),
            (CLUSTER_API_MANIFESTS, Source::Manifests("core/config/default")),
        ],
    },
    Module {
        folder: "helm",
        pinned: "helm.sh/helm/v3",
        files: &[("helm", Source::Package("helm.sh/helm/v3/cmd/helm"))],
    },
];

/// Cluster API's own objects, as its release would have them.
pub const CLUSTER_API_MANIFESTS: &str = "cluster-api.yaml";

/// Programs by their file names.
#[derive(Clone, Debug)]
pub struct Binaries(BTreeMap<String, PathBuf>);

impl Binaries {
    /// Those of the cache; what is not there yet is built, with progress on standard error.
    pub async fn obtain() -> Result<Self> {
        let cache = cache()?;
        let mut missing = Vec::new();
        let mut paths = BTreeMap::new();
        for module in MODULES {
            let folder = cache.join(module.key()?);
            for (name, source) in module.files {
                let path = folder.join(name);
                if !path.exists() {
                    missing.push((module, source, path.clone()));
                }
                paths.insert((*name).to_owned(), path);
            }
        }
        let binaries = Self(paths);
        if missing.is_empty() {
            return Ok(binaries);
        }
        need_go()?;
        eprintln!(
            "e2e: making {} of {} files, once, into {}",
            missing.len(),
            binaries.0.len(),
            cache.display()
        );
        let all = missing.len();
        let _alone = alone(&cache).await?;
        for (index, (module, source, path)) in missing.into_iter().enumerate() {
            let name = path.file_name().unwrap_or_default().display();
            let label = format!("[{}/{all}] {name}", index + 1);
            if path.exists() {
                eprintln!("e2e: {label} was made by another run");
                continue;
            }
            module.make(source, &path, &label, &binaries).await?;
        }
        Ok(binaries)
    }

    /// Those of a folder that somebody else filled, as `KUBEBUILDER_ASSETS` names one: etcd,
    /// kube-apiserver and kubectl.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let mut paths = BTreeMap::new();
        for name in ["etcd", "kube-apiserver", "kubectl"] {
            let path = folder.join(name);
            ensure!(
                path.is_file(),
                "KUBEBUILDER_ASSETS: no {name} in {}: set it to a folder with etcd, \
                 kube-apiserver and kubectl, or unset it",
                folder.display()
            );
            paths.insert(name.to_owned(), path);
        }
        Ok(Self(paths))
    }

    /// The same, for a control plane that only stores.
    #[must_use]
    pub fn without_controllers(mut self) -> Self {
        self.0.retain(|name, _| !["kube-controller-manager", "kube-scheduler"].contains(&&**name));
        self
    }

    /// Where a program is, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.0.get(name).cloned()
    }

    /// Where a program is.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        self.find(name).with_context(|| format!("there is no {name} here"))
    }
}

impl Module {
    fn source_folder(&self) -> PathBuf {
        package_folder().join("modules").join(self.folder)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.source_folder().join(file);
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
    }

    /// `v1.36.4`, from the module file.
    fn version(&self) -> Result<String> {
        let text = self.read("go.mod")?;
        let required = text.lines().find_map(|line| {
            let line = line.trim().trim_start_matches("require ");
            line.strip_prefix(self.pinned)?.strip_prefix(' ')
        });
        let required = required.with_context(|| format!("no {} in its go.mod", self.pinned))?;
        Ok(required.split_whitespace().next().unwrap_or_default().to_owned())
    }

    /// `kubernetes-v1.36.4-0123456789abcdef`: another version or sum is another folder.
    fn key(&self) -> Result<String> {
        let mut digest = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            digest.update(self.read(file)?);
        }
        let digest = digest.finalize();
        let digest = u64::from_be_bytes(*digest.first_chunk().context("a digest is longer")?);
        Ok(format!("{}-{}-{digest:016x}", self.folder, self.version()?))
    }

    /// Makes one file beside its place, then moves it there.
    async fn make(
        &self,
        source: &Source,
        path: &Path,
        label: &str,
        binaries: &Binaries,
    ) -> Result<()> {
        let folder = path.parent().context("a file of the cache has a folder")?;
        fs::create_dir_all(folder)
            .with_context(|| format!("could not create {}", folder.display()))?;
        remove_unfinished(folder)?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(UNFINISHED);
        let partial = PathBuf::from(partial);
        let made = match source {
            Source::Package(package) => run(self.build(package, &partial)?, label).await,
            Source::Manifests(folder) => self.render(folder, &partial, binaries),
        };
        let made = made.and_then(|()| {
            fs::rename(&partial, path)
                .with_context(|| format!("could not write {}", path.display()))
        });
        if made.is_err() {
            // It may not be there at all.
            let _ = fs::remove_file(&partial);
        }
        made.with_context(|| format!("could not make {label}"))
    }

    fn build(&self, package: &str, output: &Path) -> Result<Command> {
        let version = self.version()?;
        let mut flags = "-s -w".to_owned();
        if self.folder == "kubernetes" {
            // Without these it calls itself v0.0.0, and nothing that asks for a version is served.
            let mut parts = version.trim_start_matches('v').split('.');
            let major = parts.next().unwrap_or_default();
            let minor = parts.next().unwrap_or_default();
            let package = "k8s.io/component-base/version";
            flags = format!(
                "{flags} -X {package}.gitVersion={version} -X {package}.gitMajor={major} \
                 -X {package}.gitMinor={minor}"
            );
        }
        let mut command = Command::new("go");
        command
            .args(["build", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", &flags])
            .arg("-o")
            .arg(output)
            .arg(package)
            .current_dir(self.source_folder())
            .env("CGO_ENABLED", "0");
        Ok(command)
    }

    fn render(&self, folder: &str, output: &Path, binaries: &Binaries) -> Result<()> {
        let mut go = Command::new("go");
        go.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", self.pinned]);
        let module = stdout(go.current_dir(self.source_folder()))?;
        let mut kubectl = Command::new(binaries.path("kubectl")?);
        let text = stdout(kubectl.arg("kustomize").arg(Path::new(module.trim()).join(folder)))?;
        fs::write(output, text).with_context(|| format!("could not write {}", output.display()))
    }
}

/// Waits until no other run makes files in the cache. Held until dropped; a run that dies lets go.
async fn alone(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    fs::create_dir_all(cache).with_context(|| format!("could not create {}", cache.display()))?;
    let file = File::create(&path).with_context(|| format!("could not open {}", path.display()))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                if !told {
                    eprintln!("e2e: another run is making them; waiting for it");
                    told = true;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("could not lock {}", path.display()));
            }
        }
    }
}

/// What a killed run left: whoever may make files is alone, so nobody is making these.
fn remove_unfinished(folder: &Path) -> Result<()> {
    let list = || format!("could not list {}", folder.display());
    for entry in fs::read_dir(folder).with_context(list)? {
        let path = entry.with_context(list)?.path();
        if path.to_string_lossy().ends_with(UNFINISHED) {
            fs::remove_file(&path)
                .with_context(|| format!("could not remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Runs Go with its output as ours, and says how long it took.
async fn run(command: Command, label: &str) -> Result<()> {
    let start = Instant::now();
    let mut said = start;
    eprintln!("e2e: {label} …");
    let mut child = guard::spawn(&command, |guarded| {
        guarded.stdin(Stdio::null()).stdout(Stdio::null());
    })
    .context("could not start go")?;
    let status = loop {
        if let Some(status) = child.try_wait().context("lost sight of go")? {
            break status;
        }
        if said.elapsed() > SIGN_OF_LIFE {
            said = Instant::now();
            eprintln!("e2e: {label}, {} s so far", start.elapsed().as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    };
    ensure!(status.success(), "`go build` ended with {status}");
    eprintln!("e2e: {label} took {} s", start.elapsed().as_secs());
    Ok(())
}

fn stdout(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("could not start {name}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} wrote no UTF-8"))
}

fn need_go() -> Result<()> {
    stdout(Command::new("go").arg("version")).map(|_| ()).context(
        "a control plane is built with Go: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to \
         a folder with etcd, kube-apiserver and kubectl, or KUBECONFIG to a cluster on loopback",
    )
}

/// `${XDG_CACHE_HOME:-$HOME/.cache}/applecart/e2e`.
fn cache() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: set one, binaries are kept under it")?;
    Ok(base.join("applecart").join("e2e"))
}

/// The folder of this package: the clone that is being tested.
#[must_use]
pub fn package_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_a_version_and_a_folder_of_its_own_in_the_cache() {
        let keys: Vec<String> = MODULES.iter().map(|module| module.key().unwrap()).collect();
        for (module, key) in MODULES.iter().zip(&keys) {
            let version = module.version().unwrap();
            assert!(version.starts_with('v'), "{version}");
            assert!(key.starts_with(&format!("{}-{version}-", module.folder)), "{key}");
        }
    }

    #[test]
    fn what_a_killed_run_left_unfinished_goes_and_what_is_whole_stays() {
        let folder = crate::folder::Folder::create().unwrap();
        for name in ["etcd", "etcd.4711.partial", "kubectl.partial"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        remove_unfinished(folder.path()).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert!(folder.path().join("etcd").exists());
    }

    #[tokio::test]
    async fn of_two_runs_one_waits_until_the_other_is_done_or_dead() {
        let folder = crate::folder::Folder::create().unwrap();
        let first = alone(folder.path()).await.unwrap();
        let wait = PAUSE * 3;
        assert!(tokio::time::timeout(wait, alone(folder.path())).await.is_err(), "two at once");
        drop(first);
        assert!(tokio::time::timeout(wait, alone(folder.path())).await.is_ok());
    }

    #[test]
    fn a_folder_without_the_three_programs_is_refused_by_name() {
        let folder = crate::folder::Folder::create().unwrap();
        let error = Binaries::from_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no etcd"), "{error}");
    }
}
