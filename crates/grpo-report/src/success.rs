//! Compares the metrics of a run with the success criteria in its configuration.

mod criteria;
mod headline;
mod judged;
mod kl;
mod shift;

use grpo_data::counted;
use grpo_run::{Comparison, Event, EventKind};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::numbers::fixed;
use crate::series::{step_of, values_of};
pub use criteria::{RequiredChange, SuccessCriteria};
use judged::Trend;
pub use judged::{Judged, Outcome};
use kl::{OF_SEQUENCE, OF_TOKEN, kl_is_small};
pub(crate) use shift::Shift;

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

/// Judges a run by its metrics, its events and, if it has them, its evaluations before and after
/// training. A criterion without data is reported as not judged and does not count as passed.
///
/// The reward, its components and the validity are judged by the evaluations if those describe the
/// last step: both use the same prompts and random numbers, so the errors of their differences are
/// much smaller than those of steps. Otherwise they are judged by the first and the last steps.
pub fn judge(
    metrics: &[Map<String, Value>],
    events: &[Event],
    comparison: Option<&Comparison>,
    criteria: &SuccessCriteria,
) -> Verdict {
    let last = last_step(metrics);
    // A resumed run may have an evaluation of an earlier end.
    let comparison = comparison.filter(|comparison| comparison.step == last);
    // A run that has not finished has not missed what it has not reached yet.
    let is_open = is_unfinished(events);
    let reward = reward_rises(metrics, comparison, criteria.reward_rise);
    let mut verdict = vec![reward.open_if(|trend| is_open && trend != Some(Trend::Fell))];
    let components = criteria.components.iter();
    verdict.extend(components.map(|(name, required)| {
        let shift = Shift::of_component(metrics, comparison, name);
        let component = component_changes(name, *required, shift);
        component.open_if(|trend| is_open && trend == Some(Trend::Unclear))
    }));
    verdict.push(kl_is_small(metrics, &OF_TOKEN, criteria.max_kl));
    verdict.extend(criteria.max_kl_sequence.map(|most| kl_is_small(metrics, &OF_SEQUENCE, most)));
    verdict.extend([
        validity_is_kept(metrics, comparison, criteria),
        signal_is_there(metrics, criteria.max_zero_std),
        nothing_stopped_it(metrics, events),
        diversity_is_kept(comparison, criteria.max_diversity_drop),
    ]);
    Verdict { criteria: verdict }
}

/// Returns the last completed step.
pub(crate) fn last_step(metrics: &[Map<String, Value>]) -> u64 {
    metrics.last().map_or(0, |line| step_of(line, metrics.len() - 1))
}

/// Judges a supervised run from its metrics and events.
pub fn judge_supervised(metrics: &[Map<String, Value>], events: &[Event]) -> Verdict {
    let loss = loss_falls(metrics);
    let loss = loss.open_if(|_| is_unfinished(events));
    Verdict { criteria: vec![loss, nothing_stopped_it(metrics, events)] }
}

pub(crate) const LOSS: &str = "Validation loss falls";
pub(crate) const REWARD: &str = "Reward rises";
/// Name of the criterion for runs that do not have to improve.
pub(crate) const REWARD_KEPT: &str = "Reward has not fallen";
pub(crate) const END: &str = "No guard stopped it";
pub(crate) const DIVERSITY: &str = "Diversity is kept";
/// Name of the criterion that the files of a run agree with each other.
pub const AUDIT: &str = "Audit";
/// Name of the criterion that the input files are those that the run was started with.
pub const INPUTS: &str = "Inputs";

fn reward_rises(
    metrics: &[Map<String, Value>],
    comparison: Option<&Comparison>,
    least: f64,
) -> Judged {
    let name = if least < 0.0 { REWARD_KEPT } else { REWARD };
    let shift = match Shift::of_reward(metrics, comparison) {
        Ok(shift) => shift,
        Err(why) => return Judged::open(name, why),
    };
    let rises = shift.change() > 0.0 || least < 0.0;
    Judged::of(
        name,
        shift.errors() >= least && rises,
        format!("{} (required: at least {least})", shift.words()),
    )
    .with_trend(shift.trend())
}

/// Judges how a reward component changed.
fn component_changes(name: &str, required: RequiredChange, shift: Result<Shift, String>) -> Judged {
    let title = format!("Component {name} {}", required.words());
    match shift {
        Err(why) => Judged::open(title, why),
        Ok(shift) => Judged::of(title, required.is_met(shift.errors()), shift.words())
            .with_trend(shift.trend()),
    }
}

/// Judges how much diversity was lost between the evaluations.
fn diversity_is_kept(comparison: Option<&Comparison>, most: f64) -> Judged {
    let Some(comparison) = comparison else {
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

fn validity_is_kept(
    metrics: &[Map<String, Value>],
    comparison: Option<&Comparison>,
    criteria: &SuccessCriteria,
) -> Judged {
    const NAME: &str = "Validity is kept";
    if values_of(metrics, "rewards/valid/mean").iter().all(|(_, share)| !share.is_finite()) {
        return Judged::open(
            NAME,
            "`rewards/valid/mean` was not measured: the reward has no `valid` component",
        );
    }
    let shift = match Shift::of_component(metrics, comparison, "valid") {
        Ok(shift) => shift,
        Err(why) => return Judged::open(NAME, why),
    };
    let SuccessCriteria { min_validity, max_validity_drop, .. } = *criteria;
    // Tolerate rounding errors, so that a displayed value of 0.80 is never below a limit of 0.80.
    let kept =
        shift.last >= min_validity - ROUNDING && -shift.change() <= max_validity_drop + ROUNDING;
    Judged::of(
        NAME,
        kept,
        format!(
            "{} (required: at least {min_validity} at the end and a drop of at most {max_validity_drop})",
            shift.ends(|value| fixed(value, 3))
        ),
    )
}

/// Tolerance for rounding errors in means.
const ROUNDING: f64 = 1e-9;

fn signal_is_there(metrics: &[Map<String, Value>], most: f64) -> Judged {
    const NAME: &str = "Signal is consistent";
    let measured: Vec<(&Map<String, Value>, f64)> = metrics
        .iter()
        .filter_map(|line| Some((line, line.get("frac_reward_zero_std")?)))
        .map(|(line, share)| (line, share.as_f64().unwrap_or(f64::NAN)))
        .collect();
    let steps = measured.len();
    if steps == 0 {
        return Judged::open(NAME, "`frac_reward_zero_std` was not measured");
    }
    // The mean reward is `null` if no completion of the step has a reward.
    let is_rewarded = |line: &Map<String, Value>| line.get("reward").is_none_or(Value::is_number);
    let rewarded = measured.iter().filter(|(line, _)| is_rewarded(line)).count();
    if rewarded == 0 {
        let sentence = format!("no completion had a reward in {}", counted(steps, "step"));
        return Judged::of(NAME, false, sentence);
    }
    let has_signal =
        |(line, share): &&(&Map<String, Value>, f64)| is_rewarded(line) && *share <= most;
    let with_signal = measured.iter().filter(has_signal).count();
    let without_reward = match steps - rewarded {
        0 => String::new(),
        without => format!("; {} had no reward at all", counted(without, "step")),
    };
    Judged::of(
        NAME,
        2 * with_signal > steps,
        format!(
            "enough groups had differing rewards in {with_signal} of {steps} steps{without_reward} (required: more than half of the steps, each with at most {most} of the groups without a difference)"
        ),
    )
}

/// Returns the events since the run was last resumed. Those before no longer matter.
fn since_resumed(events: &[Event]) -> &[Event] {
    let resumed = |event: &Event| matches!(event.what, EventKind::Resumed { .. });
    &events[events.iter().rposition(resumed).unwrap_or(0)..]
}

/// Returns how the run ended, if it has.
fn end(events: &[Event]) -> Option<&Event> {
    since_resumed(events).iter().rev().find(|event| {
        matches!(
            event.what,
            EventKind::Finished { .. } | EventKind::Stopped { .. } | EventKind::Interrupted {}
        )
    })
}

/// Returns whether the run is active, was interrupted or was killed, i.e. whether it can continue.
fn is_unfinished(events: &[Event]) -> bool {
    end(events).is_none_or(|event| matches!(event.what, EventKind::Interrupted {}))
}

fn nothing_stopped_it(metrics: &[Map<String, Value>], events: &[Event]) -> Judged {
    let latest = since_resumed(events);
    let ended = end(events);
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
        // Messages of guards begin with the step.
        let reason = reason.strip_prefix(&format!("step {step}: ")).unwrap_or(reason);
        return Judged::of(END, false, format!("stopped after step {step}: {reason}"));
    }
    if metrics.is_empty() {
        return Judged::open(END, "no step has finished");
    }
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.what)).count();
    let spoke = count(|what| matches!(what, EventKind::Guard { .. }));
    let rolled_back = count(|what| matches!(what, EventKind::RolledBack { .. }));
    let steps = metrics.last().map_or(0, |line| step_of(line, metrics.len() - 1));
    let mut sentence = format!("none in {}", counted(steps, "step"));
    if (spoke, rolled_back) != (0, 0) {
        sentence += &format!(
            "; guards triggered {} and rolled the run back {}",
            counted(spoke, "time"),
            counted(rolled_back, "time")
        );
    }
    match ended {
        Some(_) if has_finished => {
            // Early stopping is recorded before the end.
            if let Some(Event { step, what: EventKind::Stopped { reason }, .. }) =
                latest.iter().rev().nth(1)
            {
                sentence += &format!("; stopped early after step {step}: {reason}");
            }
            return Judged::of(END, true, sentence);
        }
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

#[cfg(test)]
mod evaluated_tests;
#[cfg(test)]
mod tests;
