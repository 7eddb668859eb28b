//! An extension of the steps, registered from outside: a curriculum that pays for short completions
//! more and more. Run it with `cargo run --example extension`.

use std::error::Error;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{Bonus, Outcome, Scored};
use grpo_model::{Frozen, Transformer};
use grpo_molecules::MolGptConfig;
use grpo_rewards::{Reward, RewardInput};
use grpo_train::{
    Grpo, GrpoConfig, MetricSpec, Metrics, NextTokens, Parts, ScoredStep, StepExtension,
    TrainError, unconditional_prompts,
};

static METRICS: [MetricSpec; 3] = [
    MetricSpec::new("short_completions/weight", "≥ 0", "weight of the penalty"),
    MetricSpec::new("short_completions/mean", "≤ 0", "mean of the penalty"),
    MetricSpec::new("short_completions/std", "≥ 0", "its standard deviation"),
];

/// Adds `-weight · length` to the reward, where the weight rises over the first steps.
pub(crate) struct ShortCompletions {
    pub(crate) weight: f64,
    pub(crate) steps: u32,
}

impl<M> StepExtension<M> for ShortCompletions {
    fn name(&self) -> &'static str {
        "short_completions"
    }

    // The penalty is a reward term: its mean, deviation and share are measured without further code.
    fn sets_bonus(&self) -> bool {
        true
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
        let progress = f64::from(step.step + 1) / f64::from(self.steps);
        let weight = self.weight * progress.min(1.0);
        for sample in step.groups.iter_mut().flat_map(|group| &mut group.samples) {
            let length = sample.completion.actions() as f64;
            sample.bonus = sample.reward().map(|_| Bonus { weight, value: -length });
        }
        step.added.metrics.push(("short_completions/weight", weight));
        Ok(())
    }
}

/// Pays for the token 1.
#[derive(Debug)]
struct Ones;

impl Reward for Ones {
    fn parts(&self) -> Vec<grpo_data::PartName> {
        vec!["ones".into()]
    }

    fn score(&self, inputs: &[RewardInput]) -> Vec<Outcome> {
        let ones = |input: &RewardInput| input.text.matches('1').count() as f64;
        let outcome =
            |ones| Outcome::Scored(Scored::new(vec![(1.0, ones)], vec![("ones".into(), ones)]));
        inputs.iter().map(|input| outcome(ones(input))).collect()
    }
}

/// Trains for `steps` steps with the extension. `report` is called with the metrics of each.
pub(crate) fn train(
    steps: u32,
    extension: ShortCompletions,
    mut report: impl FnMut(&Metrics),
) -> Result<(), Box<dyn Error>> {
    let (tokens, boundary, seed) = (5, 0, 3);
    let config: GrpoConfig = toml::from_str(
        "[train]\nsteps = 2\nprompts_per_step = 2\ngroup_size = 8\n[sampling]\nmax_new_tokens = 8\n\
         [loss]\nkl_coef = 0.01\n[optimizer]\nlearning_rate = 1e-2",
    )?;
    let sizes = MolGptConfig::new(tokens, 16, 1, 2, 16);
    let device = Device::flex().autodiff();
    let policy = Transformer::random(&sizes.to_config()?, seed, &device)?;
    let parts = Parts {
        reference: Frozen::snapshot(&policy),
        policy,
        engine: Arc::new(NextTokens { end_ids: vec![boundary] }),
        reward: Arc::new(Ones),
        extensions: vec![Box::new(extension)],
        longest_prompt: 1,
        epoch: None,
        decode: Arc::new(|ids| ids.iter().map(u32::to_string).collect()),
    };
    let mut grpo = Grpo::new(parts, config, seed)?;
    for step in 0..steps {
        let done = grpo.step(&unconditional_prompts(2, boundary), step)?;
        report(&Metrics::of(&done, 0));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    train(2, ShortCompletions { weight: 0.1, steps: 2 }, |metrics| {
        for name in ["step", "reward", "short_completions/weight", "short_completions/mean"] {
            println!("{name:<26} {:.3}", metrics.get(name).unwrap_or(f64::NAN));
        }
    })
}
