//! All cases, by name. docs/benchmarks.md says what each is for.

use anyhow::Context;
use serde::Serialize;

use crate::case::Measured;
use crate::kinds::encoder::Encoder;
use crate::kinds::learning::Learning;
use crate::kinds::lengths::Lengths;
use crate::kinds::matmul::Matmul;
use crate::kinds::prefill::Prefill;
use crate::kinds::resident::Resident;
use crate::kinds::rewards::Rewards;
use crate::kinds::sampling::{Sampling, Shape};
use crate::kinds::step::Step;
use crate::kinds::training::Training;
use crate::models::{Model, Size};

/// A thing that is measured; as JSON, what `cargo xtask bench` needs to know of it.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What the work of a repetition is counted in.
    pub(crate) unit: &'static str,
    /// Whether tests/peers/trl/bench.py measures the same.
    pub(crate) peer: bool,
    /// The case whose rate is the limit of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<&'static str>,
    /// Whether it takes seconds, not minutes.
    pub(crate) quick: bool,
    #[serde(skip)]
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Matmul { size: Size, rows: usize },
    Sampling { model: Model, shape: Shape },
    Lengths { model: Model, lengths: Lengths },
    Prefill { model: Model, group: usize },
    Training { model: Model, rows: usize, tokens: usize, steps: usize },
    Learning { model: Model, lengths: Lengths },
    Step { model: Model, shape: Shape, steps: u32 },
    Rewards,
    ReplyRewards,
    Encoder { texts: usize, tokens: usize },
    Resident { steps: u32 },
}

const fn small(context: usize) -> Model {
    Model { size: Size::Small, context }
}
const MEDIUM: Model = Model { size: Size::Medium, context: 256 };

/// Groups of 8 after the beginning mark.
const fn groups(prompts: usize, tokens: usize) -> Shape {
    Shape { prompts, prompt_tokens: 1, group: 8, tokens }
}

const fn with_peer(name: &'static str, unit: &'static str, kind: Kind) -> Case {
    let (limit, quick) = match kind {
        Kind::Sampling { model: Model { size: Size::Medium, .. }, .. }
        | Kind::Training { model: Model { size: Size::Medium, .. }, .. } => {
            (Some("matmul-medium"), false)
        }
        Kind::Matmul { .. } => (None, true),
        _ => (Some("matmul-small"), true),
    };
    Case { name, unit, peer: true, limit, quick, kind }
}

const fn ours(name: &'static str, unit: &'static str, quick: bool, kind: Kind) -> Case {
    Case { name, unit, peer: false, limit: None, quick, kind }
}

/// Batches of 48 tokens.
const fn sampling_batch(name: &'static str, completions: usize) -> Case {
    ours(
        name,
        "tokens",
        false,
        Kind::Sampling { model: small(64), shape: groups(completions / 8, 48) },
    )
}

/// 16 completions.
const fn sampling_tokens(name: &'static str, tokens: usize) -> Case {
    ours(name, "tokens", false, Kind::Sampling { model: small(512), shape: groups(2, tokens) })
}

/// Batches of 48 tokens.
const fn training_batch(name: &'static str, rows: usize) -> Case {
    ours(name, "tokens", false, Kind::Training { model: small(64), rows, tokens: 48, steps: 2 })
}

/// Batches of 16.
const fn training_tokens(name: &'static str, tokens: usize) -> Case {
    ours(name, "tokens", false, Kind::Training { model: small(512), rows: 16, tokens, steps: 1 })
}

/// In the order in which they are measured.
pub(crate) const CASES: &[Case] = &[
    with_peer("matmul-small", "FLOP", Kind::Matmul { size: Size::Small, rows: 64 * 48 }),
    with_peer("matmul-medium", "FLOP", Kind::Matmul { size: Size::Medium, rows: 8 * 256 }),
    with_peer(
        "sampling-small",
        "tokens",
        Kind::Sampling { model: small(64), shape: groups(8, 48) },
    ),
    with_peer(
        "training-small",
        "tokens",
        Kind::Training { model: small(64), rows: 64, tokens: 48, steps: 4 },
    ),
    with_peer(
        "step-small",
        "steps",
        Kind::Step { model: small(64), shape: groups(8, 48), steps: 2 },
    ),
    with_peer("sampling-medium", "tokens", Kind::Sampling { model: MEDIUM, shape: groups(2, 256) }),
    with_peer(
        "training-medium",
        "tokens",
        Kind::Training { model: MEDIUM, rows: 8, tokens: 256, steps: 1 },
    ),
    ours(
        "step-medium",
        "steps",
        false,
        Kind::Step { model: MEDIUM, shape: groups(2, 256), steps: 1 },
    ),
    ours("rewards", "molecules", true, Kind::Rewards),
    ours("rewards-replies", "replies", true, Kind::ReplyRewards),
    ours("encoder", "texts", true, Kind::Encoder { texts: 256, tokens: 24 }),
    ours("prefill-alone", "prompts", true, Kind::Prefill { model: small(256), group: 1 }),
    ours("prefill-shared", "prompts", true, Kind::Prefill { model: small(256), group: 8 }),
    ours(
        "sampling-equal",
        "tokens",
        false,
        Kind::Lengths { model: small(256), lengths: Lengths::Equal },
    ),
    ours(
        "sampling-ragged",
        "tokens",
        false,
        Kind::Lengths { model: small(256), lengths: Lengths::Ragged },
    ),
    ours(
        "learning-equal",
        "tokens",
        false,
        Kind::Learning { model: small(256), lengths: Lengths::Equal },
    ),
    ours(
        "learning-ragged",
        "tokens",
        false,
        Kind::Learning { model: small(256), lengths: Lengths::Ragged },
    ),
    sampling_batch("sampling-batch-8", 8),
    sampling_batch("sampling-batch-16", 16),
    sampling_batch("sampling-batch-32", 32),
    sampling_batch("sampling-batch-64", 64),
    sampling_batch("sampling-batch-128", 128),
    sampling_tokens("sampling-tokens-64", 64),
    sampling_tokens("sampling-tokens-128", 128),
    sampling_tokens("sampling-tokens-256", 256),
    sampling_tokens("sampling-tokens-512", 512),
    training_batch("training-batch-8", 8),
    training_batch("training-batch-16", 16),
    training_batch("training-batch-32", 32),
    training_batch("training-batch-64", 64),
    training_batch("training-batch-128", 128),
    training_tokens("training-tokens-64", 64),
    training_tokens("training-tokens-128", 128),
    training_tokens("training-tokens-256", 256),
    training_tokens("training-tokens-512", 512),
    ours("resident", "steps", false, Kind::Resident { steps: 500 }),
];

impl Case {
    /// The case of this name.
    pub(crate) fn named(name: &str) -> anyhow::Result<&'static Self> {
        let found = CASES.iter().find(|case| case.name == name);
        found.with_context(|| format!("there is no case `{name}`; --list shows all"))
    }

    /// Whether a first repetition is thrown away. What is measured over hundreds of steps sees its own beginning.
    pub(crate) fn warms_up(&self) -> bool {
        !matches!(self.kind, Kind::Resident { .. })
    }

    /// Builds all that a repetition needs.
    pub(crate) fn prepare(&self) -> anyhow::Result<Box<dyn Measured>> {
        Ok(match self.kind {
            Kind::Matmul { size, rows } => Box::new(Matmul::new(size, rows)),
            Kind::Sampling { model, shape } => Box::new(Sampling::new(model, shape)?),
            Kind::Lengths { model, lengths } => {
                Box::new(Sampling::of_lengths(model, 8, 64, lengths.of(128))?)
            }
            Kind::Prefill { model, group } => Box::new(Prefill::new(model, 4, 200, group)?),
            Kind::Training { model, rows, tokens, steps } => {
                Box::new(Training::new(model, rows, tokens, steps)?)
            }
            Kind::Learning { model, lengths } => Box::new(Learning::new(model, 8, 8, lengths)?),
            Kind::Step { model, shape, steps } => Box::new(Step::new(model, shape, steps)?),
            Kind::Rewards => Box::new(Rewards::molecules()?),
            Kind::ReplyRewards => Box::new(Rewards::replies()?),
            Kind::Encoder { texts, tokens } => Box::new(Encoder::new(texts, tokens)?),
            Kind::Resident { steps } => Box::new(Resident::new(steps)?),
        })
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
                assert!(matches!(Case::named(limit).unwrap().kind, Kind::Matmul { .. }));
            }
        }
        let error = Case::named("sampling").unwrap_err();
        assert_eq!(error.to_string(), "there is no case `sampling`; --list shows all");
    }

    /// The other side's program has these cases and no others.
    #[test]
    fn the_peer_has_the_same_cases() {
        let program = include_str!("../../../tests/peers/trl/bench.py");
        let (_, table) = program.split_once("\nCASES = {").unwrap();
        let (table, _) = table.split_once("\n}").unwrap();
        let theirs: Vec<&str> = table.lines().filter_map(|line| line.split('"').nth(1)).collect();
        let ours: Vec<&str> = CASES.iter().filter(|case| case.peer).map(|case| case.name).collect();
        assert_eq!(theirs, ours);
    }

    /// What the acceptance tests ask for: 64 × 48 tokens in groups of 8, and 16 × 256.
    #[test]
    fn shapes_of_the_acceptance_tests() {
        let shape = |name| match Case::named(name).unwrap().kind {
            Kind::Sampling { shape, .. } | Kind::Step { shape, .. } => {
                (shape.completions(), shape.tokens, shape.group)
            }
            kind => panic!("{kind:?}"),
        };
        assert_eq!(shape("sampling-small"), (64, 48, 8));
        assert_eq!(shape("step-small"), (64, 48, 8));
        assert_eq!(shape("sampling-medium").0, 16);
        assert_eq!(shape("sampling-medium").1, 256);
    }
}
