//! GRPO on molecules in a single file. It does what `grpo train` does in one step, but calls
//! `grpo-core`, `grpo-model` and the sampler directly. The code can be read from top to bottom. Run
//! it with `cargo run --example one_file`.
//!
//! A small, randomly initialised transformer learns to write drug-like molecules as SMILES. To keep
//! the example short, there are no files, configuration or micro-batches. Everything else is
//! complete: a test checks that the first steps produce exactly the same weights as the trainer.

use std::error::Error;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use grpo_core::{
    AdvantageConfig, BatchTotals, LossConfig, LossInputs, Preset, group_advantages, grpo_loss,
};
use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::{Head, SamplingSettings, Scores, Targets, score};
use grpo_model::{Dropout, Frozen, LanguageModel, TokenBatch, Transformer};
use grpo_molecules::MolGptConfig;
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey};
use grpo_train::{Optimizer, OptimizerConfig};

/// Vocabulary. Token 0 marks both the start and the end of a molecule.
pub(crate) const TOKENS: [&str; 10] = ["", "C", "c", "N", "O", "F", "=", "(", ")", "1"];
/// Id of the token that marks the start and end of a molecule.
pub(crate) const BOUNDARY: u32 = 0;
/// Number of prompts per step. Here, every prompt consists of just the boundary token.
pub(crate) const PROMPTS: u32 = 4;
/// Number of completions per prompt (k). They are compared with each other.
pub(crate) const GROUP_SIZE: usize = 32;
/// Number of optimizer steps per rollout (μ).
pub(crate) const UPDATES: u32 = 2;
/// Maximum completion length in tokens.
pub(crate) const MAX_NEW_TOKENS: usize = 16;
/// KL penalty coefficient (β).
pub(crate) const KL_COEF: f64 = 0.01;
/// Seed for the initial weights and for sampling.
pub(crate) const SEED: u64 = 7;

/// AdamW settings and the gradient clipping norm.
pub(crate) const OPTIMIZER: OptimizerConfig = OptimizerConfig {
    betas: [0.9, 0.95],
    epsilon: 1e-8,
    weight_decay: 0.0,
    max_grad_norm: 1.0,
    ..OptimizerConfig::new(3e-3)
};

#[expect(clippy::print_stdout, reason = "an example prints what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    train(60, |step, reward, example| {
        if step % 10 == 0 {
            println!("step {step:>3}: mean reward {reward:.3}, for example {example}");
        }
    })?;
    Ok(())
}

/// Creates a randomly initialised transformer with a single block.
pub(crate) fn first_policy() -> Result<Transformer, Box<dyn Error>> {
    let config = MolGptConfig::new(TOKENS.len(), 32, 1, 2, 32).to_config()?;
    Ok(Transformer::random(&config, SEED, &Device::flex().autodiff())?)
}

/// Converts token ids to a SMILES string.
pub(crate) fn decode(ids: &[u32]) -> String {
    ids.iter().map(|&id| TOKENS[id as usize]).collect()
}

/// Reward function: drug-likeness (QED), or 0 if the SMILES is invalid.
pub(crate) fn reward(smiles: &str) -> f64 {
    grpo_chem::qed_and_sa(smiles).map_or(0.0, |scores| scores.qed)
}

/// GRPO loss with a KL penalty.
fn loss_config() -> LossConfig {
    let mut loss = Preset::Grpo.config();
    loss.kl.coef = KL_COEF;
    loss
}

/// Trains for `steps` steps. After each step, `report` is called with the step number, the mean
/// reward and an example molecule.
pub(crate) fn train(
    steps: u32,
    mut report: impl FnMut(u32, f64, &str),
) -> Result<Transformer, Box<dyn Error>> {
    let mut policy = first_policy()?;
    // π_ref: the initial policy, detached from autodiff.
    let reference = Frozen::snapshot(&policy);
    let mut optimizer = Optimizer::new(&policy, &OPTIMIZER);
    let loss = loss_config().checked()?;
    let sampler = Autoregressive::new(
        RolloutSettings {
            group_size: GROUP_SIZE,
            max_new_tokens: MAX_NEW_TOKENS,
            end_ids: vec![BOUNDARY],
            distribution: SamplingSettings::default().checked(TOKENS.len())?,
            batch_size: 256,
        },
        &policy,
        1,
    )?;
    let prompts: Vec<Prompt> =
        (0..PROMPTS).map(|index| Prompt::of_ids(index, vec![BOUNDARY])).collect();
    let mut updates_done = 0;

    for step in 0..steps {
        // 1. Rollout: groups of completions o_i ~ π_old(· | q). Random numbers depend on this key,
        //    the prompt, the sample and the position only, so the step can be reproduced.
        let key =
            StepKey { seed: SEED, purpose: Purpose::SAMPLING, step, policy_version: updates_done };
        let groups = sampler.sample(&Frozen::snapshot(&policy), &prompts, key)?;

        // 2. Rewards r_i.
        let text = |completion: &Completion| decode(&completion.text_ids());
        let rewards = |group: &Group| -> Vec<Option<f64>> {
            group.completions().map(|completion| Some(reward(&text(completion)))).collect()
        };
        let rewards: Vec<Vec<Option<f64>>> = groups.iter().map(rewards).collect();

        // 3. Advantages Â_i = (r_i − group mean) / (group standard deviation + ε).
        let advantages = group_advantages(&rewards, &AdvantageConfig::default())?;
        let mean_reward = advantages.reward.mean;
        let advantages = advantages.groups.concat();

        // 4. Pack all completions one after another, without padding.
        let completions: Vec<&Completion> = groups.iter().flat_map(Group::completions).collect();
        let batch = Packed::new(&completions);
        let totals = BatchTotals {
            sequences: completions.len(),
            tokens: batch.sequence_of.len(),
            max_completion_length: MAX_NEW_TOKENS,
            high_entropy: None,
        };

        // 5. log π_ref for each token.
        let of_reference = batch.score(reference.hidden(&batch.tokens), &reference.head());
        let ref_logprobs = host(of_reference.logprobs);

        // 6. μ updates. In the first update, π_θ equals π_old, so all ratios are 1 and only their
        //    derivatives matter.
        let mut old_logprobs: Option<Vec<f64>> = None;
        for _update in 0..UPDATES {
            let hidden = policy.hidden(&batch.tokens, &mut Dropout::off());
            let Scores { logprobs, entropies } = batch.score(hidden, &policy.head());
            let inputs = LossInputs {
                old_logprobs: old_logprobs.as_deref(),
                ref_logprobs: Some(&ref_logprobs),
                entropies: Some(entropies),
                ..LossInputs::on_policy(logprobs, &batch.sequence_of, &advantages)
            };
            let output = grpo_loss(&inputs, &loss, &totals);
            let first = output.terms.tokens().map(|token| token.logprob);
            old_logprobs.get_or_insert_with(|| first.collect());
            let gradients = GradientsParams::from_grads(output.loss.backward(), &policy);
            (policy, _) = optimizer.step(policy, gradients, OPTIMIZER.learning_rate)?;
            updates_done += 1;
        }
        report(step, mean_reward, &text(completions[0]));
    }
    Ok(policy)
}

/// Completions packed into model inputs.
struct Packed {
    /// Completion tokens except the last one.
    tokens: TokenBatch,
    /// Rows of `tokens` that predict a sampled token, i.e. the positions just before each of them,
    /// `[n]`.
    rows: Vec<usize>,
    /// Sampled tokens, `[n]`.
    targets: Targets,
    /// Completion index for each sampled token, `[n]`.
    sequence_of: Vec<usize>,
}

impl Packed {
    fn new(completions: &[&Completion]) -> Self {
        let (mut tokens, mut rows) = (TokenBatch::new(), vec![]);
        let (mut sampled, mut sequence_of) = (vec![], vec![]);
        for (i, completion) in completions.iter().enumerate() {
            let read = &completion.ids()[..completion.ids().len() - 1];
            let sequence = tokens.push(read);
            let prompt = read.len() - completion.actions();
            rows.extend(tokens.rows(sequence).skip(prompt));
            sampled.extend(completion.action_ids());
            sequence_of.extend(vec![i; completion.actions()]);
        }
        Self { tokens, rows, targets: Targets::new(sampled, TOKENS.len()), sequence_of }
    }

    /// Returns `log π` and entropy for each sampled token, given hidden states `[tokens, width]`.
    fn score(&self, hidden: Tensor<2>, head: &Head) -> Scores {
        let rows = indices(self.rows.iter().copied(), &hidden.device());
        score(gather_rows(hidden, rows), head, &self.targets)
    }
}

fn host(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
