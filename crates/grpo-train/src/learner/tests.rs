//! Tests of the stages of an update.

use burn::tensor::Device;
use grpo_data::{
    Completion, CompletionParts, Finish, Outcome, Prompt, SampleKey, SampledUnder, Scored,
};
use grpo_model::{Transformer, weights_digest};
use grpo_molecules::MolGptConfig;

use super::*;
use crate::probe::LearnTimes;

/// Returns completions with rewards that no policy sampled.
fn group() -> Group {
    let actions = [&[1, 0][..], &[2, 2, 0], &[1, 2, 3, 0], &[4, 0]];
    let completion = |(sample, actions): (usize, &&[u32])| {
        Completion::new(CompletionParts {
            prefix: Default::default(),
            ids: [&[0], *actions].concat(),
            action_mask: (0..=actions.len()).map(|position| position > 0).collect(),
            sampling_logprobs: None,
            finish: Finish::EndToken,
            key: SampleKey { seed: 1, step: 0, prompt: 0, sample: sample as u32 },
            policy_version: 0,
            sampled_under: SampledUnder::default(),
        })
    };
    let completions = actions.iter().enumerate().map(completion);
    let mut group = Group::new(Prompt::of_ids(0, vec![0]), completions);
    for (sample, reward) in group.samples.iter_mut().zip([0.2, 0.9, 0.5, 0.9]) {
        sample.outcome = Some(Outcome::Scored(Scored::new(vec![(1.0, reward)], Vec::new())));
    }
    group
}

fn learner(loss: &str, checkpointing: bool) -> Learner<Transformer> {
    let model = MolGptConfig::new(5, 16, 1, 2, 8).to_config().unwrap();
    let device = Device::flex().autodiff();
    let mut config: GrpoConfig = toml::from_str(&format!(
        "train = {{ steps = 1, prompts_per_step = 1, group_size = 4, activation_checkpointing = {checkpointing} }}\nsampling = {{ max_new_tokens = 6 }}\noptimizer = {{ learning_rate = 1e-2, weight_decay = 0.0 }}\nloss = {{ {loss} }}",
    ))
    .unwrap();
    config.sampler_check.tolerance = 1e9;
    let policy = Transformer::random(&model, 3, &device).unwrap();
    // The reference differs from the policy.
    let reference = Frozen::snapshot(&Transformer::random(&model, 4, &device).unwrap());
    Learner::new(policy, reference, &config).unwrap()
}

const PENALIZED: &str =
    "preset = \"dr_grpo\", kl_coef = 0.1, kl_placement = \"reward\", kl_estimator = \"k1\"";

/// The loss uses the graph that the penalty was computed with. Computed again, it is the same.
#[test]
fn a_kept_graph_does_not_change_the_update() {
    let group = group();
    let exact = PENALIZED.replace("k1", "exact");
    for (loss, checkpointing) in [(PENALIZED, false), (PENALIZED, true), (&*exact, false)] {
        let digest = |discards: bool| {
            let mut learner = learner(loss, checkpointing);
            let (mut groups, mut times) = ([group.clone()], LearnTimes::default());
            let batches = learner.micro_batches(&groups).unwrap();
            let mut batches = learner.compare_groups(&mut groups, batches).unwrap().batches;
            if discards {
                batches.iter_mut().for_each(|batch| batch.state.discard_scores());
            }
            for _update in 0..2 {
                let mut loss = learner.loss();
                let pass = learner.gradients(&groups, &mut batches, &mut loss, &mut times).unwrap();
                learner.update(pass, Vec::new(), 1e-2).unwrap();
            }
            weights_digest(learner.policy())
        };
        assert_eq!(digest(false), digest(true), "{loss} {checkpointing}");
    }
}
