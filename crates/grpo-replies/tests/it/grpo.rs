//! Tests for GRPO steps on replies with the heuristic reward.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{Finish, Prompt, Sample};
use grpo_model::{Adapted, Adapter, LanguageModel, LoraConfig, Policy, StoredTensors};
use grpo_rewards::{Reward, RewardRegistry};
use grpo_train::{Decode, Grpo, GrpoConfig, unconditional_prompts};

use crate::support::{SEED, config, distance, model, parameters, pattern, rewarded, vocabulary};

/// Maps every id except the end token to a word.
fn words() -> Decode {
    const WORDS: [&str; 7] = ["garden", "great!", "rain", "why?", "lovely", "tomatoes", "today."];
    Arc::new(|ids| {
        let end = vocabulary().boundary();
        let ids = ids.iter().filter(|id| **id != end);
        let words: Vec<&str> = ids.map(|id| WORDS[*id as usize % WORDS.len()]).collect();
        words.join(" ")
    })
}

fn heuristic() -> Arc<dyn Reward> {
    let section = toml::toml! {
        type = "heuristic"
        embedder = { type = "hashed_ngrams", width = 64 }
    };
    let registry = RewardRegistry::default().with(grpo_replies::reward_kinds());
    registry.parse(section).unwrap().build(&Device::flex()).unwrap()
}

/// Creates a policy with a trainable adapter.
fn grpo(reward: Arc<dyn Reward>, config: GrpoConfig) -> Grpo<Policy> {
    let base = model(vocabulary().len(), 2.0);
    let lora = LoraConfig { rank: 3, alpha: 3.0, ..LoraConfig::default() };
    let adapter = Adapter::random(&lora, &base, 1, &base.device()).unwrap();
    let policy = Policy::Adapted(Adapted::new(&base, adapter));
    rewarded(reward, policy, config, SEED, vocabulary().boundary(), words()).unwrap()
}

fn prompts() -> Vec<Prompt> {
    let tweets =
        ["The rain is great for my garden!", "Why is everybody so sad today?", "Tomatoes."];
    let mut prompts = unconditional_prompts(3, vocabulary().boundary());
    for (prompt, tweet) in prompts.iter_mut().zip(tweets) {
        prompt.fields.insert("tweet".to_owned(), tweet.into());
    }
    prompts
}

/// Regression test: the original implementation computed its loss without gradients, so the model
/// did not change.
#[test]
fn the_reward_of_replies_moves_the_adapter_and_no_bit_of_its_base() {
    let mut grpo = grpo(heuristic(), config());
    let base = StoredTensors::of(grpo.policy().parts().0).read();
    for step in 0..2 {
        let before = parameters(grpo.policy());
        let report = grpo.step(&prompts(), step).unwrap();
        assert!(report.samples().all(|s| s.outcome.as_ref().unwrap().part("relevance").is_some()));
        assert!(report.learned.grad_norm() > 1e-4, "{}", report.learned.grad_norm());
        assert!(distance(&parameters(grpo.policy()), &before) > 1e-4, "step {step}");
        assert_eq!(StoredTensors::of(grpo.policy().parts().0).read(), base, "step {step}");
    }
    // If all rewards are equal, the adapter does not change.
    let mut config = config();
    config.optimizer.weight_decay = 0.0;
    let mut indifferent = self::grpo(pattern(""), config);
    let before = parameters(indifferent.policy());
    indifferent.step(&prompts(), 0).unwrap();
    assert_eq!(parameters(indifferent.policy()), before);
}

/// Regression test: the original implementation replaced empty replies with a polite sentence and
/// rewarded its tokens.
#[test]
fn an_empty_reply_gets_nothing_and_is_what_was_sampled() {
    let mut config = config();
    config.train.group_size = 64;
    let mut grpo = grpo(heuristic(), config);
    grpo.set_recording(true);
    let report = grpo.step(&prompts(), 0).unwrap();
    let end = vocabulary().boundary();
    let mut empty = 0;
    for Sample { completion, text, outcome, advantage, trace, .. } in report.samples() {
        let is_empty = completion.action_ids().eq([end]);
        assert_eq!(text.is_empty(), is_empty);
        let total = outcome.as_ref().unwrap().total().unwrap();
        if is_empty {
            empty += 1;
            assert_eq!((total, completion.finish()), (0.0, Finish::EndToken));
            // The only token, the end token, is trained like any other token. Its probability is
            // reduced.
            assert!(*advantage < 0.0, "{advantage}");
            let gradients = &trace.as_ref().unwrap().numbers["gradients"];
            assert_eq!(gradients.len(), 1);
            assert!(gradients[0] > 0.0, "{gradients:?}");
        } else {
            assert!(total > 0.0, "{text}");
        }
    }
    assert!(empty > 0, "no reply is empty");
}
