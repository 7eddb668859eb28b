//! Replies to tweets as an environment with one step per episode.

use std::sync::Arc;

use grpo_data::PromptSource;
use grpo_eval::{Diversity, EmbedError};
use grpo_rewards::{Outcome, Reward, RewardInput};

use crate::ReplyTemplate;

/// An environment in which each action is a complete reply. It combines a reward with the prompts
/// used in training, for programs that implement their own training loop.
///
/// An episode begins with [`Self::reset`] and ends with the first [`Self::step`].
pub struct ReplyEnvironment {
    template: ReplyTemplate,
    reward: Arc<dyn Reward>,
    tweet: Option<String>,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyStep {
    /// The tweet.
    pub tweet: String,
    /// The reply.
    pub reply: String,
    /// Length of the reply in characters.
    pub reply_length: usize,
    /// The reward with its components.
    pub outcome: Outcome,
}

/// Metrics for a set of replies.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyEvaluation {
    /// Mean reward over scored replies, or NaN if none was scored.
    pub mean_reward: f64,
    /// Characters of the shortest reply.
    pub shortest: usize,
    /// Mean number of characters.
    pub mean_length: f64,
    /// Characters of the longest reply.
    pub longest: usize,
    /// Diversity of the replies.
    pub diversity: f64,
}

impl ReplyEnvironment {
    /// Creates an environment.
    pub fn new(template: ReplyTemplate, reward: Arc<dyn Reward>) -> Self {
        Self { template, reward, tweet: None }
    }

    /// Replaces the reward.
    pub fn set_reward(&mut self, reward: Arc<dyn Reward>) {
        self.reward = reward;
    }

    /// Begins an episode and returns the prompt.
    pub fn reset(&mut self, tweet: &str) -> PromptSource {
        self.tweet = Some(tweet.to_owned());
        self.template.prompt(tweet)
    }

    /// Scores a reply and ends the episode. Returns `None` if no episode is active.
    pub fn step(&mut self, reply: &str) -> Option<ReplyStep> {
        let tweet = self.tweet.take()?;
        let outcome = self.score(&[(&tweet, reply)]).pop()?;
        let reply_length = reply.chars().count();
        Some(ReplyStep { tweet, reply: reply.to_owned(), reply_length, outcome })
    }

    /// Uses `sample` to generate `count` replies to the current tweet, and scores them. The episode
    /// continues. Returns an empty list if no episode is active.
    pub fn generate_candidates(
        &self,
        count: usize,
        mut sample: impl FnMut(&PromptSource) -> String,
    ) -> Vec<ReplyStep> {
        let Some(tweet) = &self.tweet else { return Vec::new() };
        let prompt = self.template.prompt(tweet);
        let replies: Vec<String> = (0..count).map(|_| sample(&prompt)).collect();
        let pairs: Vec<(&str, &str)> =
            replies.iter().map(|reply| (tweet.as_str(), reply.as_str())).collect();
        let step = |(outcome, reply): (Outcome, &String)| ReplyStep {
            tweet: tweet.clone(),
            reply: reply.clone(),
            reply_length: reply.chars().count(),
            outcome,
        };
        self.score(&pairs).into_iter().zip(&replies).map(step).collect()
    }

    /// Evaluates (tweet, reply) pairs.
    ///
    /// # Errors
    /// Returns an error if a reply cannot be embedded by `diversity`.
    ///
    /// # Panics
    /// Panics if `pairs` is empty.
    pub fn evaluate(
        &self,
        pairs: &[(&str, &str)],
        diversity: &Diversity,
    ) -> Result<ReplyEvaluation, EmbedError> {
        assert!(!pairs.is_empty(), "there are no pairs to evaluate");
        let outcomes = self.score(pairs);
        let rewards: Vec<f64> = outcomes.iter().filter_map(Outcome::total).collect();
        let replies: Vec<&str> = pairs.iter().map(|(_, reply)| *reply).collect();
        let lengths = || replies.iter().map(|reply| reply.chars().count());
        let mean_length = lengths().sum::<usize>() as f64 / replies.len() as f64;
        let [shortest, longest] = [lengths().min(), lengths().max()].map(Option::unwrap_or_default);
        Ok(ReplyEvaluation {
            mean_reward: rewards.iter().sum::<f64>() / rewards.len() as f64,
            shortest,
            mean_length,
            longest,
            diversity: diversity.of(&replies)?,
        })
    }

    fn score(&self, pairs: &[(&str, &str)]) -> Vec<Outcome> {
        let input = |(tweet, reply): &(&str, &str)| RewardInput {
            fields: [("tweet".to_owned(), (*tweet).into())].into_iter().collect(),
            ..RewardInput::from(*reply)
        };
        self.reward.score(&pairs.iter().map(input).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use grpo_eval::DiversityMeasure;
    use grpo_rewards::{PartName, Scored};

    use super::*;

    /// The reward is the fraction of the tweet's characters that the reply has, times a factor.
    struct Length(f64);

    impl Reward for Length {
        fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
            let of = |sample: &RewardInput| {
                let tweet = sample.fields["tweet"].as_str().unwrap();
                match sample.text.is_empty() {
                    true => Outcome::abstained(),
                    false => {
                        let total = self.0 * sample.text.len() as f64 / tweet.len() as f64;
                        Outcome::Scored(Scored::new(vec![(1.0, total)], vec![]))
                    }
                }
            };
            samples.iter().map(of).collect()
        }

        fn parts(&self) -> Vec<PartName> {
            Vec::new()
        }
    }

    #[test]
    fn an_episode_has_one_step() {
        let template = ReplyTemplate::default();
        let mut environment = ReplyEnvironment::new(template.clone(), Arc::new(Length(1.0)));
        assert_eq!(environment.step("early"), None);
        assert_eq!(environment.reset("four"), template.prompt("four"));
        let mut replies = ["é", "ab", ""].into_iter();
        let candidates = environment.generate_candidates(3, |prompt| {
            assert_eq!(*prompt, template.prompt("four"));
            replies.next().unwrap().to_owned()
        });
        let totals: Vec<Option<f64>> =
            candidates.iter().map(|candidate| candidate.outcome.total()).collect();
        assert_eq!(totals, [Some(0.5), Some(0.5), None]);
        assert_eq!(candidates[0].reply_length, 1);
        environment.set_reward(Arc::new(Length(2.0)));
        let step = environment.step("abc").unwrap();
        assert_eq!((step.outcome.total(), step.reply_length), (Some(1.5), 3));
        assert_eq!((step.tweet.as_str(), step.reply.as_str()), ("four", "abc"));
        assert_eq!(environment.step("again"), None);
        assert!(environment.generate_candidates(2, |_| String::new()).is_empty());
    }

    #[test]
    fn an_evaluation_has_means() {
        let environment = ReplyEnvironment::new(ReplyTemplate::default(), Arc::new(Length(1.0)));
        let distinct = Diversity::new(DiversityMeasure::Distinct, None).unwrap();
        let pairs = [("four", "a b"), ("four", "a b c"), ("x", "")];
        let found = environment.evaluate(&pairs, &distinct).unwrap();
        assert_eq!(found.mean_reward, (0.75 + 1.25) / 2.0);
        assert_eq!((found.shortest, found.mean_length, found.longest), (0, 8.0 / 3.0, 5));
        // Bigrams: a-b | a-b, b-c.
        assert!((found.diversity - 2.0 / 3.0).abs() < 1e-12);
    }
}
