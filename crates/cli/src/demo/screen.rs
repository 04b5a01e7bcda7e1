//! What the terminal shows: a table that redraws on a terminal, lines otherwise.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};

use applecart_sim::world::{FLEET, HostRow, POOL, View};
use crossterm::style::{Attribute, Color, Stylize};
use crossterm::{cursor, queue, terminal};

use super::kubeconfig::Kubeconfig;

/// Rows that a table needs besides its hosts.
const FRAME_ROWS: u16 = 4;

/// The terminal, or a pipe.
pub struct Screen {
    redraws: bool,
    drawn: u16,
    last: Option<View>,
    machine: Option<String>,
}

impl Screen {
    /// Looks at what standard output is.
    pub fn new() -> Self {
        Self { redraws: stdout().is_terminal(), drawn: 0, last: None, machine: None }
    }

    /// Says what is here and what to try, before anything moves.
    pub fn welcome(&self, kubeconfig: &Kubeconfig, hosts: usize, speed: f64) {
        let text = format!(
            "Applecart demo: {hosts} simulated Macs, {speed} times as fast as a real fleet. Ctrl-C ends it.\n\
             In another terminal:\n\n    \
             export KUBECONFIG={kubeconfig}\n    \
             kubectl get samm -A\n    \
             kubectl delete machine $(kubectl get machines -o name | head -1 | cut -d/ -f2)\n    \
             kubectl scale machinedeployment {FLEET} --replicas=4\n    \
             kubectl get {POOL_KIND} {POOL} -w\n",
            POOL_KIND = "runnerpool",
        );
        print(&text);
    }

    /// Shows the world as it is now.
    pub fn show(&mut self, view: &View) {
        if self.redraws {
            self.redraw(view);
        } else {
            self.tell(view);
        }
        self.last = Some(view.clone());
    }

    /// The last word.
    pub fn goodbye(&self) {
        print("\nThe demo has ended; nothing is left of it.\n");
    }

    fn redraw(&mut self, view: &View) {
        let (width, height) = terminal::size().unwrap_or((100, 30));
        let lines = table(view, usize::from(width), height.saturating_sub(FRAME_ROWS));
        let mut out = stdout().lock();
        let drawn = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let up = if self.drawn > 0 {
            queue!(out, cursor::MoveToPreviousLine(self.drawn))
        } else {
            Ok(())
        };
        let cleared = queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown));
        let written = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
        // A terminal that is gone has nobody to tell.
        let _ = up.and(cleared).and(written).and_then(|()| out.flush());
        self.drawn = drawn;
    }

    /// One line for each row that changed.
    fn tell(&mut self, view: &View) {
        let before: BTreeMap<&str, &HostRow> =
            self.last.iter().flat_map(|last| &last.hosts).map(|h| (h.address.as_str(), h)).collect();
        for host in &view.hosts {
            if before.get(host.address.as_str()) != Some(&host) {
                print(&format!("{}\n", line(host)));
            }
        }
        let waited = self.last.as_ref().map(|last| last.waiting.clone()).unwrap_or_default();
        for (machine, reason) in &view.waiting {
            if !waited.contains(&(machine.clone(), reason.clone())) {
                print(&format!("machine {machine}: {reason}\n"));
            }
        }
        let runners = self.last.as_ref().map(|last| last.runners);
        if runners != Some(view.runners) {
            print(&format!("{}\n", pool_line(view)));
        }
    }
}

/// Writes at once; a reader that is gone is not an error of ours.
fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn line(host: &HostRow) -> String {
    let mut text = format!("host {} {} {}", host.address, host.class, host.state);
    if !host.machine.is_empty() {
        text += &format!(", {}: {}", host.machine, host.step);
    }
    if !host.pods.is_empty() {
        text += &format!(", Pods: {}", host.pods.join(", "));
    }
    text
}

fn pool_line(view: &View) -> String {
    let (asked, idle, busy) = view.runners;
    let pending = match view.pending {
        0 => String::new(),
        waiting => format!(", {waiting} wait for a Mac"),
    };
    format!("runner pool {POOL}: {asked} asked for, {idle} idle, {busy} busy{pending}")
}

/// The table's columns, with the least width of each.
const COLUMNS: [(&str, usize); 5] =
    [("HOST", 15), ("CLASS", 10), ("MACHINE", 18), ("STEP", 38), ("PODS", 24)];

fn table(view: &View, width: usize, most: u16) -> Vec<String> {
    let header = row(&COLUMNS.map(|(name, _)| name.to_owned()), width);
    let mut lines = vec![header.attribute(Attribute::Bold).to_string()];
    let fitting = usize::from(most).max(1);
    for host in view.hosts.iter().take(fitting) {
        let cells = [
            host.address.clone(),
            class_text(host),
            host.machine.clone(),
            host.step.clone(),
            host.pods.join(", "),
        ];
        lines.push(row(&cells, width).with(color(host)).to_string());
    }
    if view.hosts.len() > fitting {
        lines.push(format!("… and {} more hosts", view.hosts.len() - fitting));
    }
    for (machine, reason) in view.waiting.iter().take(2) {
        lines.push(cut(&format!("machine {machine}: {reason}"), width).with(Color::Yellow).to_string());
    }
    lines.push(cut(&pool_line(view), width));
    lines
}

fn class_text(host: &HostRow) -> String {
    match (host.class, host.state.as_str()) {
        (class, "ready") => class.to_owned(),
        (_, state) => state.to_owned(),
    }
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
fn row(cells: &[String; 5], width: usize) -> String {
    let mut text = String::new();
    for (cell, (_, least)) in cells.iter().zip(COLUMNS) {
        text += &format!("{:<least$} ", cut(cell, least.max(1)));
    }
    cut(text.trim_end(), width)
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}
