//! Tests log-probabilities and entropies, computed from hidden states and from logits.

use burn::tensor::Device;

use crate::report::{Suite, Tolerance};
use crate::scores::{Way, scored};
use crate::tensors::Precision;
use grpo_oracle as oracle;
use grpo_oracle::{ScoreCase, Under};

const SIZES: [usize; 3] = [6, 5, 37];
/// Small sizes, because difference quotients require many evaluations.
const SMALL: [usize; 3] = [3, 3, 11];

/// Creates an empty suite for log-probabilities and entropies.
pub(super) fn start(fused: bool, precision: Precision) -> Suite {
    let name = if fused { "scores from hidden states" } else { "scores from logits" };
    Suite::new(name, "f64 loops", precision)
}

/// Tests all distributions with both layouts of the head weight.
pub(super) fn fill(suite: &mut Suite, fused: bool, device: &Device) {
    let tolerance = Tolerance::of_largest_or_1(match suite.precision {
        Precision::F64 => 1e-13,
        Precision::F32 => 2e-6,
    });
    for under in Under::all() {
        for (tied, bias) in [(false, true), (true, false)] {
            let case = ScoreCase::generated(SIZES, under, bias);
            let way = Way { fused, tied, track_hidden: false, track_head: false };
            let got = scored(&case, way, [&[], &[]], device, suite.precision.dtype());
            let expected: Vec<[f64; 2]> = (0..SIZES[0]).map(|i| oracle::score(&case, i)).collect();
            let column = |c: usize| -> Vec<f64> { expected.iter().map(|e| e[c]).collect() };
            let mut compared = suite.case(format!("{under:?}"));
            compared.rows("logprobs", &[got.logprobs], &[column(0)], tolerance);
            compared.rows("entropies", &[got.entropies], &[column(1)], tolerance);
        }
    }
}

/// Creates an empty suite for gradients.
pub(super) fn start_gradients(precision: Precision) -> Suite {
    let against = "difference quotients of the f64 loops";
    Suite::new("gradients of scores", against, precision)
}

/// Tests frozen and trainable heads, with and without a gradient for entropies.
pub(super) fn fill_gradients(suite: &mut Suite, device: &Device) {
    let of_logprobs = [0.7, -0.4, 0.9];
    let suite_precision = suite.precision;
    for under in Under::all() {
        for of_entropies in [[0.0; 3], [0.5, -0.8, 0.3]] {
            let case = ScoreCase::generated(SMALL, under, true);
            let upstream: [&[f64]; 2] = [&of_logprobs, &of_entropies];
            let expected = oracle::score_gradients(&case, upstream);
            for track_head in [false, true] {
                let way = Way { fused: true, tied: false, track_hidden: true, track_head };
                let got = scored(&case, way, upstream, device, suite.precision.dtype());
                let mut compared = suite.case(format!("{under:?}, head tracked: {track_head}"));
                let names = ["gradient of hidden", "gradient of weight", "gradient of bias"];
                for ((name, got), expected) in names.into_iter().zip(got.gradients).zip(&expected) {
                    if let (Some(got), Some(expected)) = (got, expected) {
                        let tolerance = Tolerance::of_largest_or_1(match suite_precision {
                            // With a step of 1e-5, truncation contributes 1e-10 of the third
                            // derivative and rounding 1e-11.
                            Precision::F64 => 1e-9,
                            Precision::F32 => 2e-6,
                        });
                        compared.rows(name, &[got], std::slice::from_ref(expected), tolerance);
                    }
                }
            }
        }
    }
}
