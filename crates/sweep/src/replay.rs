//! One plan again, exactly as it was typed: its trace, and what came of it.

use applecart_sim::faults::{Fault, Step, table};

use crate::run::{Case, End, run};

/// How a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of the plan happened, and nothing broke.
    Sound,
    /// Something broke.
    Broken,
    /// Not all of the plan happened, so that the run shows nothing of it.
    NotPlayed,
}

/// A plan that was run again.
#[derive(Debug)]
pub struct Replayed {
    /// How it ended.
    pub end: End,
    /// Faults that cannot happen to the step that they were typed for, and what can.
    refused: Vec<String>,
    /// Steps of the plan that never came, or came when nothing goes wrong any more.
    never: Vec<String>,
    /// Whether it came to the step at which the story begins.
    is_begun: bool,
}

/// Runs one case again and prints what happened.
pub fn replay(case: &Case) -> Outcome {
    let replayed = play(case);
    replayed.tell();
    replayed.outcome()
}

/// Runs one case again, and what it is compared with before it.
pub fn play(case: &Case) -> Replayed {
    let calm = case.reference();
    let reference = (calm != *case).then(|| run(&calm, None));
    if let Some(violation) = reference.as_ref().and_then(|end| end.violation.as_ref()) {
        println!("compared with nothing, for this is broken: {violation}\n  {}", calm.command());
    }
    let reference = reference.filter(|end| end.violation.is_none());
    Replayed::of(case, run(case, reference.as_ref()))
}

impl Replayed {
    fn of(case: &Case, end: End) -> Self {
        let find = |number: usize| end.steps.iter().find(|step| step.number == number);
        let is_begun = case.at.is_none_or(|at| find(at).is_some());
        let mut never: Vec<String> =
            case.at.filter(|_| !is_begun).map(|at| never_came(at, &end)).into_iter().collect();
        let mut refused = vec![];
        for (number, fault) in &case.faults {
            let Some(step) = find(*number) else {
                never.push(never_came(*number, &end));
                continue;
            };
            if !step.possible().contains(fault) {
                refused.push(refusal(step, *fault));
            } else if step.fault.is_none() {
                let after = "came in the silence after the end, where nothing goes wrong";
                never.push(format!("step {number} {after}"));
            }
        }
        Self { end, refused, never, is_begun }
    }

    /// What broke, if the plan could be played.
    fn violation(&self) -> Option<&str> {
        let judged = self.refused.is_empty() && self.is_begun;
        self.end.violation.as_deref().filter(|_| judged)
    }

    fn outcome(&self) -> Outcome {
        match self.violation() {
            Some(_) => Outcome::Broken,
            None if self.refused.is_empty() && self.never.is_empty() => Outcome::Sound,
            None => Outcome::NotPlayed,
        }
    }

    fn tell(&self) {
        // The trace of another plan would only mislead.
        if self.refused.is_empty() {
            print!("{}", table(&self.end.steps));
        }
        for why in self.refused.iter().chain(&self.never) {
            println!("not played: {why}");
        }
        match self.violation() {
            Some(violation) => println!("violation: {violation}"),
            None if self.outcome() == Outcome::Sound => println!("no violation"),
            None => {}
        }
    }
}

fn never_came(number: usize, end: &End) -> String {
    let last = end.steps.last().map_or(0, |step| step.number);
    format!("step {number} never came: the last one was {last}")
}

/// Why a typed fault is not played. Where plans are drawn, another one takes its place.
fn refusal(step: &Step, fault: Fault) -> String {
    let Step { number, edge, call, .. } = step;
    let words: Vec<&str> = step.possible().iter().map(|fault| fault.word()).collect();
    let words = words.join(", ");
    let instead = step
        .fault
        .map_or_else(String::new, |met| format!("; where a plan is drawn, it meets {met} instead"));
    format!("step {number} ({edge}: {call}) cannot meet {fault}, but {words}{instead}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::NO_SILENCE;
    use crate::story::Story;

    fn release(faults: Vec<(usize, Fault)>) -> Case {
        Case { faults, silence: Some(NO_SILENCE), ..Case::new(Story::Release, 1) }
    }

    #[test]
    fn a_replay_whose_step_never_comes_shows_nothing_and_says_so() {
        let replayed = play(&release(vec![(999_999, Fault::CrashAfter)]));
        assert_eq!(replayed.outcome(), Outcome::NotPlayed);
        let told = &replayed.never[0];
        assert!(told.starts_with("step 999999 never came"), "{told}");
        let late = Case { at: Some(999_999), ..Case::new(Story::DeleteAnywhere, 1) };
        let replayed = play(&late);
        assert_eq!((replayed.outcome(), replayed.never.len()), (Outcome::NotPlayed, 1));
    }

    #[test]
    fn a_fault_that_cannot_happen_to_its_step_is_refused_with_those_that_can() {
        let calm = play(&release(vec![]));
        assert_eq!(calm.outcome(), Outcome::Sound);
        let begun = |step: &&Step| step.number > calm.end.first;
        let impossible = |step: &Step| {
            let all = Fault::ALL.iter().copied();
            let mut others = all.filter(|fault| !step.possible().contains(fault));
            others.next().expect("no step meets every fault")
        };
        let step = calm.end.steps.iter().find(begun).expect("a step");
        let replayed = play(&release(vec![(step.number, impossible(step))]));
        assert_eq!(replayed.outcome(), Outcome::NotPlayed);
        let told = &replayed.refused[0];
        assert!(told.contains("cannot meet") && told.contains(step.possible()[0].word()), "{told}");
        let replayed = play(&release(vec![(step.number, step.possible()[0])]));
        assert_eq!((replayed.outcome(), replayed.end.violation), (Outcome::Sound, None));
    }
}
