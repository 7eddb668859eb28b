//! Updates with the best completions of a run, and new completions derived from them.

use std::collections::HashSet;
use std::sync::Arc;
use std::{fmt, iter};

use grpo_data::{
    Completion, CompletionParts, ConfigFault, CounterRng, Finish, Group, Outcome, Prompt, Purpose,
    Ranges, Sample, SampleKey, SampledUnder,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Archive, ArchivedCall};

/// Replayed completions and proposals derived from them.
const REPLAY: Purpose = Purpose::new(15);

/// The `[replay]` section: each step also updates the policy with the best completions of the run.
///
/// Replayed completions are drawn by rank. They can be written in random forms, such as another SMILES
/// of the same molecule (Guo & Schwaller 2024, "Augmented Memory"). Proposals are new completions that a
/// task derives from two of the best ones, e.g. by genetic operators (Kim et al. 2024, "Genetic-guided
/// GFlowNets").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayConfig {
    /// Optimizer steps per training step that use replayed completions.
    #[schemars(range(min = 0, max = 1000))]
    pub updates: u32,
    /// Distinct completions per such step.
    #[schemars(range(min = 2, max = 1e4))]
    pub samples: usize,
    /// Number of best completions that are drawn from.
    #[schemars(range(min = 2, max = 1e5))]
    pub capacity: usize,
    /// κ: rank k (the best has 0) of n is drawn with weight 1/(κ · n + k); completions with equal
    /// rewards share a rank; small values prefer the best ones.
    #[schemars(range(min = 1e-6, max = 1e6))]
    pub rank_coefficient: f64,
    /// Probability that a replayed completion is written in a random form, e.g. as another SMILES
    /// of the molecule.
    #[schemars(range(min = 0, max = 1))]
    pub randomize: f64,
    /// New completions per training step that are derived from drawn ones and scored; molecules:
    /// crossover and mutation.
    #[schemars(range(min = 0, max = 1e6))]
    pub proposals: usize,
    /// Probability that a proposal is a mutation of a single completion.
    #[schemars(range(min = 0, max = 1))]
    pub mutation_rate: f64,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            updates: 4,
            samples: 64,
            capacity: 1024,
            rank_coefficient: 0.01,
            randomize: 0.0,
            proposals: 0,
            mutation_rate: 0.5,
        }
    }
}

impl ReplayConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("replay")
    }
}

/// How a task writes and varies completions. Random numbers are uniform.
pub trait Variation: Send + Sync {
    /// Returns the token ids of a completion, including the end token, in its canonical form or in the
    /// form that the number `random` selects. Returns `None` if the model cannot generate it.
    fn written(&self, canonical: &str, random: Option<u32>) -> Option<Vec<u32>>;

    /// Returns the canonical form of a variant of a completion.
    fn mutated(&self, parent: &str, random: &mut dyn FnMut() -> u32) -> Option<String>;

    /// Returns the canonical form of a completion that is derived from two others.
    fn combined(&self, parents: [&str; 2], random: &mut dyn FnMut() -> u32) -> Option<String>;
}

/// Replay configured by [`ReplayConfig`].
#[derive(Clone)]
pub(crate) struct Replay {
    config: ReplayConfig,
    variation: Arc<dyn Variation>,
    max_new_tokens: usize,
    /// The distribution under which completions are scored.
    under: SampledUnder,
    seed: u64,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Number of attempts per proposal.
const ATTEMPTS: usize = 10;

impl Replay {
    pub(crate) fn new(
        config: ReplayConfig,
        variation: Arc<dyn Variation>,
        max_new_tokens: usize,
        under: SampledUnder,
        seed: u64,
    ) -> Self {
        Self { config, variation, max_new_tokens, under, seed }
    }

    /// Returns the number of optimizer steps per training step.
    pub(crate) fn updates(&self) -> u32 {
        self.config.updates
    }

    /// Returns whether proposals are disabled.
    pub(crate) fn proposes_nothing(&self) -> bool {
        self.config.proposals == 0
    }

    /// Returns completions that are not in the archive and are derived from its best ones, as a group
    /// without outcomes. There can be fewer than [`ReplayConfig::proposals`], and there are not more than
    /// the reward may still score.
    pub(crate) fn proposals(&self, archive: &Archive, prompt: &Prompt, step: u32) -> Group {
        let mut random = Random::new(self.seed, step, 0);
        let parents = Ranked::new(archive, &self.config);
        let mut proposed: HashSet<String> = HashSet::new();
        let mut samples = Vec::new();
        let most = self.config.proposals.min(archive.calls_left());
        for _attempt in 0..ATTEMPTS * most {
            if samples.len() >= most {
                break;
            }
            let Some(canonical) = self.proposal(&parents, &mut random) else { continue };
            if archive.contains(&canonical) || proposed.contains(&canonical) {
                continue;
            }
            let place = samples.len();
            let Some(sample) = self.sample(&canonical, None, prompt, step, place) else { continue };
            proposed.insert(canonical);
            samples.push(sample);
        }
        Group { prompt: prompt.clone(), samples }
    }

    fn proposal(&self, parents: &Ranked<'_>, random: &mut Random) -> Option<String> {
        let first = parents.draw(random)?;
        if random.uniform() < self.config.mutation_rate {
            return self.variation.mutated(first, &mut || random.bits());
        }
        let second = parents.draw(random)?;
        self.variation.combined([first, second], &mut || random.bits())
    }

    /// Returns distinct completions from the archive with their outcomes as a group. `update` counts
    /// the optimizer steps of the training step.
    pub(crate) fn group(
        &self,
        archive: &Archive,
        prompt: &Prompt,
        step: u32,
        update: u32,
    ) -> Group {
        let mut random = Random::new(self.seed, step, update + 1);
        let mut ranked = Ranked::new(archive, &self.config);
        let mut samples = Vec::new();
        while samples.len() < self.config.samples {
            let Some(call) = ranked.take(&mut random) else { break };
            let is_random = random.uniform() < self.config.randomize;
            let form = is_random.then(|| random.bits());
            let place = samples.len();
            if let Some(sample) = self.sample(&call.text, form, prompt, step, place) {
                let outcome = Some(Outcome::Scored(call.scored()));
                samples.push(Sample { text: call.text.clone(), outcome, ..sample });
            }
        }
        Group { prompt: prompt.clone(), samples }
    }

    /// Returns a completion, or `None` if it is too long. If only its random form is too long, the
    /// canonical form is used, so that all updates of a step have the same number of completions.
    fn sample(
        &self,
        canonical: &str,
        form: Option<u32>,
        prompt: &Prompt,
        step: u32,
        place: usize,
    ) -> Option<Sample> {
        let fits = |ids: &Vec<u32>| ids.len() <= self.max_new_tokens;
        let written = |form| self.variation.written(canonical, form).filter(fits);
        let actions = written(form).or_else(|| written(None))?;
        let ids = [prompt.ids.as_slice(), &actions].concat();
        let action_mask = (0..ids.len()).map(|position| position >= prompt.ids.len()).collect();
        let key = SampleKey { seed: self.seed, step, prompt: prompt.index, sample: place as u32 };
        Some(Sample::from(Completion::new(CompletionParts {
            prefix: prompt.prefix.clone(),
            ids,
            action_mask,
            // It was not sampled.
            sampling_logprobs: None,
            finish: Finish::EndToken,
            key,
            policy_version: 0,
            sampled_under: self.under.clone(),
        })))
    }
}

/// The best completions of an archive, from which completions are drawn by rank.
struct Ranked<'a> {
    calls: Vec<&'a ArchivedCall>,
    /// Weights of `calls`.
    weights: Vec<f64>,
}

impl<'a> Ranked<'a> {
    fn new(archive: &'a Archive, config: &ReplayConfig) -> Self {
        let calls: Vec<&ArchivedCall> = archive.best().take(config.capacity).collect();
        let ranks = calls.chunk_by(|a, b| a.reward() == b.reward());
        let sizes: Vec<usize> = ranks.map(<[_]>::len).collect();
        let offset = config.rank_coefficient * sizes.len() as f64;
        let of_rank = |(rank, &size): (usize, &usize)| {
            let weight = 1.0 / ((offset + rank as f64) * size as f64);
            iter::repeat_n(weight, size)
        };
        let weights = sizes.iter().enumerate().flat_map(of_rank).collect();
        Self { calls, weights }
    }

    /// Draws the index of a completion. Returns `None` if none is left.
    fn draw_index(&self, random: &mut Random) -> Option<usize> {
        let mut rest = random.uniform() * self.weights.iter().sum::<f64>();
        let chosen = self.weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        // Rounding can leave a rest.
        chosen.or(self.weights.len().checked_sub(1))
    }

    /// Draws a completion.
    fn draw(&self, random: &mut Random) -> Option<&'a str> {
        Some(&self.calls[self.draw_index(random)?].text)
    }

    /// Draws a completion that is not drawn again.
    fn take(&mut self, random: &mut Random) -> Option<&'a ArchivedCall> {
        let index = self.draw_index(random)?;
        self.weights.remove(index);
        Some(self.calls.remove(index))
    }
}

/// A sequence of random numbers for one use within a step.
struct Random {
    rng: CounterRng,
    /// The step and the use.
    place: [u32; 2],
    blocks: u32,
    bits: Vec<u32>,
}

impl Random {
    fn new(seed: u64, step: u32, usage: u32) -> Self {
        let rng = CounterRng::new(seed, REPLAY);
        Self { rng, place: [step, usage], blocks: 0, bits: Vec::new() }
    }

    fn bits(&mut self) -> u32 {
        if self.bits.is_empty() {
            let [step, usage] = self.place;
            self.bits.extend(self.rng.bits([self.blocks, usage, step, 0]));
            self.blocks += 1;
        }
        self.bits.pop().unwrap_or_default()
    }

    /// Returns a number in `[0, 1)`.
    fn uniform(&mut self) -> f64 {
        f64::from(self.bits()) / 2_f64.powi(32)
    }
}

#[cfg(test)]
mod tests;
