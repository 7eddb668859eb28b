//! Settings of the rewards of replies, and of those made of others: checked, and made into rewards.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::Device;

use super::{RewardConfig, RewardConfigError, is_mean};
use crate::composite::{CompositePart, CompositeReward, Part};
use crate::heuristic::{GenericWords, HeuristicReward, HeuristicWeights};
use crate::{EmbedderConfig, Reward, Transform};

/// The weights are a mean's, and there is an embedder where relevance has weight.
pub(super) fn check_heuristic(
    weights: HeuristicWeights,
    embedder: Option<&EmbedderConfig>,
    generic_words: Option<&[String]>,
) -> Result<(), RewardConfigError> {
    if !is_mean(&weights.each()) {
        return Err(RewardConfigError::HeuristicWeights { sum: weights.each().iter().sum() });
    }
    if embedder.is_none() && weights.relevance > 0.0 {
        return Err(RewardConfigError::NoEmbedder);
    }
    self::generic_words(generic_words)?;
    Ok(embedder.into_iter().try_for_each(EmbedderConfig::check)?)
}

pub(super) fn heuristic(
    weights: HeuristicWeights,
    embedder: Option<&EmbedderConfig>,
    generic_words: Option<&[String]>,
    device: &Device,
) -> Result<Arc<dyn Reward>, RewardConfigError> {
    check_heuristic(weights, embedder, generic_words)?;
    let embedder = embedder.map(|embedder| embedder.build(device)).transpose()?;
    let generic_words = self::generic_words(generic_words)?;
    Ok(Arc::new(HeuristicReward::new(weights, embedder, generic_words)))
}

fn generic_words(entries: Option<&[String]>) -> Result<GenericWords, RewardConfigError> {
    match entries {
        None => Ok(GenericWords::default()),
        Some(entries) => {
            GenericWords::new(entries).map_err(|entry| RewardConfigError::GenericWord { entry })
        }
    }
}

/// The parts of a hybrid reward, as those of a composite one.
pub(super) fn hybrid(
    [learned_weight, heuristic_weight]: [f64; 2],
    learned: &RewardConfig,
    heuristic: &RewardConfig,
) -> Result<Vec<CompositePart>, RewardConfigError> {
    if !is_mean(&[learned_weight, heuristic_weight]) {
        let sum = learned_weight + heuristic_weight;
        return Err(RewardConfigError::HybridWeights { sum });
    }
    if !matches!(learned, RewardConfig::Learned { .. }) {
        return Err(RewardConfigError::HybridPart { key: "learned" });
    }
    if !matches!(heuristic, RewardConfig::Heuristic { .. }) {
        return Err(RewardConfigError::HybridPart { key: "heuristic" });
    }
    let part = |name: &str, weight, reward: &RewardConfig| CompositePart {
        name: name.to_owned(),
        weight,
        transform: Transform::Identity,
        reward: reward.clone(),
    };
    Ok(vec![
        part("learned", learned_weight, learned),
        part("heuristic", heuristic_weight, heuristic),
    ])
}

/// What metrics say besides the parts of a reward, at any depth.
const TAKEN: [(&str, &str); 2] = [
    ("raw", "what a part was before its transform"),
    ("diversity_bonus", "the part of [diversity_bonus]"),
];

/// Names are usable and differ, weights are a mean's or can be made one's, and each part is right by itself.
pub(super) fn check_composite(
    parts: &[CompositePart],
    normalize: bool,
) -> Result<(), RewardConfigError> {
    if parts.is_empty() {
        return Err(RewardConfigError::NoParts);
    }
    let mut names = BTreeSet::new();
    for part in parts {
        let is_usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if part.name.is_empty() || !part.name.chars().all(is_usable) {
            return Err(RewardConfigError::PartName { name: part.name.clone() });
        }
        if let Some((name, whose)) = TAKEN.into_iter().find(|(name, _)| *name == part.name) {
            return Err(RewardConfigError::PartNameTaken { name: name.to_owned(), whose });
        }
        if !names.insert(&part.name) {
            return Err(RewardConfigError::PartTwice { name: part.name.clone() });
        }
        part.transform
            .check()
            .map_err(|fault| RewardConfigError::Transform { name: part.name.clone(), fault })?;
        // Its prompts are not those of other rewards.
        let checked = match part.reward {
            RewardConfig::Infill { .. } => Err(RewardConfigError::InfillInComposite),
            ref reward => reward.check(),
        };
        checked.map_err(|error| error.of_part(&part.name))?;
    }
    let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
    let sum: f64 = weights.iter().sum();
    // So written that NaN is refused as well.
    let can_be_mean = sum.is_finite() && sum > 0.0 && weights.iter().all(|weight| *weight >= 0.0);
    match is_mean(&weights) || (normalize && can_be_mean) {
        true => Ok(()),
        false => Err(RewardConfigError::CompositeWeights { sum }),
    }
}

/// The parts are checked.
pub(super) fn composite(
    parts: &[CompositePart],
    device: &Device,
) -> Result<Arc<dyn Reward>, RewardConfigError> {
    let sum: f64 = parts.iter().map(|part| part.weight).sum();
    let build = |part: &CompositePart| -> Result<Part, RewardConfigError> {
        Ok(Part {
            name: part.name.clone(),
            // The sum is 1 but for rounding where it is not to be made so.
            weight: part.weight / sum,
            transform: part.transform,
            reward: part.reward.build(device).map_err(|error| error.of_part(&part.name))?,
        })
    };
    Ok(Arc::new(CompositeReward::new(parts.iter().map(build).collect::<Result<_, _>>()?)))
}
