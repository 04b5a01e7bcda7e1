//! What the terminal shows: a table that redraws on a terminal, lines otherwise.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};

use applecart_sim::world::{Chaos, FLEET, HostRow, POOL, View};
use crossterm::style::{self, Color, Stylize};
use crossterm::{cursor, queue, terminal};

use super::kubeconfig::Kubeconfig;

/// Rows of a screen that are not hosts: header, pool, chaos, waiting Machines, cursor.
const FRAME_ROWS: usize = 6;
/// Machines without a host that are named below the table.
const MOST_WAITING: usize = 2;

/// The table's columns, with the width of each; the last one takes what is left.
const COLUMNS: [(&str, usize); 5] =
    [("HOST", 13), ("CLASS", 12), ("MACHINE", 19), ("WHAT IT DOES", 34), ("PODS", 10)];
/// The same on a narrow terminal, where everything has to be there too, if cut short.
const NARROW: [usize; 5] = [12, 9, 17, 17, 10];
/// Terminals of fewer columns are narrow.
const WIDE: usize = 105;
/// Rows of the welcome text, which stays in sight above the table.
const WELCOME_ROWS: usize = 8;

/// Columns and rows of a terminal that does not tell.
const UNKNOWN_SIZE: (u16, u16) = (100, 30);

/// Says what is here and what to try, before anything moves.
fn welcome(kubeconfig: &Kubeconfig, hosts: usize, speed: f64) -> String {
    let macs = if hosts == 1 { "Mac" } else { "Macs" };
    format!(
        "Applecart demo: {hosts} simulated {macs}, {speed} times as fast. Ctrl-C ends it.\n\
         In another terminal:\n\n    \
         export KUBECONFIG={kubeconfig}\n    \
         kubectl get samm -A\n    \
         kubectl delete $(kubectl get machine -o name | head -1)\n    \
         kubectl scale machinedeployment {FLEET} --replicas=4\n\n"
    )
}

/// The last word.
pub fn goodbye() {
    print("\nThe demo has ended; nothing is left of it.\n");
}

/// Writes at once; a reader that is gone is not an error of ours.
fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The terminal, or a pipe.
pub struct Screen {
    redraws: bool,
    welcome: String,
    size: (u16, u16),
    drawn: u16,
    last: Option<View>,
}

impl Screen {
    /// Looks at what standard output is, and welcomes whoever reads it.
    pub fn new(kubeconfig: &Kubeconfig, hosts: usize, speed: f64) -> Self {
        let welcome = welcome(kubeconfig, hosts, speed);
        print(&welcome);
        let size = terminal::size().unwrap_or(UNKNOWN_SIZE);
        Self { redraws: stdout().is_terminal(), welcome, size, drawn: 0, last: None }
    }

    /// Shows the world as it is now.
    pub fn show(&mut self, view: &View) {
        if self.redraws {
            self.redraw(view);
        } else {
            for line in news(self.last.as_ref(), view) {
                print(&format!("{line}\n"));
            }
        }
        self.last = Some(view.clone());
    }

    fn redraw(&mut self, view: &View) {
        let size = terminal::size().unwrap_or(UNKNOWN_SIZE);
        let lines = table(view, usize::from(size.0), usize::from(size.1));
        let mut out = stdout().lock();
        // A terminal of another size has folded what stood there: nobody knows how many rows it is.
        let up = if size != self.size {
            let all = terminal::Clear(terminal::ClearType::All);
            queue!(out, cursor::MoveTo(0, 0), all, style::Print(&self.welcome))
        } else if self.drawn > 0 {
            queue!(out, cursor::MoveToPreviousLine(self.drawn))
        } else {
            Ok(())
        };
        self.size = size;
        let cleared = queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown));
        let written = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
        // A terminal that is gone has nobody to tell.
        let _ = up.and(cleared).and(written).and_then(|()| out.flush());
        self.drawn = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    }
}

/// One line for everything that changed.
fn news(last: Option<&View>, view: &View) -> Vec<String> {
    let hosts = last.into_iter().flat_map(|last| &last.hosts);
    let before: BTreeMap<&str, &HostRow> =
        hosts.map(|host| (host.address.as_str(), host)).collect();
    let mut lines: Vec<String> = view
        .hosts
        .iter()
        .filter(|host| before.get(host.address.as_str()) != Some(host))
        .map(host_line)
        .collect();
    let waited = last.map(|last| last.waiting.as_slice()).unwrap_or_default();
    let new = view.waiting.iter().filter(|entry| !entry.1.is_empty() && !waited.contains(entry));
    lines.extend(new.map(|(machine, reason)| format!("machine {machine}: {reason}")));
    if last.map(pool_line) != Some(pool_line(view)) {
        lines.push(pool_line(view));
    }
    let faults = |view: &View| view.chaos.as_ref().map(|chaos| chaos.faults);
    if last.map(faults) != Some(faults(view)) {
        lines.extend(chaos_line(view));
    }
    lines
}

fn chaos_line(view: &View) -> Option<String> {
    let Chaos { faults, checks, violation } = view.chaos.as_ref()?;
    let broken = violation.as_deref().unwrap_or("none broken");
    Some(format!("chaos: {faults} faults injected, {checks} invariants checked, {broken}"))
}

fn host_line(host: &HostRow) -> String {
    let machine = match host.machine.as_str() {
        "" => String::new(),
        machine => format!(", machine {machine}: {}", host.step),
    };
    let pods = match host.pods.as_slice() {
        [] => String::new(),
        pods => format!(", Pods: {}", pods.join(", ")),
    };
    format!("host {} is {}{machine}{pods}", host.address, class(host))
}

fn pool_line(view: &View) -> String {
    let (asked, idle, busy) = view.runners;
    let some = |count: usize, what: &str| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    let (booting, pending) =
        (some(view.booting, "booting"), some(view.pending, "waiting for a Mac"));
    format!("runner pool {POOL}: {asked} asked for, {idle} idle, {busy} busy{booting}{pending}")
}

fn table(view: &View, width: usize, height: usize) -> Vec<String> {
    let mut lines = vec![row(COLUMNS.map(|(name, _)| name), width).bold().to_string()];
    let fitting = height.saturating_sub(FRAME_ROWS + MOST_WAITING + WELCOME_ROWS).max(3);
    let mut hosts: Vec<&HostRow> = view.hosts.iter().collect();
    // Those at rest in the pool come last: if some do not fit, it is those.
    hosts.sort_by_key(|host| host.machine.is_empty() && host.class == "pool");
    for host in hosts.into_iter().take(fitting) {
        let pods = host.pods.join(", ");
        let cells = [&host.address, class(host), &host.machine, &host.step, &pods];
        lines.push(row(cells, width).with(color(host)).to_string());
    }
    if view.hosts.len() > fitting {
        lines.push(format!("… and {} more hosts", view.hosts.len() - fitting));
    }
    let waiting = view.waiting.iter().filter(|(_, reason)| !reason.is_empty());
    for (machine, reason) in waiting.take(MOST_WAITING) {
        let line = cut(&format!("machine {machine}: {reason}"), width);
        lines.push(line.with(Color::Yellow).to_string());
    }
    lines.push(cut(&pool_line(view), width));
    lines.extend(chaos_line(view).map(|line| cut(&line, width)));
    lines
}

/// The class of a host, or what Scaleway does to it at the moment.
fn class(host: &HostRow) -> &str {
    if host.state == "ready" { host.class } else { &host.state }
}

fn color(host: &HostRow) -> Color {
    match host.class {
        "pool" => Color::DarkGrey,
        "claimed" if host.step == "ready" => Color::Green,
        "claimed" => Color::Cyan,
        "claiming" => Color::Blue,
        "releasing" => Color::Magenta,
        _ => Color::Red,
    }
}

/// Cells side by side; the last one takes what is left.
fn row(cells: [&str; 5], width: usize) -> String {
    let mut widths = if width < WIDE { NARROW } else { COLUMNS.map(|(_, width)| width) };
    let used: usize = widths[..4].iter().map(|width| width + 1).sum();
    widths[4] = widths[4].max(width.saturating_sub(used));
    let padded = |(cell, width): (&str, usize)| format!("{:<width$}", cut(cell, width));
    let cells: Vec<String> = cells.into_iter().zip(widths).map(padded).collect();
    cut(cells.join(" ").trim_end(), width)
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(step: &str, pods: &[&str]) -> HostRow {
        HostRow {
            address: "198.18.0.1".into(),
            class: "claimed",
            state: "ready".into(),
            machine: "macs-x7k2p".into(),
            step: step.into(),
            pods: pods.iter().map(|&pod| pod.to_owned()).collect(),
        }
    }

    fn view(hosts: Vec<HostRow>) -> View {
        View { hosts, waiting: vec![], runners: (4, 3, 1), pending: 0, booting: 0, chaos: None }
    }

    #[test]
    fn a_pipe_gets_a_line_for_each_change_and_none_for_the_rest() {
        let first = view(vec![host("step 4 of 10: no sleep", &[])]);
        let lines = news(None, &first);
        assert_eq!(
            lines,
            [
                "host 198.18.0.1 is claimed, machine macs-x7k2p: step 4 of 10: no sleep",
                "runner pool runners: 4 asked for, 3 idle, 1 busy",
            ]
        );
        assert!(news(Some(&first), &first).is_empty());
    }

    #[test]
    fn chaos_is_counted_and_told_when_another_fault_happened() {
        let chaos = |faults, checks, violation: Option<&str>| {
            let violation = violation.map(str::to_owned);
            View { chaos: Some(Chaos { faults, checks, violation }), ..view(vec![]) }
        };
        let (first, later) = (chaos(3, 110, None), chaos(3, 220, None));
        assert!(news(Some(&first), &later).is_empty(), "only a fault is news");
        let broken = chaos(4, 330, Some("two-hosts: a has 2 hosts"));
        let line = "chaos: 4 faults injected, 330 invariants checked, two-hosts: a has 2 hosts";
        assert_eq!(news(Some(&first), &broken), [line]);
        assert!(table(&later, 120, 30).iter().any(|line| line.contains("none broken")));
    }

    #[test]
    fn no_line_of_the_table_is_wider_than_the_terminal() {
        let pods = ["4ed1f003 job-12345", "733813ed booting"];
        let wide = view(vec![host(&"a very long reason ".repeat(20), &pods); 60]);
        for (width, height) in [(20, 5), (80, 24), (200, 50)] {
            let lines = table(&wide, width, height);
            assert!(lines.len() < height.max(8), "{} lines on {height} rows", lines.len());
            for line in lines {
                let plain = strip(&line);
                assert!(plain.chars().count() <= width, "{plain:?}");
            }
        }
    }

    #[test]
    fn an_ordinary_terminal_shows_pods_and_the_hosts_at_work_first() {
        let mut hosts = vec![HostRow { machine: String::new(), ..host("", &[]) }; 30];
        for host in &mut hosts {
            host.class = "pool";
        }
        hosts.push(host("ready", &["4ed1f003 idle"]));
        let lines: Vec<String> = table(&view(hosts), 80, 24).iter().map(|l| strip(l)).collect();
        assert!(lines[0].contains("PODS"), "{lines:?}");
        assert!(lines[1].contains("macs-x7k2p") && lines[1].contains("4ed1f003 idle"), "{lines:?}");
    }

    /// The line without its colours.
    fn strip(line: &str) -> String {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.map(|part| part.split_once('m').map_or("", |(_, text)| text));
        first + &rest.collect::<String>()
    }
}
