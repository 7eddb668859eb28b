//! Benchmarks log-probabilities of given completions, as of a reference policy.

use std::time::Instant;

use grpo_data::{CounterRng, Purpose};
use grpo_model::{Frozen, LanguageModel, ProductPrecision, score_completions};

use super::{Repetition, Shape, Work};
use crate::models::Model;

/// Scores all completions of a shape in a single batch. Their tokens are random.
pub fn scoring(model: Model, shape: Shape, precision: ProductPrecision) -> anyhow::Result<Work> {
    let policy = Frozen::snapshot(&model.build()?.with_product_precision(precision));
    let rng = CounterRng::new(3, Purpose::Evaluation);
    let vocabulary = model.size.vocabulary() as u64;
    let ids = |completion: usize| -> Vec<u32> {
        let id = |place: usize| rng.below([place as u32, completion as u32, 0, 0], vocabulary);
        (0..shape.prompt_tokens + shape.tokens).map(|place| id(place) as u32).collect()
    };
    let all: Vec<Vec<u32>> = (0..shape.completions()).map(ids).collect();
    let work = (shape.completions() * shape.tokens) as f64;
    let fed = shape.prompt_tokens + shape.tokens - 1;
    let flops = shape.completions() as f64 * model.forward_flops(0, fed, shape.tokens);
    Ok(Box::new(move || {
        let rows: Vec<_> = all.iter().map(|ids| ids.split_at(shape.prompt_tokens)).collect();
        let started = Instant::now();
        let scores = score_completions(&policy, &rows, 1.0);
        let repetition = Repetition::since(started, work, Some(flops));
        let is_finite = scores.iter().flat_map(|of| &of.logprobs).all(|score| score.is_finite());
        anyhow::ensure!(is_finite, "a log-probability is not finite");
        Ok(repetition)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    #[test]
    fn every_token_of_a_completion_is_scored() {
        let model = Model { size: Size::Tiny, context: 64 };
        let shape = Shape { prompts: 2, prompt_tokens: 3, group: 4, tokens: 9 };
        let repetition = scoring(model, shape, ProductPrecision::F32).unwrap()().unwrap();
        assert_eq!(repetition.work, 72.0);
        assert_eq!(repetition.flops, Some(8.0 * model.forward_flops(0, 11, 9)));
    }
}
