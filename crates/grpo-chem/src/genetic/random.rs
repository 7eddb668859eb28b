//! Draws from the caller's random numbers. All of them are exact on every machine: integers, and
//! floating-point operations without a library function.

/// A source of uniform 32-bit numbers.
pub(super) type Random<'a> = dyn FnMut() -> u32 + 'a;

/// Returns a number below `n`, or 0 if `n` is 0.
pub(super) fn index(random: &mut Random, n: usize) -> usize {
    ((u64::from(random()) * n as u64) >> 32) as usize
}

/// Returns an index with a probability proportional to its weight.
pub(super) fn weighted<const N: usize>(random: &mut Random, weights: [u32; N]) -> usize {
    let mut rest = index(random, weights.iter().sum::<u32>() as usize) as u32;
    weights
        .iter()
        .position(|weight| {
            let is_chosen = rest < *weight;
            rest = rest.saturating_sub(*weight);
            is_chosen
        })
        .unwrap_or_default()
}

/// Returns a number with mean 0, variance 1 and an approximately normal distribution: the sum of
/// twelve uniform numbers, minus 6.
pub(super) fn normal(random: &mut Random) -> f64 {
    let sum: u64 = (0..12).map(|_| u64::from(random())).sum();
    sum as f64 / 2_f64.powi(32) - 6.0
}

/// Returns the values in random order. Each is drawn when it is requested.
pub(super) fn shuffled<'a, T>(
    mut values: Vec<T>,
    random: &'a mut Random,
) -> impl Iterator<Item = T> + 'a
where
    T: 'a,
{
    std::iter::from_fn(move || {
        (!values.is_empty()).then(|| {
            let chosen = index(random, values.len());
            values.swap_remove(chosen)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the given numbers and then zeros.
    fn fixed(numbers: &[u32]) -> impl FnMut() -> u32 + '_ {
        let mut numbers = numbers.iter().copied();
        move || numbers.next().unwrap_or(0)
    }

    #[test]
    fn draws_have_the_right_shares() {
        // 2³² / 100 numbers for each percent.
        let percent = |share: u32| (u64::from(share) * (1 << 32) / 100) as u32;
        for (share, expected) in [(0, 0), (14, 0), (16, 1), (59, 1), (61, 3), (99, 3)] {
            let found = weighted(&mut fixed(&[percent(share)]), [15, 45, 0, 40]);
            assert_eq!(found, expected, "{share} %");
        }
        assert_eq!(index(&mut fixed(&[u32::MAX]), 7), 6);
        assert_eq!(index(&mut fixed(&[u32::MAX]), 0), 0);
        assert_eq!(normal(&mut fixed(&[1 << 31; 12])), 0.0);
        assert_eq!(normal(&mut fixed(&[])), -6.0);
    }

    #[test]
    fn shuffling_returns_each_value_once() {
        let mut random = fixed(&[u32::MAX, 0, 1 << 31]);
        assert_eq!(shuffled(vec![1, 2, 3, 4], &mut random).collect::<Vec<_>>(), [4, 1, 2, 3]);
    }
}
