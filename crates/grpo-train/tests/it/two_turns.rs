//! An episode that is registered from outside of the crate.

use grpo_train::Metrics;

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/two_turns.rs"]
mod example;

#[test]
fn an_episode_from_outside_trains_two_steps() {
    const SECRET: u32 = 3;
    let (mut steps, mut second_turns) = (0, 0);
    example::train(2, SECRET, |done| {
        for sample in done.groups.iter().flat_map(|group| &group.samples) {
            let (ids, mask) = (sample.completion.ids(), sample.completion.action_mask());
            let right = f64::from(u8::from(ids.last() == Some(&SECRET)));
            match (ids, mask) {
                ([_, first], [false, true]) => {
                    assert_eq!((*first, sample.reward()), (SECRET, Some(1.0)));
                }
                ([_, first, hint, _], [false, true, false, true]) => {
                    second_turns += 1;
                    let expected = if *first < SECRET { example::HIGHER } else { example::LOWER };
                    assert_eq!((*hint, sample.reward()), (expected, Some(0.5 * right)));
                    assert_ne!(*first, SECRET);
                }
                other => panic!("{other:?}"),
            }
            let text: Vec<String> = ids[1..].iter().map(u32::to_string).collect();
            assert_eq!(sample.text, text.join(" "));
        }
        // Observations are not actions: a completion has one or two of these.
        let metrics = Metrics::of(done, 0);
        let length = metrics.get("completions/mean_length").unwrap();
        assert!(length > 1.0 && length <= 2.0, "{length}");
        assert!(metrics.get("grad_norm").unwrap().is_finite());
        steps += 1;
    })
    .unwrap();
    assert_eq!(steps, 2);
    assert!(second_turns > 0);
}
