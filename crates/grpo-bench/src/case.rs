//! What a kind of case is to whoever measures it.

use std::time::{Duration, Instant};

use serde_json::Value;

/// A case that is built and can be run again and again.
pub(crate) trait Measured {
    /// Does the work of one repetition.
    fn run(&mut self) -> anyhow::Result<Repetition>;
}

/// What came of one repetition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetition {
    /// Wall-clock time of the work alone.
    pub(crate) seconds: f64,
    /// How much was done, in the case's unit.
    pub(crate) work: f64,
    /// Floating-point operations of the model's matrix products that the work needs, whoever does it: what an
    /// implementation computes beside them or once more does not count.
    pub(crate) flops: Option<f64>,
    /// What else was measured.
    pub(crate) details: Option<Value>,
}

impl Repetition {
    /// `work` that took from `started` until now.
    pub(crate) fn since(started: Instant, work: f64, flops: Option<f64>) -> Self {
        Self { seconds: started.elapsed().as_secs_f64(), work, flops, details: None }
    }
}

/// Runs `once` until `least` has gone by, so that what takes microseconds can be timed; how often, and the seconds.
pub(crate) fn repeat_for(least: Duration, mut once: impl FnMut()) -> (u32, f64) {
    let started = Instant::now();
    let mut times = 0;
    while started.elapsed() < least {
        once();
        times += 1;
    }
    (times, started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_is_repeated() {
        let mut calls = 0;
        let (times, seconds) = repeat_for(Duration::from_millis(20), || {
            calls += 1;
            std::thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(times, calls);
        assert!(times > 1 && seconds >= 0.02, "{times} times in {seconds} s");
    }
}
