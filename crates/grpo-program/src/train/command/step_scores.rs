//! Whether the reward scored the completions that it had to score.

use grpo_data::{Outcome, Sample, counted};
use grpo_task::run_log::Line;
use grpo_train::StepReport;
use serde_json::Value;

/// Whether the reward scored the completions of a step that it had to score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepScores {
    /// It had to score none of them, e.g. because all are invalid.
    NoneDue,
    /// It scored none of this many.
    NoneScored(usize),
    /// It scored at least one of them.
    Scored,
}

/// How many completions a step has, and which of them the reward has to score.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    pub(super) completions: usize,
    pub(super) scores_invalid: bool,
}

impl StepScores {
    /// Counts the outcomes of a step. See [`Outcome::was_due`].
    pub(crate) fn of<'a>(
        outcomes: impl Iterator<Item = &'a Outcome>,
        scores_invalid: bool,
    ) -> Self {
        let due: Vec<&Outcome> =
            outcomes.filter(|outcome| outcome.was_due(scores_invalid)).collect();
        match due.iter().any(|outcome| outcome.total().is_some()) {
            true => Self::Scored,
            false if due.is_empty() => Self::NoneDue,
            false => Self::NoneScored(due.len()),
        }
    }

    /// Reads the counts of a recorded step. Completions that a filter rejected count as scored, unless it is
    /// known that the reward `has_scored` nothing.
    fn of_line(line: &Line, size: StepSize, has_scored: Option<bool>) -> Self {
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        let [abstained, failed] =
            ["rewards/abstained", "rewards/failed"].map(|name| number(name).unwrap_or(0.0));
        let unscored = abstained + failed;
        let valid = number("rewards/valid/mean").filter(|_| !size.scores_invalid).unwrap_or(1.0);
        let due = (valid * size.completions as f64).round();
        match due > unscored && has_scored != Some(false) {
            true => Self::Scored,
            false if unscored == 0.0 => Self::NoneDue,
            // Invalid completions can fail too, together with a whole batch.
            false => Self::NoneScored(unscored as usize),
        }
    }
}

/// Names completions that all have no score: `due` of `all`, which is their `noun`, e.g. `all 12 valid
/// completions (4 invalid or filtered completions are not counted)`.
pub(crate) fn all_due(due: usize, all: usize, noun: &str) -> String {
    let which = match (due, due == all) {
        (1, true) => format!("the only {noun}"),
        (_, true) => format!("all {all} {noun}s"),
        (1, false) => format!("the only valid {noun}"),
        (_, false) => format!("all {due} valid {noun}s"),
    };
    format!("{which}{}", not_counted(all - due))
}

/// Returns a remark about completions that the reward did not have to score, if there are any.
pub(super) fn not_counted(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " (1 invalid or filtered completion is not counted)".to_owned(),
        _ => format!(" ({} are not counted)", counted(others, "invalid or filtered completion")),
    }
}

/// Whether a reward has scored anything that it had to score, in all steps of a run.
#[derive(Debug, Default)]
pub(super) struct WithoutScore {
    has_scored: bool,
    has_failed: bool,
    /// Why the first of those without a score has none.
    first_reason: Option<String>,
}

/// Why completions have no score.
struct NoScore {
    is_failure: bool,
    reason: String,
}

impl WithoutScore {
    /// Reads the recorded steps of a run that is resumed. `has_scored` is what its checkpoint says about the
    /// reward.
    pub(super) fn of_recorded(lines: &[Line], size: StepSize, has_scored: Option<bool>) -> Self {
        let mut all = Self { has_scored: has_scored == Some(true), ..Self::default() };
        for line in lines {
            let failed = line.get("rewards/failed").and_then(Value::as_f64).unwrap_or(0.0);
            let step = line.get("step").and_then(Value::as_u64).unwrap_or(0);
            all.add(StepScores::of_line(line, size, has_scored), || match failed > 0.0 {
                true => NoScore {
                    is_failure: true,
                    reason: format!("the reward failed in step {step}, before the run was resumed"),
                },
                false => NoScore::abstained(),
            });
        }
        all
    }

    /// Adds a step.
    pub(super) fn observe(&mut self, report: &StepReport, scores_invalid: bool) {
        self.add(step_scores(report, scores_invalid), || {
            if let Some(reason) = report.samples().find_map(Sample::failure) {
                return NoScore { is_failure: true, reason: reason.to_owned() };
            }
            let left_out = report.observed.calls.as_ref().and_then(|calls| calls.reason.clone());
            left_out.map_or_else(NoScore::abstained, |reason| NoScore { is_failure: false, reason })
        });
    }

    fn add(&mut self, step: StepScores, why: impl FnOnce() -> NoScore) {
        match step {
            StepScores::NoneDue => {}
            StepScores::Scored => self.has_scored = true,
            StepScores::NoneScored(_) => {
                let NoScore { is_failure, reason } = why();
                self.has_failed |= is_failure;
                self.first_reason.get_or_insert(reason);
            }
        }
    }

    /// Returns why the first completion has no score if the reward has scored none in any step.
    /// `allows_failures` excuses failures, but not a reward that only abstains.
    pub(super) fn reason(&self, allows_failures: bool) -> Option<&str> {
        let is_excused = self.has_scored || self.has_failed && allows_failures;
        self.first_reason.as_deref().filter(|_| !is_excused)
    }
}

impl NoScore {
    fn abstained() -> Self {
        Self { is_failure: false, reason: "the reward abstained".to_owned() }
    }
}

/// Returns whether the reward scored the completions of a step that it had to score.
pub(super) fn step_scores(report: &StepReport, scores_invalid: bool) -> StepScores {
    StepScores::of(report.samples().filter_map(|sample| sample.outcome.as_ref()), scores_invalid)
}

#[cfg(test)]
mod tests {
    use grpo_data::Scored;
    use serde_json::json;

    use super::*;

    fn scored(valid: f64) -> Outcome {
        Outcome::Scored(Scored::new(vec![(1.0, 0.0)], vec![("valid".into(), valid)]))
    }

    fn failure(reason: &str) -> NoScore {
        NoScore { is_failure: true, reason: reason.to_owned() }
    }

    #[test]
    fn only_due_completions_count() {
        let [valid, invalid, abstained] = [scored(1.0), scored(0.0), Outcome::abstained()];
        let refused = Outcome::beyond_budget();
        let filtered = Outcome::Scored(grpo_data::Scored {
            uncounted: true,
            ..Scored::new(vec![(1.0, 0.0)], Vec::new())
        });
        let of = |outcomes: &[&Outcome], scores_invalid| {
            StepScores::of(outcomes.iter().copied(), scores_invalid)
        };
        assert_eq!(of(&[], false), StepScores::NoneDue);
        assert_eq!(of(&[&invalid, &filtered, &refused], false), StepScores::NoneDue);
        assert_eq!(of(&[&invalid, &refused], true), StepScores::Scored);
        assert_eq!(of(&[&invalid, &abstained, &abstained], false), StepScores::NoneScored(2));
        assert_eq!(of(&[&filtered, &abstained], true), StepScores::NoneScored(1));
        assert_eq!(of(&[&abstained, &valid], false), StepScores::Scored);
    }

    #[test]
    fn a_step_without_due_completions_does_not_hide_a_reward_that_scores_nothing() {
        let mut all = WithoutScore::default();
        all.add(StepScores::NoneDue, || unreachable!("nothing was due"));
        assert_eq!(all.reason(false), None);
        all.add(StepScores::NoneScored(8), NoScore::abstained);
        all.add(StepScores::NoneDue, || unreachable!("nothing was due"));
        assert_eq!(all.reason(false), Some("the reward abstained"));
        assert_eq!(all.reason(true), Some("the reward abstained"), "only failures are excused");
        all.add(StepScores::NoneScored(8), || failure("boom"));
        assert_eq!((all.reason(false), all.reason(true)), (Some("the reward abstained"), None));
        all.add(StepScores::Scored, || unreachable!("a completion has a score"));
        assert_eq!(all.reason(false), None);
    }

    #[test]
    fn recorded_steps_are_read() {
        let line = |abstained: u32, failed: u32, valid: Option<f64>| {
            let line = json!({
                "step": 3, "rewards/abstained": abstained, "rewards/failed": failed,
                "rewards/valid/mean": valid,
            });
            line.as_object().unwrap().clone()
        };
        let of = |line: &Line, scores_invalid| {
            StepScores::of_line(line, StepSize { completions: 8, scores_invalid }, None)
        };
        for (line, scores_invalid, expected) in [
            (line(0, 0, Some(0.0)), false, StepScores::NoneDue),
            (line(3, 0, Some(0.375)), false, StepScores::NoneScored(3)),
            (line(2, 0, Some(0.375)), false, StepScores::Scored),
            (line(3, 0, Some(0.375)), true, StepScores::Scored),
            (line(3, 5, None), false, StepScores::NoneScored(8)),
            (line(3, 4, None), false, StepScores::Scored),
            (line(0, 8, Some(0.0)), false, StepScores::NoneScored(8)),
        ] {
            assert_eq!(of(&line, scores_invalid), expected, "{line:?}");
        }
        let of = |lines: &[Line]| {
            let size = StepSize { completions: 8, scores_invalid: false };
            WithoutScore::of_recorded(lines, size, None)
        };
        let abstains = of(&[line(0, 0, Some(0.0)), line(3, 0, Some(0.375))]);
        assert_eq!(abstains.reason(true), Some("the reward abstained"));
        let fails = of(&[line(0, 8, None)]);
        let reason = "the reward failed in step 3, before the run was resumed";
        assert_eq!((fails.reason(false), fails.reason(true)), (Some(reason), None));
        assert_eq!(of(&[line(8, 0, None), line(7, 0, None)]).reason(false), None);
        assert_eq!(of(&[]).reason(false), None);
        // Five of seven valid completions were rejected by a filter, as the checkpoint shows.
        let filtered = [line(0, 0, Some(0.5)), line(2, 0, Some(0.875))];
        let size = StepSize { completions: 8, scores_invalid: false };
        for (has_scored, expected) in
            [(None, None), (Some(true), None), (Some(false), Some("the reward abstained"))]
        {
            let all = WithoutScore::of_recorded(&filtered, size, has_scored);
            assert_eq!(all.reason(false), expected, "{has_scored:?}");
        }
    }

    #[test]
    fn completions_that_are_not_counted_are_named() {
        for (due, all, expected) in [
            (8, 8, "all 8 completions"),
            (1, 1, "the only completion"),
            (1, 2, "the only valid completion (1 invalid or filtered completion is not counted)"),
            (3, 8, "all 3 valid completions (5 invalid or filtered completions are not counted)"),
        ] {
            assert_eq!(all_due(due, all, "completion"), expected);
        }
    }
}
