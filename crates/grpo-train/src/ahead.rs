//! Sampling of later steps while the policy learns.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use grpo_data::{Completion, Group, Prompt};
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Rollout, RolloutError, StepKey};
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// How often the interrupt flag is checked.
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// A rollout that was sampled ahead of its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutAhead {
    /// Step that learns from it, counted from 0.
    pub step: u32,
    /// Number of optimizer steps applied to the policy that sampled it.
    pub policy_version: u64,
    /// Hash of that policy's weights.
    pub weights: String,
    /// Completions of each prompt.
    pub completions: Vec<Vec<Completion>>,
}

/// Samples rollouts in their order on another thread. Which policy samples a step depends only on the
/// order of calls, not on time.
///
/// An interrupt does not stop a rollout, because the next checkpoint needs it: a resumed run cannot
/// sample it again, as the policy has changed since.
pub(crate) struct Ahead<M> {
    jobs: Option<Sender<Job<M>>>,
    worker: Option<JoinHandle<()>>,
    queue: Mutex<VecDeque<Entry>>,
}

struct Job<M> {
    policy: Frozen<M>,
    prompts: Vec<Prompt>,
    key: StepKey,
    result: Sender<Result<Vec<Group>, RolloutError>>,
}

struct Entry {
    step: u32,
    policy_version: u64,
    weights: String,
    state: State,
}

enum State {
    Running(Receiver<Result<Vec<Group>, RolloutError>>),
    Done(Vec<Vec<Completion>>),
    Failed(Option<RolloutError>),
}

impl<M: LanguageModel> Ahead<M> {
    pub(crate) fn new(sampler: Arc<dyn Rollout<M>>) -> Self {
        let (jobs, received) = mpsc::channel::<Job<M>>();
        let worker = thread::spawn(move || {
            for Job { policy, prompts, key, result } in received {
                // The run no longer needs the rollout if nobody receives it.
                let _ = result.send(sampler.sample(&policy, &prompts, key));
            }
        });
        Self { jobs: Some(jobs), worker: Some(worker), queue: Mutex::default() }
    }

    /// Returns whether the rollout of a step is there or being sampled.
    pub(crate) fn has(&self, step: u32) -> bool {
        self.locked().iter().any(|entry| entry.step == step)
    }

    /// Starts to sample a step.
    pub(crate) fn start(
        &self,
        policy: Frozen<M>,
        weights: String,
        prompts: &[Prompt],
        key: StepKey,
    ) {
        let (result, receiver) = mpsc::channel();
        let StepKey { step, policy_version, .. } = key;
        let job = Job { policy, prompts: prompts.to_vec(), key, result };
        let jobs = self.jobs.as_ref().expect("it is only taken when dropped");
        // If the worker has panicked, the receiver reports it.
        let _ = jobs.send(job);
        let state = State::Running(receiver);
        self.locked().push_back(Entry { step, policy_version, weights, state });
    }

    /// Waits for the rollout of a step and removes it. Returns `None` if it was not started.
    ///
    /// # Errors
    /// Returns an error if sampling failed. If the run is interrupted, the rollout stays where it is.
    pub(crate) fn take(
        &self,
        step: u32,
        interrupt: &AtomicBool,
    ) -> Result<Option<RolloutAhead>, TrainError> {
        let mut queue = self.locked();
        // Those before it belong to steps that were undone.
        while queue.front().is_some_and(|entry| entry.step < step) {
            queue.pop_front();
        }
        let Some(entry) = queue.front_mut().filter(|entry| entry.step == step) else {
            return Ok(None);
        };
        while !entry.wait(BETWEEN_CHECKS) {
            if interrupt.load(Ordering::Relaxed) {
                return Err(TrainError::Interrupted);
            }
        }
        let Entry { step, policy_version, weights, state } =
            queue.pop_front().expect("it is the first");
        match state {
            State::Done(completions) => {
                Ok(Some(RolloutAhead { step, policy_version, weights, completions }))
            }
            State::Failed(Some(error)) => Err(error.into()),
            State::Failed(None) | State::Running(_) => {
                panic!("the thread that samples has panicked")
            }
        }
    }

    /// Waits for all rollouts, and returns those that did not fail.
    pub(crate) fn drained(&self) -> Vec<RolloutAhead> {
        let mut queue = self.locked();
        let done = queue.iter_mut().filter_map(|entry| {
            while !entry.wait(Duration::MAX) {}
            let State::Done(completions) = &entry.state else { return None };
            Some(RolloutAhead {
                step: entry.step,
                policy_version: entry.policy_version,
                weights: entry.weights.clone(),
                completions: completions.clone(),
            })
        });
        done.collect()
    }

    /// Replaces all rollouts.
    pub(crate) fn restore(&self, rollouts: Vec<RolloutAhead>) {
        let entry = |rollout: RolloutAhead| {
            let RolloutAhead { step, policy_version, weights, completions } = rollout;
            Entry { step, policy_version, weights, state: State::Done(completions) }
        };
        *self.locked() = rollouts.into_iter().map(entry).collect();
    }
}

impl<M> Ahead<M> {
    fn locked(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns whether the rollout has ended, after waiting for it for a while.
    fn wait(&mut self, limit: Duration) -> bool {
        let State::Running(receiver) = &self.state else { return true };
        self.state = match receiver.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => State::Failed(None),
            Ok(Err(error)) => State::Failed(Some(error)),
            Ok(Ok(groups)) => {
                let completions = |group: &Group| group.completions().cloned().collect();
                State::Done(groups.iter().map(completions).collect())
            }
        };
        true
    }
}

impl<M> Drop for Ahead<M> {
    /// Waits for the rollout that is being sampled, whose engine may have to tidy up.
    fn drop(&mut self) {
        self.locked().clear();
        drop(self.jobs.take());
        if let Some(worker) = mem::take(&mut self.worker) {
            // A panic was reported by `take`.
            let _ = worker.join();
        }
    }
}
