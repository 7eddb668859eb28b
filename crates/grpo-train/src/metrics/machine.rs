//! Measurements of time, speed and memory in a step.

use grpo_metrics::{MetricSpec, Role};
use grpo_rewards::ExternalCalls;

use super::values::Metrics;
use crate::{Phases, StepReport};

pub(super) const EXTERNAL_REWARD: &str = "a reward of type `python`, `command` or `http`";
pub(super) const LINUX: &str = "Linux";

const STEP_TIME: &str = "Step time";
const REWARD_TIME: &str = "External reward time";

pub(super) static METRICS: [MetricSpec; 21] = [
    MetricSpec::new("step_time", "seconds", "rollout, reward and update together")
        .of_machine()
        .in_chart(STEP_TIME, Role::Total),
    MetricSpec::new("time/rollout", "seconds", "sampling").of_machine().in_chart(STEP_TIME, Role::Layer("rollout")),
    MetricSpec::new("time/reward", "seconds", "rewards").of_machine().in_chart(STEP_TIME, Role::Layer("reward")),
    MetricSpec::new("time/update", "seconds", "reference, advantages, loss, gradients, optimizer and replay updates. The following shares do not include replay updates")
        .of_machine()
        .in_chart(STEP_TIME, Role::Layer("update")),
    MetricSpec::new("time/reference", "seconds", "share of `time/update` for log π_ref").of_machine(),
    MetricSpec::new("time/forward", "seconds", "share for log π_θ, advantages and the loss, including the token record of a recorded step").of_machine(),
    MetricSpec::new("time/backward", "seconds", "share for gradients. On an asynchronous device, much of the backward pass is counted under the optimizer, which waits for it").of_machine(),
    MetricSpec::new("time/optimizer", "seconds", "share for clipping and AdamW").of_machine(),
    MetricSpec::new("time/reused", "0 to 1", "fraction of the tokens for which the first update took the outputs of linear layers from the rollout ([decision 40](decisions/0040-activations-of-the-rollout.md)); 0 in the first step of a process and in every tenth one after it").of_machine(),
    MetricSpec::new("tokens_per_second", "1/s", "tokens of the step divided by `step_time`").of_machine(),
    MetricSpec::new("time/reward_item/p50", "seconds", "median of the time per completion that was sent. The time is the one in the reply's [`seconds`](configuration.md#message), else the duration of its request divided by the completions of the request")
        .of_machine()
        .requires(EXTERNAL_REWARD)
        .curve(REWARD_TIME, "median"),
    MetricSpec::new("time/reward_item/p99", "seconds", "0.99 quantile (linear interpolation) of the same times")
        .of_machine()
        .requires(EXTERNAL_REWARD)
        .curve(REWARD_TIME, "99 %"),
    MetricSpec::new("time/reward_item/max", "seconds", "maximum of the same times")
        .of_machine()
        .requires(EXTERNAL_REWARD)
        .curve(REWARD_TIME, "slowest"),
    MetricSpec::new("time/reward_item/slowest_prompt", "index", "`prompt` of the slowest completion, as in the [recorded completions](files.md#recorded-completions)")
        .of_machine()
        .requires(EXTERNAL_REWARD)
        .hidden(),
    MetricSpec::new("time/reward_item/slowest_sample", "index", "`sample` of the slowest completion")
        .of_machine()
        .requires(EXTERNAL_REWARD)
        .hidden(),
    // A resumed run starts with an empty cache.
    MetricSpec::new("reward_cache/hits", "count", "completions that such a reward did not need to score because an equal one was scored before, in this session")
        .of_machine()
        .requires(EXTERNAL_REWARD),
    MetricSpec::new("memory/rss", "bytes", "resident memory of the process after the step").of_machine().requires(LINUX),
    MetricSpec::new("memory/peak", "bytes", "peak of the resident memory so far").of_machine().requires(LINUX),
    MetricSpec::new("memory/rollout", "bytes", "resident memory at the end of sampling").of_machine().requires(LINUX),
    MetricSpec::new("memory/reward", "bytes", "resident memory at the end of the rewards").of_machine().requires(LINUX),
    MetricSpec::new("memory/update", "bytes", "resident memory at the end of the update, including a change of the reference").of_machine().requires(LINUX),
];

impl Metrics {
    /// Adds the measurements of a step.
    pub(super) fn push_times(&mut self, report: &StepReport) {
        let observed = &report.observed;
        let Phases { rollout, reward, update } = observed.times;
        let all = (rollout + reward + update).as_secs_f64();
        self.push("step_time", all);
        self.push("time/rollout", rollout.as_secs_f64());
        self.push("time/reward", reward.as_secs_f64());
        self.push("time/update", update.as_secs_f64());
        let parts = report.learned.times;
        self.push("time/reference", parts.reference.as_secs_f64());
        self.push("time/forward", parts.forward.as_secs_f64());
        self.push("time/backward", parts.backward.as_secs_f64());
        self.push("time/optimizer", parts.optimizer.as_secs_f64());
        self.push("time/reused", report.learned.reused);
        self.push("tokens_per_second", report.actions() as f64 / all);
        observed.calls.iter().for_each(|calls| self.push_calls(calls));
        if let Some(memory) = observed.memory {
            self.push("memory/rss", memory.now as f64);
            self.push("memory/peak", memory.peak as f64);
        }
        if let Some(after) = observed.phase_memory {
            self.push("memory/rollout", after.rollout as f64);
            self.push("memory/reward", after.reward as f64);
            self.push("memory/update", after.update as f64);
        }
    }

    /// Adds the times of the completions that an external reward scored, and the number of those
    /// that it did not need to score again.
    fn push_calls(&mut self, calls: &ExternalCalls) {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            let seconds = calls.quantile(share);
            seconds.into_iter().for_each(|it| self.push(format!("time/reward_item/{name}"), it));
        }
        if let Some(slowest) = calls.slowest() {
            self.push("time/reward_item/slowest_prompt", f64::from(slowest.group));
            self.push("time/reward_item/slowest_sample", f64::from(slowest.sample));
        }
        self.push("reward_cache/hits", calls.cache_hits as f64);
    }
}
