//! The verdict in a few words, which the page and the terminal share.

use super::judged::Trend;
use super::{AUDIT, DIVERSITY, END, INPUTS, Judged, LOSS, Outcome, REWARD, REWARD_KEPT, Verdict};

impl Verdict {
    /// Returns the verdict in a few words, e.g. `Reward improved, with trade-offs`.
    pub fn headline(&self) -> &'static str {
        self.tone_and_headline().1
    }

    /// Returns the CSS class that sets the colour, i.e. `passed`, `mixed`, `failed` or
    /// `not_judged`, and the words.
    pub(crate) fn tone_and_headline(&self) -> (&'static str, &'static str) {
        let outcome_of =
            |name: &str| self.criteria.iter().find(|judged| judged.name == name).map(|j| j.outcome);
        let is_any = |names: &[&str], outcome: Outcome| {
            names.iter().any(|name| outcome_of(name) == Some(outcome))
        };
        let has_gained = is_any(&[REWARD, LOSS], Outcome::Passed);
        match self.outcome() {
            Outcome::Passed if outcome_of(DIVERSITY) == Some(Outcome::NotJudged) => {
                ("passed", "Reward improved; diversity was not measured")
            }
            Outcome::Passed => ("passed", "Success"),
            Outcome::Failed if is_any(&[END], Outcome::Failed) => ("failed", "Stopped by a guard"),
            Outcome::Failed if is_any(&[AUDIT], Outcome::Failed) => {
                ("failed", "The files of the run contradict each other")
            }
            Outcome::Failed if is_any(&[INPUTS], Outcome::Failed) => {
                ("failed", "An input has changed since the run was started")
            }
            Outcome::Failed if has_gained => ("mixed", "Reward improved, with trade-offs"),
            Outcome::Failed => ("failed", self.reason_of_failure().unwrap_or("Criteria not met")),
            Outcome::NotJudged if has_gained => {
                ("not_judged", "Reward improved so far; not finished")
            }
            Outcome::NotJudged if outcome_of(END) == Some(Outcome::NotJudged) => {
                ("not_judged", "Not finished")
            }
            Outcome::NotJudged | Outcome::Warning => ("not_judged", "Not judged"),
        }
    }

    /// Returns why the main criterion failed, in the words that the tables of a run use.
    fn reason_of_failure(&self) -> Option<&'static str> {
        let failed = |judged: &&Judged| judged.outcome == Outcome::Failed;
        self.criteria.iter().filter(failed).find_map(|judged| match &*judged.name {
            LOSS => Some("Validation loss did not fall"),
            REWARD_KEPT => Some("Reward fell more than allowed"),
            REWARD => match judged.trend {
                Some(Trend::Fell) => Some("Reward fell"),
                Some(Trend::Rose) => Some("Reward rose less than required"),
                Some(Trend::Unclear) | None => Some("No clear change in the reward"),
            },
            _ => None,
        })
    }
}
