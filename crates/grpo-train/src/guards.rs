//! Guards monitor metrics and request an action if a value is out of range. This module has no side
//! effects: it only returns triggers, and the caller performs the actions.

use grpo_data::short_number;
use grpo_metrics::{MetricSpec, MetricTable};
use serde::{Deserialize, Serialize};

use crate::error::guard_fault;
use crate::guard_config::{Action, GuardAction, GuardConfig, NOT_FINITE};
use crate::metrics::TERMS;
use crate::run_metrics::nearest;
use crate::{Ending, Metrics, RewardNames, TrainError, step_metrics};

/// All guards for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Guards {
    guards: Vec<GuardConfig>,
    state: GuardsState,
}

/// Guard state that is saved with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardsState {
    /// For each guard, the number of consecutive steps in which its metric was out of range.
    streaks: Vec<u32>,
    /// First step of each streak. Empty in checkpoints written by older versions.
    #[serde(default)]
    first: Vec<u64>,
}

/// Describes why a guard was triggered.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardTrigger {
    /// Guard index.
    pub guard: usize,
    /// Metric name or `not_finite`.
    pub watch: String,
    /// Metric value, or `None` if it is not finite.
    pub value: Option<f64>,
    /// Bound that was exceeded, or `None` for `not_finite`.
    pub bound: Option<f64>,
    /// Number of consecutive steps out of range. Steps without the metric are not counted.
    pub steps: u32,
    /// First of these steps, counted from 1.
    pub since: u64,
    /// Action to take.
    pub action: Action,
    /// Human-readable message.
    pub message: String,
}

impl Action {
    /// Returns the most severe action, or `None` if `triggers` is empty. If there are multiple
    /// roll-backs, the lowest learning rate and the highest KL coefficient are used.
    pub fn of(triggers: &[GuardTrigger]) -> Option<Self> {
        triggers.iter().map(|trigger| trigger.action).reduce(|a, b| match (a, b) {
            (
                Self::RollBack { learning_rate_factor, kl_coef_factor },
                Self::RollBack { learning_rate_factor: other_rate, kl_coef_factor: other_coef },
            ) => Self::RollBack {
                learning_rate_factor: learning_rate_factor.min(other_rate),
                kl_coef_factor: kl_coef_factor.max(other_coef),
            },
            (a, b) if a >= b => a,
            (_, b) => b,
        })
    }
}

impl Ending {
    /// Returns the ending requested by guards that were triggered in `step`, counted from 1.
    pub(crate) fn of_triggers(step: u32, triggers: &[GuardTrigger]) -> Option<Self> {
        let action = Action::of(triggers)?;
        let decisive: Vec<&GuardTrigger> =
            triggers.iter().filter(|trigger| trigger.action.name() == action.name()).collect();
        let messages: Vec<&str> = decisive.iter().map(|trigger| trigger.message.as_str()).collect();
        let message = messages.join("; ");
        match action {
            Action::Warn => None,
            Action::Stop => Some(Self::Stopped { message }),
            Action::RollBack { learning_rate_factor, kl_coef_factor } => {
                let since = decisive.iter().map(|trigger| trigger.since).min();
                let since = since.and_then(|since| u32::try_from(since).ok()).unwrap_or(step);
                Some(Self::RollBack { since, learning_rate_factor, kl_coef_factor, message })
            }
        }
    }
}

impl Guards {
    /// Creates guards from validated settings.
    pub fn new(guards: &[GuardConfig]) -> Self {
        let guards: Vec<GuardConfig> = guards.iter().map(GuardConfig::resolved).collect();
        let count = guards.len();
        let state = GuardsState { streaks: vec![0; count], first: vec![0; count] };
        Self { guards, state }
    }

    /// Checks the metrics for `step`, counted from 1, and returns all triggered guards in order. A
    /// warning is only repeated after the metric has returned to its range. Steps in which the
    /// metric is missing are skipped.
    pub fn observe(&mut self, step: u64, metrics: &Metrics) -> Vec<GuardTrigger> {
        let mut triggers = Vec::new();
        for place in 0..self.guards.len() {
            let guard = &self.guards[place];
            if step < u64::from(guard.from_step) {
                continue;
            }
            match seen(guard, metrics) {
                Some(seen) => triggers.extend(self.count(place, step, seen)),
                None if is_gap(guard, metrics) => {}
                None => self.state.streaks[place] = 0,
            }
        }
        triggers
    }

    /// Handles a failed step. Guards are only triggered if they watch for non-finite values and the
    /// step failed because of one.
    pub fn failed(&mut self, step: u64, error: &TrainError) -> Vec<GuardTrigger> {
        if !error.is_not_finite() {
            return Vec::new();
        }
        let watching = (0..self.guards.len()).filter(|&place| {
            let guard = &self.guards[place];
            guard.watch == NOT_FINITE && step >= u64::from(guard.from_step)
        });
        let watching: Vec<usize> = watching.collect();
        let words = format!("the step failed: {error}");
        let trigger = |place| self.count(place, step, Seen::number(words.clone()));
        watching.into_iter().filter_map(trigger).collect()
    }

    /// Returns the state to be saved.
    pub fn state(&self) -> &GuardsState {
        &self.state
    }

    /// Restores a saved state.
    ///
    /// # Errors
    /// Returns an error if the number of guards has changed.
    pub fn restore(&mut self, state: GuardsState) -> Result<(), TrainError> {
        let (saved, guards) = (state.streaks.len(), self.guards.len());
        if saved != guards {
            return Err(TrainError::OtherState(format!(
                "the checkpoint was saved by a run with {saved} guards, but this run has {guards}; restore config.toml"
            )));
        }
        self.state = state;
        self.state.first.resize(guards, 0);
        Ok(())
    }

    /// Adds a step to the guard's streak.
    fn count(&mut self, place: usize, step: u64, seen: Seen) -> Option<GuardTrigger> {
        let streak = &mut self.state.streaks[place];
        *streak = streak.saturating_add(1);
        let first = &mut self.state.first[place];
        if *streak == 1 || *first == 0 {
            *first = (step + 1).saturating_sub(u64::from(*streak)).max(1);
        }
        let since = *first;
        let guard = &self.guards[place];
        let is_due = match guard.action {
            GuardAction::Warn => *streak == guard.steps,
            GuardAction::Stop | GuardAction::RollBack => *streak >= guard.steps,
        };
        let in_a_row =
            if *streak > 1 { format!(", {streak} steps in a row") } else { String::new() };
        is_due.then(|| GuardTrigger {
            guard: place,
            watch: guard.watch.clone(),
            value: seen.value,
            bound: seen.bound,
            steps: *streak,
            since,
            action: guard.action(),
            message: format!("step {step}: {}{in_a_row}{}", seen.words, seen.meaning()),
        })
    }
}

/// Checks that all reward components watched by `guards` exist. Called before the first step.
///
/// # Errors
/// Returns an error if a watched component or term is missing.
pub(crate) fn refuse_other_rewards(
    guards: &[GuardConfig],
    names: &RewardNames,
) -> Result<(), TrainError> {
    let metrics = reward_metrics(names);
    for (place, guard) in guards.iter().enumerate() {
        let watch = &guard.watch;
        let of_step = watch.strip_prefix("eval_").unwrap_or(watch);
        if !is_of_reward(of_step) || metrics.iter().any(|metric| metric == of_step) {
            continue;
        }
        let near = nearest(of_step, metrics.iter().map(String::as_str)).unwrap_or("none");
        let fault = format!(
            "watch = \"{watch}\": the reward of this run has no such component; did you mean '{near}'?"
        );
        return Err(guard_fault(place, "watch", &fault).into());
    }
    Ok(())
}

/// Returns whether it depends on the reward if the metric exists.
fn is_of_reward(name: &str) -> bool {
    let spec = MetricTable::new(step_metrics()).spec(name);
    spec.is_some_and(|spec| spec.name != name || spec.requires == TERMS)
}

/// Returns the names of the metrics that depend on the reward.
fn reward_metrics(names: &RewardNames) -> Vec<String> {
    let RewardNames { terms, parts, .. } = names;
    let parts =
        parts.iter().flat_map(|part| ["mean", "std"].map(|of| format!("rewards/{part}/{of}")));
    let shares = terms.iter().map(|term| format!("reward_share/{term}"));
    let shares = shares.chain(["reward_dominance".to_owned()]).filter(|_| terms.len() > 1);
    parts.chain(shares).collect()
}

/// A value that is out of range.
struct Seen {
    value: Option<f64>,
    bound: Option<f64>,
    words: String,
    /// Explanation of the value, if known.
    meaning: Option<String>,
}

/// Explanation of a non-finite value.
const NOTHING_SOUND: &str = "a non-finite value gives no useful training signal";

impl Seen {
    /// Creates the observation for a non-finite value.
    fn number(words: String) -> Self {
        Self { value: None, bound: None, words, meaning: Some(NOTHING_SOUND.to_owned()) }
    }

    /// Formats the explanation so that it can be appended to a sentence.
    fn meaning(&self) -> String {
        self.meaning.as_ref().map_or_else(String::new, |meaning| format!(": {meaning}"))
    }
}

fn seen(guard: &GuardConfig, metrics: &Metrics) -> Option<Seen> {
    if guard.watch == NOT_FINITE {
        let (name, value) = metrics.iter().find(|(name, value)| {
            // The mean reward is NaN if no completion was scored. Non-finite rewards make the step
            // fail, so they don't need to be checked here. Timings are ignored.
            !value.is_finite()
                && !["reward", "reward_std"].contains(name)
                && !metrics.is_of_machine(name)
        })?;
        return Some(Seen::number(format!("{name} was {value}")));
    }
    let name = &guard.watch;
    let value = metrics.get(name)?;
    let above = guard.above.filter(|bound| value > *bound).map(|bound| (bound, "above"));
    let below = guard.below.filter(|bound| value < *bound).map(|bound| (bound, "below"));
    let (bound, side) = above.or(below)?;
    let of = if name == "reward_dominance" { dominant(metrics) } else { String::new() };
    let words = format!("{name} was {}{of}, {side} {}", short(value), short_number(bound));
    let meaning = metrics.spec(name).and_then(|spec| meaning(spec, side, bound));
    Some(Seen { value: value.is_finite().then_some(value), bound: Some(bound), words, meaning })
}

/// Formats a number with up to six decimals.
fn short(value: f64) -> String {
    if value.abs() >= 1e15 {
        return short_number(value);
    }
    let text = format!("{value:.6}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Explains what it means if a metric is out of range on this side of the bound.
fn meaning(metric: &MetricSpec, side: &str, bound: f64) -> Option<String> {
    let meaning = if side == "above" { metric.above } else { metric.below };
    let factor = bound.exp();
    if meaning.is_empty() || (meaning.contains(FACTOR) && !(bound > 0.0 && factor.is_finite())) {
        return None;
    }
    let factor = match factor < 1.1 {
        true => format!("{} %", short((1000.0 * bound.exp_m1()).floor() / 10.0)),
        false => format!("{} times", short((factor * 10.0).floor() / 10.0)),
    };
    Some(meaning.replace(FACTOR, &factor).replace("{bound}", &bound.to_string()))
}

/// See [`MetricSpec::above`].
const FACTOR: &str = "{e^bound}";

/// Returns whether the guard's metric is missing in this step.
fn is_gap(guard: &GuardConfig, metrics: &Metrics) -> bool {
    guard.watch != NOT_FINITE && metrics.get(&guard.watch).is_none_or(f64::is_nan)
}

/// Returns the reward term with the largest share.
fn dominant(metrics: &Metrics) -> String {
    let shares = metrics
        .iter()
        .filter_map(|(name, share)| Some((name.strip_prefix("reward_share/")?, share.abs())));
    let most = shares.max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.map_or_else(String::new, |(name, _)| format!(" ({name})"))
}

#[cfg(test)]
mod tests;
