//! The suite for texts: passing completions, diversity, vocabulary, lengths and overlap with
//! references.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use grpo_data::short_text;
use grpo_data::statistics::{mean, percentile_of_sorted, sample_variance};
use grpo_eval::stats::Bootstrap;
use grpo_eval::{
    BertScore, Candidates, DiversityEfficiency, Embedder, GroupDiversity, HashedNgrams,
    NgramDiversity, PromptPasses, Rouge, Selector, SemanticDiversity, TextLengths, Vocabulary,
    distinct, mean_cosine_distance, pass_at_k, selected_quality, self_bleu, token_entropy, words,
};
use grpo_rewards::SentenceTransformers;
use rayon::prelude::*;
use serde_json::Value;

use super::records::read_references;
use super::{Generation, Generations, Measured, PromptGenerations, Suite, SuiteOptions};
use crate::device::device;
use crate::hub::model_folder;

/// Metrics of any text.
pub const TEXT_SUITE: Suite = Suite {
    name: "text",
    about: "Pass@k, diversity, vocabulary, lengths, overlap with references",
    keys: &["logprobs", "completion_ids"],
    of_columns: &[],
    of_text: None,
    of_endings: &[],
    of_model_files: &[],
    higher_is_better: &[
        "pass_at_*",
        "majority_at_*",
        "der_at_*",
        "independence_at_*",
        "collapse_point",
        "rouge_*",
        "exact_match",
        "bertscore/*",
        "usq/*",
        "score/mean",
        "distinct_*",
        "pooled/distinct_*",
        "semantic_diversity",
        "pooled/semantic_diversity",
        "type_token_ratio",
        "unique_words",
        "output_entropy",
    ],
    lower_is_better: &["self_bleu", "pooled/self_bleu"],
    units: &[
        ("prompts*", "prompts"),
        ("completions", "texts"),
        ("collapse_point", "texts"),
        ("semantic_diversity", "0 to 2"),
        ("pooled/semantic_diversity", "0 to 2"),
        ("unique_words", "words"),
        ("total_words", "words"),
        ("words/mean", "words per text"),
        ("words/*", "words"),
        ("avg_word_length", "characters per word"),
        ("characters/mean", "characters per text"),
        ("characters/*", "characters"),
        ("bertscore/*", "-1 to 1"),
        ("score/unscored", "texts"),
        ("score/*", "of the score or reward"),
        ("rewards/*", "of the reward"),
        ("perplexity", "1 or more"),
        ("output_entropy", "nats"),
        ("*", "0 to 1"),
    ],
    has_prompts: true,
    dynamics: &[
        "self_bleu",
        "distinct_1",
        "distinct_2",
        "distinct_3",
        "semantic_diversity",
        "output_entropy",
        "score/mean",
    ],
    prepare: |_| (),
    measure,
};

/// Computes the scores and Pass@k, which are parts of the suite. The intervals are not added yet.
///
/// # Errors
/// Returns an error if the rule of `--pass` needs what the texts lack, or if k is larger than the number of
/// texts of a prompt.
pub fn accuracy(all: &Generations, options: &SuiteOptions) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    measured.add("prompts", all.prompts.len() as f64);
    measured.add("completions", all.len() as f64);
    scores(&mut measured, all);
    passes(&mut measured, all, options)?;
    Ok(measured)
}

fn measure(all: &Generations, options: &SuiteOptions) -> anyhow::Result<Measured> {
    anyhow::ensure!(
        options.training.is_none(),
        "--training is only used by the suite `molecules`; remove it, or add --suite molecules"
    );
    let joined;
    let all = match &options.references {
        Some(path) => {
            joined = with_references(all, path)?;
            &joined
        }
        None => all,
    };
    let mut measured = accuracy(all, options)?;
    let texts: Vec<&str> = all.texts().collect();
    let different: BTreeSet<&str> = texts.iter().copied().collect();
    measured.add("distinct_texts", different.len() as f64 / texts.len() as f64);
    diversity(&mut measured, all)?;
    vocabulary(&mut measured, &texts);
    tokens(&mut measured, all)?;
    references(&mut measured, all)?;
    if let Some(folder) = &options.bertscore {
        bert_score(&mut measured, all, folder)?;
    }
    measured.add_intervals(options.seed)?;
    Ok(measured)
}

fn diversity(measured: &mut Measured, all: &Generations) -> anyhow::Result<()> {
    let groups = all.groups();
    let GroupDiversity { per_prompt, pooled } = GroupDiversity::new(&groups)?;
    for (prefix, of) in [("", per_prompt), ("pooled/", pooled)] {
        let NgramDiversity { distinct_1, distinct_2, distinct_3, self_bleu } = of;
        measured.add(&format!("{prefix}distinct_1"), distinct_1);
        measured.add(&format!("{prefix}distinct_2"), distinct_2);
        measured.add(&format!("{prefix}distinct_3"), distinct_3);
        measured.add(&format!("{prefix}self_bleu"), self_bleu);
    }
    if groups.iter().all(|group| group.len() > 1) {
        let bleu = groups.iter().map(|group| self_bleu(group, 4)).collect();
        measured.per_prompt.insert("self_bleu".to_owned(), bleu);
    }
    // A prompt whose texts are single words has no bigrams, and no distinct-2.
    let has_bigrams = |group: &Vec<&str>| group.iter().any(|text| words(text).nth(1).is_some());
    if groups.iter().all(has_bigrams) {
        let bigrams = groups.iter().map(|group| distinct(group, 2)).collect();
        measured.per_prompt.insert("distinct_2".to_owned(), bigrams);
    }
    if all.len() > 1 {
        let embedder = HashedNgrams::default();
        let embed = |group: &Vec<&str>| embedder.embed(group);
        let vectors = groups.iter().map(embed).collect::<Result<Vec<_>, _>>()?;
        let semantic = SemanticDiversity::new(&vectors)?;
        measured.add("semantic_diversity", semantic.per_prompt);
        measured.add("pooled/semantic_diversity", semantic.pooled);
        if vectors.iter().all(|group| group.len() > 1) {
            let distance = |group: &Vec<Vec<f32>>| {
                mean_cosine_distance(&group.iter().map(Vec::as_slice).collect::<Vec<_>>())
            };
            let each = vectors.iter().map(distance).collect::<Result<Vec<f64>, _>>()?;
            measured.per_prompt.insert("semantic_diversity".to_owned(), each);
        }
    }
    Ok(())
}

fn vocabulary(measured: &mut Measured, texts: &[&str]) {
    let of = Vocabulary::new(texts);
    measured.add("unique_words", of.unique_words as f64);
    measured.add("total_words", of.total_words as f64);
    if of.total_words > 0 {
        measured.add("type_token_ratio", of.type_token_ratio);
        measured.add("avg_word_length", of.avg_word_length);
    }
    let lengths = TextLengths::new(texts);
    for (name, spread) in [("characters", lengths.characters), ("words", lengths.words)] {
        measured.add(&format!("{name}/mean"), spread.mean);
        measured.add(&format!("{name}/min"), spread.min);
        measured.add(&format!("{name}/max"), spread.max);
    }
}

/// Adds the perplexity under the model that computed the log-probabilities of the file, i.e. exp of
/// the negative mean over all tokens, and the entropy of the histogram of tokens in nats.
fn tokens(measured: &mut Measured, all: &Generations) -> anyhow::Result<()> {
    let numbers = |key: &str| -> anyhow::Result<Option<Vec<Vec<f64>>>> {
        let of = |generation: &Generation| match generation.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(values) => {
                let values = values.as_array();
                let values: Option<Vec<f64>> =
                    values.and_then(|values| values.iter().map(Value::as_f64).collect());
                values.map(Some).with_context(|| format!("`{key}` is not a list of numbers"))
            }
        };
        all.all().map(of).collect()
    };
    if let Some(logprobs) = numbers("logprobs")? {
        let logprobs = logprobs.concat();
        anyhow::ensure!(
            logprobs.iter().all(|logprob| *logprob <= 0.0),
            "`logprobs` contains a positive number; expected natural logarithms of probabilities"
        );
        if !logprobs.is_empty() {
            measured.add("perplexity", (-mean(&logprobs)).exp());
        }
    }
    if let Some(ids) = numbers("completion_ids")? {
        let whole = |id: f64| (id >= 0.0 && id.fract() == 0.0).then_some(id as u32);
        let ids: Option<Vec<u32>> = ids.concat().into_iter().map(whole).collect();
        let ids = ids.context("`completion_ids` contains a number that is not a token id")?;
        measured.add("output_entropy", token_entropy(ids));
    }
    Ok(())
}

/// Adds the scores of the completions that have one, and how many have none.
fn scores(measured: &mut Measured, all: &Generations) {
    let scores: Vec<f64> = all.all().filter_map(|generation| generation.score).collect();
    if scores.is_empty() {
        return;
    }
    measured.add_unscored(all.all().count() - scores.len());
    if scores.len() > 1 {
        measured.add("score/std", sample_variance(&scores).sqrt());
    }
    let mut sorted = scores;
    sorted.sort_by(f64::total_cmp);
    for (name, share) in [("score/min", 0.0), ("score/median", 0.5), ("score/max", 1.0)] {
        measured.add(name, percentile_of_sorted(&sorted, share));
    }
    let of_prompt = |prompt: &PromptGenerations| {
        let scores: Vec<f64> = prompt.generations.iter().filter_map(|of| of.score).collect();
        (!scores.is_empty()).then(|| mean(&scores))
    };
    let each: Vec<Option<f64>> = all.prompts.iter().map(of_prompt).collect();
    measured.add_mean_of_some("score/mean", &each);
}

/// Adds the overlap with references: means over the prompts that have one.
fn references(measured: &mut Measured, all: &Generations) -> anyhow::Result<()> {
    let with: Vec<&PromptGenerations> =
        all.prompts.iter().filter(|prompt| !prompt.references.is_empty()).collect();
    if with.is_empty() {
        return Ok(());
    }
    if with.len() < all.prompts.len() {
        measured.add("prompts_with_references", with.len() as f64);
    }
    let rouge = |prompt: &PromptGenerations, text: &str| {
        let references: Vec<&str> = prompt.references.iter().map(String::as_str).collect();
        Rouge::best(&references, text, true)
    };
    let mut each: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for prompt in &with {
        let texts = || prompt.generations.iter().map(|of| of.text.as_str());
        let scores = texts().map(|text| rouge(prompt, text)).collect::<Result<Vec<_>, _>>()?;
        let mut push = |name, value: &dyn Fn(&Rouge) -> f64| {
            let values: Vec<f64> = scores.iter().map(value).collect();
            each.entry(name).or_default().push(mean(&values));
        };
        push("rouge_1", &|rouge| rouge.rouge_1.f);
        push("rouge_2", &|rouge| rouge.rouge_2.f);
        push("rouge_l", &|rouge| rouge.rouge_l.f);
        let is_exact = |text: &str| prompt.references.iter().any(|r| r.trim() == text.trim());
        let exact = texts().filter(|text| is_exact(text)).count() as f64 / scores.len() as f64;
        each.entry("exact_match").or_default().push(exact);
    }
    for (name, values) in each {
        match with.len() == all.prompts.len() {
            true => measured.add_mean(name, values),
            false => measured.add(name, mean(&values)),
        }
    }
    selected(measured, &with, &|prompt, text| rouge(prompt, text).map_or(0.0, |of| of.rouge_l.f))
}

/// Adds BERTScore against the best reference: means over the prompts, which must all have a
/// reference.
fn bert_score(measured: &mut Measured, all: &Generations, folder: &Path) -> anyhow::Result<()> {
    let encoder =
        SentenceTransformers::load(&model_folder(folder)?, &device()?).context("--bertscore")?;
    let of_prompt = |prompt: &PromptGenerations| -> anyhow::Result<BertScore> {
        anyhow::ensure!(
            !prompt.references.is_empty(),
            "--bertscore requires a reference for each prompt; add a `reference` to each record, or --references FILE"
        );
        let vectors = |text: &str| encoder.token_vectors(text);
        let references = prompt.references.iter().map(|text| vectors(text));
        let references = references.collect::<Result<Vec<_>, _>>()?;
        // Like in the authors' program, precision, recall and F1 can be from different references.
        let scores = prompt.texts().map(|text| {
            let text = vectors(text)?;
            let scores: Vec<BertScore> =
                references.iter().map(|reference| BertScore::new(&text, reference)).collect();
            let best = |value: fn(&BertScore) -> f64| {
                scores.iter().map(value).fold(f64::NEG_INFINITY, f64::max)
            };
            Ok(BertScore {
                precision: best(|of| of.precision),
                recall: best(|of| of.recall),
                f1: best(|of| of.f1),
            })
        });
        let scores = scores.collect::<anyhow::Result<Vec<_>>>()?;
        let mean_of =
            |value: fn(&BertScore) -> f64| mean(&scores.iter().map(value).collect::<Vec<_>>());
        Ok(BertScore {
            precision: mean_of(|of| of.precision),
            recall: mean_of(|of| of.recall),
            f1: mean_of(|of| of.f1),
        })
    };
    let scores = all.prompts.par_iter().map(of_prompt).collect::<anyhow::Result<Vec<_>>>()?;
    type Value = fn(&BertScore) -> f64;
    let values: [(&str, Value); 3] = [
        ("bertscore/precision", |of| of.precision),
        ("bertscore/recall", |of| of.recall),
        ("bertscore/f1", |of| of.f1),
    ];
    for (name, value) in values {
        measured.add_mean(name, scores.iter().map(value).collect());
    }
    Ok(())
}

/// Adds USQ: ROUGE-L of the completion that each selector picks.
fn selected(
    measured: &mut Measured,
    prompts: &[&PromptGenerations],
    quality: &dyn Fn(&PromptGenerations, &str) -> f64,
) -> anyhow::Result<()> {
    let texts: Vec<Vec<&str>> =
        prompts.iter().map(|p| p.generations.iter().map(|of| of.text.as_str()).collect()).collect();
    let scores: Vec<Vec<f64>> =
        prompts.iter().map(|p| p.generations.iter().filter_map(|of| of.score).collect()).collect();
    let has_scores = texts.iter().zip(&scores).all(|(texts, scores)| texts.len() == scores.len());
    let candidates: Vec<Candidates<'_>> =
        texts.iter().zip(&scores).map(|(texts, scores)| Candidates { texts, scores }).collect();
    let selectors = [
        ("first", Selector::First),
        ("longest", Selector::Longest),
        ("most_unique_words", Selector::MostUniqueWords),
        ("score", Selector::Score),
    ];
    for (name, selector) in selectors {
        if selector == Selector::Score && !has_scores {
            continue;
        }
        let of =
            selected_quality(&candidates, selector, |index, text| quality(prompts[index], text))?;
        measured.add(&format!("usq/{name}"), of.mean);
    }
    Ok(())
}

fn passes(
    measured: &mut Measured,
    all: &Generations,
    options: &SuiteOptions,
) -> anyhow::Result<()> {
    let rule = options.pass_rule()?;
    let of_prompt = |prompt: &PromptGenerations| -> anyhow::Result<PromptPasses> {
        let outcomes = prompt.generations.iter().map(|of| rule.passes(prompt, of));
        Ok(PromptPasses::from_outcomes(&outcomes.collect::<anyhow::Result<Vec<_>>>()?))
    };
    let counts = all.prompts.iter().map(of_prompt).collect::<anyhow::Result<Vec<_>>>()?;
    let fewest = counts.iter().map(|counts| counts.samples).min().unwrap_or(0);
    let bootstrap = Bootstrap { seed: options.seed, ..Bootstrap::default() };
    let curve = pass_at_k(&counts, &options.ks(fewest), &bootstrap)?;
    for (k, pass) in &curve {
        measured.add_at_k(&format!("pass_at_{k}"), pass);
    }
    if curve.contains_key(&1) {
        let values = curve.iter().map(|(k, pass)| (*k, pass.value)).collect();
        let efficiency = DiversityEfficiency::new(&values)?;
        for (k, der) in &efficiency.der {
            measured.add(&format!("der_at_{k}"), *der);
        }
        for (k, ratio) in &efficiency.independence {
            measured.add(&format!("independence_at_{k}"), *ratio);
        }
        if curve.len() > 1 {
            measured.add("collapse_point", efficiency.collapse_point as f64);
        }
    }
    Ok(())
}

/// Adds the references of a file, which are matched by prompt.
fn with_references(all: &Generations, path: &Path) -> anyhow::Result<Generations> {
    let mut by_prompt = read_references(path).context("--references")?;
    let mut all = all.clone();
    for prompt in &mut all.prompts {
        prompt.references = by_prompt.remove(&prompt.prompt).with_context(|| {
            format!(
                "--references {}: no reference for the prompt \"{}\"; prompts must match exactly in both files",
                path.display(),
                short_text(&prompt.prompt)
            )
        })?;
    }
    Ok(all)
}
