//! The distinct completions that the reward has scored.

use std::collections::{HashMap, HashSet};
use std::fmt;

use grpo_data::{Group, Outcome, PartName, Scored};
use grpo_rewards::{ExternalCalls, Identify, Identity, RewardInput};
use grpo_runtime::RankError;
use grpo_train::{ScoreKeeper, StepScorer};
use serde::{Deserialize, Serialize};

/// The distinct completions of a run with their scores, in the order in which they were scored.
///
/// The reward scores a completion only if no equivalent one was scored before; otherwise the recorded
/// score is used. The number of scored completions is the number of oracle calls of the PMO benchmark
/// (Gao et al. 2022). Neither invalid completions nor [uncounted](Scored::uncounted) ones are recorded.
pub struct Archive {
    identify: Identify,
    max_calls: usize,
    calls: Vec<ArchivedCall>,
    /// Indices in `calls` by canonical form.
    places: HashMap<String, usize>,
    /// Indices in `calls` from the highest to the lowest reward. Earlier calls precede later ones with
    /// the same reward.
    ranking: Vec<usize>,
}

/// A scored completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArchivedCall {
    /// Canonical form.
    pub text: String,
    /// Weight and value of each reward function.
    pub terms: Vec<(f64, f64)>,
    /// Components by name.
    pub parts: Vec<(PartName, f64)>,
}

impl ArchivedCall {
    pub(crate) fn scored(&self) -> Scored {
        Scored::new(self.terms.clone(), self.parts.clone())
    }

    /// Returns the reward.
    pub fn reward(&self) -> f64 {
        self.terms.iter().map(|(weight, value)| weight * value).sum()
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Archive {
    /// Creates an empty archive. At most `max_calls` completions are scored if it is set.
    pub fn new(identify: Identify, max_calls: Option<u32>) -> Self {
        let max_calls = max_calls.map_or(usize::MAX, |calls| calls as usize);
        Self { identify, max_calls, calls: Vec::new(), places: HashMap::new(), ranking: Vec::new() }
    }

    /// Returns the scored completions in the order in which they were scored.
    pub fn calls(&self) -> &[ArchivedCall] {
        &self.calls
    }

    /// Returns whether no more completions may be scored.
    pub fn is_exhausted(&self) -> bool {
        self.calls.len() >= self.max_calls
    }

    /// Returns the number of completions that may still be scored.
    pub(crate) fn calls_left(&self) -> usize {
        self.max_calls.saturating_sub(self.calls.len())
    }

    /// Returns the scored completions from the highest to the lowest reward. Earlier calls precede
    /// later ones with the same reward.
    pub fn best(&self) -> impl ExactSizeIterator<Item = &ArchivedCall> {
        self.ranking.iter().map(|&place| &self.calls[place])
    }

    /// Returns whether an equivalent completion was scored.
    pub fn contains(&self, canonical: &str) -> bool {
        self.places.contains_key(canonical)
    }

    /// Removes all but the first `known` calls.
    pub(crate) fn forget_after(&mut self, known: usize) {
        let mut calls = std::mem::take(&mut self.calls);
        calls.truncate(known);
        self.restore(calls);
    }

    /// Replaces the contents with saved ones.
    pub(crate) fn restore(&mut self, calls: Vec<ArchivedCall>) {
        self.calls.clear();
        self.places.clear();
        self.ranking.clear();
        calls.into_iter().for_each(|call| self.insert(call));
    }

    fn insert(&mut self, call: ArchivedCall) {
        let (place, reward) = (self.calls.len(), call.reward());
        let rank = self.ranking.partition_point(|&other| self.calls[other].reward() >= reward);
        self.ranking.insert(rank, place);
        self.places.insert(call.text.clone(), place);
        self.calls.push(call);
    }

    /// Returns an outcome for each completion that the reward must not score. The scorer adds the
    /// validity of those without a score.
    fn known<'a>(&self, canonical: &'a [Option<String>]) -> Vec<Option<Outcome>> {
        let mut new: HashSet<&str> = HashSet::new();
        let mut outcome = |text: &'a str| {
            if let Some(&place) = self.places.get(text) {
                return Some(Outcome::Scored(self.calls[place].scored()));
            }
            // Copies of a new completion get its score afterwards.
            if new.contains(text) {
                return Some(Outcome::abstained());
            }
            if self.calls.len() + new.len() >= self.max_calls {
                return Some(Outcome::beyond_budget());
            }
            new.insert(text);
            None
        };
        canonical.iter().map(|text| outcome(text.as_deref()?)).collect()
    }
}

impl ScoreKeeper for Archive {
    /// Scores all samples in `groups` like [`StepScorer::score`], but calls the reward only
    /// for completions that are not in the archive. Samples that exceed the maximum number of calls
    /// abstain.
    fn score(
        &mut self,
        groups: &mut [Group],
        scorer: &StepScorer<'_>,
    ) -> Result<Option<ExternalCalls>, RankError> {
        let mut canonical = Vec::new();
        let known = |inputs: &[RewardInput]| {
            let texts: Vec<&str> = inputs.iter().map(|input| input.text.as_str()).collect();
            canonical = (self.identify)(&texts)
                .into_iter()
                .zip(texts)
                .map(|(identity, text)| match identity {
                    Identity::Canonical(canonical) => Some(canonical),
                    Identity::Unknown => Some(text.to_owned()),
                    Identity::Invalid => None,
                })
                .collect();
            self.known(&canonical)
        };
        let calls = scorer.score_except(groups, known)?;
        let mut uncounted: HashMap<String, Scored> = HashMap::new();
        let samples = groups.iter_mut().flat_map(|group| &mut group.samples);
        for (sample, canonical) in samples.zip(canonical) {
            let Some(text) = canonical else { continue };
            match (self.places.get(&text), sample.scored()) {
                // A copy of a completion that was scored in this batch.
                (Some(&place), _) => {
                    sample.outcome = Some(Outcome::Scored(self.calls[place].scored()));
                }
                (None, Some(scored)) if scored.uncounted => {
                    uncounted.insert(text, scored.clone());
                }
                (None, Some(Scored { terms, parts, .. })) => {
                    self.insert(ArchivedCall { text, terms: terms.clone(), parts: parts.clone() });
                }
                (None, None) => {
                    let scored = uncounted.get(&text).cloned().map(Outcome::Scored);
                    sample.outcome = scored.or(sample.outcome.take());
                }
            }
        }
        Ok(calls)
    }
}
