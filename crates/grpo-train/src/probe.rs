//! Measures time and memory during a step and builds its ledger entry. Learning is unaffected.

use std::time::{Duration, Instant};

use grpo_data::{Completion, Group};
use grpo_rewards::ExternalCalls;
use grpo_run::{LedgerCompletion, LedgerStep};
use grpo_runtime::ResidentMemory;

/// Measurements for one step.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Duration of each phase.
    pub times: Phases<Duration>,
    /// Process memory after the step, if available on this system.
    pub memory: Option<ResidentMemory>,
    /// Resident memory in bytes at the end of each phase, if available on this system.
    pub phase_memory: Option<Phases<u64>>,
    /// Calls that the reward made to external programs and servers, if any.
    pub calls: Option<ExternalCalls>,
    /// Ledger entry: which weights sampled the completions, and which updates used them.
    pub ledger: LedgerStep,
}

/// One value per phase of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phases<T> {
    /// Sampling.
    pub rollout: T,
    /// Rewards.
    pub reward: T,
    /// Reference scores, advantages, loss, gradients, optimizer and reference updates.
    pub update: T,
}

/// Time spent in each part of the update phase. On asynchronous devices, work is attributed to the
/// part that waits for its result. The optimizer time therefore includes much of the backward pass.
/// Updates with replayed completions are not included.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearnTimes {
    /// Computing `log π_ref`.
    pub reference: Duration,
    /// Computing `log π_θ`, advantages and the loss.
    pub forward: Duration,
    /// Computing gradients.
    pub backward: Duration,
    /// Gradient clipping and weight updates.
    pub optimizer: Duration,
}

/// Measures the phases of one step.
pub(crate) struct Probe {
    since: Instant,
    phases: Vec<(Duration, Option<u64>)>,
}

impl Probe {
    pub(crate) fn start() -> Self {
        Self { since: Instant::now(), phases: Vec::new() }
    }

    /// Marks the end of a phase.
    pub(crate) fn phase_done(&mut self) {
        let now = Instant::now();
        self.phases.push((now - self.since, ResidentMemory::of_this_process().map(|it| it.now)));
        self.since = now;
    }

    /// Marks the end of the last phase and returns the measurements.
    pub(crate) fn finish(mut self, calls: Option<ExternalCalls>, ledger: LedgerStep) -> Observed {
        self.phase_done();
        let [rollout, reward, update] = <[_; 3]>::try_from(self.phases).expect("three phases");
        let memory = || Some(Phases { rollout: rollout.1?, reward: reward.1?, update: update.1? });
        Observed {
            times: Phases { rollout: rollout.0, reward: reward.0, update: update.0 },
            memory: ResidentMemory::of_this_process(),
            phase_memory: memory(),
            calls,
            ledger,
        }
    }
}

/// Runs `work` and adds the elapsed time to `total`.
pub(crate) fn timed<T>(total: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *total += started.elapsed();
    result
}

impl LearnTimes {
    /// Adds a duration `all`, of which `backward` was spent computing gradients.
    pub fn add(&mut self, all: Duration, backward: Duration) {
        self.forward += all.saturating_sub(backward);
        self.backward += backward;
    }
}

/// Returns ledger entries for all completions in `groups`.
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
        &completion.recorded_logprobs(),
    )
}
