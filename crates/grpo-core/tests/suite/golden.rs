//! Against TRL: see ../fixtures/README.md.

use std::path::{Path, PathBuf};

use grpo_core::{
    AdvantageConfig, BatchTotals, KlConfig, KlEstimator, LossConfig, Reduction, RewardScale,
    group_advantages,
};
use serde_json::Value;

use crate::support::{Batch, close, largest};

#[test]
fn advantages_equal_trl() {
    assert_eq!(check_advantages(&fixture("trl_advantages.json")), 138);
}

#[test]
fn losses_equal_trl() {
    assert_eq!(check_losses(&fixture("trl_losses.json")), 39);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn cases(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: Value = serde_json::from_str(&text).expect("JSON");
    file["cases"].as_array().expect("cases").clone()
}

/// Checks the cases that grpo-core computes, and counts them.
fn check_advantages(path: &Path) -> usize {
    let cases = cases(path);
    let applies = |case: &&Value| case["multi_objective_aggregation"] == "sum_then_normalize";
    cases.iter().filter(applies).map(check_advantage).count()
}

fn check_advantage(case: &Value) {
    let weights = numbers(&case["weights"]);
    let rows: Vec<Option<f64>> = array(&case["rewards"])
        .iter()
        .map(|row| {
            let scored = array(row).iter().zip(&weights);
            let scored: Vec<f64> = scored.filter_map(|(r, w)| Some(r.as_f64()? * w)).collect();
            (!scored.is_empty()).then(|| scored.iter().sum())
        })
        .collect();
    let size = case["num_generations"].as_u64().expect("a size") as usize;
    let groups: Vec<Vec<Option<f64>>> = rows.chunks(size).map(<[_]>::to_vec).collect();
    let scale = match &case["scale_rewards"] {
        Value::String(name) if name == "group" => RewardScale::Group,
        Value::String(name) if name == "batch" => RewardScale::Batch,
        _ => RewardScale::None,
    };
    let config = AdvantageConfig { scale, epsilon: 1e-4 };
    let got = group_advantages(&groups, &config).expect("finite rewards");

    let expected = &case["expected"];
    let advantages = numbers(&expected["advantages"]);
    let magnitude = array(&case["rewards"]).iter().flat_map(numbers);
    let magnitude = largest(&magnitude.filter(|r| !r.is_nan()).collect::<Vec<_>>());
    let rounding = 16.0 * f64::EPSILON * magnitude;
    for (g, (got, expected)) in got.groups.iter().zip(advantages.chunks(size)).enumerate() {
        let divisor = match scale {
            RewardScale::Group => deviation(&groups[g]) + 1e-4,
            RewardScale::Batch => deviation(&rows) + 1e-4,
            RewardScale::None => 1.0,
        };
        // Where no deviation is defined the advantage is exactly 0.
        let rounding = if divisor.is_nan() { 0.0 } else { rounding / divisor };
        let tolerance = 1e-9 * largest(&advantages).max(1.0) + rounding;
        for (got, expected) in got.iter().zip(expected) {
            close(*got, *expected, tolerance, "advantage");
        }
    }
    let tolerance = 1e-9 + rounding;
    close(got.reward_mean, number(&expected["reward_mean"]), tolerance, "reward_mean");
    close(got.reward_std, number(&expected["reward_std"]), tolerance, "reward_std");
    let flags = array(&expected["is_std_zero"]);
    let share = flags.iter().filter(|&flag| flag == true).count() as f64 / flags.len() as f64;
    close(got.zero_std_share, share, f64::EPSILON, "frac_reward_zero_std");
}

/// Checks the cases that grpo-core computes, and counts them.
fn check_losses(path: &Path) -> usize {
    let cases = cases(path);
    let applies = |case: &&Value| {
        let config = &case["config"];
        ["grpo", "dr_grpo", "dapo"].iter().any(|name| config["loss_type"] == *name)
            && config["importance_sampling_level"] == "token"
            && config["top_entropy_quantile"] == 1.0
            && config["entropy_coef"] == 0.0
            && ["delta", "off_policy_mask_threshold", "is_correction"]
                .iter()
                .all(|key| config[*key].is_null())
    };
    cases.iter().filter(applies).map(check_loss).count()
}

fn check_loss(case: &Value) {
    let (config, inputs) = (&case["config"], &case["inputs"]);
    let epsilon = number(&config["epsilon"]);
    let loss = LossConfig {
        epsilon_low: epsilon,
        epsilon_high: config["epsilon_high"].as_f64().unwrap_or(epsilon),
        kl: KlConfig {
            coef: number(&config["beta"]),
            estimator: KlEstimator::K3,
            bias_correction: config["use_bias_correction_kl"] == true,
        },
        reduction: match config["loss_type"].as_str() {
            Some("grpo") => Reduction::SequenceMean,
            Some("dr_grpo") => Reduction::Constant,
            _ => Reduction::TokenMean,
        },
    };
    let penalised = loss.kl.coef > 0.0;
    let batch = Batch {
        logprobs: matrix(&inputs["logp"]),
        old: (config["old_logprobs"] == true).then(|| matrix(&inputs["old"])),
        reference: penalised.then(|| matrix(&inputs["ref"])),
        entropies: matrix(&inputs["entropy"]),
        advantages: numbers(&inputs["advantages"]),
        mask: matrix(&inputs["mask"])
            .iter()
            .map(|row| row.iter().map(|&active| active == 1.0).collect())
            .collect(),
    };
    let whole = |key: &str| config[key].as_u64().expect("a whole number") as usize;
    let totals = BatchTotals {
        sequences: batch.rows() * whole("gradient_accumulation_steps"),
        max_completion_length: whole("max_completion_length"),
        ..batch.totals()
    };
    let got = batch.run(&loss.checked().expect("a loss of TRL's"), &totals);

    let expected = &case["expected"];
    check_number(got.loss, &expected["loss"], "loss");
    let gradient = matrix(&expected["grad_logprobs"]);
    let tolerance = 2e-5 * largest(gradient.iter().flatten());
    for (got, expected) in got.gradient.iter().flatten().zip(gradient.iter().flatten()) {
        close(*got, *expected, tolerance, "gradient");
    }
    let metrics = &expected["metrics"];
    check_number(got.statistics.entropy(), &metrics["entropy"], "entropy");
    let [low_mean, low_min, high_mean, high_max, region_mean] = got.statistics.clip_ratios();
    check_number(low_mean, &metrics["clip_ratio/low_mean"], "low_mean");
    check_number(low_min, &metrics["clip_ratio/low_min"], "low_min");
    check_number(high_mean, &metrics["clip_ratio/high_mean"], "high_mean");
    check_number(high_max, &metrics["clip_ratio/high_max"], "high_max");
    check_number(region_mean, &metrics["clip_ratio/region_mean"], "region_mean");
    assert_eq!(got.statistics.kl().is_some(), metrics.get("kl").is_some());
    if let Some(kl) = got.statistics.kl() {
        check_number(kl, &metrics["kl"], "kl");
    }
}

#[track_caller]
fn check_number(got: f64, expected: &Value, what: &str) {
    let expected = number(expected);
    close(got, expected, 2e-5 * expected.abs(), what);
}

/// Sample standard deviation of the rewards that were scored.
fn deviation(rewards: &[Option<f64>]) -> f64 {
    let scored: Vec<f64> = rewards.iter().copied().flatten().collect();
    let count = scored.len() as f64;
    let mean = scored.iter().sum::<f64>() / count;
    (scored.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>() / (count - 1.0)).sqrt()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// NaN for null.
fn number(value: &Value) -> f64 {
    if value.is_null() { f64::NAN } else { value.as_f64().expect("a number") }
}

fn numbers(value: &Value) -> Vec<f64> {
    array(value).iter().map(number).collect()
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    array(value).iter().map(numbers).collect()
}
