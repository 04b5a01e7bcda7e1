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

/// Ends the process group `$1` and all in it: politely, then not.
pub const END_GROUP: Script = Script {
    name: "end a command",
    text: r#"end() {
  # Without the dashes, some versions of kill read -1234 as -1: every process there is.
  if [ "$2" -le 1 ]; then return 1; fi
  sudo -n kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" -- "-$2" 2>/dev/null
}
end TERM "$1" || exit 0
sleep 1
end KILL "$1"
exit 0
"#,
};

/// Ends commands of earlier runs whose connection was lost, so that no two runs work at once. Its
/// own shell is its parent.
pub const END_LEFTOVERS: Script = Script {
    name: "end what earlier runs left",
    text: r#"end() {
  # Without the dashes, some versions of kill read -1234 as -1: every process there is.
  if [ "$2" -le 1 ]; then return 1; fi
  sudo -n kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" -- "-$2" 2>/dev/null
}
found=
for shell in $(pgrep -f '[a]pplecart-command'); do
  if [ "$shell" != "$PPID" ] && end TERM "$shell"; then found="$found $shell"; fi
done
if [ -z "$found" ]; then exit 0; fi
sleep 1
for shell in $found; do end KILL "$shell"; done
exit 0
"#,
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
pub const LOOKS: [Script; 2] = [END_LEFTOVERS, READ_PREFERENCES];

/// Counts a try of the password whose mark is on stdin, unless it was tried twice since boot.
///
/// The mark is a short digest: it tells two passwords apart and gives none away.
pub const COUNT_TRY: Script = Script {
    name: "count a password try",
    text: r#"set -eu
umask 077
tries=/private/tmp/applecart-password-tries
read -r mark
touch "$tries"
if [ "$(grep -cxF -e "$mark" "$tries")" -ge 2 ]; then exit 75; fi
printf '%s\n' "$mark" >>"$tries"
"#,
};

/// Installs the sudo rule of user `$1`. Reads nothing: stdin holds the password or is empty.
pub const INSTALL_SUDOERS: Script = Script {
    name: "install the sudo rule",
    text: r#"set -eu
umask 077
mkdir -p /etc/sudoers.d
staged=$(mktemp /etc/sudoers.d/.applecart.XXXXXX)
trap 'rm -f "$staged"' EXIT
printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$1" >"$staged"
visudo -cf "$staged" >/dev/null
chown root:wheel "$staged"
chmod 0440 "$staged"
mv -f "$staged" "/etc/sudoers.d/$1-nopasswd"
"#,
};

/// Unpacks the Tart archive on stdin, of checksum `$1`, and swaps it in unless a VM runs.
pub const UNPACK_TART: Script = Script {
    name: "unpack Tart",
    text: r#"set -eu
mkdir -p /usr/local/lib
staged=$(mktemp -d /usr/local/lib/.tart.XXXXXX)
trap 'rm -rf "$staged"' EXIT
cat >"$staged/archive"
printf '%s  %s\n' "$1" "$staged/archive" | shasum -a 256 -c - >/dev/null
tar -xzf "$staged/archive" -C "$staged"
test -x "$staged/tart.app/Contents/MacOS/tart"
chown -R root:wheel "$staged/tart.app"
chmod 0755 "$staged/tart.app"
if pgrep -f 'MacOS/[t]art run|[V]irtualization.VirtualMachine' >/dev/null; then exit 75; fi
if [ -e /usr/local/lib/tart.app ]; then mv /usr/local/lib/tart.app "$staged/old"; fi
mv "$staged/tart.app" /usr/local/lib/tart.app
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

    #[test]
    fn every_script_is_text_that_a_posix_shell_accepts() {
        let all = [COUNT_TRY, INSTALL_SUDOERS, UNPACK_TART, AGENT_FOLDERS, END_GROUP];
        for script in all.into_iter().chain(LOOKS) {
            let output =
                std::process::Command::new("/bin/sh").args(["-n", "-c", script.text]).output();
            assert!(output.unwrap().status.success(), "{script:?}");
        }
    }

    #[test]
    fn scripts_name_the_same_paths_and_pattern_as_the_code() {
        use crate::steps::paths;
        assert!(END_LEFTOVERS.text.contains(&COMMAND_MARK[1..]));
        assert!(COUNT_TRY.text.contains(paths::PASSWORD_TRIES));
        assert!(INSTALL_SUDOERS.text.contains(&paths::sudoers(&"u".parse().unwrap())[..15]));
        assert!(
            UNPACK_TART.text.contains(paths::TART_APP) && UNPACK_TART.text.contains(VM_PATTERN)
        );
        for path in [paths::AGENT_LOG, paths::VM_LOGS, paths::VM_USER_DATA] {
            assert!(AGENT_FOLDERS.text.contains(path));
        }
    }
}
