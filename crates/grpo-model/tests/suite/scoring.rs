//! Completion scoring.

use grpo_model::{Frozen, all_logprobs, score_completions};

use crate::configs::{config, other};
use crate::support::{device, shaken};

#[test]
fn the_scores_of_a_completion_are_among_those_of_all_tokens() {
    let model = Frozen::snapshot(&shaken(&config(&other()), 1, &device()));
    let (prompt, completion): (&[u32], &[u32]) = (&[1, 2, 3], &[4, 0, 2]);
    for temperature in [1.0, 0.5] {
        let scores = score_completions(&model, &[(prompt, completion)], temperature).remove(0);
        let all = all_logprobs(&model, (prompt, completion), temperature);
        assert_eq!(all.len(), completion.len());
        for ((row, &id), score) in all.iter().zip(completion).zip(scores.logprobs) {
            let sum: f64 = row.iter().map(|logprob| f64::from(*logprob).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            assert!((f64::from(row[id as usize]) - score).abs() < 1e-5, "{row:?}, {score}");
        }
    }
}
