//! The gate to Macs over SSH.

use super::Faults;
use super::fault::{Class, Edge, Fault};
use super::trace::Process;
use crate::mac::{Effect, Gate, Verdict};

impl Gate for Faults {
    fn verdict(&self, effect: &Effect) -> Verdict {
        let class = if effect.mutates { Class::Effect } else { Class::Read };
        let entry = self.enter(Process::Provider, Edge::Ssh, class, false, || {
            let host = effect.mac.get(..8).unwrap_or(&effect.mac);
            format!("{host} {}", effect.what)
        });
        let Some(entry) = entry else { return Verdict::Pass };
        self.state().open_macs.insert((effect.mac.clone(), effect.index), entry.number);
        match entry.fault {
            Some(Fault::CrashBefore | Fault::TimeOut) => Verdict::HangBefore,
            Some(Fault::CrashAfter | Fault::LostAnswer) => Verdict::HangAfter,
            Some(Fault::Reboot) => {
                if let Some(cut) = self.power_cut.get() {
                    cut(&effect.mac);
                }
                Verdict::FailBefore
            }
            Some(Fault::Error) => Verdict::FailBefore,
            _ => Verdict::Pass,
        }
    }

    fn answered(&self, effect: &Effect, answer: &str) {
        let number = self.state().open_macs.remove(&(effect.mac.clone(), effect.index));
        if let Some(number) = number {
            Faults::answer(self, number, answer);
        }
    }
}
