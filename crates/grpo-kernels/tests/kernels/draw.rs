//! Draws from softmax distributions on a GPU. On the CPU, there is nothing to test.

use grpo_kernels::{draw_on_gpu, is_cpu};

use crate::support::{device, tensor, values};

/// Returns the drawn id and its log-probability, computed in f64.
fn oracle(logits: &[f64], uniform: f64, temperature: f64, forbidden: &[u32]) -> (u32, f64) {
    let possible = (0u32..).zip(logits).filter(|(id, _)| !forbidden.contains(id));
    let scaled: Vec<(u32, f64)> = possible.map(|(id, x)| (id, x / temperature)).collect();
    let total: f64 = scaled.iter().map(|(_, x)| x.exp()).sum();
    let mut before = 0.0;
    for &(id, x) in &scaled {
        before += x.exp() / total;
        if uniform < before {
            return (id, x - total.ln());
        }
    }
    panic!("{uniform} is below 1");
}

/// Vocabularies with fewer ids than units, with as many, and with a last segment that is not full.
#[test]
fn draws_are_those_of_the_definition() {
    for (vocabulary, temperature, forbidden) in
        [(1, 1.0, vec![]), (5, 0.7, vec![0, 3]), (128, 1.0, vec![]), (1000, 1.5, vec![999, 1])]
    {
        let rows = 40;
        let logits = values(rows * vocabulary, 11);
        let uniforms: Vec<f64> = values(rows, 12).iter().map(|v| v / 6.0 + 0.5).collect();
        let input = tensor(&logits, [rows, vocabulary], &device());
        let Some(drawn) = draw_on_gpu(&input, &uniforms, temperature, &forbidden) else {
            assert!(is_cpu(&device()), "the logits are on a GPU");
            return;
        };
        for ((logits, &uniform), drawn) in logits.chunks(vocabulary).zip(&uniforms).zip(drawn) {
            let (id, logprob) = oracle(logits, uniform, temperature.into(), &forbidden);
            let (drawn, of_drawn) = drawn.unwrap();
            assert_eq!(drawn, id, "{uniform} of {vocabulary}");
            assert!((f64::from(of_drawn) - logprob).abs() < 5e-6, "{of_drawn}, expected {logprob}");
        }
    }
}

#[test]
fn distributions_that_are_not_finite() {
    for logits in [[f64::NAN, 0.0], [f64::INFINITY, 0.0], [f64::NEG_INFINITY; 2]] {
        let input = tensor(&logits, [1, 2], &device());
        let drawn = draw_on_gpu(&input, &[0.5], 1.0, &[]);
        assert!(drawn.is_none_or(|drawn| drawn == [None]), "{logits:?}");
    }
    // An id with probability 0 is not drawn.
    let input = tensor(&[f64::NEG_INFINITY, 1.0], [1, 2], &device());
    if let Some(drawn) = draw_on_gpu(&input, &[0.0], 1.0, &[]) {
        assert_eq!(drawn, [Some((1, 0.0))]);
    }
}
