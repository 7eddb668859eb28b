//! Tests the diversity term in optimizer steps.

use super::super::super::batch::{LossWeights, cross_entropy};
use super::*;

/// Computes the cross-entropy of a batch and its gradients.
fn plain_step(
    model: &Transformer,
    batch: &[&Example],
    entropy: Option<f64>,
    config: &PretrainConfig,
) -> (CrossEntropy, GradientSum) {
    let (weights, mut gradients) = (LossWeights { loss: 1.0, entropy }, GradientSum::default());
    let (mut dropout, cut) = (Dropout::off(), config.cut());
    let computed = cross_entropy(model, batch, weights, cut, &mut dropout, &mut gradients);
    (computed.unwrap(), gradients)
}

#[test]
fn every_second_step_has_the_term() {
    let model = model(2);
    // At a high temperature, completions are unlikely to be equal.
    let config = config(score_function(0.3, DiversityMeasure::Semantic, [3.0, 1.0]));
    let term = DiversityTerm::ScoreFunction(Box::new(term(&config, &model)));
    let examples = examples();
    let batch: Vec<&Example> = examples.iter().collect();
    let plain_loss = || plain_step(&model, &batch, None, &config);
    let of = |step| {
        let (computed, mut gradients) = plain_loss();
        let found = term.add(&model, &batch, step, &computed, &mut gradients).unwrap();
        (found, computed.loss, numbers(&model, &gradients.finish()))
    };
    let plain = numbers(&model, &plain_loss().1.finish());
    let (found, _, gradient) = of(1);
    assert!(found.is_empty() && gradient == plain);
    let (found, loss, gradient) = of(4);
    let score = found["diversity_score"];
    assert_eq!(found["combined_loss"], loss - 0.3 * score);
    assert!(score > 0.0 && gradient != plain);
    assert!((1.0..=2.0).contains(&found["generation_length"]));
    assert_eq!(gradient, of(4).2);
    assert_ne!(gradient, of(6).2);
}

/// Computes the mean cross-entropy and the mean entropy over target tokens, one sequence at a time.
fn plain_losses(model: &Transformer, examples: &[Example]) -> [f64; 2] {
    let (mut sums, mut count) = ([0.0; 2], 0.0);
    for example in examples {
        let batch = TokenBatch::from_iter([example.ids.as_slice()]);
        let logits = model.logits(model.hidden(&batch, &mut Dropout::off()));
        let flat: Vec<f64> = logits.into_data().iter().collect();
        for t in example.first_target..example.ids.len() {
            let row = &flat[(t - 1) * VOCABULARY..t * VOCABULARY];
            let total: f64 = row.iter().map(|logit| logit.exp()).sum();
            let logprobs: Vec<f64> = row.iter().map(|logit| logit - total.ln()).collect();
            sums[0] -= logprobs[example.ids[t] as usize];
            sums[1] -= logprobs.iter().map(|logprob| logprob.exp() * logprob).sum::<f64>();
            count += 1.0;
        }
    }
    sums.map(|sum| sum / count)
}

#[test]
fn the_entropy_term_has_its_gradient() {
    let (model, weight) = (model(3), 0.6);
    let examples = examples();
    let batch: Vec<&Example> = examples.iter().collect();
    for micro_batch_tokens in [None, Some(3)] {
        let diversity = DiversityConfig::Entropy { weight };
        let config = PretrainConfig { micro_batch_tokens, ..config(diversity) };
        config.check().unwrap();
        let diversity = config.diversity.as_ref().unwrap();
        let term = DiversityTerm::new(diversity, &config, &model, &codec(), &examples, 1).unwrap();
        let coef = term.entropy_coef();
        let (computed, mut gradients) = plain_step(&model, &batch, coef, &config);
        let found = term.add(&model, &batch, 0, &computed, &mut gradients).unwrap();
        let [loss, entropy] = plain_losses(&model, &examples);
        assert!((computed.loss - loss).abs() < 1e-5, "{} {loss}", computed.loss);
        assert!((found["diversity_score"] - entropy).abs() < 1e-5, "{found:?} {entropy}");
        assert!((found["combined_loss"] - (loss - weight * entropy)).abs() < 2e-5);
        let gradient = numbers(&model, &gradients.finish());
        check_gradient(&model, &gradient, |model| {
            let [loss, entropy] = plain_losses(model, &examples);
            loss - weight * entropy
        });
    }
}
