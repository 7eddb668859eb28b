//! Runs rewards on separate threads with a time limit.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grpo_data::{Group, Sample};
use grpo_runtime::{RankError, Ranks};
use serde_json::{Map, Value};

use crate::identity::VALID;
use crate::{ExternalCalls, Outcome, PartName, Reward, RewardInput, Scored, Votes};

/// Runs a reward and protects the caller from panics and hangs.
#[derive(Clone)]
pub struct RewardRunner {
    reward: Arc<dyn Reward>,
    time_limit: Duration,
    /// Ranks that completions are distributed over.
    ranks: Ranks,
    /// Ends all batches when it is set. See [`Self::interrupted_by`].
    interrupt: Arc<AtomicBool>,
    /// Threads of batches that exceeded the time limit and are still running.
    overdue: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// Maximum number of batches that can hang at the same time. Each of them occupies a thread pool
/// and the memory of its samples.
const MOST_OVERDUE: usize = 4;
/// Time between two looks at the interrupt flag.
const SLICE: Duration = Duration::from_millis(50);
/// Time that external programs have to end after an interrupt. They are killed, so it is rarely needed.
const ENDING: Duration = Duration::from_secs(3);

impl fmt::Debug for RewardRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RewardRunner").field("time_limit", &self.time_limit).finish_non_exhaustive()
    }
}

impl RewardRunner {
    /// Creates a runner with a time limit per batch.
    pub fn new(reward: Arc<dyn Reward>, time_limit: Duration) -> Self {
        let (interrupt, overdue) = (Arc::default(), Arc::default());
        Self { reward, time_limit, ranks: Ranks::alone(), interrupt, overdue }
    }

    /// Ends external programs and stops waiting for outcomes shortly after `flag` is set. All
    /// completions that are being scored fail, so the caller must not use the outcomes.
    #[must_use]
    pub fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        Self { interrupt: flag, ..self }
    }

    /// Returns whether any rank was interrupted, so that outcomes must not be used.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub fn was_interrupted(&self) -> Result<bool, RankError> {
        self.ranks.any(self.is_interrupted())
    }

    /// Distributes the completions of a batch over `ranks`. Each rank scores consecutive completions.
    #[must_use]
    pub fn distributed_over(self, ranks: Ranks) -> Self {
        Self { ranks, ..self }
    }

    /// Returns the names of the terms. See [`Reward::term_names`].
    pub fn term_names(&self) -> Vec<PartName> {
        self.reward.term_names()
    }

    /// Returns the names of the components. See [`Reward::parts`].
    pub fn parts(&self) -> Vec<PartName> {
        self.reward.parts()
    }

    /// Returns why no completion for a prompt can succeed. See [`Reward::doubt`].
    pub fn doubt(&self, fields: &Map<String, Value>) -> Option<String> {
        self.reward.doubt(fields)
    }

    /// Returns the reward that extracts answers from completions. See [`Reward::answer`].
    pub fn answer(&self) -> Option<&dyn Votes> {
        self.reward.answer()
    }

    /// Scores all samples in `groups` and stores their text and outcome. `decode` converts ids to
    /// text. `step` is the training step, starting at 1, or `None` during evaluation. Returns the
    /// calls of external programs, without the information about completions, which is stored in
    /// the samples. See [`Self::score`].
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub fn score_groups(
        &self,
        groups: &mut [Group],
        step: Option<u32>,
        decode: &dyn Fn(&[u32]) -> String,
    ) -> Result<Option<ExternalCalls>, RankError> {
        self.score_groups_except(groups, step, decode, |inputs| vec![None; inputs.len()])
    }

    /// Like [`Self::score_groups`], but only scores completions for which `known` returns `None`. The
    /// others get the outcome that it returns.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub fn score_groups_except(
        &self,
        groups: &mut [Group],
        step: Option<u32>,
        decode: &dyn Fn(&[u32]) -> String,
        known: impl FnOnce(&[RewardInput]) -> Vec<Option<Outcome>>,
    ) -> Result<Option<ExternalCalls>, RankError> {
        let mut inputs = Vec::new();
        for Group { prompt, samples } in &mut *groups {
            for sample in samples {
                let input = RewardInput::new(prompt, &sample.completion, step, decode);
                sample.text.clone_from(&input.text);
                inputs.push(input);
            }
        }
        // Other users of the reward may have left calls behind.
        let _of_others = self.reward.take_calls();
        let known = known(&inputs);
        let is_new = known.iter().map(Option::is_none);
        let new: Vec<RewardInput> = inputs
            .into_iter()
            .zip(is_new)
            .filter_map(|(input, is_new)| is_new.then_some(input))
            .collect();
        let (scored, mut calls) = self.score_distributed(new)?;
        let mut scored = scored.into_iter();
        let outcomes = known.into_iter().map(|known| known.or_else(|| scored.next()));
        let mut info: HashMap<(u32, u32), String> = HashMap::new();
        for (key, text) in calls.iter_mut().flat_map(|calls| calls.info.drain(..)) {
            let known = info.entry(key).or_default();
            let separator = if known.is_empty() { "" } else { "; " };
            known.push_str(&format!("{separator}{text}"));
        }
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        for (sample, outcome) in samples.zip(outcomes) {
            let key = sample.completion.key();
            sample.info = info.remove(&(key.prompt, key.sample));
            sample.outcome = outcome;
        }
        self.add_validity(groups);
        Ok(calls)
    }

    /// Adds the validity of completions without a score if it is missing, e.g. because the whole batch
    /// failed.
    fn add_validity(&self, groups: &mut [Group]) {
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        let (mut unscored, mut texts) = (Vec::new(), Vec::new());
        for Sample { text, outcome, .. } in samples {
            let is_missing = |of: &&mut Outcome| of.total().is_none() && of.part(VALID).is_none();
            if let Some(outcome) = outcome.as_mut().filter(is_missing) {
                unscored.push(outcome);
                texts.push(text.as_str());
            }
        }
        for (outcome, identity) in unscored.into_iter().zip(self.reward.identities(&texts)) {
            identity.is_valid().into_iter().for_each(|is_valid| outcome.set_validity(is_valid));
        }
    }

    /// Scores the share of this rank. Returns the outcomes of all ranks and their calls of external
    /// programs. If the whole share of a rank fails, all completions do, as in a single process.
    fn score_distributed(
        &self,
        mut samples: Vec<RewardInput>,
    ) -> Result<(Vec<Outcome>, Option<ExternalCalls>), RankError> {
        let count = samples.len();
        let share = match (self.reward.fails_as_a_whole(), self.ranks.is_first()) {
            (false, _) => self.share(&samples),
            (true, true) => 0..count,
            (true, false) => 0..0,
        };
        samples.truncate(share.end);
        let own = samples.split_off(share.start);
        let outcomes = if own.is_empty() { Ok(Vec::new()) } else { self.attempt(own) };
        let all = self.ranks.gather((outcomes, self.reward.take_calls()))?;
        let (outcomes, calls): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let outcomes: Result<Vec<_>, String> = outcomes.into_iter().collect();
        let outcomes = outcomes.map_or_else(|reason| failures(count, reason), |all| all.concat());
        Ok((outcomes, ExternalCalls::merged(calls.into_iter().flatten())))
    }

    /// Returns the share of this rank: consecutive completions, or whole groups of a relative reward.
    fn share(&self, samples: &[RewardInput]) -> Range<usize> {
        if !self.reward.is_relative() {
            return self.ranks.share(samples.len());
        }
        let lengths: Vec<usize> = groups(samples).map(<[_]>::len).collect();
        let own = self.ranks.share(lengths.len());
        let before = |group: usize| lengths[..group].iter().sum();
        before(own.start)..before(own.end)
    }

    /// Returns whether outcomes depend on the group. See [`Reward::is_relative`].
    pub fn is_relative(&self) -> bool {
        self.reward.is_relative()
    }

    /// Returns `true` if the reward is deterministic. See [`Reward::is_deterministic`].
    pub fn is_deterministic(&self) -> bool {
        self.reward.is_deterministic()
    }

    /// Returns whether invalid completions have no fixed score. See [`Reward::scores_invalid`].
    pub fn scores_invalid(&self) -> bool {
        self.reward.scores_invalid()
    }

    /// Redirects the output of external programs. See [`Reward::keep_output_in`].
    pub fn keep_output_in(&self, folder: &Path) {
        self.reward.keep_output_in(folder);
    }

    /// Scores a batch of completions. Those of a group follow one another.
    ///
    /// All completions fail if the reward panics, exceeds the time limit or returns the wrong
    /// number of outcomes. The threads of a batch that exceeds the limit cannot be stopped. While
    /// four batches are hanging, new batches fail immediately.
    pub fn score(&self, samples: Vec<RewardInput>) -> Vec<Outcome> {
        let count = samples.len();
        self.attempt(samples).unwrap_or_else(|reason| failures(count, reason))
    }

    /// Scores a batch of completions, or returns the reason why all of them fail.
    fn attempt(&self, samples: Vec<RewardInput>) -> Result<Vec<Outcome>, String> {
        let count = samples.len();
        let mut overdue = self.overdue.lock().unwrap_or_else(PoisonError::into_inner);
        overdue.retain(|thread| !thread.is_finished());
        if overdue.len() >= MOST_OVERDUE {
            let limit = self.time_limit;
            return Err(format!(
                "{MOST_OVERDUE} earlier reward batches are still running past their limit of {limit:?}; no new batch starts until one of them ends; check what the reward is waiting for"
            ));
        }
        drop(overdue);
        let reward = Arc::clone(&self.reward);
        let (sender, receiver) = channel();
        let threads = rayon::current_num_threads();
        let work = move || {
            // A separate thread pool ensures that a hanging reward does not block the threads of
            // the model.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            // The reward is not called again in this scope after a panic, so no inconsistent state
            // is observed here. The reward itself is responsible for its shared state.
            let score = || pool.map(|pool| pool.install(|| scored(&*reward, &samples)));
            let outcome = catch_unwind(AssertUnwindSafe(score));
            let _gone = sender.send(outcome.map_err(|panic| panic_message(&*panic)));
        };
        let thread = match thread::Builder::new().name("reward".to_owned()).spawn(work) {
            Ok(thread) => thread,
            Err(error) => return Err(format!("cannot start a thread for the reward: {error}")),
        };
        match self.wait_for(&receiver) {
            Err(RecvTimeoutError::Timeout) if self.is_interrupted() => {
                self.reward.cancel();
                let _ended = receiver.recv_timeout(ENDING);
                Err("the run was interrupted".to_owned())
            }
            Ok(Ok(Err(error))) => Err(format!("cannot start threads for the reward: {error}")),
            Ok(Ok(Ok(outcomes))) => self.checked(outcomes, count),
            Ok(Err(panic)) => Err(format!("the reward panicked: {panic}")),
            Err(RecvTimeoutError::Timeout) => {
                self.overdue.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
                let limit = self.time_limit;
                Err(format!("the reward exceeded its time limit of {limit:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err("the reward's thread ended without a result".to_owned())
            }
        }
    }
}

impl RewardRunner {
    /// Returns the outcomes of a batch, or what is wrong with them. The trainer and the files of a run
    /// rely on declared components and on terms that correspond.
    fn checked(&self, outcomes: Vec<Outcome>, count: usize) -> Result<Vec<Outcome>, String> {
        if outcomes.len() != count {
            let found = outcomes.len();
            return Err(format!("the reward returned {found} outcomes for {count} completions"));
        }
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(Outcome::bounded).collect();
        let declared = self.parts();
        let weights = |of: &Scored| of.terms.iter().map(|term| term.0).collect::<Vec<f64>>();
        let Some(first) = outcomes.iter().find_map(Outcome::scored).map(weights) else {
            return Ok(outcomes);
        };
        for scored in outcomes.iter().filter_map(Outcome::scored) {
            if let Some((name, _)) = scored.parts.iter().find(|(name, _)| !declared.contains(name))
            {
                return Err(format!(
                    "the reward returned the component `{name}`, which `Reward::parts` does not name"
                ));
            }
            let own = weights(scored);
            if own != first {
                return Err(format!(
                    "the reward returned terms with the weights {own:?} for one completion and {first:?} for another; they must be the same for all"
                ));
            }
        }
        Ok(outcomes)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Waits for the result of a batch until the time limit or an interrupt.
    fn wait_for<T>(&self, receiver: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        let end = Instant::now() + self.time_limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.min(SLICE)) {
                Err(RecvTimeoutError::Timeout) if left > SLICE && !self.is_interrupted() => {}
                other => return other,
            }
        }
    }
}

/// Returns the groups in a batch.
fn groups(samples: &[RewardInput]) -> impl Iterator<Item = &[RewardInput]> {
    samples.chunk_by(|a, b| a.group == b.group)
}

/// Scores a batch at once or, if the reward is relative, group by group.
fn scored(reward: &dyn Reward, samples: &[RewardInput]) -> Vec<Outcome> {
    if !reward.is_relative() {
        return reward.score(samples);
    }
    let of_group = |group: &[RewardInput]| {
        let (outcomes, count) = (reward.score_group(group), group.len());
        let found = outcomes.len();
        match found == count {
            true => outcomes,
            false => failures(
                count,
                format!("the reward returned {found} outcomes for a group of {count} completions"),
            ),
        }
    };
    groups(samples).flat_map(of_group).collect()
}

fn failures(count: usize, reason: String) -> Vec<Outcome> {
    vec![Outcome::failed(reason); count]
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    struct Of<F>(F);
    impl<F: Fn(&[RewardInput]) -> Vec<Outcome> + Send + Sync> Reward for Of<F> {
        fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
            (self.0)(samples)
        }

        fn parts(&self) -> Vec<PartName> {
            vec![]
        }
    }

    /// Runs a reward with a time limit that is sufficient even on a busy machine.
    fn run(
        reward: impl Fn(&[RewardInput]) -> Vec<Outcome> + Send + Sync + 'static,
    ) -> Vec<Outcome> {
        run_within(Duration::from_secs(600), reward)
    }

    fn run_within(
        time_limit: Duration,
        reward: impl Fn(&[RewardInput]) -> Vec<Outcome> + Send + Sync + 'static,
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
            let Outcome::Failed { reason, .. } = outcome else { panic!("{outcome:?}") };
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn outcomes_come_in_order() {
        let outcomes = run(|batch| batch.iter().map(|sample| length(&sample.text)).collect());
        assert_eq!(outcomes, [length("a"), length("bc")]);
    }

    /// The first step would refuse them.
    #[test]
    fn a_score_that_is_too_large_fails_its_completion_only() {
        for value in [1e308, -1.1e100, f64::INFINITY, f64::NAN] {
            let scores = move |of: f64| Outcome::Scored(Scored::new(vec![(1.0, of)], vec![]));
            let outcomes = run(move |_| vec![scores(value), scores(-1e100)]);
            let reason = outcomes[0].failure().unwrap();
            assert!(
                reason.starts_with(&format!("the reward has the value {value:e};")),
                "{reason}"
            );
            assert_eq!(outcomes[1].total(), Some(-1e100));
        }
    }

    #[test]
    fn a_reward_that_hangs_panics_or_miscounts_fails_the_batch_only() {
        assert_all_failed(
            &run_within(Duration::from_millis(200), |_| {
                thread::sleep(Duration::from_secs(3600));
                vec![]
            }),
            "exceeded its time limit of 200ms",
        );
        assert_all_failed(&run(|_| panic!("out of {}", "luck")), "panicked: out of luck");
        assert_all_failed(&run(|_| vec![Outcome::abstained()]), "returned 1 outcomes for 2");
    }

    /// The trainer would panic outside of the reward's thread.
    #[test]
    fn outcomes_that_do_not_fit_fail_the_batch() {
        let scored = |weight: f64, parts: &[(&'static str, f64)]| {
            let parts = parts.iter().map(|&(name, value)| (name.into(), value)).collect();
            Outcome::Scored(Scored::new(vec![(weight, 0.5)], parts))
        };
        let undeclared = vec![scored(1.0, &[]), scored(1.0, &[("luck", 1.0)])];
        assert_all_failed(&run(move |_| undeclared.clone()), "the component `luck`");
        let uneven = vec![scored(1.0, &[]), scored(0.5, &[])];
        assert_all_failed(&run(move |_| uneven.clone()), "weights [0.5] for one completion");
        let even = vec![scored(0.5, &[]), Outcome::abstained()];
        assert_eq!(run(move |_| even.clone())[0].total(), Some(0.25));
    }

    /// The reward waits for its cancellation, as a program does that ignores signals.
    #[test]
    fn an_interrupt_cancels_the_reward() {
        struct Hangs(Mutex<std::sync::mpsc::Receiver<()>>, Mutex<std::sync::mpsc::Sender<()>>);
        impl Reward for Hangs {
            fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
                let _cancelled = self.0.lock().unwrap().recv();
                vec![Outcome::abstained(); samples.len()]
            }

            fn parts(&self) -> Vec<PartName> {
                vec![]
            }

            fn cancel(&self) {
                self.1.lock().unwrap().send(()).unwrap();
            }
        }
        let (sender, receiver) = channel();
        let flag = Arc::new(AtomicBool::new(false));
        let reward = Arc::new(Hangs(Mutex::new(receiver), Mutex::new(sender)));
        let runner = RewardRunner::new(reward, Duration::from_secs(600));
        let runner = runner.interrupted_by(Arc::clone(&flag));
        let begun = Instant::now();
        let of_signal = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            flag.store(true, Ordering::Relaxed);
        });
        assert_all_failed(&runner.score(vec!["a".into(), "bc".into()]), "was interrupted");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        of_signal.join().unwrap();
    }

    #[test]
    fn only_so_many_batches_hang_at_the_same_time() {
        let (end, ended) = channel::<()>();
        let ended = Mutex::new(ended);
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        let hangs = move |batch: &[RewardInput]| {
            counted.fetch_add(1, Ordering::SeqCst);
            let _gone = ended.lock().unwrap().recv();
            vec![Outcome::abstained(); batch.len()]
        };
        let runner = RewardRunner::new(Arc::new(Of(hangs)), Duration::from_millis(200));
        let score = || runner.clone().score(vec!["a".into(), "bc".into()]);
        for _ in 0..MOST_OVERDUE {
            assert_all_failed(&score(), "exceeded its time limit");
        }
        for _ in 0..3 {
            assert_all_failed(&score(), "4 earlier reward batches are still running past");
        }
        drop(end);
        let began = std::time::Instant::now();
        while score() != vec![Outcome::abstained(); 2] {
            assert!(began.elapsed() < Duration::from_secs(60), "hung batches that ended count");
        }
        assert!(begun.load(Ordering::SeqCst) > MOST_OVERDUE);
    }
}
