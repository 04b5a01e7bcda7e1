//! One seed after another, until the time is up.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::explore::Seconds;
use crate::story::Story;
use crate::sweep::{Breadth, Tally, figures, sweep};

/// How far a soak came with a story of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    Whole,
    InPart,
    NotAtAll,
}

/// Sweeps all stories with one seed after another, at full breadth, until the time is up; all pairs
/// of crashes in the two stories that all others are made of.
pub fn soak(time: Duration, first: u64) -> bool {
    let until = Instant::now() + time;
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut seed = first;
    while Instant::now() < until && tally.violations == 0 {
        let one = soak_seed(seed, until);
        println!("seed {seed}: {} kB of memory at most in a run", one.most_kib);
        tally.add(&one);
        seed += 1;
    }
    println!("soaked {} seeds: {}", seed - first, figures("soak", &tally, began.elapsed()));
    if tally.plans == 0 {
        println!("soak: no plan was played, so nothing went wrong and this run shows nothing");
    }
    tally.violations == 0 && tally.plans > 0
}

/// Sweeps the stories of one seed, until the time is up or one of them breaks.
fn soak_seed(seed: u64, until: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut played = vec![];
    for story in order(seed) {
        let on = Instant::now() < until && tally.violations == 0;
        let one = on.then(|| sweep(story, seed, breadth(story, until)));
        played.push((story, one.map_or(Played::NotAtAll, |one| how_far(&one))));
        tally.add(&one.unwrap_or_default());
    }
    println!("seed {seed}: {}", told(&played));
    tally
}

fn breadth(story: Story, until: Instant) -> Breadth {
    let pairs = matches!(story, Story::Claim | Story::Release).then_some(1);
    let seconds = Seconds { pairs, one_in: 3 };
    let (one_in, random, long_in) = (7, 200, 20);
    Breadth { one_in, seconds, random, long_in, sample: None, bug: None, until: Some(until) }
}

fn how_far(tally: &Tally) -> Played {
    if tally.left == 0 { Played::Whole } else { Played::InPart }
}

/// All stories, from one on that is drawn from the seed: whoever soaks for a short time with one
/// seed after another plays them all, and whoever does for a long time comes to all of each seed.
fn order(seed: u64) -> Vec<Story> {
    let mut stories: Vec<Story> = Story::all().collect();
    let first = SmallRng::seed_from_u64(seed).random_range(0..stories.len());
    stories.rotate_left(first);
    stories
}

/// Which stories were played, for people.
fn told(played: &[(Story, Played)]) -> String {
    let kinds = [
        (Played::Whole, "played"),
        (Played::InPart, "in part, for the time was up"),
        (Played::NotAtAll, "not at all"),
    ];
    let lists = kinds.iter().filter_map(|(kind, word)| {
        let of_kind = played.iter().filter(|(_, how)| how == kind);
        let names: Vec<String> = of_kind.map(|(story, _)| story.to_string()).collect();
        (!names.is_empty()).then(|| format!("{word}: {}", names.join(", ")))
    });
    lists.collect::<Vec<String>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_seed_comes_to_every_story_and_any_story_may_be_its_first() {
        let all: BTreeSet<Story> = Story::all().collect();
        let mut first = BTreeSet::new();
        for seed in 1..=1000 {
            let order = order(seed);
            first.insert(order[0]);
            assert_eq!(order.len(), all.len());
            assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), all, "seed {seed}");
        }
        assert_eq!(first, all);
    }

    #[test]
    fn a_soak_tells_which_stories_it_played_and_which_it_did_not() {
        let played = [
            (Story::Roll, Played::Whole),
            (Story::Pod, Played::Whole),
            (Story::Claim, Played::InPart),
            (Story::Job, Played::NotAtAll),
        ];
        let told = told(&played);
        let lists = "played: roll, pod; in part, for the time was up: claim; not at all: job";
        assert_eq!(told, lists);
    }

    #[test]
    fn a_soak_that_has_no_time_to_play_anything_is_no_success() {
        assert!(!soak(Duration::ZERO, 1));
    }
}
