//! Training targets of engagement models.

use crate::EngagementObjective;
use crate::PairRecord;

/// Returns `min(reply_likes / max(tweet_likes, 1), 1)`. The score measures how well a reply was
/// received, independently of the reach of the tweet.
pub fn engagement_score(pair: &PairRecord) -> f64 {
    pair.engagement().min(1.0)
}

/// A reply to a tweet, with its features.
#[derive(Clone, Debug, PartialEq)]
pub struct EngagementReply {
    /// Id of the tweet.
    pub tweet: String,
    /// Features of the tweet and the reply.
    pub features: Vec<f32>,
    /// The score computed by [`engagement_score`].
    pub score: f64,
    /// Score for comparing replies to the same tweet: `reply_likes + 2 · reply_retweets`.
    pub preference: f64,
}

impl EngagementReply {
    pub(super) fn new(pair: &PairRecord, features: Vec<f32>) -> Self {
        Self {
            tweet: pair.tweet_id.clone(),
            features,
            score: engagement_score(pair),
            preference: pair.reply_likes() as f64 + 2.0 * pair.reply_retweets.unwrap_or(0) as f64,
        }
    }
}

/// Maps scores to targets between 0 and 1 that are spread more evenly.
pub(super) enum Targets {
    Log {
        scale: f64,
    },
    /// Scores of the training replies in ascending order.
    Rank(Vec<f64>),
}

impl Targets {
    /// Creates the targets. Ranks are computed among the `train` scores. The pairwise objective
    /// also uses ranks, to evaluate the outputs.
    pub(super) fn new(
        objective: &EngagementObjective,
        train: impl IntoIterator<Item = f64>,
    ) -> Self {
        match *objective {
            EngagementObjective::Log { scale } => Self::Log { scale },
            EngagementObjective::Rank {} | EngagementObjective::Pairwise { .. } => {
                let mut sorted: Vec<f64> = train.into_iter().collect();
                sorted.sort_by(f64::total_cmp);
                Self::Rank(sorted)
            }
        }
    }

    pub(super) fn of(&self, score: f64) -> f64 {
        match self {
            Self::Log { scale } => (scale * score).ln_1p() / scale.ln_1p(),
            Self::Rank(sorted) => {
                let below = sorted.partition_point(|other| *other < score);
                let up_to = sorted.partition_point(|other| *other <= score);
                (below + up_to) as f64 / (2 * sorted.len()) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(scores: &[f64]) -> Targets {
        Targets::new(&EngagementObjective::Rank {}, scores.iter().copied())
    }

    /// In 0, 0, 1, 4, 4, 4, 9, 10, the two 0s have ranks 1 and 2, so 1.5. Subtracting ½ and
    /// dividing by 8 gives 1/8. The three 4s have rank 5.
    #[test]
    fn ranks_by_hand() {
        let targets = rank(&[4.0, 0.0, 1.0, 10.0, 4.0, 9.0, 0.0, 4.0]);
        for (score, expected) in
            [(0.0, 1.0), (1.0, 2.5), (4.0, 4.5), (9.0, 6.5), (10.0, 7.5), (5.0, 6.0), (11.0, 8.0)]
        {
            assert_eq!(targets.of(score), expected / 8.0, "{score}");
        }
    }

    /// With a scale of 3, ln(1 + 3 · 1/3) / ln 4 = ½.
    #[test]
    fn logarithms_by_hand() {
        let targets = Targets::new(&EngagementObjective::Log { scale: 3.0 }, []);
        for (score, expected) in [(0.0, 0.0), (1.0 / 3.0, 0.5), (1.0, 1.0)] {
            assert!((targets.of(score) - expected).abs() < 1e-12, "{score}");
        }
    }

    #[test]
    fn a_score_is_of_the_likes_of_both() {
        let score = |reply_likes, tweet_likes| {
            let (reply_likes, tweet_likes) = (Some(reply_likes), Some(tweet_likes));
            engagement_score(&PairRecord { reply_likes, tweet_likes, ..PairRecord::default() })
        };
        assert_eq!(score(3, 12), 0.25);
        assert_eq!(score(3, 0), 1.0);
        assert_eq!(score(30, 12), 1.0);
        assert_eq!(score(0, 12), 0.0);
    }

    /// Checks which share of the squared error of a constant prediction comes from the largest 5%
    /// of the targets. With raw scores, it would be nearly 100%.
    #[test]
    fn no_few_replies_are_the_whole_error() {
        // A log-normal distribution, similar to that of real likes.
        let rng = grpo_data::CounterRng::new(1, grpo_data::Purpose::EVALUATION);
        let scores: Vec<f64> =
            (0..2000).map(|i| (0.003 * (1.5 * rng.normal([i, 0, 0, 0])).exp()).min(1.0)).collect();
        let share = |targets: Vec<f64>| {
            let mean = targets.iter().sum::<f64>() / targets.len() as f64;
            let mut errors: Vec<f64> = targets.iter().map(|it| (it - mean).powi(2)).collect();
            errors.sort_by(f64::total_cmp);
            errors[1900..].iter().sum::<f64>() / errors.iter().sum::<f64>()
        };
        assert!(share(scores.clone()) > 0.8, "{}", share(scores.clone()));
        for objective in [EngagementObjective::Rank {}, EngagementObjective::Log { scale: 1000.0 }]
        {
            let targets = Targets::new(&objective, scores.iter().copied());
            let share = share(scores.iter().map(|&score| targets.of(score)).collect());
            assert!(share < 0.4, "{objective:?}: {share}");
        }
    }
}
