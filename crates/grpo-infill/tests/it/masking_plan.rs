//! Masking configuration: stages, plans and presets.

use grpo_infill::{Corruption, Masking, MaskingPlan, MaskingPreset};

#[test]
fn numbers_outside_their_ranges_are_refused_by_key() {
    let check = |masking: &str, expect: &str| {
        let json = format!(r#"{{"stages": [{{"type": "span", "spans": 2}}, {masking}]}}"#);
        let error = serde_json::from_str::<MaskingPlan>(&json).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    };
    let above = "a number above 0 and at most 1";
    for (ratio, shown) in [("1.5", "1.5"), ("0.0", "0"), ("-0.1", "-0.1")] {
        check(
            &format!(r#"{{"type": "sticky", "ratio": {ratio}, "p1": 0.1, "p2": 0.2}}"#),
            &format!("`stages[1].ratio` is {shown}; expected {above}"),
        );
        check(
            &format!(r#"{{"type": "random", "min_ratio": -1, "max_ratio": {ratio}}}"#),
            "`stages[1].min_ratio` is -1; expected a number from 0 to 1",
        );
        for kind in ["random", "line", "replacement"] {
            check(
                &format!(r#"{{"type": "{kind}", "min_ratio": 0, "max_ratio": {ratio}}}"#),
                &format!("`stages[1].max_ratio` is {shown}; expected {above}"),
            );
        }
    }
    check(
        r#"{"type": "random", "min_ratio": 0.6, "max_ratio": 0.5}"#,
        "`stages[1].min_ratio` is 0.6; expected a number of at most `max_ratio`",
    );
    check(
        r#"{"type": "sticky", "ratio": 0.5, "p1": -1, "p2": 0.2}"#,
        "`stages[1].p1` is -1; expected a number of 0 or more",
    );
    for spans in [0, 10_001, u32::MAX] {
        check(
            &format!(r#"{{"type": "span", "spans": {spans}}}"#),
            &format!("`stages[1].spans` is {spans}; expected a whole number from 1 to 10000"),
        );
    }
    check(
        r#"{"type": "replacement", "max_ratio": 0.5, "fragment": -1}"#,
        "`stages[1].fragment` is -1; expected a number of 0 or more",
    );
    check(
        r#"{"type": "replacement", "max_ratio": 0.5, "random": 0, "mask": 0}"#,
        "`stages[1].random` is 0; expected a number above 0, or `mask` above 0",
    );
    check(r#"{"type": "random", "max_ratio": 0.5, "ratio": 1}"#, "unknown field `ratio`");
    check(r#"{"type": "gaussian"}"#, "unknown variant `gaussian`");
}

#[test]
fn a_plan_is_a_preset_or_a_list_of_stages() {
    let parse = |json: &str| serde_json::from_str::<MaskingPlan>(json).map_err(|e| e.to_string());
    let complex = parse(r#"{"preset": "complex"}"#).unwrap();
    assert_eq!(complex, MaskingPlan::preset(MaskingPreset::Complex, Corruption::None));
    // The plan stored with a run can be read back.
    let bert = MaskingPlan::preset(MaskingPreset::SpanAndLines, Corruption::Bert);
    assert_eq!(parse(&serde_json::to_string(&bert).unwrap()).unwrap(), bert);
    let random = parse(r#"{"stages": [{"type": "random", "max_ratio": 0.5}]}"#).unwrap();
    assert_eq!(random.stages(), [Masking::Random { min_ratio: 0.0, max_ratio: 0.5 }]);
    let error = |json| parse(json).unwrap_err();
    assert!(error("{}").starts_with("`preset` is missing; expected either `preset` or `stages`"));
    let both = r#"{"preset": "complex", "stages": [{"type": "span", "spans": 2}]}"#;
    assert!(error(both).starts_with("`preset` is set together with `stages`; expected either"));
    assert!(error(r#"{"stages": []}"#).starts_with("`stages` is an empty list; expected at least"));
    assert!(error(r#"{"preset": "complex", "ratio": 1}"#).starts_with("unknown field `ratio`"));
}

/// The expected values of the presets, written out independently.
#[test]
fn presets_have_their_numbers() {
    let check = |preset, expect: &[&str]| {
        let plan = MaskingPlan::preset(preset, Corruption::None);
        let show = |stage: &Masking| match stage {
            Masking::Random { min_ratio, max_ratio } => format!("random {min_ratio} {max_ratio}"),
            Masking::Sticky { ratio, p1, p2, redrawn: false } => format!("{ratio} {p1} {p2}"),
            Masking::Span { spans } => format!("span {spans}"),
            Masking::Line { min_ratio, max_ratio } => format!("line {min_ratio} {max_ratio}"),
            other => format!("{other:?}"),
        };
        assert_eq!(plan.stages().iter().map(show).collect::<Vec<_>>(), expect);
        plan.stages().to_vec()
    };
    let complex = [
        "0.4 0.15 0.3",
        "0.6 0.1 0.5",
        "random 0 0.5",
        "span 20",
        "0.6 0.3 0.1",
        "0.6 0.1 0.5",
        "random 0 0.2",
        "0.55 0.1 0.6",
        "0.9 0.1 0.9",
    ];
    check(MaskingPreset::Complex, &complex);
    check(MaskingPreset::SpanAndLines, &[&complex[..], &["line 0.1 0.45"]].concat());
    check(
        MaskingPreset::Validation,
        &[
            "0.4 0.15 0.3",
            "0.6 0.1 0.5",
            "random 0 0.5",
            "0.6 0.3 0.1",
            "0.6 0.1 0.5",
            "random 0 0.2",
            "0.2 0.3 0",
            "0.4 0.3 0",
            "0.4 0.15 0.3",
            "0.55 0.1 0.6",
            "0.7 0.2 0.4",
            "0.8 0.2 0.4",
            "0.8 0.1 0.9",
            "0.9 0.1 0.9",
        ],
    );
}

#[test]
fn the_plan_of_a_judge_is_pure_and_of_all_ratios() {
    let plan = MaskingPlan::preset(MaskingPreset::Complex, Corruption::Bert).for_judge();
    plan.check_pure().unwrap();
    for (judge, stage) in plan
        .stages()
        .iter()
        .zip(MaskingPlan::preset(MaskingPreset::Complex, Corruption::None).stages())
    {
        match (judge, stage) {
            (Masking::Sticky { redrawn, ratio, .. }, Masking::Sticky { ratio: of, .. }) => {
                assert!(*redrawn && ratio == of)
            }
            _ => assert_eq!(judge, stage),
        }
    }
}
