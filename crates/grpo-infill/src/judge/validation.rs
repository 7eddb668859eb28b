//! Judge validation on held-out texts.

use crate::Split;
use grpo_data::{CounterRng, Purpose};

use super::examples::{JudgeExamples, Judged};
use super::report::{JudgeMeasures, JudgeValidationConfig};
use super::target::{corruption_target, mean_squared_error};
use grpo_data::statistics::{mean, pearson, percentile, spearman};
use grpo_train::TrainError;

/// Selects a set of held-out texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Texts used by all validations during training, which select the best judge.
    Looks = 0,
    /// Texts for the final evaluation of the selected judge.
    Report = 1,
}

/// A set of validation texts.
pub(super) struct ValidationTexts {
    natural: Vec<Judged>,
    spread: Vec<Judged>,
}

/// Largest replaced fraction.
const LARGEST_RATIO: f64 = 0.9;

impl ValidationTexts {
    pub(super) fn new(
        examples: &JudgeExamples<'_>,
        config: &JudgeValidationConfig,
        seed: u64,
        round: Round,
    ) -> Result<Self, TrainError> {
        let rng = CounterRng::new(seed, Purpose::EVALUATION);
        let passages = &examples.data.passages;
        let passage =
            |index: usize| passages.passage(Split::Validation, &rng, [index as u32, round as u32]);
        let natural = |index| Judged { ids: passage(index), ratio: 0.0 };
        let mask = passages.characters().mask_id();
        let spread = |index: usize| {
            let wanted = match index % 10 {
                0 => 0.0,
                // Computed from the index alone, so that the fraction doesn't correlate with the
                // position in the corpus.
                _ => LARGEST_RATIO * (index + 1) as f64 / config.spread as f64,
            };
            masked(passage(config.natural + index), wanted, mask, index, round, &rng)
        };
        let natural: Vec<Judged> = (0..config.natural).map(natural).collect();
        let mut spread: Vec<Judged> = (0..config.spread).map(spread).collect();
        examples.fill(&mut spread, round as u64, &rng)?;
        Ok(Self { natural, spread })
    }

    /// Evaluates a judge. `score` returns one output per text.
    pub(super) fn measures(&self, score: impl Fn(&[Judged]) -> Vec<f64>) -> JudgeMeasures {
        let (natural, outputs) = (score(&self.natural), score(&self.spread));
        let ratios: Vec<f64> = self.spread.iter().map(|text| text.ratio).collect();
        let targets = ratios.iter().map(|&ratio| corruption_target(ratio));
        let all: Vec<f64> = outputs.iter().chain(&natural).copied().collect();
        let targets: Vec<f64> = targets.chain(natural.iter().map(|_| 0.0)).collect();
        let eval_loss = mean_squared_error(&all, &targets);
        JudgeMeasures {
            eval_loss,
            zero_mean: mean(&natural),
            zero_p90: percentile(&natural, 0.9),
            pearson: pearson(&outputs, &ratios).unwrap_or(0.0),
            spearman: spearman(&outputs, &ratios).unwrap_or(0.0),
        }
    }
}

/// Masks at least the fraction `wanted` of `ids`.
///
/// Texts with an even index are masked at random positions, the others in one contiguous run. An
/// infiller leaves different traces in long gaps.
fn masked(
    mut ids: Vec<u32>,
    wanted: f64,
    mask: u32,
    index: usize,
    round: Round,
    rng: &CounterRng,
) -> Judged {
    let length = ids.len();
    let count = ((wanted * length as f64).ceil() as usize).min(length);
    // The last word keeps these numbers distinct from those used for passages and fills.
    let counter = |place: usize| [place as u32, index as u32, round as u32, u32::MAX];
    if index.is_multiple_of(2) {
        let mut order: Vec<(u64, usize)> =
            (0..length).map(|place| (rng.below(counter(place), u64::MAX), place)).collect();
        order.sort_unstable();
        order[..count].iter().for_each(|&(_, place)| ids[place] = mask);
    } else {
        let first = rng.below(counter(length), (length - count + 1) as u64) as usize;
        ids[first..first + count].fill(mask);
    }
    Judged { ids, ratio: count as f64 / length as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: u32 = 9;

    #[test]
    fn what_was_replaced_is_what_was_asked_for() {
        let rng = CounterRng::new(1, Purpose::EVALUATION);
        for (index, wanted, count) in
            [(2, 0.0, 0), (3, 0.0, 0), (4, 0.3, 3), (5, 0.3, 3), (6, 0.81, 9), (7, 0.81, 9)]
        {
            let text = masked(vec![1; 10], wanted, MASK, index, Round::Looks, &rng);
            let blanks: Vec<usize> = (0..10).filter(|&place| text.ids[place] == MASK).collect();
            assert_eq!(blanks.len(), count, "{index}");
            assert_eq!(text.ratio, count as f64 / 10.0);
            if index % 2 == 1 {
                assert!(blanks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{blanks:?}");
            }
        }
        let places = |index, round| masked(vec![1; 10], 0.3, MASK, index, round, &rng).ids;
        assert_ne!(places(4, Round::Looks), places(6, Round::Looks));
        assert_ne!(places(5, Round::Looks), places(7, Round::Looks));
        assert_ne!(places(4, Round::Looks), places(4, Round::Report));
    }

    /// The outputs equal the ratios, except that one in ten natural texts is considered corrupted.
    #[test]
    fn measures_are_of_the_right_texts() {
        let natural = (0..10).map(|i| Judged { ids: vec![i], ratio: 0.0 }).collect();
        let spread =
            (0..10).map(|i| Judged { ids: vec![100 + i], ratio: f64::from(i) / 10.0 }).collect();
        let score = |texts: &[Judged]| -> Vec<f64> {
            let score = |text: &Judged| match text.ids[0] {
                9 => 0.5,
                0..9 => 0.0,
                _ => text.ratio,
            };
            texts.iter().map(score).collect()
        };
        let measures = ValidationTexts { natural, spread }.measures(score);
        let error = |r: f64| (r - corruption_target(r)).powi(2);
        let spread_errors: f64 = (0..10).map(|i| error(f64::from(i) / 10.0)).sum();
        assert!((measures.eval_loss - (spread_errors + 0.25) / 20.0).abs() < 1e-12);
        assert!((measures.zero_mean - 0.05).abs() < 1e-12);
        // The percentile lies between the 9th and the 10th value, a tenth of the way up to 0.5.
        assert!((measures.zero_p90 - 0.05).abs() < 1e-12, "{}", measures.zero_p90);
        assert!((measures.pearson - 1.0).abs() < 1e-12 && (measures.spearman - 1.0).abs() < 1e-12);
    }
}
