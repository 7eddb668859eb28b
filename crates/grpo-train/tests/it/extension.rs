//! An extension that is registered from outside of the crate.

use grpo_train::Metrics;

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/extension.rs"]
mod example;

#[test]
fn an_extension_from_outside_has_a_term_and_metrics() {
    let mut steps: Vec<Metrics> = Vec::new();
    let extension = example::ShortCompletions { weight: 0.5, steps: 2 };
    example::train(2, extension, |metrics| steps.push(metrics.clone())).unwrap();
    for (metrics, weight) in steps.iter().zip([0.25, 0.5]) {
        let of = |name: &str| metrics.get(name).unwrap();
        assert_eq!(of("short_completions/weight"), weight);
        // All completions have a reward, so the bonus follows from their lengths.
        let expected = -weight * of("completions/mean_length");
        assert!((of("short_completions/mean") - expected).abs() < 1e-12);
        assert!(of("reward_share/short_completions").is_finite());
        // The reward itself is left unchanged.
        assert!(of("reward") >= 0.0);
    }
    assert_eq!(steps.len(), 2);
}
