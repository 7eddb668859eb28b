//! The best molecules so far.

use std::collections::HashSet;

use super::random::uniform;

/// The best distinct molecules and their scores, from which parents are drawn by rank.
///
/// Molecules with equal scores are ranked in the order in which they were inserted.
#[derive(Debug, Clone)]
pub struct Population {
    capacity: usize,
    /// Canonical SMILES and scores, the best first.
    members: Vec<(String, f64)>,
    known: HashSet<String>,
}

impl Population {
    /// Creates an empty population of at most `capacity` molecules.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, members: Vec::new(), known: HashSet::new() }
    }

    /// Inserts a molecule, and removes the worst one if there are more than the capacity. Returns
    /// `false` if the molecule is already a member, if its score is too low, or if its score is
    /// NaN.
    pub fn insert(&mut self, canonical: &str, score: f64) -> bool {
        let rank = self.members.partition_point(|member| member.1 >= score);
        if rank >= self.capacity || score.is_nan() || self.known.contains(canonical) {
            return false;
        }
        self.known.insert(canonical.to_owned());
        self.members.insert(rank, (canonical.to_owned(), score));
        if self.members.len() > self.capacity
            && let Some((removed, _)) = self.members.pop()
        {
            self.known.remove(&removed);
        }
        true
    }

    /// Returns the canonical SMILES and scores, the best first.
    pub fn members(&self) -> &[(String, f64)] {
        &self.members
    }

    /// Draws the canonical SMILES of a parent. `None` if the population is empty.
    ///
    /// The weight of a member is 1 / (`coefficient` · n + rank), where n is the number of members
    /// and the best one has rank 0 (Tripp, Daxberger, Hernández-Lobato, "Sample-efficient
    /// optimization in the latent space of deep generative models via weighted retraining", NeurIPS
    /// 2020). Genetic GFN uses the coefficient 0.01. The smaller it is, the more the best members
    /// are preferred. With 0, only the best one is drawn.
    pub fn sample(&self, coefficient: f64, mut random: impl FnMut() -> u32) -> Option<&str> {
        let offset = coefficient * self.members.len() as f64;
        let weight = |rank: usize| 1.0 / (offset + rank as f64);
        let total: f64 = (0..self.members.len()).map(weight).sum();
        let mut rest = uniform(&mut random) * total;
        let chosen = (0..self.members.len()).find(|rank| {
            rest -= weight(*rank);
            rest < 0.0
        });
        // No member is chosen if the weight of the best one is infinite.
        self.members.get(chosen.unwrap_or(0)).map(|(canonical, _)| canonical.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_distinct_molecules_remain() {
        let mut population = Population::new(3);
        for (canonical, score, is_inserted) in [
            ("C", 0.5, true),
            ("CC", 0.7, true),
            ("C", 0.9, false),
            ("CCC", 0.5, true),
            ("CCCC", 0.5, false),
            ("CCCCC", f64::NAN, false),
            ("CCCCCC", 0.6, true),
            // Removed by the previous one.
            ("CCC", 0.8, true),
        ] {
            assert_eq!(population.insert(canonical, score), is_inserted, "{canonical} {score}");
        }
        let expected = [("CCC", 0.8), ("CC", 0.7), ("CCCCCC", 0.6)];
        assert_eq!(population.members(), expected.map(|(text, score)| (text.to_owned(), score)));
        assert!(!Population::new(0).insert("C", 1.0));
        assert_eq!(Population::new(3).sample(0.01, || 0), None);
    }

    /// With three members and the coefficient 1/3, the weights are 1, 1/2 and 1/3.
    #[test]
    fn parents_are_drawn_by_rank() {
        let mut population = Population::new(3);
        for (canonical, score) in [("C", 0.1), ("CC", 3.0), ("CCC", 0.2)] {
            population.insert(canonical, score);
        }
        let sample =
            |share: f64| population.sample(1.0 / 3.0, || (share * 2_f64.powi(32)) as u32).unwrap();
        for (share, expected) in
            [(0.0, "CC"), (0.54, "CC"), (0.55, "CCC"), (0.81, "CCC"), (0.82, "C"), (0.999, "C")]
        {
            assert_eq!(sample(share), expected, "{share}");
        }
        assert_eq!(population.sample(0.0, || u32::MAX), Some("CC"));
    }
}
