//! An episode of two turns, registered from outside: the policy guesses a number, is told whether the secret
//! is higher or lower, and guesses again. Run it with `cargo run --example two_turns`.

use std::error::Error;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{Completion, Outcome, Prompt, Scored};
use grpo_model::{Frozen, Transformer};
use grpo_molecules::MolGptConfig;
use grpo_rewards::{Reward, RewardInput};
use grpo_rollout::{Episode, EpisodeFactory, Next, RolloutError};
use grpo_train::{Grpo, GrpoConfig, Metrics, NextTokens, Parts, StepReport, unconditional_prompts};

/// The token in front of the first guess. The numbers are 1 to 4.
const BEGIN: u32 = 0;
pub(crate) const LOWER: u32 = 5;
pub(crate) const HIGHER: u32 = 6;

/// Answers the first guess, unless it is right.
#[derive(Debug)]
pub(crate) struct Hints {
    pub(crate) secret: u32,
}

impl Episode for Hints {
    fn max_turns(&self) -> usize {
        2
    }

    fn max_observation(&self) -> usize {
        1
    }

    fn next(
        &self,
        _prompt: &Prompt,
        so_far: &Completion,
        _turn: usize,
    ) -> Result<Next, RolloutError> {
        let guess = so_far.action_ids().last().expect("a turn has an action");
        Ok(match guess {
            right if right == self.secret => Next::Done,
            low if low < self.secret => Next::Observe(vec![HIGHER]),
            _ => Next::Observe(vec![LOWER]),
        })
    }
}

/// Pays 1 for a right first guess and 0.5 for a right second one. It reads the whole dialogue.
#[derive(Debug)]
struct Right {
    secret: u32,
}

impl Reward for Right {
    fn score(&self, inputs: &[RewardInput]) -> Vec<Outcome> {
        let secret = self.secret.to_string();
        let value = |input: &RewardInput| match input.text.split(' ').collect::<Vec<_>>()[..] {
            [first] if first == secret => 1.0,
            [_, _, second] if second == secret => 0.5,
            _ => 0.0,
        };
        let outcome = |value| Outcome::Scored(Scored::new(vec![(1.0, value)], Vec::new()));
        inputs.iter().map(|input| outcome(value(input))).collect()
    }

    fn parts(&self) -> Vec<grpo_data::PartName> {
        Vec::new()
    }
}

/// Trains for `steps` steps. `report` is called with each of them.
pub(crate) fn train(
    steps: u32,
    secret: u32,
    mut report: impl FnMut(&StepReport),
) -> Result<(), Box<dyn Error>> {
    let seed = 3;
    // Each turn is one token.
    let config: GrpoConfig = toml::from_str(
        "[train]\nsteps = 2\nprompts_per_step = 2\ngroup_size = 16\n[sampling]\nmax_new_tokens = 1\n\
         [loss]\nkl_coef = 0.01\n[optimizer]\nlearning_rate = 1e-2",
    )?;
    let sizes = MolGptConfig::new(7, 16, 1, 2, 16);
    let device = Device::flex().autodiff();
    let policy = Transformer::random(&sizes.to_config()?, seed, &device)?;
    let turns = Arc::new(NextTokens { end_ids: Vec::new() });
    let parts = Parts {
        reference: Frozen::snapshot(&policy),
        policy,
        engine: Arc::new(EpisodeFactory::new(turns, Arc::new(Hints { secret }))),
        reward: Arc::new(Right { secret }),
        extensions: Vec::new(),
        longest_prompt: 1,
        epoch: None,
        decode: Arc::new(|ids| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
    };
    let mut grpo = Grpo::new(parts, config, seed)?;
    for step in 0..steps {
        report(&grpo.step(&unconditional_prompts(2, BEGIN), step)?);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    train(2, 3, |done| {
        let metrics = Metrics::of(done, 0);
        println!("reward {:.3}", metrics.get("reward").unwrap_or(f64::NAN));
    })
}
