//! Dual numbers. Each loss formula is written once and yields both its value and its derivatives.

use std::ops::{Add, Mul, Neg, Sub};

/// Variables that a token loss can be differentiated by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variable {
    /// `log π_θ` of the token, except where it appears inside the ratio.
    Logprob,
    /// `log ρ`, which can be shared by multiple tokens.
    LogRatio,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary.
    ExactKl,
}

/// A number and its derivative with respect to each [`Variable`] (forward-mode differentiation).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dual {
    pub(crate) value: f64,
    slopes: [f64; 3],
}

impl Dual {
    pub(crate) fn constant(value: f64) -> Self {
        Self { value, slopes: [0.0; 3] }
    }

    pub(crate) fn variable(value: f64, variable: Variable) -> Self {
        let mut dual = Self::constant(value);
        dual.slopes[variable as usize] = 1.0;
        dual
    }

    /// Returns the derivative with respect to `variable`.
    pub(crate) fn by(self, variable: Variable) -> f64 {
        self.slopes[variable as usize]
    }

    /// Applies the chain rule, given the function's value and derivative at `self`.
    fn chain(self, value: f64, derivative: f64) -> Self {
        Self { value, slopes: self.slopes.map(|slope| slope * derivative) }
    }

    pub(crate) fn exp(self) -> Self {
        let exp = self.value.exp();
        self.chain(exp, exp)
    }

    /// Returns `exp(x) − 1`, accurate for small `x`.
    pub(crate) fn exp_m1(self) -> Self {
        self.chain(self.value.exp_m1(), self.value.exp())
    }

    pub(crate) fn square(self) -> Self {
        self * self
    }

    pub(crate) fn sigmoid(self) -> Self {
        let value = 1.0 / (1.0 + (-self.value).exp());
        self.chain(value, value * (1.0 - value))
    }

    /// Returns the smaller number, or `self` if the numbers are equal or `self` is NaN.
    pub(crate) fn min(self, other: Self) -> Self {
        if self.value > other.value { other } else { self }
    }

    /// Clamps the number to `low..=high`. The result is constant outside this range.
    pub(crate) fn clamp(self, low: f64, high: f64) -> Self {
        let clamped = if self.value < low { Self::constant(low) } else { self };
        clamped.min(Self::constant(high))
    }
}

impl Add for Dual {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let slopes = std::array::from_fn(|i| self.slopes[i] + other.slopes[i]);
        Self { value: self.value + other.value, slopes }
    }
}

impl Sub for Dual {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Sub<f64> for Dual {
    type Output = Self;

    fn sub(self, other: f64) -> Self {
        self - Self::constant(other)
    }
}

#[expect(clippy::suspicious_arithmetic_impl, reason = "the product rule requires a sum")]
impl Mul for Dual {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let slope = |i: usize| self.slopes[i] * other.value + self.value * other.slopes[i];
        Self { value: self.value * other.value, slopes: std::array::from_fn(slope) }
    }
}

impl Mul<f64> for Dual {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        self.chain(self.value * factor, factor)
    }
}

impl Neg for Dual {
    type Output = Self;

    fn neg(self) -> Self {
        self.chain(-self.value, -1.0)
    }
}

/// Returns the largest exponent passed to `exp` for a number type with the maximum `largest`. A
/// tenth of the exponent range is reserved for other factors in a product.
pub(crate) fn largest_exponent(largest: f64) -> f64 {
    0.9 * largest.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each function with central differences, away from its kinks.
    #[test]
    fn derivatives_equal_difference_quotients() {
        let functions: [fn(Dual) -> Dual; 8] = [
            Dual::exp,
            Dual::exp_m1,
            Dual::square,
            Dual::sigmoid,
            |x| x.clamp(-0.5, 0.9) * x,
            |x| (x * 2.0).min(x.square()) - x.exp() * x,
            |x| -(x - 0.25) * 3.0,
            |x| Dual::constant(2.0) - x + x.exp(),
        ];
        for function in functions {
            for at in [-1.3, -0.2, 0.4, 1.7] {
                let value = |x: f64| function(Dual::constant(x)).value;
                let expected = (value(at + 1e-5) - value(at - 1e-5)) / 2e-5;
                let got = function(Dual::variable(at, Variable::LogRatio));
                assert!((got.by(Variable::LogRatio) - expected).abs() < 1e-8, "at {at}");
                assert_eq!(got.value, value(at));
                assert_eq!([got.by(Variable::Logprob), got.by(Variable::ExactKl)], [0.0; 2]);
            }
        }
    }
}
