//! `applecart prepare-host`: makes a Mac by hand one that the provider can bootstrap.
//!
//! The same steps as in a bootstrap (T2), taken by a person who knows the password: for hosts whose
//! password the API does not tell any more.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use applecart_mac::{
    Done, HostKey, Mac, MacError, Next, Password, Progress, Report, Session, Ssh, Step, StepError,
    StepReport, Target, UserName, inspect, prepare, public_key, wait_for_ssh,
};
use crossterm::event::{Event, KeyCode, KeyModifiers};
use crossterm::terminal;
use secrecy::SecretString;

const EXAMPLES: &str = "\
Examples:
  applecart prepare-host 51.159.120.2 --key ~/.ssh/fleet
      asks for the password, which Scaleway's console shows
  kubectl get secret macs-ssh -o jsonpath='{.data.id_ed25519}' | base64 -d >key && chmod 600 key
  applecart prepare-host 51.159.120.2 --key key <password-file
      reads it from standard input: it is never an argument
  applecart prepare-host 51.159.120.2 --key key --dry-run <password-file
      tells what would be changed, and changes nothing; the password is needed to compare it

Exits with 0 only if macOS was seen to accept all of it; with --dry-run, if it could be looked at,
whatever differs.

Without --host-key, the key of first contact is trusted, whoever shows it, and printed. Compare it
with what the host itself shows on its screen (VNC), in Terminal:
  ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub";

/// Prepares a Mac by hand: passwordless sudo, and a login that survives a reboot.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The host's address, without an account: that is --user.
    #[arg(value_parser = address)]
    address: String,
    /// The file with the private SSH key. Only this key is offered, never a password.
    #[arg(long, short = 'i', value_name = "FILE")]
    key: PathBuf,
    /// The account.
    #[arg(long, default_value = "m1")]
    user: UserName,
    /// The port of the SSH server.
    #[arg(long, default_value_t = 22)]
    ssh_port: u16,
    /// The host's key, as `ssh-keygen -l` prints it (SHA256:…): any other is refused. Without it,
    /// the key of first contact is trusted.
    #[arg(long, value_name = "FINGERPRINT")]
    host_key: Option<String>,
    /// How long to wait for a host that does not answer, such as one that boots, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    wait: u64,
    /// Tells what would be changed, and changes nothing.
    #[arg(long)]
    dry_run: bool,
}

fn address(text: &str) -> Result<String, String> {
    match text.split_once('@') {
        Some((user, address)) => Err(format!("give {address} alone, and --user {user}")),
        None => Ok(text.to_owned()),
    }
}

/// After how long a person is told what is waited for.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// Dials until the host answers, and says so if it does not at once.
async fn connect(target: &Target, wait: Duration) -> Result<Session, MacError> {
    let ssh = Ssh::default();
    let mut session = pin!(wait_for_ssh(&ssh, target, wait));
    tokio::select! {
        session = &mut session => return session,
        () = tokio::time::sleep(TOLD_AFTER) => {}
    }
    let Target { address, port, .. } = target;
    eprintln!("no answer yet from {address}:{port}; waiting up to {} s (--wait)", wait.as_secs());
    session.await
}

/// Prepares the host, and tells how each step ended.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let key = std::fs::read_to_string(&arguments.key);
    let key = key.with_context(|| format!("cannot read {}", arguments.key.display()))?;
    let target = Target {
        address: arguments.address.clone(),
        port: arguments.ssh_port,
        user: arguments.user.clone(),
        key: SecretString::from(key),
        pinned: arguments.host_key.clone().map(HostKey),
    };
    let public = match public_key(&target.key) {
        Err(error @ (MacError::EncryptedKey | MacError::RsaKey)) => bail!("--key: {error}"),
        other => other.context("--key: not a private SSH key")?,
    };
    let wait = Duration::from_secs(arguments.wait);
    let session = match connect(&target, wait).await {
        Ok(session) => session,
        Err(error) => bail!("{}{}", said(&error), way_out(&error, &target, &public)),
    };
    let trusted = if target.pinned.is_none() { " (first contact: see --host-key)" } else { "" };
    eprintln!("connected; host key {}{trusted}", session.host_key);
    let password = password(&arguments)?;
    if arguments.dry_run {
        return dry_run(&*session.mac, &arguments.user, &password).await;
    }
    let progress = |step: Progress| eprintln!("[{}/{}] {}", step.index, step.total, step.name);
    let prepared = prepare(&*session.mac, &arguments.user, &password, &progress).await;
    let mut out = std::io::stdout().lock();
    match prepared {
        Ok(report) => {
            summary(&mut out, &report.steps)?;
            finished(&report, &arguments.address)
        }
        Err(error) => {
            summary(&mut out, &error.steps().steps)?;
            bail!("{}{}", error.explain(), what_to_do(&error))
        }
    }
}

async fn dry_run(mac: &dyn Mac, user: &UserName, password: &Password) -> anyhow::Result<()> {
    let found = inspect(mac, user, password).await;
    let found = found.map_err(|error| anyhow::anyhow!("{}", error.explain()))?;
    for (step, differs) in &found {
        println!("{step:<20} {}", differs.unwrap_or("as it shall be"));
    }
    match found.last() {
        Some((Step::AutoLogin, Some(_))) => println!("nothing was changed"),
        Some((_, Some(_))) => {
            println!("nothing was changed; what comes after that cannot be told yet");
        }
        Some((_, None)) | None => {}
    }
    Ok(())
}

fn summary(out: &mut impl Write, steps: &[StepReport]) -> anyhow::Result<()> {
    for StepReport { step, done, took, .. } in steps {
        writeln!(out, "{step:<20} {done:<10} {:>6.1} s", took.as_secs_f64())?;
    }
    Ok(())
}

fn finished(report: &Report, address: &str) -> anyhow::Result<()> {
    for step in &report.steps {
        if let Done::Postponed(why) = &step.done {
            bail!("{} was postponed: {why}; try again when none runs", step.step);
        }
    }
    println!("{address} is prepared: macOS accepted all of it");
    Ok(())
}

/// An error and all of its causes, on one line.
fn said(error: &MacError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a person can do about a host that does not let us in.
fn way_out(error: &MacError, target: &Target, public: &str) -> String {
    match error {
        MacError::AuthRefused { .. } => format!(
            "\nThe host does not know this key. Either\n\
             - open its screen (VNC: Scaleway's console shows address and password), and add this \
             line to /Users/{}/.ssh/scw_authorized_keys:\n    {public}\n\
             - or register the key in the host's project and reinstall the host: it gets the \
             project's keys with its first boot.",
            target.user
        ),
        MacError::HostKeyChanged { .. } => "\nNothing was sent. If the host was reinstalled, its \
                                            key is new: leave --host-key out, or give the new one."
            .to_owned(),
        MacError::Unreachable { .. } => "\nIs it on, and is this its address? A host that was \
                                         just reinstalled needs some minutes: see --wait. One \
                                         that stays silent may need a reboot from Scaleway's \
                                         console."
            .to_owned(),
        MacError::Protocol { .. }
        | MacError::BadKey(_)
        | MacError::EncryptedKey
        | MacError::RsaKey
        | MacError::Unknown { .. }
        | MacError::TimedOut { .. }
        | MacError::Refused { .. }
        | MacError::Payload { .. }
        | MacError::TooMuchOutput { .. } => String::new(),
    }
}

fn what_to_do(error: &StepError) -> &'static str {
    match error.next() {
        Next::NewPassword => {
            "\nThe password is not the account's, or the account is locked. Look it up in \
             Scaleway's console; a reinstall gives a new one. After a few wrong ones macOS locks \
             the account until it is rebooted: this command tries each password twice at most."
        }
        Next::TryAgain => "\nRun this again: what was done is kept, and the rest is finished.",
    }
}

/// The account's password: typed without echo, or the first line of standard input.
fn password(arguments: &Arguments) -> anyhow::Result<Password> {
    let stdin = std::io::stdin();
    let text = if stdin.is_terminal() {
        typed(&format!("Password of {}@{}: ", arguments.user, arguments.address))?
    } else {
        let mut line = String::new();
        stdin.lock().read_line(&mut line).context("cannot read the password")?;
        line.trim_end_matches(['\n', '\r']).to_owned()
    };
    Password::new(SecretString::from(text)).context("standard input")
}

/// What a person types up to Enter, shown to nobody.
fn typed(prompt: &str) -> anyhow::Result<String> {
    // First: what is typed right after the prompt would be shown otherwise.
    terminal::enable_raw_mode().context("cannot hide what is typed")?;
    eprint!("{prompt}");
    let typed = keys();
    let shown = terminal::disable_raw_mode();
    eprintln!();
    shown.context("cannot show what is typed again")?;
    typed
}

fn keys() -> anyhow::Result<String> {
    let mut text = String::new();
    loop {
        let Event::Key(key) = crossterm::event::read().context("cannot read the password")? else {
            continue;
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return Ok(text),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char('c' | 'd') if control => bail!("interrupted"),
            KeyCode::Char(letter) if !control => text.push(letter),
            _ => {}
        }
    }
}
