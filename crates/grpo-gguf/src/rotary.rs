//! The frequency factors of Llama 3, which GGUF stores as the tensor `rope_freqs.weight`.

use crate::error::{Result, unsupported};

/// The parameters of transformers' `rope_type = "llama3"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Llama3 {
    pub(crate) factor: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) original_context: f64,
}

impl Llama3 {
    /// Returns what each frequency is divided by.
    pub(crate) fn factors(self, base: f64, head_width: usize) -> Vec<f32> {
        let pairs = head_width / 2;
        let factor = |i: usize| {
            let frequency = base.powf(-2.0 * i as f64 / head_width as f64);
            let wavelength = std::f64::consts::TAU / frequency;
            let turns = self.original_context / wavelength;
            if turns > self.high {
                1.0
            } else if turns < self.low {
                self.factor
            } else {
                let smooth = (turns - self.low) / (self.high - self.low);
                1.0 / ((1.0 - smooth) / self.factor + smooth)
            }
        };
        (0..pairs).map(|i| factor(i) as f32).collect()
    }

    /// Returns the parameters that give these factors, or `None` if they change nothing.
    ///
    /// # Errors
    /// Returns an error if the factors are not those of a released Llama model, which differ only in
    /// the largest.
    pub(crate) fn from_factors(
        factors: &[f32],
        base: f64,
        head_width: usize,
    ) -> Result<Option<Self>> {
        if factors.iter().all(|factor| *factor == 1.0) && factors.len() == head_width / 2 {
            return Ok(None);
        }
        let largest = factors.iter().fold(0f32, |most, factor| most.max(*factor));
        let guess = Self { factor: largest.into(), low: 1.0, high: 4.0, original_context: 8192.0 };
        let expected = guess.factors(base, head_width);
        let close = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-4 * expected;
        if expected.len() == factors.len() && factors.iter().zip(&expected).all(close) {
            return Ok(Some(guess));
        }
        unsupported(
            "the tensor `rope_freqs.weight` has other frequency factors than Llama 3.1 to 3.3, which are not supported",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_follow_from_factors() {
        let given = Llama3 { factor: 32.0, low: 1.0, high: 4.0, original_context: 8192.0 };
        let factors = given.factors(500_000.0, 64);
        // The values that llama.cpp's converter writes for Llama 3.2 1B.
        assert_eq!((factors[0], factors[31]), (1.0, 32.0));
        assert!(factors.iter().any(|factor| *factor > 1.0 && *factor < 32.0));
        assert_eq!(Llama3::from_factors(&factors, 500_000.0, 64).unwrap(), Some(given));
        assert_eq!(Llama3::from_factors(&[1.0; 32], 500_000.0, 64).unwrap(), None);
        assert!(Llama3::from_factors(&factors, 10_000.0, 64).is_err());
        assert!(Llama3::from_factors(&factors[1..], 500_000.0, 64).is_err());
    }
}
