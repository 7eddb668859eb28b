//! Influence of each reward term on the advantages.

use grpo_data::{Bonus, Group, Sample};

/// Returns the fraction of the reward variance that each term contributes within groups. Advantages
/// are computed from this variance.
///
/// Let `t_k` be the weighted term k and r the sum of all terms, both centred on the mean over the
/// scored completions in a group. Then `share_k = Σ t_k r / Σ r²`, summed over all groups in the
/// step. The shares add up to 1, and a term that counteracts the others has a negative share. If
/// rewards don't vary within any group, all shares are 0. A bonus is included as the last term.
/// Returns `None` if there are fewer than two terms.
pub(crate) fn reward_shares(groups: &[Group]) -> Option<Vec<f64>> {
    let samples = || groups.iter().flat_map(|group| &group.samples);
    let has_bonus = samples().any(|sample| sample.bonus.is_some());
    let weighted_terms = |sample: &Sample| -> Option<Vec<f64>> {
        let terms = sample.scored()?.terms.iter().map(|(weight, value)| weight * value);
        let bonus = has_bonus.then(|| sample.bonus.map_or(0.0, Bonus::total));
        Some(terms.chain(bonus).collect())
    };
    let terms = samples().find_map(weighted_terms)?.len();
    if terms < 2 {
        return None;
    }
    let mut products = vec![0.0; terms];
    let mut squares = 0.0;
    for group in groups {
        let weighted: Vec<Vec<f64>> = group.samples.iter().filter_map(weighted_terms).collect();
        let mean =
            |k: usize| weighted.iter().map(|terms| terms[k]).sum::<f64>() / weighted.len() as f64;
        let means: Vec<f64> = (0..terms).map(mean).collect();
        let is_constant = weighted.windows(2).all(|pair| pair[0] == pair[1]);
        for terms in weighted.iter().filter(|_| !is_constant) {
            let centred: Vec<f64> =
                terms.iter().zip(&means).map(|(term, mean)| term - mean).collect();
            let total: f64 = centred.iter().sum();
            products.iter_mut().zip(&centred).for_each(|(product, term)| *product += term * total);
            squares += total * total;
        }
    }
    let share = |product: f64| if squares > 0.0 { product / squares } else { 0.0 };
    Some(products.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use grpo_data::{Outcome, Scored};
    use proptest::prelude::*;

    use super::*;
    use crate::test_groups::group;

    fn outcomes(terms: &[[f64; 2]], weights: [f64; 2]) -> Vec<Outcome> {
        let of = |values: &[f64; 2]| {
            let terms = weights.into_iter().zip(*values).collect();
            Outcome::Scored(Scored::new(terms, vec![]))
        };
        terms.iter().map(of).collect()
    }

    #[track_caller]
    fn check(terms: &[[f64; 2]], groups: &[usize], expected: [f64; 2]) {
        let mut outcomes = outcomes(terms, [2.0, 1.0]).into_iter();
        let sized = |&size: &usize| group(outcomes.by_ref().take(size).collect());
        let shares = reward_shares(&groups.iter().map(sized).collect::<Vec<_>>()).unwrap();
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 1e-12, "{shares:?}, expected {expected}");
        }
    }

    #[test]
    fn shares_by_hand() {
        // After weighting and centring: ±1 and 0.
        check(&[[1.0, 5.0], [0.0, 5.0]], &[2], [1.0, 0.0]);
        // ±1 and ±½, first with the same sign and then with opposite signs.
        check(&[[1.0, 1.0], [0.0, 0.0]], &[2], [1.5 / 2.25, 0.75 / 2.25]);
        check(&[[1.0, 0.0], [0.0, 1.0]], &[2], [0.5 / 0.25, -0.25 / 0.25]);
        // Differences between groups are ignored: ±1 and 0 in the first group, 0 and ±½ in the
        // second.
        let terms = [[1.0, 0.0], [0.0, 0.0], [9.0, 1.0], [9.0, 0.0]];
        check(&terms, &[2, 2], [2.0 / 2.5, 0.5 / 2.5]);
        check(&[[0.1, 0.7], [0.1, 0.7], [0.1, 0.7]], &[3], [0.0, 0.0]);
    }

    #[test]
    fn one_term_has_no_share_and_what_is_not_scored_does_not_count() {
        let one = Outcome::Scored(Scored::new(vec![(1.0, 0.5)], vec![]));
        assert_eq!(reward_shares(&[group(vec![one])]), None);
        assert_eq!(reward_shares(&[group(vec![Outcome::abstained()])]), None);
        let mut some = outcomes(&[[1.0, 5.0], [0.0, 5.0]], [2.0, 1.0]);
        some.insert(1, Outcome::abstained());
        some.push(Outcome::failed(String::new()));
        assert_eq!(reward_shares(&[group(some)]), Some(vec![1.0, 0.0]));
    }

    proptest! {
        /// Compares the shares with `cov(t_k, r) / var(r)` computed in loops, and checks that they
        /// add up to 1.
        #[test]
        fn shares_equal_the_loops(terms in prop::collection::vec([0.0..1.0_f64, 0.0..1.0_f64], 2..20)) {
            let weights = [0.7, 0.3];
            let shares = reward_shares(&[group(outcomes(&terms, weights))]).unwrap();
            let n = terms.len() as f64;
            let total = |values: &[f64; 2]| 0.7 * values[0] + 0.3 * values[1];
            let mut mean_of_totals = 0.0;
            for values in &terms {
                mean_of_totals += total(values) / n;
            }
            let mut variance = 0.0;
            for values in &terms {
                variance += (total(values) - mean_of_totals).powi(2) / n;
            }
            prop_assume!(variance > 1e-6);
            for (k, weight) in weights.into_iter().enumerate() {
                let mut mean = 0.0;
                for values in &terms {
                    mean += weight * values[k] / n;
                }
                let mut covariance = 0.0;
                for values in &terms {
                    covariance += (weight * values[k] - mean) * (total(values) - mean_of_totals) / n;
                }
                prop_assert!((shares[k] - covariance / variance).abs() < 1e-9);
            }
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
