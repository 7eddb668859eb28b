//! Tests the adaptive KL coefficient.

use grpo_core::{AdaptiveKl, KlController};
use grpo_oracle as oracle;
use proptest::prelude::*;

use crate::support::{cases, close};

fn controller() -> KlController {
    KlController { target: 0.1, horizon: 1000.0 }
}

/// Checks the coefficient after a step of 100 completions with the given KL, starting at 0.5.
#[track_caller]
fn check(kl: f64, expected: f64) {
    let mut adaptive = AdaptiveKl::new(controller(), 0.5);
    adaptive.observe(kl, 100);
    close(adaptive.coef(), expected, 1e-15, "coefficient");
}

#[test]
fn one_step_by_hand() {
    check(0.1, 0.5);
    // 10 % above and below the target.
    check(0.11, 0.5 * 1.01);
    check(0.09, 0.5 * 0.99);
    // Deviations are limited to 20 %, even for a negative KL estimate.
    for far in [0.12, 0.3, 9.0, f64::INFINITY] {
        check(far, 0.5 * 1.02);
    }
    for far in [0.08, 0.0, -1.0] {
        check(far, 0.5 * 0.98);
    }
    check(f64::NAN, 0.5);
}

#[test]
fn it_stays_within_its_bounds() {
    let mut adaptive = AdaptiveKl::new(controller(), 0.5);
    (0..1000).for_each(|_| adaptive.observe(1.0, 100));
    assert_eq!(adaptive.coef(), 10.0);
    (0..1000).for_each(|_| adaptive.observe(0.0, 100));
    assert_eq!(adaptive.coef(), 1e-5);
    adaptive.set_coef(70.0);
    assert_eq!(adaptive.coef(), 10.0);
}

/// In this simulation, the KL decreases as the coefficient increases. The controller must find the
/// coefficient for the target KL.
#[test]
fn the_controller_reaches_its_target() {
    let mut adaptive = AdaptiveKl::new(controller(), 0.02);
    let kl = |coef: f64| 0.02 / coef;
    (0..2000).for_each(|_| adaptive.observe(kl(adaptive.coef()), 100));
    close(kl(adaptive.coef()), 0.1, 1e-6, "KL");
}

#[test]
fn settings_have_ranges() {
    let with = |change: fn(&mut KlController), coef| {
        let mut settings = controller();
        change(&mut settings);
        settings.check(coef).map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| (), 0.5), Ok(()));
    let out = |key: &str, value: f64, expected: &str| {
        Err(format!("{key} = {value} is out of range; it must be {expected}"))
    };
    let finite = "above 0 and finite";
    assert_eq!(with(|it| it.target = 0.0, 0.5), out("kl_controller.target", 0.0, finite));
    assert_eq!(with(|it| it.horizon = -1.0, 0.5), out("kl_controller.horizon", -1.0, finite));
    let begin = "0.00001 to 10, since the controller starts from it";
    assert_eq!(with(|_| (), 0.0), out("kl_coef", 0.0, begin));
    assert_eq!(with(|_| (), 10.5), out("kl_coef", 10.5, begin));
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn it_equals_the_loops(
        kls in prop::collection::vec((-0.1..0.5_f64, 1..200_usize), 0..40),
        target in 0.01..0.3_f64,
        coef in 0.01..=1.0_f64,
    ) {
        let controller = KlController { target, ..controller() };
        let mut adaptive = AdaptiveKl::new(controller, coef);
        kls.iter().for_each(|&(kl, completions)| adaptive.observe(kl, completions));
        let expected = oracle::adaptive_kl(&controller, coef, &kls);
        close(adaptive.coef(), expected, 1e-12, "coefficient");
        // The state survives a round trip through a checkpoint.
        let text = serde_json::to_string(&adaptive).unwrap();
        prop_assert_eq!(serde_json::from_str::<AdaptiveKl>(&text).unwrap(), adaptive);
    }
}
