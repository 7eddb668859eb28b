//! Runs all suites.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use grpo_selftest::tensors::Precision;
use grpo_selftest::{Miss, Options, Report, SelftestError, run};
use serde_json::{Value, json};

fn run_on(golden: Option<&Path>) -> Result<Report, SelftestError> {
    run(&Options {
        golden: golden.map(Path::to_owned),
        device: Device::flex(),
        families: crate::families(),
    })
}

fn built_in(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn everything_passes_and_nothing_is_left_out() {
    let report = run_on(None).unwrap();
    for suite in &report.suites {
        assert!(suite.misses.is_empty(), "{suite:#?}");
        assert_eq!((suite.missed_cases, suite.left_out), (0, None), "{}", suite.name);
        assert!(suite.cases > 0, "{} has no cases", suite.name);
        // Differences should be well below the tolerances unless terms cancel.
        if suite.precision == Precision::F64 {
            assert!(suite.worst_absolute < 1e-9, "{}: {}", suite.name, suite.worst_absolute);
        }
    }
    assert!(report.passed());
    let cases: Vec<usize> = report.suites.iter().map(|suite| suite.cases).collect();
    assert_eq!(cases, [30, 504, 88, 88, 88, 638, 621, 140, 140, 72, 72, 72, 72, 144, 144, 6, 6]);
}

/// Changes several values in a file, each in a different case, and checks that the suites at these
/// indices report them.
#[track_caller]
fn planted<const N: usize>(
    file: &str,
    changes: &[(String, Value)],
    suites: [usize; N],
) -> [Vec<Miss>; N] {
    let folder = tempfile::tempdir().unwrap();
    let mut golden = built_in(file);
    for (pointer, value) in changes {
        *golden.pointer_mut(pointer).unwrap() = value.clone();
    }
    fs::write(folder.path().join(file), golden.to_string()).unwrap();
    let report = run_on(Some(folder.path())).unwrap();
    assert!(!report.passed());
    suites.map(|suite| {
        let suite = &report.suites[suite];
        assert!(suite.against.ends_with(file), "{}", suite.against);
        assert_eq!(suite.missed_cases, changes.len(), "{}", suite.name);
        suite.misses.clone()
    })
}

/// Index of the suites that use `losses.json`, after those for advantages and for the f64 loops.
const IN_F64: usize = 3;
const IN_F32: usize = 4;

#[test]
fn each_kind_of_wrong_loss_is_found() {
    let losses = built_in("losses.json");
    let keys = [
        ("grad_entropy/0/0", "grad_entropy[0][0]"),
        ("metrics/policy_loss", "policy_loss"),
        ("metrics/entropy_coef", "entropy_coef"),
        ("importance_sampling_ratio/0/0", "importance_sampling_ratio[0][0]"),
        ("metrics/vespo~1phi_seq_mean", "vespo/phi_seq_mean"),
        ("metrics/cispo_clip_ratio", "cispo_clip_ratio"),
        ("loss", "loss"),
        ("grad_logprobs/0/0", "grad_logprobs[0][0]"),
        ("metrics/kl", "kl"),
        ("metrics/entropy", "entropy"),
        ("metrics/clip_ratio~1low_mean", "clip_ratio/low_mean"),
        ("metrics/clip_ratio~1low_min", "clip_ratio/low_min"),
        ("metrics/clip_ratio~1high_mean", "clip_ratio/high_mean"),
        ("metrics/clip_ratio~1high_max", "clip_ratio/high_max"),
        ("metrics/clip_ratio~1region_mean", "clip_ratio/region_mean"),
    ];
    // Five is the number of mismatches that a suite reports.
    for keys in keys.chunks(5) {
        let mut used = Vec::new();
        let mut expected = Vec::new();
        for (key, what) in keys {
            let pointer = |case: &usize| format!("/cases/{case}/expected/{key}");
            let number = |case: &usize| losses.pointer(&pointer(case)).and_then(Value::as_f64);
            let mut cases = 0..losses["cases"].as_array().unwrap().len();
            let case = cases.find(|case| number(case).is_some() && !used.contains(case)).unwrap();
            used.push(case);
            let value = number(&case).unwrap();
            let wrong = value + 3e-5 * value.abs().max(1.0);
            expected.push((case, *what, wrong, pointer(&case)));
        }
        let changes: Vec<(String, Value)> =
            expected.iter().map(|(.., wrong, pointer)| (pointer.clone(), json!(wrong))).collect();
        for misses in planted("losses.json", &changes, [IN_F64, IN_F32]) {
            for (case, what, wrong, _) in &expected {
                let miss = misses.iter().find(|miss| miss.case == *case).unwrap();
                assert_eq!((miss.what.as_str(), miss.expected), (*what, *wrong));
            }
        }
    }
}

#[test]
fn each_kind_of_wrong_advantage_is_found() {
    let flag = "/cases/8/expected/is_std_zero/0";
    let was = built_in("advantages.json").pointer(flag).unwrap().as_bool().unwrap();
    let changes = [
        ("/cases/4/expected/advantages/0".to_owned(), json!(0.321)),
        ("/cases/5/expected/reward_mean".to_owned(), json!(0.321)),
        ("/cases/6/expected/reward_std".to_owned(), json!(0.321)),
        (flag.to_owned(), json!(!was)),
    ];
    let [misses] = planted("advantages.json", &changes, [0]);
    let found: Vec<(usize, &str)> =
        misses.iter().map(|miss| (miss.case, miss.what.as_str())).collect();
    let expected = [
        (4, "the f64 loops' advantages[0]"),
        (5, "reward_mean"),
        (6, "reward_std"),
        (8, "is_std_zero[0]"),
    ];
    assert_eq!(found, expected);
}

/// Metrics that TRL does not report must not be reported here either.
#[test]
fn a_metric_too_many_is_found() {
    let losses = built_in("losses.json");
    let cases = losses["cases"].as_array().unwrap();
    let with_kl = |case: &Value| case["expected"]["metrics"]["kl"].is_number();
    let case = cases.iter().position(with_kl).unwrap();
    let metrics = format!("/cases/{case}/expected/metrics");
    let mut without = losses.pointer(&metrics).unwrap().clone();
    without.as_object_mut().unwrap().remove("kl");
    let [misses] = planted("losses.json", &[(metrics, without)], [IN_F64]);
    let miss = &misses[0];
    assert_eq!((miss.case, miss.what.as_str(), miss.expected.is_nan()), (case, "kl", true));
}

#[test]
fn a_file_that_is_not_there_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut golden = built_in("losses.json");
    golden["cases"].as_array_mut().unwrap().truncate(3);
    fs::write(folder.path().join("losses.json"), golden.to_string()).unwrap();
    let report = run_on(Some(folder.path())).unwrap();
    assert_eq!(report.suites[0].cases, 30);
    assert_eq!(report.suites[0].against, "TRL, built in");
    assert_eq!(report.suites[IN_F64].cases, 3);
}
