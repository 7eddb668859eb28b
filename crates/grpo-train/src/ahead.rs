//! Sampling of later steps while the policy learns.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use grpo_data::{Completion, Group, Prompt};
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Engine, RolloutError, StepKey};
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
/// sample it again, as the policy has changed since. After a rollout that failed, no other is sampled.
pub(crate) struct Ahead<M> {
    sampler: Arc<dyn Engine<M>>,
    worker: Mutex<Worker<M>>,
    queue: Mutex<VecDeque<Entry>>,
}

/// A thread that samples.
struct Worker<M> {
    jobs: Option<Sender<Job<M>>>,
    thread: Option<JoinHandle<()>>,
    /// Tells the thread to stop, because its rollouts are not needed anymore.
    is_abandoned: Arc<AtomicBool>,
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

impl<M: LanguageModel> Worker<M> {
    fn start(sampler: &Arc<dyn Engine<M>>) -> Self {
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let sampler = sampler.interrupted_by(Arc::clone(&is_abandoned));
        let (jobs, received) = mpsc::channel::<Job<M>>();
        let has_ended = Arc::clone(&is_abandoned);
        // With threads of its own: those of the caller's pool may all be waiting for the rollout.
        let threads = rayon::current_num_threads();
        let thread = thread::spawn(move || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.expect("the system has threads left");
            for Job { policy, prompts, key, result } in received {
                let sampled = match has_ended.load(Ordering::Relaxed) {
                    true => Err(RolloutError::Interrupted),
                    false => pool.install(|| sampler.sample(&policy, &prompts, key)),
                };
                if sampled.is_err() {
                    has_ended.store(true, Ordering::Relaxed);
                }
                // The run no longer needs the rollout if nobody receives it.
                let _ = result.send(sampled);
            }
        });
        Self { jobs: Some(jobs), thread: Some(thread), is_abandoned }
    }
}

impl<M> Drop for Worker<M> {
    /// Waits for the engine, which may have to tidy up.
    fn drop(&mut self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported by `Ahead::take`.
            let _ = thread.join();
        }
    }
}

impl<M: LanguageModel> Ahead<M> {
    pub(crate) fn new(sampler: Arc<dyn Engine<M>>) -> Self {
        let worker = Mutex::new(Worker::start(&sampler));
        Self { sampler, worker, queue: Mutex::default() }
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
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = worker.jobs.as_ref().expect("it is only taken when dropped");
        // If the thread has panicked, the receiver reports it.
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
        queue.retain(|entry| entry.step >= step);
        let Some(index) = queue.iter().position(|entry| entry.step == step) else {
            return Ok(None);
        };
        while !queue[index].wait(BETWEEN_CHECKS) {
            if interrupt.load(Ordering::Relaxed) {
                return Err(TrainError::Interrupted);
            }
        }
        let Entry { step, policy_version, weights, state } =
            queue.remove(index).expect("it was found");
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

    /// Waits for all rollouts, and returns those that did not fail. A resumed run samples the others
    /// with its policy.
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

    /// Replaces all rollouts, and stops those that are being sampled.
    pub(crate) fn restore(&self, rollouts: Vec<RolloutAhead>) {
        let worker = Worker::start(&self.sampler);
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = worker;
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
