//! GRPO on molecules in one file: what `grpo train` does in a step, with `grpo-core`, `grpo-model` and the sampler called
//! directly. Read it from top to bottom; run it with `cargo run --example one_file`.
//!
//! A small transformer with first values learns to write drug-like molecules as SMILES. There is no file, no
//! configuration and no micro-batch here; otherwise nothing is dropped, and a test holds the weights of the first steps
//! equal to those of the trainer, bit for bit.

use std::error::Error;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use grpo_core::{
    AdvantageConfig, BatchTotals, LossConfig, LossInputs, Preset, group_advantages, grpo_loss,
};
use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::{Head, SamplingSettings, Scores, Targets, score};
use grpo_model::{
    Dropout, Frozen, LanguageModel, ModelConfig, MolGptConfig, TokenBatch, Transformer,
};
use grpo_rollout::{Autoregressive, Rollout, RolloutSettings, StepKey};
use grpo_train::{Decayed, Optimizer, OptimizerConfig};

/// The vocabulary. Token 0 begins a molecule and ends it.
pub(crate) const TOKENS: [&str; 10] = ["", "C", "c", "N", "O", "F", "=", "(", ")", "1"];
/// The id of the token that begins and ends a molecule.
pub(crate) const BOUNDARY: u32 = 0;
/// Prompts of a step. All are alike here: the boundary alone.
pub(crate) const PROMPTS: u32 = 4;
/// Completions of each prompt (k), which are compared with one another.
pub(crate) const GROUP_SIZE: usize = 32;
/// Optimizer steps on the completions of a step (μ).
pub(crate) const UPDATES: u32 = 2;
/// Longest completion in tokens.
pub(crate) const MAX_NEW_TOKENS: usize = 16;
/// Weight of the KL penalty (β).
pub(crate) const KL_COEF: f64 = 0.01;
/// Seed of the weights and of all draws.
pub(crate) const SEED: u64 = 7;

/// AdamW and the norm that gradients are clipped to.
pub(crate) const OPTIMIZER: OptimizerConfig = OptimizerConfig {
    learning_rate: 3e-3,
    betas: [0.9, 0.95],
    epsilon: 1e-8,
    weight_decay: 0.0,
    weight_decay_on: Decayed::Linear,
    max_grad_norm: 1.0,
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

/// A transformer of one block with first values.
pub(crate) fn first_policy() -> Result<Transformer, Box<dyn Error>> {
    let config = ModelConfig::molgpt(&MolGptConfig::new(TOKENS.len(), 32, 1, 2, 32))?;
    Ok(Transformer::random(&config, SEED, &Device::flex().autodiff())?)
}

/// The molecule that token ids stand for.
pub(crate) fn decode(ids: &[u32]) -> String {
    ids.iter().map(|&id| TOKENS[id as usize]).collect()
}

/// The reward: drug-likeness (QED) of a molecule, 0 for a string that is none.
pub(crate) fn reward(smiles: &str) -> f64 {
    grpo_chem::qed_and_sa(smiles).map_or(0.0, |scores| scores.qed)
}

/// The loss of GRPO with a KL penalty.
fn loss_config() -> LossConfig {
    let mut loss = Preset::Grpo.config();
    loss.kl.coef = KL_COEF;
    loss
}

/// Trains for so many steps; `report` gets the step, its mean reward and one of its molecules.
pub(crate) fn train(
    steps: u32,
    mut report: impl FnMut(u32, f64, &str),
) -> Result<Transformer, Box<dyn Error>> {
    let mut policy = first_policy()?;
    // π_ref: the policy as it is now, off the tape for good.
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
        // 1. Rollout: groups of completions o_i ~ π_old(· | q). Every token has a random number of its own, named by this
        //    key, the prompt, the sample and the position: the step can be repeated exactly.
        let key =
            StepKey { seed: SEED, purpose: Purpose::Sampling, step, policy_version: updates_done };
        let groups = sampler.sample(&Frozen::snapshot(&policy), &prompts, key)?;

        // 2. Rewards r_i.
        let text = |completion: &Completion| decode(&completion.text_ids());
        let rewards = |group: &Group| -> Vec<Option<f64>> {
            group.completions().map(|completion| Some(reward(&text(completion)))).collect()
        };
        let rewards: Vec<Vec<Option<f64>>> = groups.iter().map(rewards).collect();

        // 3. Advantages Â_i = (r_i − mean of the group) / (its standard deviation + ε).
        let advantages = group_advantages(&rewards, &AdvantageConfig::default())?;
        let mean_reward = advantages.reward.mean;
        let advantages = advantages.groups.concat();

        // 4. All completions packed one behind the other, without padding.
        let completions: Vec<&Completion> = groups.iter().flat_map(Group::completions).collect();
        let batch = Packed::new(&completions);
        let totals = BatchTotals {
            sequences: completions.len(),
            tokens: batch.sequence_of.len(),
            max_completion_length: MAX_NEW_TOKENS,
            high_entropy: None,
        };

        // 5. log π_ref of every token.
        let of_reference = batch.score(reference.hidden(&batch.tokens, None), &reference.head());
        let ref_logprobs = host(of_reference.logprobs);

        // 6. μ updates. In the first one π_θ is π_old: every ratio is 1, and only its derivative counts.
        let mut old_logprobs: Option<Vec<f64>> = None;
        for _update in 0..UPDATES {
            let hidden = policy.hidden(&batch.tokens, None, &mut Dropout::off());
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

/// Completions as the model reads them.
struct Packed {
    /// All but the last token of each.
    tokens: TokenBatch,
    /// The rows of `tokens` that predict sampled tokens: the one in front of each, `[n]`.
    rows: Vec<usize>,
    /// The sampled tokens, `[n]`.
    targets: Targets,
    /// The completion that each sampled token belongs to, `[n]`.
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

    /// `log π` and entropy of each sampled token, from hidden states `[tokens, width]`.
    fn score(&self, hidden: Tensor<2>, head: &Head) -> Scores {
        let rows = indices(self.rows.iter().copied(), &hidden.device());
        score(gather_rows(hidden, rows), head, &self.targets)
    }
}

fn host(tensor: Tensor<1>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
