//! Tart's command line for the simulated Tart, with the real one's words and exit codes; and an
//! archive of it for a bootstrap to unpack.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use applecart_core::pod::{Exit, Template, VmName, VmState};
use applecart_mac::Output;
use bytes::Bytes;
use serde_json::json;
use tart_kubelet::{Share, Vm};

use crate::mac::SimMac;
use crate::tart::SimTart;

/// What the command is called between a Mac and its model.
pub(super) const NAME: &str = "tart-stand-in";

/// How often a running VM is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Tart's exit code for a VM that does not exist or does not run.
const NO_SUCH_VM: i32 = 2;

/// What starting a VM says where nobody is logged in on the screen.
const NO_SESSION: &str = "Error Domain=VZErrorDomain Code=1 \
                          \"The virtual machine failed to start.\" \
                          Internal Virtualization error.\n";

/// Runs one command.
pub(super) async fn run(tart: &SimTart, mac: &SimMac, words: &[String]) -> Output {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let named = |name: &str| VmName::new(name);
    let there = |name: &str| tart.vms().contains_key(&named(name));
    match words[..] {
        ["list", ..] => list(tart),
        ["clone", image, name] => clone(tart, image, &named(name)).await,
        ["set" | "run" | "ip" | "stop" | "delete", name, ..] if !there(name) => {
            ended(NO_SUCH_VM, "", format!("the specified VM \"{name}\" does not exist\n"))
        }
        ["set", ..] => ended(0, "", ""),
        ["run", name, ..] => run_vm(tart, mac, &named(name)).await,
        ["ip", name, ..] => match tart.address(&named(name)).await {
            Ok(Some(address)) => ended(0, format!("{address}\n"), ""),
            _ => ended(1, "", "no IP address found, is your VM running?\n"),
        },
        ["stop", name, ..] if tart.finish(&named(name), 0) => ended(0, "", ""),
        ["stop", name, ..] => ended(NO_SUCH_VM, "", format!("VM \"{name}\" is not running\n")),
        ["delete", name] if tart.running().contains(&named(name)) => {
            ended(1, "", format!("VM \"{name}\" is running\n"))
        }
        ["delete", name] => done(tart.remove(&named(name)).await),
        _ => ended(64, "", "Error: Unexpected argument\n"),
    }
}

fn list(tart: &SimTart) -> Output {
    let vms = tart.vms().into_iter().map(|(name, vm)| {
        let running = vm.state == VmState::Running;
        json!({
            "Source": "local", "Name": name.as_str(), "Disk": 50, "Size": 21, "Running": running,
            "State": if running { "running" } else { "stopped" },
        })
    });
    ended(0, vms.collect::<serde_json::Value>().to_string() + "\n", "")
}

async fn clone(tart: &SimTart, image: &str, vm: &VmName) -> Output {
    let template = Template {
        container: String::new(),
        image: image.to_owned(),
        cpu: None,
        memory_mib: None,
        env: Vec::new(),
        token_of: None,
    };
    done(tart.create(vm, &template).await)
}

/// Runs a VM to its end. Dropped, it ends the VM: its process is gone.
async fn run_vm(tart: &SimTart, mac: &SimMac, vm: &VmName) -> Output {
    if !mac.has_session() {
        return ended(1, "", NO_SESSION);
    }
    if let Err(error) = tart.start(vm, Share::default()).await {
        return ended(1, "", format!("{error}\n"));
    }
    let running = Running { tart, mac, vm };
    running.count();
    loop {
        match tart.vms().get(vm).map(|vm| vm.state.clone()) {
            Some(VmState::Running) => tokio::time::sleep(LOOK).await,
            Some(VmState::Ended { exit: Exit::Code { code, message }, .. }) => {
                return ended(code, "", if message.is_empty() { message } else { message + "\n" });
            }
            _ => return ended(1, "", "the VM was ended from outside\n"),
        }
    }
}

struct Running<'a> {
    tart: &'a SimTart,
    mac: &'a SimMac,
    vm: &'a VmName,
}

impl Running<'_> {
    fn count(&self) {
        self.mac.set_vms(u32::try_from(self.tart.running().len()).unwrap_or(u32::MAX));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        let _killed = self.tart.kill(self.vm);
        self.count();
    }
}

fn done(result: Result<(), tart_kubelet::VmError>) -> Output {
    result.map_or_else(|error| ended(1, "", format!("{error}\n")), |()| ended(0, "", ""))
}

fn ended(status: i32, stdout: impl Into<Bytes>, stderr: impl Into<Bytes>) -> Output {
    Output { status, stdout: stdout.into(), stderr: stderr.into() }
}

/// Writes an archive with the stand-in for Tart, as its makers pack the real one, to `file`. Same
/// version, same bytes.
pub fn archive(version: &str, file: &Path) -> io::Result<()> {
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}'; exit 0; fi\n\
         exec /.applecart/tools/tool sim mac-tool {NAME} \"$@\"\n"
    );
    pack(file, &[("tart.app/Contents/MacOS/tart", &text)])
}

/// Packs programs by their paths. Same programs, same bytes.
pub(super) fn pack(file: &Path, programs: &[(&str, &str)]) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    for (path, text) in programs {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
        let mut program = std::fs::File::create(path)?;
        program.write_all(text.as_bytes())?;
        program.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    let output = Command::new("tar")
        .args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--use-compress-program=gzip -n", "-cf"])
        .arg(file)
        .arg("-C")
        .arg(folder.path())
        .arg(".")
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}
