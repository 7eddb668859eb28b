//! Compares the metrics of a run with the success criteria in its configuration.

mod judged;
mod kl;

use std::ops::RangeInclusive;

use grpo_data::ConfigFault;
use grpo_data::statistics::{mean, sample_variance};
use grpo_run::{Comparison, Event, EventKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::numbers::{fixed, signed};
use crate::series::{step_of, values_of};
pub use judged::{Judged, Outcome};
use kl::{OF_SEQUENCE, OF_TOKEN, kl_is_small};

/// Success criteria of a run, i.e. the `[success]` section of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SuccessCriteria {
    /// Minimum increase of the reward from the first to the last tenth of the steps, in standard
    /// errors. A negative value allows a decrease, e.g. for runs that are too short to improve.
    pub reward_rise: f64,
    /// Upper bound for `kl` in every step, in nats per token.
    pub max_kl: f64,
    /// Upper bound for `kl_sequence` in every step, in nats per completion. `None` disables this
    /// criterion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_kl_sequence: Option<f64>,
    /// Minimum mean of `rewards/valid/mean` over the last tenth of the steps.
    pub min_validity: f64,
    /// Maximum decrease of that mean compared to the first tenth.
    pub max_validity_drop: f64,
    /// A step has a learning signal if `frac_reward_zero_std` is at most this value. Most steps
    /// must have one.
    pub max_zero_std: f64,
    /// Maximum fraction of diversity that may be lost, for each diversity metric in
    /// `comparison.json`.
    pub max_diversity_drop: f64,
}

impl Default for SuccessCriteria {
    fn default() -> Self {
        Self {
            reward_rise: 3.0,
            max_kl: 0.1,
            max_kl_sequence: None,
            min_validity: 0.8,
            max_validity_drop: 0.05,
            max_zero_std: 0.5,
            max_diversity_drop: 0.5,
        }
    }
}

impl SuccessCriteria {
    /// Rejects values that would make a criterion always pass or always fail.
    ///
    /// # Errors
    /// Returns an error with the key, its value and the expected range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        let of_sequence = self.max_kl_sequence.unwrap_or(1.0);
        let any = f64::NEG_INFINITY..=f64::INFINITY;
        let (above, share) = (f64::MIN_POSITIVE..=f64::INFINITY, 0.0..=1.0);
        let keys = [
            ("reward_rise", self.reward_rise, &any, "a finite number"),
            ("max_kl", self.max_kl, &above, "a number above 0"),
            ("max_kl_sequence", of_sequence, &above, "a number above 0"),
            ("min_validity", self.min_validity, &share, "0 to 1"),
            ("max_validity_drop", self.max_validity_drop, &share, "0 to 1"),
            ("max_zero_std", self.max_zero_std, &share, "0 to 1"),
            ("max_diversity_drop", self.max_diversity_drop, &share, "0 to 1"),
        ];
        let is_good =
            |value: f64, range: &RangeInclusive<f64>| value.is_finite() && range.contains(&value);
        match keys.into_iter().find(|(_, value, range, _)| !is_good(*value, range)) {
            Some((key, value, _, expected)) => {
                Err(ConfigFault::out_of_range(format!("success.{key}"), value, expected))
            }
            None => Ok(()),
        }
    }
}

/// The results of all criteria of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Results in a fixed order.
    pub criteria: Vec<Judged>,
}

impl Verdict {
    /// Returns the overall result. It is [`Outcome::Failed`] if any criterion failed. It is
    /// [`Outcome::Passed`] if no criterion failed, the main one (increasing reward or decreasing
    /// loss) is met, and the run ended normally. Otherwise it is [`Outcome::NotJudged`].
    pub fn outcome(&self) -> Outcome {
        let of = |name: &str| {
            self.criteria
                .iter()
                .any(|judged| judged.name == name && judged.outcome == Outcome::Passed)
        };
        if self.criteria.iter().any(|judged| judged.outcome == Outcome::Failed) {
            Outcome::Failed
        } else if (of(REWARD) || of(REWARD_KEPT) || of(LOSS)) && of(END) {
            Outcome::Passed
        } else {
            Outcome::NotJudged
        }
    }
}

/// Judges a run by its metrics and events. A criterion without data is reported as not judged and
/// does not count as passed.
pub fn judge(
    metrics: &[Map<String, Value>],
    events: &[Event],
    criteria: &SuccessCriteria,
) -> Verdict {
    let mut verdict = vec![
        reward_rises(metrics, criteria.reward_rise),
        kl_is_small(metrics, &OF_TOKEN, criteria.max_kl),
    ];
    verdict.extend(criteria.max_kl_sequence.map(|most| kl_is_small(metrics, &OF_SEQUENCE, most)));
    verdict.extend([
        validity_is_kept(metrics, criteria),
        signal_is_there(metrics, criteria.max_zero_std),
        nothing_stopped_it(metrics, events),
    ]);
    Verdict { criteria: verdict }
}

/// Judges a supervised run from its metrics and events.
pub(crate) fn judge_supervised(metrics: &[Map<String, Value>], events: &[Event]) -> Verdict {
    Verdict { criteria: vec![loss_falls(metrics), nothing_stopped_it(metrics, events)] }
}

pub(crate) const LOSS: &str = "Validation loss falls";
pub(crate) const REWARD: &str = "Reward rises";
/// Name of the criterion for runs that do not have to improve.
pub(crate) const REWARD_KEPT: &str = "Reward has not fallen";
pub(crate) const END: &str = "No guard stopped it";
pub(crate) const DIVERSITY: &str = "Diversity is kept";

/// Returns the number of steps compared at each end: a tenth of all steps, but at least 5.
fn tenth(steps: usize) -> usize {
    (steps / 10).max(LEAST)
}

/// Fewer steps do not allow a useful estimate of the standard deviation.
const LEAST: usize = 5;

/// Values of a metric in the first and the last tenth of the steps. The two ranges do not overlap.
struct Ends {
    /// Number of steps in each tenth.
    steps: usize,
    /// Finite values. At least half of the steps have one.
    first: Vec<f64>,
    /// Finite values of the last tenth, with the same requirement.
    last: Vec<f64>,
}

impl Ends {
    /// Collects the values. Steps without any reward have no value, but are counted as steps.
    ///
    /// # Errors
    /// Returns an error message if there are too few steps or values.
    fn of(metrics: &[Map<String, Value>], name: &str) -> Result<Self, String> {
        let value = |line: &Map<String, Value>| {
            line.get(name).and_then(Value::as_f64).filter(|value| value.is_finite())
        };
        let finite = |lines: &[Map<String, Value>]| lines.iter().filter_map(value).collect();
        let all: Vec<f64> = finite(metrics);
        let steps = tenth(metrics.len());
        if metrics.len() < 2 * steps || all.is_empty() {
            return Err(too_few(name, all.len()));
        }
        let ends = Self {
            steps,
            first: finite(&metrics[..steps]),
            last: finite(&metrics[metrics.len() - steps..]),
        };
        for (which, values) in [("first", &ends.first), ("last", &ends.last)] {
            let missing = steps - values.len();
            if 2 * missing > steps {
                return Err(format!(
                    "`{name}` is missing in {missing} of the {which} {steps} steps; a comparison requires values in at least half of the steps"
                ));
            }
        }
        Ok(ends)
    }
}

/// A metric at both ends of a run.
pub(crate) struct Rise {
    /// Number of steps in each tenth.
    pub(crate) steps: usize,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// Standard error of the difference between the two means.
    pub(crate) error: f64,
}

impl Rise {
    /// Computes the means at both ends.
    ///
    /// # Errors
    /// Returns an error message if there are too few steps or values.
    pub(crate) fn of(metrics: &[Map<String, Value>], name: &str) -> Result<Self, String> {
        let Ends { steps, first, last } = Ends::of(metrics, name)?;
        // Welch's standard error for two means with different variances.
        let squared = |values: &[f64]| sample_variance(values) / values.len() as f64;
        let error = (squared(&first) + squared(&last)).sqrt();
        Ok(Self { steps, first: mean(&first), last: mean(&last), error })
    }

    pub(crate) fn change(&self) -> f64 {
        self.last - self.first
    }
}

fn reward_rises(metrics: &[Map<String, Value>], least: f64) -> Judged {
    let name = if least < 0.0 { REWARD_KEPT } else { REWARD };
    let rise = match Rise::of(metrics, "reward") {
        Ok(rise) => rise,
        Err(why) => return Judged::open(name, why),
    };
    let Rise { steps, first, last, error } = rise;
    let change = rise.change();
    // Without variance, any change is significant, and no change counts as 0 standard errors.
    let errors = if error > 0.0 {
        change / error
    } else if change == 0.0 {
        0.0
    } else {
        change * f64::INFINITY
    };
    let rises = change > 0.0 || least < 0.0;
    Judged::of(
        name,
        errors >= least && rises,
        format!(
            "from {} in the first {steps} steps to {} in the last {steps}, {} standard errors (required: at least {least})",
            fixed(first, 4),
            fixed(last, 4),
            signed(errors, 1)
        ),
    )
}

/// Judges how much diversity was lost during training. `last` is the last step of the run.
pub(crate) fn diversity_is_kept(comparison: Option<&Comparison>, last: u64, most: f64) -> Judged {
    let Some(comparison) = comparison.filter(|comparison| comparison.step == last) else {
        return Judged::open(DIVERSITY, "the run was not evaluated before and after training");
    };
    let measured = comparison.measures.iter().filter_map(|measure| {
        Some((measure, measure.diversity_lost()?, measure.before?, measure.after?))
    });
    let worst = measured.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((measure, lost, before, after)) = worst else {
        return Judged::open(DIVERSITY, "the evaluation has no diversity measure");
    };
    let (before, after) = (fixed(before, 3), fixed(after, 3));
    let change = match (before == after, lost > 0.0) {
        (true, _) => format!("stayed at {before}"),
        (false, true) => format!("fell from {before} to {after}, {:.0} % lost", 100.0 * lost),
        (false, false) => format!("rose from {before} to {after}, {:.0} % gained", -100.0 * lost),
    };
    Judged::of(
        DIVERSITY,
        lost <= most + ROUNDING,
        format!("{} {change} (required: at most {:.0} % lost)", measure.name, 100.0 * most),
    )
}

fn loss_falls(metrics: &[Map<String, Value>]) -> Judged {
    let losses = values_of(metrics, "eval_loss");
    let [(first_step, first), rest @ ..] = &losses[..] else {
        return Judged::open(LOSS, "there was no validation");
    };
    let Some((step, lowest)) = rest.iter().copied().reduce(|a, b| if b.1 < a.1 { b } else { a })
    else {
        return Judged::open(
            LOSS,
            format!("the only validation was after step {first_step}: {}", fixed(*first, 4)),
        );
    };
    Judged::of(
        LOSS,
        lowest < *first,
        format!(
            "from {} after step {first_step} to {} after step {step}, the lowest since",
            fixed(*first, 4),
            fixed(lowest, 4)
        ),
    )
}

fn validity_is_kept(metrics: &[Map<String, Value>], criteria: &SuccessCriteria) -> Judged {
    const NAME: &str = "Validity is kept";
    if values_of(metrics, "rewards/valid/mean").iter().all(|(_, share)| !share.is_finite()) {
        return Judged::open(
            NAME,
            "`rewards/valid/mean` was not measured: the reward has no `valid` component",
        );
    }
    let (first, last) = match Ends::of(metrics, "rewards/valid/mean") {
        Ok(ends) => (mean(&ends.first), mean(&ends.last)),
        Err(why) => return Judged::open(NAME, why),
    };
    let SuccessCriteria { min_validity, max_validity_drop, .. } = *criteria;
    // Tolerate rounding errors, so that a displayed value of 0.80 is never below a limit of 0.80.
    let kept = last >= min_validity - ROUNDING && first - last <= max_validity_drop + ROUNDING;
    Judged::of(
        NAME,
        kept,
        format!(
            "from {} to {} (required: at least {min_validity} at the end and a drop of at most {max_validity_drop})",
            fixed(first, 3),
            fixed(last, 3)
        ),
    )
}

/// Tolerance for rounding errors in means.
const ROUNDING: f64 = 1e-9;

fn signal_is_there(metrics: &[Map<String, Value>], most: f64) -> Judged {
    const NAME: &str = "Signal is consistent";
    let shares = values_of(metrics, "frac_reward_zero_std");
    if shares.is_empty() {
        return Judged::open(NAME, "`frac_reward_zero_std` was not measured");
    }
    let with_signal = shares.iter().filter(|(_, share)| *share <= most).count();
    Judged::of(
        NAME,
        2 * with_signal > shares.len(),
        format!(
            "enough groups had differing rewards in {with_signal} of {} steps (required: more than half of the steps, each with at most {most} of the groups without a difference)",
            shares.len()
        ),
    )
}

fn nothing_stopped_it(metrics: &[Map<String, Value>], events: &[Event]) -> Judged {
    // Events before the last resumption no longer matter.
    let resumed = |event: &Event| matches!(event.what, EventKind::Resumed { .. });
    let latest = &events[events.iter().rposition(resumed).unwrap_or(0)..];
    let ended = latest.iter().rev().find(|event| {
        matches!(
            event.what,
            EventKind::Finished { .. } | EventKind::Stopped { .. } | EventKind::Interrupted {}
        )
    });
    let has_finished = ended.is_some_and(|event| matches!(event.what, EventKind::Finished { .. }));
    let reason = ended.and_then(|event| match &event.what {
        EventKind::Stopped { reason } => Some(reason),
        _ => None,
    });
    // A `roll_back` guard stops the run once no more roll-backs are possible.
    let stopped = latest.iter().rev().find_map(|event| match &event.what {
        EventKind::Guard { action, message, .. } if action == "stop" => Some((event.step, message)),
        EventKind::Guard { message, .. } => {
            let reason = reason.filter(|reason| reason.contains(message))?;
            Some((event.step, reason))
        }
        _ => None,
    });
    if let Some((step, reason)) = stopped.filter(|_| !has_finished) {
        return Judged::of(END, false, format!("stopped after step {step}: {reason}"));
    }
    if metrics.is_empty() {
        return Judged::open(END, "no step has finished");
    }
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.what)).count();
    let spoke = count(|what| matches!(what, EventKind::Guard { .. }));
    let rolled_back = count(|what| matches!(what, EventKind::RolledBack { .. }));
    let steps = metrics.last().map_or(0, |line| step_of(line, metrics.len() - 1));
    let mut sentence = format!("none in {steps} steps");
    if (spoke, rolled_back) != (0, 0) {
        sentence += &format!(
            "; guards triggered {spoke} times and rolled the run back {rolled_back} times"
        );
    }
    match ended {
        Some(_) if has_finished => return Judged::of(END, true, sentence),
        // Failures and early stopping are not guards. The reason tells the reader which of them it
        // was.
        Some(Event { step, what: EventKind::Stopped { reason }, .. }) => {
            sentence += &format!("; stopped early after step {step}: {reason}");
        }
        Some(event) => sentence += &format!("; interrupted after step {}", event.step),
        None => sentence += "; not finished: the run is still active or was killed",
    }
    Judged::open(END, sentence)
}

fn too_few(name: &str, steps: usize) -> String {
    format!("`{name}` was measured in {steps} steps; a comparison needs at least {}", 2 * LEAST)
}

#[cfg(test)]
mod tests;
