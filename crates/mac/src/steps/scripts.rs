//! All shell text that runs on a Mac. Constant: values come as `$1`… or on stdin.

use crate::Script;

/// Matches a running VM's command line, and not its own: `[t]` is not `t`.
pub const VM_PATTERN: &str = "MacOS/[t]art run|[V]irtualization.VirtualMachine";

/// The status with which a script says: not now, a VM is running.
pub const STATUS_VMS_RUNNING: i32 = 75;

/// The status with which [`COUNT_TRY`] says: as often as is safe already.
pub const STATUS_TRIES_USED_UP: i32 = 75;

/// What is on the command line of the shell that runs each of our commands on a host.
pub const COMMAND_MARK: &str = "applecart-command";

/// Matches such a shell, and not its own command line.
pub const COMMAND_PATTERN: &str = "[a]pplecart-command";

/// A shell function that sends signal `$1` to process group `$2`.
macro_rules! end_group {
    () => {
        r#"end() {
  # Without the dashes, some versions of kill read -1234 as -1: every process there is.
  if [ "$2" -le 1 ]; then return 1; fi
  sudo -n kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" -- "-$2" 2>/dev/null
}
"#
    };
}

/// Ends the process group `$1` and all in it: politely, then not.
pub const END_GROUP: Script = Script {
    name: "end a command",
    text: concat!(
        end_group!(),
        r#"end TERM "$1" || exit 0
sleep 1
end KILL "$1"
exit 0
"#
    ),
};

/// Ends commands of earlier runs whose connection was lost, so that no two runs work at once. Its
/// own shell is its parent. Fails unless a last look finds none: only that one proves it.
pub const END_LEFTOVERS: Script = Script {
    name: "end what earlier runs left",
    text: concat!(
        end_group!(),
        r#"look() {
  status=0
  shells=$(pgrep -f '[a]pplecart-command') || status=$?
  if [ "$status" -gt 1 ]; then
    echo "cannot tell what earlier runs left: pgrep ended with status $status" >&2
    exit 1
  fi
  found=
  for shell in $shells; do
    if [ "$shell" != "$PPID" ]; then found="$found $shell"; fi
  done
}
for signal in TERM KILL KILL; do
  look
  if [ -z "$found" ]; then exit 0; fi
  for shell in $found; do end "$signal" "$shell" || true; done
  sleep 1
done
look
if [ -z "$found" ]; then exit 0; fi
echo "commands of an earlier run do not end:$found" >&2
exit 1
"#
    ),
};

/// Prints preferences, one a line and without blanks; an empty line for one that is not there. `$1`
/// is `-currentHost` or empty; then come domain and key, again and again.
pub const READ_PREFERENCES: Script = Script {
    name: "read preferences",
    text: r#"set -eu
host=$1
shift
while [ $# -ge 2 ]; do
  value=$(defaults ${host:+"$host"} read "$1" "$2" 2>/dev/null | tr -d '[:space:]')
  printf '%s
' "$value"
  shift 2
done
"#,
};

/// The scripts that change nothing on a host that is as it shall be.
pub const LOOKS: [Script; 3] = [END_LEFTOVERS, READ_PREFERENCES, SHOW_RULES];

/// Counts a try of the password whose mark is on stdin, unless it was tried twice in this boot.
///
/// The mark is a short digest: it tells two passwords apart and gives none away. What was tried in
/// another boot is forgotten, as macOS forgets it.
pub const COUNT_TRY: Script = Script {
    name: "count a password try",
    text: r#"set -eu
umask 077
tries=$HOME/.applecart-password-tries
read -r mark
boot=$(sysctl -n kern.bootsessionuuid)
test -n "$boot"
touch "$tries"
if [ "$(grep -cxF -e "$boot $mark" "$tries")" -ge 2 ]; then exit 75; fi
kept=$(grep -F -e "$boot " "$tries" || true)
printf '%s%s\n' "${kept:+$kept
}" "$boot $mark" >"$tries.new"
mv -f "$tries.new" "$tries"
"#,
};

/// Forgets all tries of the password whose mark is on stdin.
pub const FORGET_TRIES: Script = Script {
    name: "forget a password's tries",
    text: r#"set -eu
umask 077
tries=$HOME/.applecart-password-tries
read -r mark
if [ ! -e "$tries" ]; then exit 0; fi
kept=$(grep -v -e " $mark\$" "$tries" || true)
printf '%s' "${kept:+$kept
}" >"$tries.new"
mv -f "$tries.new" "$tries"
"#,
};

/// Installs the sudo rule of user `$1`. Reads nothing: stdin holds the password or is empty.
pub const INSTALL_SUDOERS: Script = Script {
    name: "install the sudo rule",
    text: r#"set -eu
umask 077
mkdir -p /etc/sudoers.d
rm -f /etc/sudoers.d/.applecart.??????
staged=$(mktemp /etc/sudoers.d/.applecart.XXXXXX)
trap 'rm -f "$staged"' EXIT
printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$1" >"$staged"
visudo -cf "$staged" >/dev/null
chown root:wheel "$staged"
chmod 0440 "$staged"
mv -f "$staged" "/etc/sudoers.d/$1-nopasswd"
"#,
};

/// Puts stdin, of checksum `$2`, in place as file `$1` of root, with mode `$3`.
pub const RECEIVE: Script = Script {
    name: "receive a file",
    text: r#"set -eu
umask 022
mkdir -p "$(dirname "$1")"
umask 077
rm -f "$1".applecart.??????
staged=$(mktemp "$1.applecart.XXXXXX")
trap 'rm -f "$staged"' EXIT
cat >"$staged"
if ! printf '%s  %s\n' "$2" "$staged" | shasum -a 256 -c - >/dev/null 2>&1; then
  echo "it arrived damaged" >&2
  exit 1
fi
chown root:wheel "$staged"
chmod "$3" "$staged"
mv -f "$staged" "$1"
"#,
};

/// Prints the live rules: those of the main ruleset, then those of each anchor, however deep, after
/// a line `# <path>`. Each by its whole path: what macOS prints of a wildcard is an error.
pub const SHOW_RULES: Script = Script {
    name: "show the live rules",
    text: r#"set -euf
pfctl -s rules
anchors=$(pfctl -v -s Anchors)
for anchor in $anchors; do
  printf '# %s\n' "$anchor"
  if ! pfctl -a "$anchor" -s rules; then
    # One that went meanwhile has none; one that cannot be read may have any.
    left=$(pfctl -v -s Anchors)
    for there in $left; do
      if [ "$there" = "$anchor" ]; then exit 1; fi
    done
  fi
done
"#,
};

/// Loads the firewall's rules: into the anchor alone (`$1` is `anchor`), with the main ruleset
/// (`main`) or with the filter's part of that (`filter`), or below Apple's anchor (`stand-in`).
///
/// What is loaded is parsed before anything is touched, and nothing else is: a mistake of another's
/// in the main file must not keep a flushed anchor open. And each load happens as a whole or not at
/// all: a host that is closed stays so. Another pfctl at the same moment makes a load fail as busy,
/// and it is tried again. Only where it fails for good does what older versions left in the anchor
/// go first, and only if `$2` is `empty`: then what stands in for the anchor is evaluated, and
/// holds VMs back from before the anchor is emptied until it is loaded again, whoever does that.
/// With `keep` it is only tried longer. Our tables in the main ruleset go in any case.
pub const LOAD_FIREWALL: Script = Script {
    name: "load the firewall",
    text: r#"set -eu
anchor=tuist.runners
rules=/etc/pf.anchors/tuist.runners
load() {
  for wait in 1 2 4; do
    if pfctl "$@"; then return 0; fi
    sleep "$wait"
  done
  pfctl "$@"
}
load_as() {
  case $1 in
    anchor) load -a "$anchor" -f "$rules" ;;
    main) load -f /etc/pf.conf ;;
    filter) load -R -f /etc/pf.conf && load -a "$anchor" -f "$rules" ;;
    stand-in) load -a "com.apple/$anchor" -f "$rules" ;;
  esac
}
kill_tables() {
  for table in vm_sources blocked_dst; do
    pfctl "$@" -t "$table" -T kill
  done
}
case $1 in
  anchor | stand-in) pfctl -n -a "$anchor" -f "$rules" ;;
  *) pfctl -n -f /etc/pf.conf ;;
esac
if ! load_as "$1"; then
  if [ "$2" = empty ]; then
    load_as stand-in
    load -a "$anchor" -f /dev/null
    kill_tables -a "$anchor"
  fi
  load_as "$1"
fi
kill_tables
"#,
};

/// Unpacks the Tart archive on stdin, of checksum `$1`, and swaps it in unless a VM runs.
pub const UNPACK_TART: Script = Script {
    name: "unpack Tart",
    text: r#"set -eu
mkdir -p /usr/local/lib
rm -rf /usr/local/lib/.tart.??????
staged=$(mktemp -d /usr/local/lib/.tart.XXXXXX)
trap 'rm -rf "$staged"' EXIT
cat >"$staged/archive"
printf '%s  %s\n' "$1" "$staged/archive" | shasum -a 256 -c - >/dev/null
tar -xzf "$staged/archive" -C "$staged"
test -x "$staged/tart.app/Contents/MacOS/tart"
chown -R root:wheel "$staged/tart.app"
chmod 0755 "$staged/tart.app"
found=0
said=$(pgrep -f 'MacOS/[t]art run|[V]irtualization.VirtualMachine' 2>&1 >/dev/null) || found=$?
case $found:$said in
  0:*) exit 75 ;;
  1:) ;;
  *)
    echo "cannot tell whether a VM runs: pgrep ended with status $found: $said" >&2
    exit 1
    ;;
esac
if [ -e /usr/local/lib/tart.app ]; then mv /usr/local/lib/tart.app "$staged/old"; fi
mv "$staged/tart.app" /usr/local/lib/tart.app
"#,
};

/// Unpacks the Tailscale archive on stdin, of checksum `$1`: `tailscale` and `tailscaled`, wherever
/// in it they are.
pub const UNPACK_TAILSCALE: Script = Script {
    name: "unpack Tailscale",
    text: r#"set -eu
mkdir -p /usr/local/bin /var/lib/tailscale
rm -rf /usr/local/bin/.tailscale.??????
staged=$(mktemp -d /usr/local/bin/.tailscale.XXXXXX)
trap 'rm -rf "$staged"' EXIT
cat >"$staged/archive"
printf '%s  %s\n' "$1" "$staged/archive" | shasum -a 256 -c - >/dev/null
tar -xzf "$staged/archive" -C "$staged"
for name in tailscale tailscaled; do
  found=$(find "$staged" -type f -name "$name" | head -n 1)
  test -n "$found"
  chown root:wheel "$found"
  chmod 0755 "$found"
  mv -f "$found" "/usr/local/bin/$name"
done
"#,
};

/// Joins the tailnet as host `$1` with tags `$2`, by the key on stdin; ends once there is an
/// address.
pub const JOIN_TAILNET: Script = Script {
    name: "join the tailnet",
    text: r#"set -eu
umask 077
mkdir -p /etc/tuist
key=/etc/tuist/tailscale-auth-key
socket=/var/run/tailscaled.socket
# A file that is there keeps its mode.
rm -f "$key"
trap 'rm -f "$key"' EXIT
cat >"$key"
wait_for() {
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 1
  done
  echo "waited in vain for: $*" >&2
  tail -n 5 /var/log/tailscaled.log >&2
  return 1
}
wait_for test -S "$socket"
# The socket of a daemon that was ended may still be there, with nobody behind it.
wait_for /usr/local/bin/tailscale --socket="$socket" status --json
/usr/local/bin/tailscale --socket="$socket" up --auth-key="file:$key" --reset --ssh=false \
  --hostname="$1" --timeout=60s ${2:+"--advertise-tags=$2"}
wait_for /usr/local/bin/tailscale --socket="$socket" ip -4
"#,
};

/// Matches the process of a job that a GitHub Actions runner has, and not its own.
pub const JOB_PATTERN: &str = "[R]unner.Worker";

/// Matches a node exporter that exports, and neither its own command line nor the wrapper that
/// waits for an address.
pub const EXPORTER_PATTERN: &str = "bin/[n]ode_exporter --";

/// Makes the folders of a host that builds images, for user `$1`.
pub const BUILDER_FOLDERS: Script = Script {
    name: "make a builder's folders",
    text: r#"set -eu
for folder in /opt/actions-runner /opt/tuist-build-cache; do
  mkdir -p "$folder"
  chown "$1:staff" "$folder"
  chmod 0755 "$folder"
done
"#,
};

/// Installs a GitHub Actions runner of release `$1` unless there is one, registers it at `$2` as
/// `$3` with labels `$4` unless it is, and lets it write its launchd job `$5`. The token is on
/// stdin, and on no command line: the runner's own program reads it from its environment.
pub const INSTALL_RUNNER: Script = Script {
    name: "install the GitHub runner",
    text: r#"set -eu
read -r token
cd /opt/actions-runner
if [ ! -x config.sh ]; then
  # What a run that was cut off left: a hundred megabytes.
  rm -rf /opt/actions-runner/.staged.*
  staged=$(mktemp -d /opt/actions-runner/.staged.XXXXXX)
  trap 'rm -rf "$staged"' EXIT
  name="actions-runner-osx-arm64-$1.tar.gz"
  curl -fsSL "https://github.com/actions/runner/releases/download/v$1/$name" >"$staged/archive"
  mkdir "$staged/new"
  tar -xf "$staged/archive" -C "$staged/new"
  test -x "$staged/new/config.sh"
  # Last comes what says that all of it is there.
  mv "$staged/new/config.sh" "$staged/config.sh"
  for entry in "$staged"/new/* "$staged"/new/.[!.]*; do
    if [ -e "$entry" ]; then
      rm -rf "./$(basename "$entry")"
      mv "$entry" .
    fi
  done
  mv "$staged/config.sh" config.sh
fi
if [ ! -f .runner ] || [ ! -f .credentials ]; then
  rm -f .runner .credentials .credentials_rsaparams
  ACTIONS_RUNNER_INPUT_TOKEN=$token ./config.sh --url "$2" --name "$3" --labels "$4" \
    --work _work --unattended --replace </dev/null >/dev/null
fi
if [ ! -f "$HOME/Library/LaunchAgents/$5.plist" ]; then
  mkdir -p "$HOME/Library/LaunchAgents"
  rm -f .service
  ./svc.sh install </dev/null >/dev/null
fi
"#,
};

/// Takes a runner's job out of domain `$1` and forgets what it was registered as, so that it is
/// registered anew.
pub const FORGET_RUNNER: Script = Script {
    name: "forget the GitHub runner's registration",
    text: r#"set -eu
for plist in "$HOME"/Library/LaunchAgents/actions.runner.*.plist; do
  if [ -e "$plist" ]; then
    launchctl bootout "$1/$(basename "$plist" .plist)" || true
    rm -f "$plist"
  fi
done
cd /opt/actions-runner
rm -f .service .credentials .credentials_rsaparams .runner
"#,
};

/// Makes what the agent, running as user `$1`, writes to.
pub const AGENT_FOLDERS: Script = Script {
    name: "make the agent's folders",
    text: r#"set -eu
for folder in /var/log/tart-vms /var/lib/tart-userdata; do
  mkdir -p "$folder"
  chown -R "$1:staff" "$folder"
  chmod 0755 "$folder"
done
touch /var/log/tart-kubelet.log
chown "$1:staff" /var/log/tart-kubelet.log
chmod 0644 /var/log/tart-kubelet.log
"#,
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every text that a shell of a Mac reads, with its name.
    fn all() -> Vec<(&'static str, &'static str)> {
        let installs = [INSTALL_SUDOERS, RECEIVE, UNPACK_TART, LOAD_FIREWALL, AGENT_FOLDERS];
        let others = [COUNT_TRY, FORGET_TRIES, END_GROUP, UNPACK_TAILSCALE, JOIN_TAILNET];
        let builders = [BUILDER_FOLDERS, INSTALL_RUNNER, FORGET_RUNNER];
        let edge = [crate::ssh::READ, crate::ssh::WRITE];
        let all = installs.into_iter().chain(others).chain(builders).chain(LOOKS).chain(edge);
        let wrapper = ("the exporter's wrapper", crate::steps::node_exporter::WRAPPER);
        all.map(|script| (script.name, script.text)).chain([wrapper]).collect()
    }

    #[test]
    fn every_script_is_text_that_a_posix_shell_accepts() {
        // macOS's own sh is bash in this mode.
        for shell in [["/bin/sh"].as_slice(), &["bash", "--posix"]] {
            for (name, text) in all() {
                let (program, flags) = shell.split_first().unwrap();
                let mut check = std::process::Command::new(program);
                let output = check.args(flags).args(["-n", "-c", text]).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && said.is_empty(), "{shell:?}: {name}: {said}");
            }
        }
    }

    /// What a newer bash takes and macOS's, 3.2 of 2007, does not, or what no other shell takes.
    fn is_too_new(text: &str) -> Option<&'static str> {
        let words = [
            "mapfile",
            "readarray",
            "coproc",
            "declare",
            "typeset",
            "local ",
            "[[",
            "((+",
            "&>",
            "|&",
            ";;&",
            ";&",
            "<<<",
            "<(",
            ">(",
            "{fd}",
            "wait -n",
            "read -N",
            "read -i",
            "printf -v",
            "printf '%(",
            "$EPOCH",
            "$BASHPID",
            "$SRANDOM",
            "${!",
            "shopt",
            "pipefail",
            "$'",
            "function ",
            "source ",
            "==",
        ];
        let found = words.into_iter().find(|word| text.contains(word));
        let endings = [",}", "^}", "@Q}", "@U}", "@L}", "@E}", "@P}", "@A}"];
        found.or_else(|| endings.into_iter().find(|ending| text.contains(ending)))
    }

    #[test]
    fn no_script_needs_a_shell_that_is_newer_than_the_one_of_macos() {
        for newer in [
            "x=${1,,}",
            "x=${1^^}",
            "run &>>log",
            "run |& cat",
            "mapfile -t lines",
            "declare -A x",
            "if [[ -n $1 ]]; then :; fi",
            "cat <<<\"$1\"",
            "echo ${x@Q}",
            "set -o pipefail",
        ] {
            assert!(is_too_new(newer).is_some(), "{newer}");
        }
        for (name, text) in all() {
            assert_eq!(is_too_new(text), None, "{name}");
        }
    }

    #[test]
    fn a_script_that_stages_first_removes_what_a_power_cut_left() {
        let stage = [INSTALL_SUDOERS, RECEIVE, UNPACK_TART, UNPACK_TAILSCALE, INSTALL_RUNNER];
        for script in stage.into_iter().chain([crate::ssh::WRITE]) {
            let (before, staged) = script.text.split_once("staged=$(mktemp ").expect("it stages");
            let template = staged.trim_start_matches("-d ").split("XXXXXX").next().unwrap();
            let template = template.replace('"', "");
            let removes = |line: &str| {
                line.trim_start().starts_with("rm -") && line.replace('"', "").contains(&template)
            };
            assert!(before.lines().any(removes), "{script:?}");
        }
    }

    #[test]
    fn scripts_name_the_same_paths_and_pattern_as_the_code() {
        use crate::steps::paths;
        assert!(END_LEFTOVERS.text.contains(&format!("pgrep -f '{COMMAND_PATTERN}'")));
        assert_eq!(COMMAND_PATTERN.replace("[a]", "a"), COMMAND_MARK);
        let tries = paths::password_tries(&"u".parse().unwrap());
        let (_, in_home) = tries.split_once("/u/").unwrap();
        for script in [COUNT_TRY, FORGET_TRIES] {
            assert!(script.text.contains(&format!("$HOME/{in_home}")), "{script:?}");
        }
        assert!(INSTALL_SUDOERS.text.contains(&paths::sudoers(&"u".parse().unwrap())[..15]));
        assert!(
            UNPACK_TART.text.contains(paths::TART_APP) && UNPACK_TART.text.contains(VM_PATTERN)
        );
        for word in [crate::pf::ANCHOR, paths::PF_ANCHOR, paths::PF_CONF] {
            assert!(LOAD_FIREWALL.text.contains(word), "{word}");
        }
        let tables: Vec<&str> = crate::pf::TABLES.iter().map(|(name, _)| *name).collect();
        assert!(LOAD_FIREWALL.text.contains(&format!("in {}; do", tables.join(" "))));
        assert!(LOAD_FIREWALL.text.contains("com.apple/$anchor"));
        assert_eq!(crate::pf::STAND_IN, format!("com.apple/{}", crate::pf::ANCHOR));
        let exporter = EXPORTER_PATTERN.replace("[n]", "n");
        assert!(crate::steps::node_exporter::WRAPPER.contains(&exporter));
        for path in [paths::TAILSCALE, paths::TAILSCALE_SOCKET] {
            assert!(JOIN_TAILNET.text.contains(path), "{path}");
        }
        let runner = "u".parse().map(|user| paths::runner_plist(&user, "$5")).unwrap();
        let (_, in_home) = runner.split_once("/u/").unwrap();
        assert!(INSTALL_RUNNER.text.contains(&format!("$HOME/{in_home}")));
        for script in [BUILDER_FOLDERS, INSTALL_RUNNER, FORGET_RUNNER] {
            assert!(script.text.contains(paths::RUNNER), "{script:?}");
        }
        assert!(BUILDER_FOLDERS.text.contains(paths::BUILD_CACHE));
        for path in [paths::AGENT_LOG, paths::VM_LOGS, paths::VM_USER_DATA] {
            assert!(AGENT_FOLDERS.text.contains(path));
        }
    }

    /// A shell that knows no programs but these. They are functions: a file that was just written
    /// may be busy, when another test forks meanwhile, and cannot be executed then.
    fn shell_with(programs: &[(&str, &str)], script: &str) -> std::process::Command {
        let function = |(name, text): &(&str, &str)| format!("{name}() (\n{text}\n)\n");
        let programs: String = programs.iter().map(function).collect();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &format!("{programs}{script}")]).env("PATH", "/nowhere");
        shell
    }

    /// How [`END_LEFTOVERS`] ends, and what it says, where `pgrep` is this script. Nobody is hurt:
    /// `sudo` does nothing but say that it did, and nothing sleeps.
    fn ends_leftovers(pgrep: &str) -> (Option<i32>, String) {
        let programs = [("pgrep", pgrep), ("sudo", "exit 0"), ("sleep", "exit 0")];
        let output = shell_with(&programs, END_LEFTOVERS.text).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// How [`LOAD_FIREWALL`] ends, and what it loads, where every load of what is in `busy` meets
    /// another pfctl.
    fn loads_firewall(may: &str, busy: &str) -> (bool, Vec<String>) {
        loads_firewall_as("anchor", may, busy, "nothing")
    }

    /// The same for any mode, where parsing what is in `broken` fails.
    fn loads_firewall_as(mode: &str, may: &str, busy: &str, broken: &str) -> (bool, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let pfctl = format!(
            "case \"$*\" in {broken}) exit 1 ;; -n*) exit 0 ;; esac\necho \"$*\" >>'{}'\n\
             case \"$*\" in\n  {busy}) exit 1 ;;\nesac",
            log.display()
        );
        let programs = [("pfctl", pfctl.as_str()), ("sleep", "exit 0")];
        let mut shell = shell_with(&programs, LOAD_FIREWALL.text);
        let ended = shell.args(["sh", mode, may]).output().unwrap().status;
        let mut lines: Vec<String> =
            std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect();
        lines.dedup();
        (ended.success(), lines)
    }

    #[test]
    fn the_anchor_is_emptied_only_where_something_stands_in_for_it() {
        // S22
        use crate::steps::paths::PF_ANCHOR;
        let ours = format!("-a tuist.runners -f {PF_ANCHOR}");
        let stand_in = format!("-a com.apple/tuist.runners -f {PF_ANCHOR}");
        let emptied = "-a tuist.runners -f /dev/null".to_owned();
        let killed = |table| format!("-a tuist.runners -t {table} -T kill");
        let busy = "'-a tuist.runners -f /etc'*";
        let (well, loads) = loads_firewall("empty", busy);
        let in_order = [&ours, &stand_in, &emptied, &killed("vm_sources"), &killed("blocked_dst")];
        assert!(!well && loads.iter().eq(in_order.into_iter().chain([&ours])), "{loads:?}");
        assert_eq!(loads_firewall("keep", busy), (false, vec![ours.clone()]));
        let (well, loads) = loads_firewall("empty", "*/etc*");
        assert!(!well && loads == [ours.clone(), stand_in], "{loads:?}");
        let (well, loads) = loads_firewall("empty", "nothing");
        assert!(well && loads[0] == ours && !loads.contains(&emptied), "{loads:?}");
    }

    #[test]
    fn a_broken_main_file_keeps_no_anchor_from_its_load() {
        // S22, V17
        let loads = |mode, broken| loads_firewall_as(mode, "keep", "nothing", broken);
        let main = "'-n -f /etc/pf.conf'";
        assert!(loads("anchor", main).0 && loads("stand-in", main).0);
        for mode in ["main", "filter"] {
            assert_eq!(loads(mode, main), (false, vec![]), "{mode}: nothing is touched");
        }
        for mode in ["anchor", "stand-in"] {
            let anchor = "'-n -a tuist.runners'*";
            assert_eq!(loads(mode, anchor), (false, vec![]), "{mode}: nothing is touched");
        }
    }

    #[test]
    fn commands_of_an_earlier_run_are_gone_only_if_a_look_says_so() {
        // LH18. No process has such a number.
        assert_eq!(ends_leftovers("exit 1"), (Some(0), String::new()));
        let once = r#"[ ! -e "$0.done" ] && : >"$0.done" && echo 99999999 || exit 1"#;
        assert_eq!(ends_leftovers(once), (Some(0), String::new()), "it is ended");
        let (status, said) = ends_leftovers("exit 3");
        assert!(status == Some(1) && said.contains("pgrep ended with status 3"), "{said}");
        let (status, said) = ends_leftovers("echo 99999999");
        assert!(status == Some(1) && said.contains("do not end: 99999999"), "{said}");
    }
}
