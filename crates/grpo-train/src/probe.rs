//! Measures a step: times, memory and ledger. Learning does not depend on it.

use std::time::{Duration, Instant};

use grpo_data::{Completion, Group};
use grpo_process::ResidentMemory;
use grpo_run::{LedgerCompletion, LedgerStep};

/// Measurements of a step.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Duration of each phase.
    pub times: Phases<Duration>,
    /// Memory of the process after the step, if the system reports it.
    pub memory: Option<ResidentMemory>,
    /// Resident bytes at the end of each phase, if the system reports them.
    pub phase_memory: Option<Phases<u64>>,
    /// The weights that sampled the completions, and the updates that used them.
    pub ledger: LedgerStep,
}

/// A value for each phase of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases<T> {
    /// Sampling.
    pub rollout: T,
    /// Rewards.
    pub reward: T,
    /// Reference, advantages, loss, gradients, optimizer, and updates of the reference.
    pub update: T,
}

/// Duration of each part of the update phase. On asynchronous devices, work is counted where its
/// result is first awaited, so much of the backward pass counts as optimizer time.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnTimes {
    /// `log π_ref`.
    pub reference: Duration,
    /// `log π_θ` and the loss.
    pub forward: Duration,
    /// Gradients.
    pub backward: Duration,
    /// Clipping and weight updates.
    pub optimizer: Duration,
}

/// Measures the phases of a step.
pub(crate) struct Probe {
    since: Instant,
    phases: Vec<(Duration, Option<u64>)>,
}

impl Probe {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), phases: Vec::new() }
    }

    /// Ends a phase.
    pub(crate) fn phase_done(&mut self) {
        let now = Instant::now();
        self.phases.push((now - self.since, ResidentMemory::of_this_process().map(|it| it.now)));
        self.since = now;
    }

    /// Ends the last phase.
    pub(crate) fn finish(mut self, ledger: LedgerStep) -> Observed {
        self.phase_done();
        let [rollout, reward, update] = <[_; 3]>::try_from(self.phases).expect("three phases");
        let memory = || Some(Phases { rollout: rollout.1?, reward: reward.1?, update: update.1? });
        Observed {
            times: Phases { rollout: rollout.0, reward: reward.0, update: update.0 },
            memory: ResidentMemory::of_this_process(),
            phase_memory: memory(),
            ledger,
        }
    }
}

/// Runs `work` and adds its duration to `total`.
pub(crate) fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *total += started.elapsed();
    result
}

impl LearnTimes {
    /// Adds work that took `all`, including `backward` for gradients.
    pub(crate) fn add(&mut self, all: Duration, backward: Duration) {
        self.forward += all.saturating_sub(backward);
        self.backward += backward;
    }
}

/// Returns the ledger entries of the completions of groups.
pub(crate) fn entries(groups: &[Group]) -> Vec<LedgerCompletion> {
    groups.iter().flat_map(Group::completions).map(entry).collect()
}

fn entry(completion: &Completion) -> LedgerCompletion {
    let key = completion.key();
    LedgerCompletion::of(
        u64::from(key.step) + 1,
        [key.prompt, key.sample],
        completion.policy_version(),
        completion.action_ids(),
        completion.sampling_logprobs(),
    )
}
