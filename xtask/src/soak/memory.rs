//! Whether memory grows: one run's readings, judged. No I/O.

use std::fmt;
use std::time::Duration;

/// How often memory is read.
pub const READ_EVERY: Duration = Duration::from_secs(15);
/// A run that is shorter is not judged: Events live for five minutes, and with a minute of history
/// they are what fills up. Half of a run is left to that.
const SHORTEST: Duration = Duration::from_mins(10);
/// Growing is what is more above the quarter before it than so many percent. One reading is 1 to
/// 2 % off, the mean of ten (a quarter of ten minutes) half a percent at most, and so two means
/// differ by 1 %.
const FLAT_PERCENT: f64 = 1.5;

/// Kibibytes of a megabyte, as people are told.
const KIB: f64 = 1024.0;
const SECONDS_OF_AN_HOUR: f64 = 3600.0;

/// How memory went after its first half, which is for warming up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// The mean of the third quarter, and of the last one, in kB.
    third: f64,
    last: f64,
    /// From the middle of one quarter to the middle of the next.
    apart: Duration,
}

impl Trend {
    /// Of readings in kB, one each [`READ_EVERY`]; `None` if they are too few to tell.
    pub fn of(readings: &[u32]) -> Option<Self> {
        let quarter = readings.len() / 4;
        let apart = READ_EVERY * u32::try_from(quarter).ok()?;
        if apart < SHORTEST / 4 {
            return None;
        }
        let (before, last) = readings.split_at(readings.len() - quarter);
        let third = &before[before.len() - quarter..];
        Some(Self { third: mean(third), last: mean(last), apart })
    }

    /// Whether it does not grow, as far as so long a run can tell.
    pub fn is_flat(&self) -> bool {
        self.last - self.third <= self.limit()
    }

    fn limit(&self) -> f64 {
        self.third * FLAT_PERCENT / 100.0
    }

    /// Of growth from one quarter to the next: MB in an hour.
    fn an_hour(&self, kib: f64) -> f64 {
        kib / KIB * SECONDS_OF_AN_HOUR / self.apart.as_secs_f64()
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { third, last, .. } = self;
        let word = if self.is_flat() { "flat" } else { "growing" };
        let (slope, limit) = (self.an_hour(last - third), self.an_hour(self.limit()));
        write!(
            f,
            "{word}: {:.1} MB in the third quarter, {:.1} MB in the last, {slope:+.1} MB an hour; \
             in so short a run up to {limit:.1} MB an hour are noise",
            third / KIB,
            last / KIB
        )
    }
}

fn mean(readings: &[u32]) -> f64 {
    let number = u32::try_from(readings.len()).map_or(f64::MAX, f64::from);
    readings.iter().copied().map(f64::from).sum::<f64>() / number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read in a run of so many minutes whose memory is `megabytes` at each minute.
    fn readings(minutes: u32, megabytes: impl Fn(f64) -> f64) -> Vec<u32> {
        let minute = |reading: u32| (READ_EVERY * reading).as_secs_f64() / 60.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some MB")]
        let kib = |reading| (megabytes(minute(reading)) * KIB) as u32;
        (1..=4 * minutes).map(kib).collect()
    }

    /// Up and down by 2 %, in waves of some readings.
    fn noise(minute: f64) -> f64 {
        1.0 + 0.02 * (minute * 97.0).sin()
    }

    fn shifted(minute: f64, shift: u32) -> f64 {
        noise(minute + f64::from(shift) / 7.0)
    }

    fn is_flat(readings: &[u32]) -> bool {
        Trend::of(readings).expect("enough").is_flat()
    }

    #[test]
    fn what_stays_or_shrinks_is_flat_however_it_flickers() {
        assert!(is_flat(&readings(10, |_| 60.0)));
        assert!(is_flat(&readings(10, |minute| 60.0 - minute)));
        for shift in 0..60 {
            let noisy = |minute| 60.0 * shifted(minute, shift);
            assert!(is_flat(&readings(10, noisy)), "{shift}");
        }
    }

    #[test]
    fn a_leak_is_growing_and_a_longer_run_sees_a_slower_one() {
        let leaking = |a_minute: f64| move |minute: f64| (60.0 + a_minute * minute) * noise(minute);
        for shift in 0..60 {
            let leaking = |minute| (60.0 + 0.7 * minute) * shifted(minute, shift);
            assert!(!is_flat(&readings(10, leaking)), "{shift}");
        }
        assert!(is_flat(&readings(10, leaking(0.1))));
        assert!(!is_flat(&readings(60, leaking(0.1))));
        // From the sixth minute to the tenth of a real run: its end was 5.2 % above its middle.
        let told = Trend::of(&readings(10, |minute| 53.5 + 0.75 * minute)).unwrap().to_string();
        assert!(told.starts_with("growing: ") && told.contains("+45.0 MB an hour"), "{told}");
    }

    #[test]
    fn what_fills_up_at_first_is_not_growing() {
        // Events are full after five minutes, and a minute of history after six.
        for full in [1.0, 3.0, 5.0, 6.0] {
            for shift in 0..60 {
                let warm = |minute: f64| 50.0 + 10.0 * (minute / full).min(1.0);
                let noisy = |minute| warm(minute) * shifted(minute, shift);
                assert!(is_flat(&readings(10, noisy)), "{full} {shift}");
            }
        }
    }

    #[test]
    fn a_run_that_is_all_warm_up_is_not_judged() {
        assert_eq!(Trend::of(&readings(9, |_| 60.0)), None);
        assert_eq!(Trend::of(&[]), None);
    }
}
