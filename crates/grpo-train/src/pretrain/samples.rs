//! Sampled completions of validation prompts.

use std::collections::BTreeSet;
use std::sync::Arc;

use grpo_data::{Codec, Completion, Example, Group, Prompt, Purpose};
use grpo_eval::{
    Diversity, DiversityMeasure, HashedNgrams, distinct, self_bleu, token_entropy, words,
};
use grpo_metrics::MetricSpec;
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey};
use serde::Serialize;

use super::config::{SampledEvalConfig, sampling};
use crate::TrainError;
use crate::diversity_measure;
use crate::error::{distribution_fault, length_fault};

const SECTION: &str = "pretrain.eval";
pub(super) const REQUIRED: &str = "a [pretrain.eval] section";

/// The fields of [`SampledMeasures`].
pub(super) static METRICS: [MetricSpec; 9] = [
    MetricSpec::new("eval_self_bleu", "0 to 1", "mean over prompts of the self-BLEU (4-grams, smoothed) of their completions").requires(REQUIRED),
    MetricSpec::new("eval_distinct_1", "0 to 1", "mean over prompts of the fraction of distinct words in their completions").requires(REQUIRED),
    MetricSpec::new("eval_distinct_2", "0 to 1", "the same for word pairs").requires(REQUIRED),
    MetricSpec::new("eval_distinct_3", "0 to 1", "the same for word triples").requires(REQUIRED),
    MetricSpec::new("eval_semantic_diversity", "0 to 2", "mean over prompts of the mean pairwise 1 − cosine of their completions, as vectors of `pretrain.eval.embedder` or of hashed n-grams").requires(REQUIRED),
    MetricSpec::new("eval_output_entropy", "nats", "entropy of the token frequencies of all completions").requires(REQUIRED),
    MetricSpec::new("eval_reply_length", "characters", "mean length of a completion").requires(REQUIRED),
    MetricSpec::new("eval_unique_words", "count", "mean number of distinct words in a completion").requires(REQUIRED),
    MetricSpec::new("eval_empty", "0 to 1", "fraction of completions that contain only white space").requires(REQUIRED),
];

/// Metrics for sampled completions. They are averaged over the completions of each prompt, then
/// over prompts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SampledMeasures {
    /// Mean 4-gram self-BLEU per prompt. It is 1 if all completions are equal.
    pub eval_self_bleu: f64,
    /// Mean fraction of distinct words per prompt.
    pub eval_distinct_1: f64,
    /// Mean fraction of distinct word bigrams per prompt.
    pub eval_distinct_2: f64,
    /// Mean fraction of distinct word trigrams per prompt.
    pub eval_distinct_3: f64,
    /// Mean distance (1 − cosine) between two completions of the same prompt, with the configured
    /// embedder or hashed n-grams.
    pub eval_semantic_diversity: f64,
    /// Entropy of the token frequencies of all completions in nats.
    pub eval_output_entropy: f64,
    /// Mean completion length in characters.
    pub eval_reply_length: f64,
    /// Mean number of distinct words per completion.
    pub eval_unique_words: f64,
    /// Fraction of empty completions.
    pub eval_empty: f64,
}

/// A completion and the corresponding reference text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SampleRow {
    /// Number of optimizer steps so far.
    pub train_step: u64,
    /// Last 200 characters of the prompt.
    pub prompt: String,
    /// Sampled completion.
    pub generated: String,
    /// Completion from the first validation example that has this prompt.
    pub ground_truth: String,
}

/// Number of prompt characters to show. The last characters are shown, because templates often have
/// the same beginning.
const SHOWN: usize = 200;

/// Validation prompts and sampling settings. Identical models produce identical completions.
pub(super) struct SampledEvaluation {
    prompts: Vec<Prompt>,
    /// Reference completion for each prompt.
    truths: Vec<String>,
    rollout: Autoregressive,
    semantic: Diversity,
    rows: usize,
    codec: Codec,
    seed: u64,
}

impl SampledEvaluation {
    pub(super) fn new<M: LanguageModel>(
        settings: &SampledEvalConfig,
        model: &M,
        codec: &Codec,
        validation: &[Example],
        seed: u64,
    ) -> Result<Self, TrainError> {
        let mut seen = BTreeSet::new();
        let distinct: Vec<&Example> =
            validation.iter().filter(|example| seen.insert(prompt_of(example))).collect();
        let count = settings.prompts.min(distinct.len());
        let chosen = (0..count).map(|place| distinct[place * distinct.len() / count]);
        let (mut prompts, mut truths) = (Vec::new(), Vec::new());
        for (index, example) in (0..).zip(chosen) {
            prompts.push(Prompt::of_ids(index, prompt_of(example).to_vec()));
            truths.push(codec.decode(example.targets()));
        }
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
        let rollout = RolloutSettings {
            group_size: settings.generations,
            max_new_tokens: settings.max_new_tokens,
            end_ids: codec.end_ids().to_vec(),
            distribution: sampling(settings.temperature, settings.top_p)
                .checked(model.vocabulary_size())
                .map_err(|fault| distribution_fault(SECTION, &fault))?,
            batch_size: 256,
        };
        let device = model.device().inner();
        let measure = DiversityMeasure::Semantic;
        let semantic = match &settings.embedder {
            Some(embedder) => {
                diversity_measure::build_measure(SECTION, measure, Some(embedder), &device)?
            }
            None => Diversity::new(measure, Some(Arc::new(HashedNgrams::default())))
                .expect("there is an embedder"),
        };
        Ok(Self {
            prompts,
            truths,
            rollout: Autoregressive::new(rollout, model, longest)
                .map_err(|fault| length_fault(SECTION, &fault))?,
            semantic,
            rows: settings.rows,
            codec: codec.clone(),
            seed,
        })
    }

    /// Samples completions from `model` after `step` optimizer steps.
    pub(super) fn of<M: LanguageModel>(
        &self,
        model: &M,
        step: u64,
    ) -> Result<(SampledMeasures, Vec<SampleRow>), TrainError> {
        // All evaluations use the same random numbers, so that differences are only due to the
        // model.
        let key = StepKey {
            seed: self.seed,
            purpose: Purpose::EVALUATION,
            step: 0,
            policy_version: step,
        };
        let groups = self.rollout.sample(&Frozen::snapshot(model), &self.prompts, key)?;
        let tokens = groups.iter().flat_map(Group::completions).flat_map(Completion::text_ids);
        let entropy = token_entropy(tokens);
        let texts: Vec<Vec<String>> = groups
            .iter()
            .map(|group| {
                let texts = group.completions().map(|c| self.codec.decode(&c.text_ids()));
                texts.collect()
            })
            .collect();
        let rows = self.prompts.iter().zip(&self.truths).zip(&texts).take(self.rows);
        let rows = rows.map(|((prompt, truth), texts)| SampleRow {
            train_step: step,
            prompt: last_characters(&self.codec.decode(&prompt.ids)),
            generated: texts[0].clone(),
            ground_truth: truth.clone(),
        });
        let measures =
            SampledMeasures { eval_output_entropy: entropy, ..measures(&texts, &self.semantic)? };
        Ok((measures, rows.collect()))
    }
}

/// Computes metrics for texts, which are grouped by prompt. The entropy, which is one of tokens, is 0.
fn measures(groups: &[Vec<String>], semantic: &Diversity) -> Result<SampledMeasures, TrainError> {
    let mut sum = SampledMeasures {
        eval_self_bleu: 0.0,
        eval_distinct_1: 0.0,
        eval_distinct_2: 0.0,
        eval_distinct_3: 0.0,
        eval_semantic_diversity: 0.0,
        eval_output_entropy: 0.0,
        eval_reply_length: 0.0,
        eval_unique_words: 0.0,
        eval_empty: 0.0,
    };
    let of_prompts = 1.0 / groups.len() as f64;
    for texts in groups {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        sum.eval_self_bleu += of_prompts * self_bleu(&texts, 4);
        sum.eval_distinct_1 += of_prompts * distinct(&texts, 1);
        sum.eval_distinct_2 += of_prompts * distinct(&texts, 2);
        sum.eval_distinct_3 += of_prompts * distinct(&texts, 3);
        sum.eval_semantic_diversity += of_prompts * semantic.of(&texts)?;
        let of_texts = of_prompts / texts.len() as f64;
        for text in texts {
            sum.eval_reply_length += of_texts * text.chars().count() as f64;
            let unique: BTreeSet<String> = words(text).collect();
            sum.eval_unique_words += of_texts * unique.len() as f64;
            sum.eval_empty += of_texts * f64::from(u8::from(text.trim().is_empty()));
        }
    }
    Ok(sum)
}

fn prompt_of(example: &Example) -> &[u32] {
    &example.ids[..example.first_target]
}

fn last_characters(text: &str) -> String {
    let count = text.chars().count();
    if count <= SHOWN {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count - SHOWN + 1).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_by_hand() {
        let groups = [["a b", "a b"], ["c d e", ""]].map(|texts| texts.map(str::to_owned).to_vec());
        let embedder = Arc::new(HashedNgrams::new(64));
        let semantic = Diversity::new(DiversityMeasure::Semantic, Some(embedder)).unwrap();
        let found = measures(&groups, &semantic).unwrap();
        // NLTK smoothing gives (1 · 1 · 0.1 · 0.1)^¼ for two equal texts without 3-grams. The other
        // texts have nothing in common.
        assert!((found.eval_self_bleu - 0.5 * 0.1_f64.sqrt()).abs() < 1e-12, "{found:?}");
        assert_eq!([found.eval_distinct_1, found.eval_distinct_2], [0.75, 0.75]);
        // Equal texts, and an empty text, have no distance.
        assert_eq!(found.eval_semantic_diversity, 0.0);
        assert_eq!([found.eval_reply_length, found.eval_unique_words], [2.75, 1.75]);
        assert_eq!(found.eval_empty, 0.25);
    }

    #[test]
    fn the_end_of_a_long_prompt_is_shown() {
        assert_eq!(last_characters("ä b"), "ä b");
        let long = format!("x{}", "ä".repeat(200));
        assert_eq!(last_characters(&long), format!("…{}", "ä".repeat(199)));
    }
}
