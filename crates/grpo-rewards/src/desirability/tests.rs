//! Tests of desirability functions.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(function: &Desirability, x: f64, expect: f64) {
    let got = function.score(x);
    assert!((got - expect).abs() < 1e-9, "{function:?} of {x} is {got}, expected {expect}");
}

/// Values by REINVENT 4.7 with `np.float32` replaced by `np.float64`.
#[test]
fn values_of_reinvent() {
    let sigmoid = Desirability::Sigmoid { low: 1.0, high: 4.0, k: 0.5 };
    check(&sigmoid, 1.0, 0.003_152_309_183_260_209_4);
    check(&sigmoid, 2.5, 0.5);
    check(&sigmoid, 3.0, 0.872_006_892_223_321_2);
    let reverse = Desirability::ReverseSigmoid { low: 1.0, high: 4.0, k: 0.5 };
    check(&reverse, 3.0, 1.0 - 0.872_006_892_223_321_2);
    let double = Desirability::DoubleSigmoid {
        low: 200.0,
        high: 550.0,
        coef_div: 500.0,
        coef_si: 20.0,
        coef_se: 20.0,
    };
    check(&double, 200.0, 0.5);
    check(&double, 225.0, 10.0 / 11.0);
    check(&double, 175.0, 1.0 / 11.0);
    check(&double, 600.0, 1.0 - 1.0 / (1.0 + 10f64.powf(-2.0)));
    check(&Desirability::ExponentialDecay { k: 2.0 }, 0.7, (-1.4f64).exp());
    check(&Desirability::ExponentialDecay { k: 2.0 }, -0.7, 1.0);
}

#[test]
fn steps_include_their_bounds() {
    let step = Desirability::Step { low: 1.0, high: 3.0 };
    for (x, expect) in [(0.999, 0.0), (1.0, 1.0), (3.0, 1.0), (3.001, 0.0)] {
        check(&step, x, expect);
    }
    check(&Desirability::LeftStep { low: 1.0 }, 1.0, 1.0);
    check(&Desirability::LeftStep { low: 1.0 }, 1.1, 0.0);
    check(&Desirability::RightStep { high: 1.0 }, 1.0, 1.0);
    check(&Desirability::RightStep { high: 1.0 }, 0.9, 0.0);
    // Without a slope, a sigmoid is 1 above its bound and 0 at it.
    let hard = Desirability::Sigmoid { low: 2.0, high: 2.0, k: 1.0 };
    check(&hard, 2.0, 0.0);
    check(&hard, 2.1, 1.0);
    let double = |coef_div| Desirability::DoubleSigmoid {
        low: 1.0,
        high: 3.0,
        coef_div,
        coef_si: 1.0,
        coef_se: 1.0,
    };
    for (x, expect) in [(1.0, 0.0), (1.1, 1.0), (3.0, 1.0), (3.1, 0.0)] {
        check(&double(0.0), x, expect);
    }
}

#[test]
fn a_mapping_scores_listed_values_only() {
    let mapping = BTreeMap::from([("0".to_owned(), 1.0), ("1.0".to_owned(), 0.5)]);
    let function = Desirability::ValueMapping { mapping, other: 0.25 };
    for (x, expect) in [(0.0, 1.0), (1.0, 0.5), (2.0, 0.25)] {
        check(&function, x, expect);
    }
}

#[test]
fn refuses_invalid_parameters() {
    let mapping = |key: &str, score| Desirability::ValueMapping {
        mapping: BTreeMap::from([(key.to_owned(), score)]),
        other: 0.0,
    };
    for (wrong, words) in [
        (Desirability::Sigmoid { low: 4.0, high: 1.0, k: 1.0 }, "swap them"),
        (Desirability::Step { low: 4.0, high: 1.0 }, "swap them"),
        (Desirability::Linear { low: 1.0, high: 1.0 }, "equal bounds"),
        (Desirability::Linear { low: 0.0, high: f64::NAN }, "finite bounds"),
        (Desirability::Sigmoid { low: 1.0, high: 4.0, k: 0.0 }, "k above 0"),
        (Desirability::ExponentialDecay { k: -1.0 }, "k above 0"),
        (mapping("many", 1.0), "must be numbers"),
        (mapping("1", 2.0), "from 0 to 1"),
        (
            Desirability::ValueMapping {
                mapping: ["1", "1.0"].map(|key| (key.to_owned(), 0.5)).into(),
                other: 0.0,
            },
            "the keys '1' and '1.0' for the same number",
        ),
        (Desirability::ValueMapping { mapping: BTreeMap::new(), other: 0.0 }, "no entries"),
    ] {
        let fault = wrong.check().unwrap_err();
        assert!(fault.contains(words), "{wrong:?}: {fault}");
    }
}

fn functions(low: f64, width: f64, k: f64) -> Vec<Desirability> {
    let high = low + width;
    vec![
        Desirability::Linear { low, high },
        Desirability::ReverseLinear { low, high },
        Desirability::Sigmoid { low, high, k },
        Desirability::ReverseSigmoid { low, high, k },
        Desirability::of_goal(Goal::Range, low, high),
        Desirability::Step { low, high },
        Desirability::LeftStep { low },
        Desirability::RightStep { high },
        Desirability::ExponentialDecay { k },
    ]
}

proptest! {
    /// All scores are between 0 and 1, and each function changes in the direction of its goal.
    #[test]
    fn scores_follow_the_goal(
        low in -50.0..50.0f64, width in 0.1..100.0f64, k in 0.01..10.0f64,
        x in -300.0..300.0f64, more in 0.0..100.0f64,
    ) {
        for function in functions(low, width, k) {
            prop_assert!(function.check().is_ok());
            let (here, there) = (function.score(x), function.score(x + more));
            prop_assert!((0.0..=1.0).contains(&here), "{function:?}");
            match function.goal().unwrap() {
                Goal::High => prop_assert!(there >= here, "{function:?}"),
                Goal::Low => prop_assert!(there <= here, "{function:?}"),
                Goal::Range => {
                    let middle = function.score(low + width / 2.0);
                    prop_assert!(middle >= here && middle > 0.9, "{function:?}");
                }
            }
        }
    }
}
