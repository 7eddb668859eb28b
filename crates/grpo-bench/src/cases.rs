//! The list of benchmark cases. See docs/benchmarks.md for a description.

use anyhow::Context;
use grpo_model::ProductPrecision::{Bf16, F32};
use serde::Serialize;

use crate::models::{Model, Size};
use crate::work::{
    Shape, Work, adapter_step, copy, matmul, resident, sampling, scoring, step, training,
};

/// A benchmark case. It is serialized to JSON for `cargo xtask bench`.
#[derive(Debug, Serialize)]
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    /// Unit for the amount of work.
    pub unit: &'static str,
    /// Whether peers/bench.py implements the same case.
    pub peer: bool,
    /// Name of the case whose rate is an upper bound for this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'static str>,
    /// Whether the case takes seconds rather than minutes.
    pub quick: bool,
    /// Whether the case takes too long on a CPU.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub for_gpus: bool,
    /// Creates the work to be measured.
    #[serde(skip)]
    pub prepare: fn() -> anyhow::Result<Work>,
}

/// The sizes used in the acceptance tests: 64 × 48 tokens in groups of 8, and 16 × 256 tokens.
const SMALL: (Model, Shape) = (Model { size: Size::Small, context: 64 }, Shape::groups(8, 48));
const MEDIUM: (Model, Shape) = (Model { size: Size::Medium, context: 256 }, Shape::groups(2, 256));
/// 32 × 64 tokens.
const LARGE: (Model, Shape) = (Model { size: Size::Large, context: 256 }, Shape::groups(4, 64));
const EXTRA_LARGE: (Model, Shape) =
    (Model { size: Size::ExtraLarge, context: 256 }, Shape::groups(4, 64));

const fn with_peer(
    name: &'static str,
    unit: &'static str,
    limit: Option<&'static str>,
    quick: bool,
    prepare: fn() -> anyhow::Result<Work>,
) -> Case {
    Case { name, unit, peer: true, limit, quick, for_gpus: false, prepare }
}

const fn alone(
    name: &'static str,
    unit: &'static str,
    prepare: fn() -> anyhow::Result<Work>,
) -> Case {
    Case { name, unit, peer: false, limit: None, quick: false, for_gpus: false, prepare }
}

/// A case with the shape of a Qwen3, for GPUs.
const fn of_qwen(
    name: &'static str,
    unit: &'static str,
    prepare: fn() -> anyhow::Result<Work>,
) -> Case {
    Case { for_gpus: true, ..with_peer(name, unit, None, false, prepare) }
}

const OF_SMALL: Option<&str> = Some("matmul-small");
const OF_MEDIUM: Option<&str> = Some("matmul-medium");
const OF_SMALL_BF16: Option<&str> = Some("matmul-small-bf16");
const OF_MEDIUM_BF16: Option<&str> = Some("matmul-medium-bf16");

/// All cases, in the order in which they are run.
pub const CASES: &[Case] = &[
    with_peer("matmul-small", "FLOP", None, true, || matmul(Size::Small, 64 * 48, F32)),
    with_peer("matmul-medium", "FLOP", None, true, || matmul(Size::Medium, 8 * 256, F32)),
    with_peer("sampling-small", "tokens", OF_SMALL, true, || sampling(SMALL.0, SMALL.1, F32)),
    with_peer("training-small", "tokens", OF_SMALL, true, || training(SMALL.0, 64, 48, 4, F32)),
    with_peer("step-small", "steps", OF_SMALL, true, || step(SMALL.0, SMALL.1, 2, F32)),
    with_peer("sampling-medium", "tokens", OF_MEDIUM, false, || sampling(MEDIUM.0, MEDIUM.1, F32)),
    with_peer("scoring-medium", "tokens", OF_MEDIUM, false, || scoring(MEDIUM.0, MEDIUM.1, F32)),
    with_peer("training-medium", "tokens", OF_MEDIUM, false, || training(MEDIUM.0, 8, 256, 1, F32)),
    with_peer("matmul-small-bf16", "FLOP", None, false, || matmul(Size::Small, 64 * 48, Bf16)),
    with_peer("matmul-medium-bf16", "FLOP", None, false, || matmul(Size::Medium, 8 * 256, Bf16)),
    with_peer("sampling-small-bf16", "tokens", OF_SMALL_BF16, false, || {
        sampling(SMALL.0, SMALL.1, Bf16)
    }),
    with_peer("training-small-bf16", "tokens", OF_SMALL_BF16, false, || {
        training(SMALL.0, 64, 48, 4, Bf16)
    }),
    with_peer("step-small-bf16", "steps", OF_SMALL_BF16, false, || step(SMALL.0, SMALL.1, 2, Bf16)),
    with_peer("sampling-medium-bf16", "tokens", OF_MEDIUM_BF16, false, || {
        sampling(MEDIUM.0, MEDIUM.1, Bf16)
    }),
    with_peer("training-medium-bf16", "tokens", OF_MEDIUM_BF16, false, || {
        training(MEDIUM.0, 8, 256, 1, Bf16)
    }),
    alone("step-medium", "steps", || step(MEDIUM.0, MEDIUM.1, 1, F32)),
    alone("copy", "bytes", copy),
    of_qwen("sampling-large", "tokens", || sampling(LARGE.0, LARGE.1, F32)),
    of_qwen("sampling-large-bf16", "tokens", || sampling(LARGE.0, LARGE.1, Bf16)),
    of_qwen("scoring-large", "tokens", || scoring(LARGE.0, LARGE.1, F32)),
    of_qwen("adapter-step-large", "steps", || adapter_step(LARGE.0, LARGE.1, F32)),
    of_qwen("adapter-step-large-bf16", "steps", || adapter_step(LARGE.0, LARGE.1, Bf16)),
    of_qwen("sampling-extra-large", "tokens", || sampling(EXTRA_LARGE.0, EXTRA_LARGE.1, F32)),
    of_qwen("adapter-step-extra-large", "steps", || {
        adapter_step(EXTRA_LARGE.0, EXTRA_LARGE.1, F32)
    }),
    of_qwen("adapter-step-extra-large-bf16", "steps", || {
        adapter_step(EXTRA_LARGE.0, EXTRA_LARGE.1, Bf16)
    }),
    alone(RESIDENT, "steps", || resident(500)),
];

const RESIDENT: &str = "resident";

impl Case {
    /// Returns the case with this name.
    ///
    /// # Errors
    /// Returns an error if the name is unknown.
    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        let found = CASES.iter().find(|case| case.name == name);
        found.with_context(|| {
            format!("`{name}` is not a case or point; list them with --list or --list-scaling")
        })
    }

    /// Returns whether the first repetition is discarded. Cases with hundreds of steps measure
    /// their own start-up.
    pub fn warms_up(&self) -> bool {
        self.name != RESIDENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_limits_are_cases() {
        for (i, case) in CASES.iter().enumerate() {
            assert!(CASES[..i].iter().all(|other| other.name != case.name), "{}", case.name);
            if let Some(limit) = case.limit {
                assert_eq!(Case::named(limit).unwrap().unit, "FLOP");
            }
        }
        let error = Case::named("sampling").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`sampling` is not a case or point; list them with --list or --list-scaling"
        );
    }

    /// The TRL program must implement exactly the cases that are marked with `peer`.
    #[test]
    fn the_peer_has_the_same_cases() {
        let program = include_str!("../peers/bench.py");
        let (_, table) = program.split_once("\nCASES = {").unwrap();
        let (table, _) = table.split_once("\n}").unwrap();
        let theirs: Vec<&str> = table.lines().filter_map(|line| line.split('"').nth(1)).collect();
        let ours: Vec<&str> = CASES.iter().filter(|case| case.peer).map(|case| case.name).collect();
        assert_eq!(theirs, ours);
    }

    #[test]
    fn shapes_of_the_acceptance_tests() {
        assert_eq!((SMALL.1.completions(), SMALL.1.tokens, SMALL.1.group), (64, 48, 8));
        assert_eq!((MEDIUM.1.completions(), MEDIUM.1.tokens), (16, 256));
    }
}
