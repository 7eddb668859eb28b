//! Rewards off the training thread, under a time limit.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use grpo_data::Group;

use crate::{Outcome, PartName, Reward, Sample};

/// Runs a reward so that it can neither stop nor hang the caller.
#[derive(Clone)]
pub struct RewardRunner {
    reward: Arc<dyn Reward>,
    time_limit: Duration,
}

impl fmt::Debug for RewardRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RewardRunner").field("time_limit", &self.time_limit).finish_non_exhaustive()
    }
}

impl RewardRunner {
    /// A runner that gives each batch `time_limit`.
    pub fn new(reward: Arc<dyn Reward>, time_limit: Duration) -> Self {
        Self { reward, time_limit }
    }

    /// See [`Reward::term_names`].
    pub fn term_names(&self) -> Vec<PartName> {
        self.reward.term_names()
    }

    /// Names of the parts that its outcomes can have.
    pub fn parts(&self) -> Vec<PartName> {
        self.reward.parts()
    }

    /// Sets text and outcome of the samples of a batch; `decode` makes texts of ids. See [`Self::score`].
    pub fn score_groups(&self, groups: &mut [Group], decode: &dyn Fn(&[u32]) -> String) {
        let mut inputs = Vec::new();
        for Group { prompt, samples } in &mut *groups {
            for sample in samples {
                sample.text = decode(&sample.completion.text_ids());
                let fields = prompt.fields.clone();
                inputs.push(Sample { text: sample.text.clone(), fields });
            }
        }
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        for (sample, outcome) in samples.zip(self.score(inputs)) {
            sample.outcome = Some(outcome);
        }
    }

    /// Scores a batch. A reward that panics, takes too long or gives another number of outcomes fails for
    /// the whole batch; a thread that hangs is left behind.
    pub fn score(&self, samples: Vec<Sample>) -> Vec<Outcome> {
        let count = samples.len();
        let reward = Arc::clone(&self.reward);
        let (sender, receiver) = channel();
        let threads = rayon::current_num_threads();
        let work = move || {
            // Threads of its own: a reward that hangs must not keep those that the model computes with.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            // The reward is not used again after a panic within this call, so nothing half-changed is seen
            // here; what it shares with itself is its own affair.
            let score = || pool.map(|pool| pool.install(|| reward.score(&samples)));
            let outcome = catch_unwind(AssertUnwindSafe(score));
            let _gone = sender.send(outcome.map_err(|panic| panic_message(&*panic)));
        };
        if let Err(error) = thread::Builder::new().name("reward".to_owned()).spawn(work) {
            return failures(count, format!("no thread could be started for the reward: {error}"));
        }
        match receiver.recv_timeout(self.time_limit) {
            Ok(Ok(Err(error))) => {
                failures(count, format!("no threads could be started for the reward: {error}"))
            }
            Ok(Ok(Ok(outcomes))) if outcomes.len() == count => outcomes,
            Ok(Ok(Ok(outcomes))) => failures(
                count,
                format!("the reward gave {} outcomes for {count} completions", outcomes.len()),
            ),
            Ok(Err(panic)) => failures(count, format!("the reward panicked: {panic}")),
            Err(RecvTimeoutError::Timeout) => failures(
                count,
                format!("the reward took longer than its limit of {:?}", self.time_limit),
            ),
            Err(RecvTimeoutError::Disconnected) => {
                failures(count, "the reward's thread ended without an answer".to_owned())
            }
        }
    }
}

fn failures(count: usize, reason: String) -> Vec<Outcome> {
    vec![Outcome::Failed { reason }; count]
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scored;

    struct Of<F>(F);
    impl<F: Fn(&[Sample]) -> Vec<Outcome> + Send + Sync> Reward for Of<F> {
        fn score(&self, samples: &[Sample]) -> Vec<Outcome> {
            (self.0)(samples)
        }

        fn parts(&self) -> Vec<PartName> {
            vec![]
        }
    }

    /// With time enough for what does end, however busy the machine.
    fn run(reward: impl Fn(&[Sample]) -> Vec<Outcome> + Send + Sync + 'static) -> Vec<Outcome> {
        run_within(Duration::from_secs(600), reward)
    }

    fn run_within(
        time_limit: Duration,
        reward: impl Fn(&[Sample]) -> Vec<Outcome> + Send + Sync + 'static,
    ) -> Vec<Outcome> {
        let runner = RewardRunner::new(Arc::new(Of(reward)), time_limit);
        runner.score(vec!["a".into(), "bc".into()])
    }

    fn length(completion: &str) -> Outcome {
        Outcome::Scored(Scored::new(vec![(1.0, completion.len() as f64)], vec![]))
    }

    #[track_caller]
    fn assert_all_failed(outcomes: &[Outcome], expected: &str) {
        assert_eq!(outcomes.len(), 2);
        for outcome in outcomes {
            let Outcome::Failed { reason } = outcome else { panic!("{outcome:?}") };
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn outcomes_come_in_order() {
        let outcomes = run(|batch| batch.iter().map(|sample| length(&sample.text)).collect());
        assert_eq!(outcomes, [length("a"), length("bc")]);
    }

    #[test]
    fn a_reward_that_hangs_panics_or_miscounts_fails_the_batch_only() {
        assert_all_failed(
            &run_within(Duration::from_millis(200), |_| {
                thread::sleep(Duration::from_secs(3600));
                vec![]
            }),
            "longer than its limit of 200ms",
        );
        assert_all_failed(&run(|_| panic!("out of {}", "luck")), "panicked: out of luck");
        assert_all_failed(&run(|_| vec![Outcome::Abstained]), "gave 1 outcomes for 2");
    }
}
