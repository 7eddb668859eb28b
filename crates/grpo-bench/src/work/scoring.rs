//! Benchmarks log-probabilities of given completions, as of a reference policy.

use std::time::Instant;

use grpo_model::{Frozen, LanguageModel, ProductPrecision, score_completions};

use super::{Repetition, Shape, Work, random_ids};
use crate::models::Model;

/// Scores all completions of a shape in a single batch. Their tokens are random.
pub fn scoring(model: Model, shape: Shape, precision: ProductPrecision) -> anyhow::Result<Work> {
    let policy = Frozen::snapshot(&model.build()?.with_product_precision(precision));
    let count = shape.prompt_tokens + shape.tokens;
    let all: Vec<Vec<u32>> =
        (0..shape.completions()).map(|row| random_ids(3, row, count, model)).collect();
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
