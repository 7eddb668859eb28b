//! Completions of an evaluation, and how diverse they are.

use std::time::Duration;

use grpo_data::{Group, Sample};
use grpo_eval::{distinct, self_bleu, words};

/// Result of one evaluation.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// Scored samples, grouped by prompt.
    pub groups: Vec<Group>,
    /// Wall-clock time.
    pub time: Duration,
}

impl Evaluated {
    /// Returns an iterator over all samples, ordered by prompt.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> + Clone {
        self.groups.iter().flat_map(|group| &group.samples)
    }

    /// Returns the mean reward over scored completions, or `None` if no completion was scored.
    pub fn reward(&self) -> Option<f64> {
        let rewards: Vec<f64> = self.samples().filter_map(Sample::reward).collect();
        (!rewards.is_empty()).then(|| rewards.iter().sum::<f64>() / rewards.len() as f64)
    }

    /// Returns the diversity of the completions for each prompt, or `None` if there is only one
    /// completion per prompt.
    pub fn diversity(&self) -> Option<Vec<GroupDiversity>> {
        let of = |group: &Group| {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            GroupDiversity { self_bleu: self_bleu(&texts, 4), distinct_2: distinct(&texts, 2) }
        };
        let has_several = self.groups.iter().any(|group| group.samples.len() > 1);
        has_several.then(|| self.groups.iter().map(of).collect())
    }

    /// Returns the fraction of completions without any words. Empty completions have nothing in
    /// common and would otherwise look diverse.
    pub fn empty(&self) -> f64 {
        let empty = self.samples().filter(|sample| words(&sample.text).next().is_none()).count();
        empty as f64 / self.samples().count() as f64
    }
}

/// Diversity of the completions for one prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupDiversity {
    /// Mean 4-gram BLEU of each completion against the others ([`self_bleu`]). It is 1 if all
    /// completions are identical.
    pub self_bleu: f64,
    /// Number of distinct word bigrams divided by the total number of bigrams ([`distinct`]).
    pub distinct_2: f64,
}

#[cfg(test)]
mod tests {
    use grpo_data::Outcome;

    use super::*;
    use crate::test_groups::group;

    /// Empty completions get the same self-BLEU as diverse ones, so they are counted separately.
    #[test]
    fn counts_empty_completions_separately() {
        let groups = [["so it goes on", "so it goes on"], ["", " "]].map(|texts| {
            let mut group = group(vec![Outcome::abstained(); 2]);
            let samples = group.samples.iter_mut().zip(texts);
            samples.for_each(|(sample, text)| sample.text = text.to_owned());
            group
        });
        let evaluated = Evaluated { groups: groups.to_vec(), time: Duration::ZERO };
        let [alike, empty] = evaluated.diversity().unwrap()[..] else { panic!("two groups") };
        assert!((alike.self_bleu - 1.0).abs() < 1e-12);
        assert_eq!((alike.distinct_2, empty.self_bleu), (0.5, 0.0));
        let metrics = evaluated.metrics();
        assert_eq!(metrics.get("eval_empty"), Some(0.5));
        assert_eq!(metrics.get("eval_self_bleu"), Some(alike.self_bleu / 2.0));
        let alone = Evaluated { groups: vec![group(vec![Outcome::abstained()])], ..evaluated };
        assert_eq!(alone.metrics().get("eval_empty"), None);
    }
}
