//! Pareto frontier of models.

use serde::{Deserialize, Serialize};

use crate::error::{MeasureError, check_count, check_finite, check_lengths};
use crate::stats::Direction;

/// Models that no other model dominates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParetoFront {
    /// For each model, whether it is on the frontier.
    pub flags: Vec<bool>,
    /// Indices of the models on the frontier.
    pub optimal: Vec<usize>,
    /// Number of models.
    pub n_models: usize,
    /// Number of models on the frontier.
    pub n_pareto_optimal: usize,
    /// Their share in percent.
    pub pareto_percentage: f64,
}

impl ParetoFront {
    /// Compares the objectives of models, for example ROUGE-L and distinct-2. A model dominates
    /// another one if it is at least as good in all objectives and better in one. Models with equal
    /// values don't dominate each other.
    ///
    /// # Errors
    /// Returns an error if there are no models or objectives, if a model has another number of
    /// objectives, or if a number is not finite.
    pub fn new(models: &[Vec<f64>], directions: &[Direction]) -> Result<Self, MeasureError> {
        check_count("models", models.len(), 1)?;
        check_count("objectives", directions.len(), 1)?;
        for model in models {
            check_lengths("objectives of a model", directions.len(), model.len())?;
            check_finite("objectives of a model", model)?;
        }
        let flags: Vec<bool> = models
            .iter()
            .map(|model| !models.iter().any(|other| dominates(other, model, directions)))
            .collect();
        let optimal: Vec<usize> = (0..models.len()).filter(|index| flags[*index]).collect();
        Ok(Self {
            n_models: models.len(),
            n_pareto_optimal: optimal.len(),
            pareto_percentage: 100.0 * optimal.len() as f64 / models.len() as f64,
            flags,
            optimal,
        })
    }
}

fn dominates(one: &[f64], other: &[f64], directions: &[Direction]) -> bool {
    let differences = one.iter().zip(other).zip(directions);
    let mut gains =
        differences.map(|((a, b), direction)| (direction.oriented(*a), direction.oriented(*b)));
    gains.clone().all(|(a, b)| a >= b) && gains.any(|(a, b)| a > b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{HigherIsBetter as High, LowerIsBetter as Low};
    use proptest::prelude::*;

    fn optimal(models: &[[f64; 2]], directions: [Direction; 2]) -> Vec<usize> {
        let models: Vec<Vec<f64>> = models.iter().map(|model| model.to_vec()).collect();
        ParetoFront::new(&models, &directions).unwrap().optimal
    }

    #[test]
    fn frontiers_by_hand() {
        assert_eq!(optimal(&[[1.0, 1.0], [2.0, 2.0]], [High, High]), [1]);
        assert_eq!(optimal(&[[1.0, 1.0], [2.0, 2.0]], [Low, Low]), [0]);
        assert_eq!(optimal(&[[1.0, 1.0], [2.0, 2.0]], [High, Low]), [0, 1]);
        // Equal in one objective and worse in the other.
        assert_eq!(optimal(&[[1.0, 2.0], [1.0, 3.0], [0.0, 9.0]], [High, High]), [1, 2]);
        assert_eq!(optimal(&[[2.0, 2.0], [2.0, 2.0], [1.0, 2.0]], [High, High]), [0, 1]);
        let front = ParetoFront::new(&[vec![1.0], vec![2.0], vec![2.0]], &[High]).unwrap();
        assert_eq!((front.n_models, front.n_pareto_optimal), (3, 2));
        assert_eq!((front.pareto_percentage, front.flags), (200.0 / 3.0, vec![false, true, true]));
    }

    #[test]
    fn faults_of_input() {
        assert!(ParetoFront::new(&[], &[High]).is_err());
        assert!(ParetoFront::new(&[vec![1.0]], &[High, High]).is_err());
        assert!(ParetoFront::new(&[vec![f64::NAN]], &[High]).is_err());
        assert!(ParetoFront::new(&[vec![]], &[]).is_err());
    }

    proptest! {
        #[test]
        fn every_model_off_the_frontier_is_dominated_by_one_on_it(
            models in prop::collection::vec(prop::array::uniform2(0_i32..6), 1..12),
        ) {
            let models: Vec<Vec<f64>> =
                models.iter().map(|model| model.map(f64::from).to_vec()).collect();
            let directions = [High, High];
            let front = ParetoFront::new(&models, &directions).unwrap();
            prop_assert!(!front.optimal.is_empty());
            for (model, is_optimal) in models.iter().zip(&front.flags) {
                let better = |index: &usize| dominates(&models[*index], model, &directions);
                prop_assert_eq!(front.optimal.iter().any(better), !is_optimal);
            }
            let mut reversed = models.clone();
            reversed.reverse();
            let mut flags = ParetoFront::new(&reversed, &directions).unwrap().flags;
            flags.reverse();
            prop_assert_eq!(flags, front.flags);
        }
    }
}
