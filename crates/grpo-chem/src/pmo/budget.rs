//! The budget of oracle calls and the area under the curve of the best scores.

use std::collections::HashMap;

/// Number of calls between two points of the curve.
const INTERVAL: usize = 100;

/// Number of best scores whose mean is a point of the curve.
const BEST: usize = 10;

/// A limited number of oracle calls. Only distinct molecules are counted.
///
/// After every 100 calls, the mean of the ten best scores so far is a point of a curve. Its area is
/// the measure of the PMO benchmark (`top_auc` in `main/optimizer.py` of `mol_opt`).
#[derive(Debug, Clone)]
pub struct Budget {
    limit: usize,
    /// Canonical SMILES and scores in the order of the calls.
    calls: Vec<(String, f64)>,
    /// Indices of the canonical SMILES in `calls`.
    known: HashMap<String, usize>,
    /// The best scores in descending order.
    best: Vec<f64>,
    curve: Vec<f64>,
}

/// All calls of the budget have been used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("all {limit} oracle calls have been used")]
pub struct BudgetExhausted {
    limit: usize,
}

impl Budget {
    /// Creates a budget of `limit` calls. The benchmark uses 10,000.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            calls: Vec::new(),
            known: HashMap::new(),
            best: Vec::with_capacity(BEST + 1),
            curve: Vec::new(),
        }
    }

    /// Returns the recorded score of a molecule.
    pub fn score_of(&self, canonical: &str) -> Option<f64> {
        self.known.get(canonical).map(|index| self.calls[*index].1)
    }

    /// Records the score of a molecule and counts it as a call, unless it is known. Returns the score
    /// that was recorded first. Scores are expected to be in [0, 1]. NaN is recorded as 0.
    ///
    /// # Errors
    /// Returns [`BudgetExhausted`] if the molecule is new and no calls remain.
    pub fn record(&mut self, canonical: &str, score: f64) -> Result<f64, BudgetExhausted> {
        if let Some(score) = self.score_of(canonical) {
            return Ok(score);
        }
        if self.remaining() == 0 {
            return Err(BudgetExhausted { limit: self.limit });
        }
        let score = if score.is_nan() { 0.0 } else { score };
        self.known.insert(canonical.to_owned(), self.calls.len());
        self.calls.push((canonical.to_owned(), score));
        let rank = self.best.partition_point(|better| *better >= score);
        self.best.insert(rank, score);
        self.best.truncate(BEST);
        if self.calls.len().is_multiple_of(INTERVAL) {
            self.curve.push(self.mean_of_best());
        }
        Ok(score)
    }

    /// Returns the number of calls, i.e. of distinct molecules.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of calls that remain.
    pub fn remaining(&self) -> usize {
        self.limit - self.calls.len()
    }

    /// Returns the canonical SMILES and scores in the order of the calls. Recording them again
    /// restores the budget.
    pub fn history(&self) -> impl ExactSizeIterator<Item = (&str, f64)> {
        self.calls.iter().map(|(canonical, score)| (canonical.as_str(), *score))
    }

    /// Returns the mean of the ten best scores, or of all if there are fewer. 0 without calls.
    pub fn mean_of_best(&self) -> f64 {
        self.best.iter().sum::<f64>() / self.best.len().max(1) as f64
    }

    /// Returns the mean of the ten best scores after 100, 200, 300 … calls.
    pub fn curve(&self) -> &[f64] {
        &self.curve
    }

    /// Returns the area under the curve, divided by the limit: from 0 to 1.
    ///
    /// The curve starts at 0 and is linear between its points. If calls remain, the curve continues
    /// horizontally up to the limit.
    pub fn auc(&self) -> f64 {
        let mut area = 0.0;
        let mut previous = 0.0;
        for mean in &self.curve {
            area += INTERVAL as f64 * (previous + mean) / 2.0;
            previous = *mean;
        }
        let last = self.mean_of_best();
        let since_last_point = self.calls() % INTERVAL;
        area += since_last_point as f64 * (previous + last) / 2.0;
        area += self.remaining() as f64 * last;
        area / self.limit.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(limit: usize, scores: impl IntoIterator<Item = f64>) -> Budget {
        let mut budget = Budget::new(limit);
        for (index, score) in scores.into_iter().enumerate() {
            budget.record(&index.to_string(), score).unwrap();
        }
        budget
    }

    #[test]
    fn a_molecule_is_counted_once() {
        let mut budget = Budget::new(2);
        assert_eq!(budget.record("CC", 0.5), Ok(0.5));
        assert_eq!(budget.record("CC", 0.9), Ok(0.5));
        assert_eq!((budget.calls(), budget.remaining()), (1, 1));
        assert_eq!(budget.record("CCC", f64::NAN), Ok(0.0));
        let exhausted = budget.record("CCCC", 1.0).unwrap_err();
        assert_eq!(exhausted.to_string(), "all 2 oracle calls have been used");
        assert_eq!(budget.record("CC", 0.9), Ok(0.5));
        assert_eq!(budget.score_of("CCCC"), None);
        assert_eq!(budget.history().collect::<Vec<_>>(), [("CC", 0.5), ("CCC", 0.0)]);
    }

    #[test]
    fn areas_computed_by_hand() {
        let auc = |limit, scores: &[(usize, f64)]| {
            recorded(limit, scores.iter().flat_map(|(n, score)| vec![*score; *n])).auc()
        };
        assert_eq!(auc(1000, &[]), 0.0);
        assert_eq!(auc(0, &[]), 0.0);
        // A triangle up to the first point: 100 · 1/2 + 900 · 1.
        assert_eq!(auc(1000, &[(1000, 1.0)]), 0.95);
        // The run ends after 100 calls and is continued with the same mean.
        assert_eq!(auc(1000, &[(100, 1.0)]), 0.95);
        // A triangle up to 50 calls: 50 · 1/2 + 950 · 1.
        assert_eq!(auc(1000, &[(50, 1.0)]), 0.975);
        // One call: the mean of a single score. 1 · 0.8/2 + 3 · 0.8.
        assert!((auc(4, &[(1, 0.8)]) - 0.7).abs() < 1e-15);
        // Five of the ten best are 1: the second point is at 1/2. 100 · 1/2 · 1/2 + 800 · 1/2.
        assert_eq!(auc(1000, &[(100, 0.0), (5, 1.0), (95, 0.0)]), 0.425);
        // 105 calls: 0 up to the first point, then 5 · 1/2 · 1/2 + 895 · 1/2.
        assert!((auc(1000, &[(100, 0.0), (5, 1.0)]) - 0.44875).abs() < 1e-15);
    }

    /// `top_auc` with `finish`, as a plain loop over all points.
    fn area_from_scratch(scores: &[f64], limit: usize) -> f64 {
        let mean_after = |calls: usize| {
            let mut best = scores[..calls].to_vec();
            best.sort_by(|a, b| b.total_cmp(a));
            best.truncate(10);
            if best.is_empty() { 0.0 } else { best.iter().sum::<f64>() / best.len() as f64 }
        };
        let mut points = vec![(0, 0.0)];
        let multiples = (1..).map(|i| i * 100).take_while(|calls| *calls < scores.len());
        points.extend(multiples.map(|calls| (calls, mean_after(calls))));
        points.push((scores.len(), mean_after(scores.len())));
        points.push((limit, mean_after(scores.len())));
        let trapezoid =
            |pair: &[(usize, f64)]| (pair[1].0 - pair[0].0) as f64 * (pair[0].1 + pair[1].1) / 2.0;
        points.windows(2).map(trapezoid).sum::<f64>() / limit as f64
    }

    #[test]
    fn area_equals_a_loop_over_all_scores() {
        for calls in [1, 9, 10, 11, 99, 100, 101, 199, 200, 550, 1000] {
            let scores: Vec<f64> =
                (0..calls).map(|i| ((i * i * 37 + i * 11) % 1009) as f64 / 1009.0).collect();
            let budget = recorded(1000, scores.clone());
            assert!((budget.auc() - area_from_scratch(&scores, 1000)).abs() < 1e-12, "{calls}");
            assert_eq!(budget.curve().len(), calls / 100);
            let again = recorded(1000, budget.history().map(|(_, score)| score));
            assert_eq!(again.auc(), budget.auc());
        }
    }
}
