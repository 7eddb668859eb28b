//! The extension that samples later steps while the policy learns.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use grpo_data::schema::Keys;
use grpo_data::{Completion, ConfigFault, Group, Prompt, Ranges, deserialize_settings};
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Engine, RolloutError, StepKey};
use grpo_run::Plan;
use grpo_train::{
    GrpoConfig, MetricSpec, Sampled, Snapshot, StepExtension, StepSampler, TrainConfig, TrainError,
    UpdatedStep,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use crate::{BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionParts};

/// How often the interrupt flag is checked.
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// A rollout that was sampled ahead of its step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RolloutAhead {
    /// Step that learns from it, counted from 0.
    step: u32,
    #[serde(flatten)]
    sampled: Sampled,
}

/// Samples the completions of later steps on another thread, while the policy learns. Which policy
/// samples a step depends only on the order of steps, not on time.
///
/// An interrupt does not stop a rollout, because the next checkpoint needs it: a resumed run cannot
/// sample it again, as the policy has changed since. After a rollout that failed, no other is sampled.
pub struct SamplingAhead<M> {
    staleness: u32,
    /// Numbers of prompts and of completions per prompt, which a saved rollout must have.
    shape: [usize; 2],
    worker: Option<Worker<M>>,
    queue: RefCell<VecDeque<Entry>>,
    /// Number of optimizer steps between the policy that sampled this step and the one that learns.
    age: u64,
}

/// The key of sampling ahead in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AheadConfig {
    /// The key in the `[train]` section.
    pub train: Staleness,
}

/// See [`AheadConfig`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Ranges,
)]
#[serde(deny_unknown_fields, default)]
pub struct Staleness {
    /// Steps by which sampling runs ahead: while the policy learns from a step, the next ones are
    /// sampled on another thread. Step s samples from the policy after step s − 1 − `staleness`.
    /// Checkpoints wait for the rollouts that are being sampled; up to `staleness` + 1 policies are
    /// in memory. Requires `sampler_check.above = "correct"` or `loss.mismatch`; one process;
    /// excludes `grpo replay`.
    #[schemars(range(min = 0, max = 16))]
    pub staleness: u32,
}

/// Name of the extension.
const AHEAD: &str = "staleness";
const KEY: &str = "train.staleness";
static METRICS: [MetricSpec; 1] = [MetricSpec::new(
    "sampling/staleness",
    "≥ 0",
    "optimizer steps between the policy that sampled and the one that learned",
)
.requires("a positive train.staleness")];

/// Returns the kind of extension that a positive `train.staleness` asks for.
pub(crate) const fn kind<M: LanguageModel>() -> ExtensionKind<M> {
    ExtensionKind {
        name: AHEAD,
        keys: &[KEY],
        schema: Keys::of::<AheadConfig>(),
        metrics: &METRICS,
        parse: |keys, _| {
            let config: AheadConfig = deserialize_settings(keys)?;
            let steps = config.train.staleness;
            config.train.check_ranges("train")?;
            Ok((steps > 0).then(|| Arc::new(config) as Arc<_>))
        },
    }
}

impl<M: LanguageModel> ExtensionConfig<M> for AheadConfig {
    fn name(&self) -> &'static str {
        AHEAD
    }

    fn settings(&self) -> Table {
        Table::try_from(self).expect("settings consist of texts, numbers and tables")
    }

    fn check(&self, run: &ConfiguredRun<'_>) -> Result<(), ConfigFault> {
        refuse_uncorrected(self.train.staleness, run.config)
    }

    fn check_replay(&self) -> Result<(), ConfigFault> {
        let message = format!(
            "`grpo replay` cannot replay runs with {KEY} = {}, whose rollouts were sampled by earlier policies",
            self.train.staleness
        );
        Err(ConfigFault::from_sentence(KEY, message))
    }

    fn check_ranks(&self) -> Result<(), ConfigFault> {
        let message = format!(
            "{KEY} = {} samples while the policy learns, which several processes cannot share",
            self.train.staleness
        );
        Err(ConfigFault::new(KEY, message, "set it to 0, or start one process without mpirun"))
    }

    fn looks_ahead(&self) -> u32 {
        self.train.staleness
    }

    fn plan(&self, plan: &mut Plan) {
        plan.staleness = self.train.staleness.into();
    }

    fn build(&self, parts: &mut ExtensionParts<'_>) -> BuiltExtension<M> {
        let TrainConfig { prompts_per_step, group_size, .. } = parts.config.train;
        let shape = [prompts_per_step as usize, group_size];
        Ok(Box::new(SamplingAhead::<M>::new(self.train.staleness, shape)))
    }
}

/// Rejects completions of earlier policies without a correction.
fn refuse_uncorrected(staleness: u32, config: &GrpoConfig) -> Result<(), ConfigFault> {
    if config.sampler_check.corrects(&config.loss.resolve()?) {
        return Ok(());
    }
    let message = format!(
        "{KEY} = {staleness} samples from earlier policies than the trained one, which stops a run with sampler_check.above = \"stop\""
    );
    let remedy = "set loss.mismatch, or sampler_check.above = \"correct\"";
    Err(ConfigFault::new(KEY, message, remedy))
}

impl<M: LanguageModel> StepExtension<M> for SamplingAhead<M> {
    fn name(&self) -> &'static str {
        AHEAD
    }

    fn check(&self, config: &GrpoConfig, _extensions: &[&'static str]) -> Result<(), ConfigFault> {
        refuse_uncorrected(self.staleness, config)
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn looks_ahead(&self) -> u32 {
        self.staleness
    }

    /// Starts to sample a step with the current policy, unless its rollout was restored.
    fn upcoming(&mut self, sampler: &StepSampler<'_, M>) {
        if !self.queue.borrow().iter().any(|entry| entry.step == sampler.step) {
            self.start(sampler);
        }
    }

    fn rollout(&mut self, sampler: &StepSampler<'_, M>) -> Result<Option<Sampled>, TrainError> {
        let sampled = self.sampled(sampler)?;
        let version = sampler.policy_version();
        self.age = sampled.as_ref().map_or(0, |sampled| version - sampled.policy_version);
        Ok(sampled)
    }

    fn after_updates(&mut self, step: &mut UpdatedStep<'_, M>) -> Result<(), TrainError> {
        step.added.metrics.push((METRICS[0].name, self.age as f64));
        // The step will not be repeated.
        self.queue.get_mut().retain(|entry| entry.step > step.step);
        Ok(())
    }

    /// Nothing changes until the policy is updated.
    fn mark(&self) -> Value {
        Value::Null
    }

    fn undo(&mut self, _mark: Value) {}

    /// Waits for all rollouts, and returns those that did not fail. A resumed run samples the others
    /// with its policy.
    fn state(&self) -> Value {
        let mut queue = self.queue.borrow_mut();
        let done = queue.iter_mut().filter_map(|entry| {
            while !entry.wait(Duration::MAX) {}
            let State::Done(completions) = &entry.state else { return None };
            Some(RolloutAhead {
                step: entry.step,
                sampled: Sampled {
                    policy_version: entry.policy_version,
                    weights: entry.weights.clone(),
                    completions: completions.clone(),
                },
            })
        });
        match done.collect::<Vec<RolloutAhead>>() {
            rollouts if rollouts.is_empty() => Value::Null,
            rollouts => serde_json::to_value(rollouts).expect("names and numbers are JSON"),
        }
    }

    /// Replaces all rollouts, and stops those that are being sampled.
    fn restore(&mut self, state: Value) -> Result<(), String> {
        let rollouts: Vec<RolloutAhead> = match state {
            Value::Null => Vec::new(),
            state => serde_json::from_value(state).map_err(|error| error.to_string())?,
        };
        self.worker = None;
        let entry = |rollout: RolloutAhead| {
            let Sampled { policy_version, weights, completions } = rollout.sampled;
            Entry { step: rollout.step, policy_version, weights, state: State::Done(completions) }
        };
        *self.queue.get_mut() = rollouts.into_iter().map(entry).collect();
        Ok(())
    }

    fn check_restored(&self, steps: u32, policy_version: u64) -> Result<(), String> {
        let [prompts, group_size] = self.shape;
        for (entry, expected) in self.queue.borrow().iter().zip(steps..) {
            let State::Done(completions) = &entry.state else { continue };
            let has_shape = completions.len() == prompts
                && completions.iter().all(|group| group.len() == group_size);
            if entry.step != expected || entry.policy_version > policy_version || !has_shape {
                return Err(format!(
                    "the rollout of step {} is not one of this run's next steps",
                    u64::from(entry.step) + 1
                ));
            }
        }
        Ok(())
    }
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
            // A panic was reported by `SamplingAhead::sampled`.
            let _ = thread.join();
        }
    }
}

impl<M: LanguageModel> SamplingAhead<M> {
    /// Samples `staleness` steps ahead. The shape is the number of prompts per step and of completions per
    /// prompt.
    pub fn new(staleness: u32, shape: [usize; 2]) -> Self {
        Self { staleness, shape, worker: None, queue: RefCell::default(), age: 0 }
    }

    fn start(&mut self, sampler: &StepSampler<'_, M>) {
        let Snapshot { policy, weights, key } = sampler.snapshot();
        let worker = self.worker.get_or_insert_with(|| Worker::start(sampler.engine()));
        let (result, receiver) = mpsc::channel();
        let job = Job { policy, prompts: sampler.prompts.to_vec(), key, result };
        let jobs = worker.jobs.as_ref().expect("it is only taken when dropped");
        // If the thread has panicked, the receiver reports it.
        let _ = jobs.send(job);
        let StepKey { step, policy_version, .. } = key;
        let state = State::Running(receiver);
        let entry = Entry { step, policy_version, weights: weights.into(), state };
        self.queue.get_mut().push_back(entry);
    }

    /// Waits for the rollout of a step. Returns `None` if it was not started. It stays in the queue, since
    /// the step may fail or be interrupted before the policy is updated.
    fn sampled(&mut self, sampler: &StepSampler<'_, M>) -> Result<Option<Sampled>, TrainError> {
        let queue = self.queue.get_mut();
        queue.retain(|entry| entry.step >= sampler.step);
        let Some(index) = queue.iter().position(|entry| entry.step == sampler.step) else {
            return Ok(None);
        };
        while !queue[index].wait(BETWEEN_CHECKS) {
            if sampler.is_interrupted() {
                return Err(TrainError::Interrupted);
            }
        }
        let entry = &queue[index];
        if let State::Done(completions) = &entry.state {
            return Ok(Some(Sampled {
                policy_version: entry.policy_version,
                weights: entry.weights.clone(),
                completions: completions.clone(),
            }));
        }
        // If the step is repeated, it is sampled again.
        match queue.remove(index).expect("it was found").state {
            State::Failed(Some(error)) => Err(error.into()),
            _ => panic!("the thread that samples has panicked"),
        }
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
