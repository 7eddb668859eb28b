//! Generates loss cases that cover all presets and options.

use grpo_core::{
    BatchTotals, KlConfig, KlEstimator, KlPlacement, LossConfig, MismatchCorrection, MismatchMode,
    Preset, RatioLevel, Surrogate,
};

use grpo_oracle::Draws;
use grpo_oracle::{LossCase, Rows};

/// A generated case with its settings and batch totals.
pub(super) struct Generated {
    pub(super) label: String,
    pub(super) case: LossCase,
    pub(super) config: LossConfig,
    pub(super) totals: BatchTotals,
}

/// Generates all valid combinations of preset, penalty and mismatch correction. Other options are
/// chosen at random.
pub(super) fn cases(suite: u64) -> Vec<Generated> {
    let mut all = Vec::new();
    for preset in Preset::ALL {
        for kl in penalties() {
            for mismatch in corrections() {
                let draws = &mut Draws::new(suite, all.len());
                let config = chosen(draws, LossConfig { kl, mismatch, ..preset.config() });
                // Skip combinations that grpo-core rejects.
                let Ok(config) = config.checked() else { continue };
                all.push(generated(draws, preset, config));
            }
        }
    }
    all
}

fn penalties() -> Vec<KlConfig> {
    let mut all = Vec::new();
    for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::Exact] {
        for bias_correction in [false, true] {
            for placement in [KlPlacement::Loss, KlPlacement::Reward] {
                let kl = KlConfig { coef: 0.3, estimator, placement, bias_correction };
                all.push(kl);
            }
        }
    }
    all.push(KlConfig { coef: 0.0, ..all[0] });
    all
}

fn corrections() -> Vec<Option<MismatchCorrection>> {
    let mut all = vec![None];
    for level in [RatioLevel::Token, RatioLevel::Sequence] {
        for mode in [MismatchMode::Truncate, MismatchMode::Mask] {
            all.push(Some(MismatchCorrection { level, mode, min: 0.8, max: 1.2 }));
        }
    }
    // Bounds that exclude 1, which is the value used for padding.
    all.push(Some(MismatchCorrection {
        level: RatioLevel::Token,
        mode: MismatchMode::Truncate,
        min: 0.0,
        max: 0.9,
    }));
    all
}

/// Randomly selects the remaining options.
fn chosen(draws: &mut Draws, config: LossConfig) -> LossConfig {
    let mut config = config;
    if draws.chance(0.3) {
        config.ratio_level = draws.one_of(&[RatioLevel::Token, RatioLevel::Sequence]);
    }
    if let Surrogate::Clipped { delta, epsilon_high, .. } = &mut config.surrogate {
        *delta = draws.chance(0.5).then_some(1.0 + 2.0 * *epsilon_high);
    }
    if let Surrogate::Cispo { cap } = &mut config.surrogate {
        *cap = draws.one_of(&[5.0, 1.2, 0.2]);
    }
    config.off_policy_threshold = draws.chance(0.3).then_some(0.05);
    config.high_entropy_share = draws.chance(0.3).then(|| draws.one_of(&[0.2, 0.5, 1.0]));
    config
}

fn generated(draws: &mut Draws, preset: Preset, config: LossConfig) -> Generated {
    let case = loss_case(draws, &config);
    let mut totals = case.totals(config.high_entropy_share);
    // The optimizer batch may be larger than the micro-batch.
    let times = draws.whole(1, 3);
    totals.sequences *= times;
    totals.tokens *= times;
    totals.max_completion_length += draws.whole(0, 4);
    if let Some(high) = &mut totals.high_entropy {
        high.tokens *= times;
    }
    Generated { label: label(preset, &case, &config), case, config, totals }
}

/// Generates one to four rows of up to six tokens. Ratios occur on both sides of every clipping
/// bound.
fn loss_case(draws: &mut Draws, config: &LossConfig) -> LossCase {
    let (rows, width) = (draws.whole(1, 4), draws.whole(1, 6));
    let logprobs = numbers(draws, rows, width, -4.0, -0.05);
    // Clipping bounds for sequence ratios are a thousand times smaller.
    let spread = draws.one_of(&[0.5, 1e-3]);
    let old = moved(draws, &logprobs, spread);
    let is_first = draws.chance(0.2);
    let behaviour = if is_first { &logprobs } else { &old };
    let sampling = moved(draws, behaviour, 0.3);
    let reference = moved(draws, &logprobs, 1.0);
    let exact_kl = numbers(draws, rows, width, 0.0, 2.0);
    let entropies = numbers(draws, rows, width, 0.0, 3.0);
    let advantages =
        (0..rows).map(|_| if draws.chance(0.1) { 0.0 } else { draws.between(-2.0, 2.0) }).collect();
    let gaps = draws.chance(0.3);
    let row_mask = |draws: &mut Draws| -> Vec<bool> {
        let length = if draws.chance(0.05) { 0 } else { draws.whole(1, width) };
        (0..width).map(|t| t < length && !(gaps && draws.chance(0.3))).collect()
    };
    let mask = (0..rows).map(|_| row_mask(draws)).collect();
    let is_exact = config.kl.estimator == KlEstimator::Exact;
    LossCase {
        logprobs,
        old: (!is_first).then_some(old),
        reference: (config.kl.coef > 0.0).then_some(reference),
        sampling: (config.mismatch.is_some() || draws.chance(0.3)).then_some(sampling),
        exact_kl: is_exact.then_some(exact_kl),
        entropies,
        advantages,
        mask,
        entropy_coef: draws.one_of(&[0.0, 0.01]),
    }
}

fn numbers(draws: &mut Draws, rows: usize, width: usize, low: f64, high: f64) -> Rows {
    (0..rows).map(|_| (0..width).map(|_| draws.between(low, high)).collect()).collect()
}

/// Perturbs each number by up to `spread`.
fn moved(draws: &mut Draws, rows: &Rows, spread: f64) -> Rows {
    let row = |row: &Vec<f64>, draws: &mut Draws| {
        row.iter().map(|number| number + draws.between(-spread, spread)).collect()
    };
    rows.iter().map(|numbers| row(numbers, draws)).collect()
}

fn label(preset: Preset, case: &LossCase, config: &LossConfig) -> String {
    let mut label = format!("{preset:?} {:?} {}×{}", config.ratio_level, case.rows(), case.width());
    if config.kl.coef > 0.0 {
        let corrected = if config.kl.bias_correction { " corrected" } else { "" };
        let kl = config.kl;
        label += &format!(", {:?}{corrected} in the {:?}", kl.estimator, kl.placement);
    }
    if let Some(MismatchCorrection { level, mode, max, .. }) = config.mismatch {
        label += &format!(", {level:?}{mode:?} to {max}");
    }
    if config.off_policy_threshold.is_some() {
        label += ", off-policy mask";
    }
    if let Some(share) = config.high_entropy_share {
        label += &format!(", ρ {share}");
    }
    if case.old.is_none() {
        label += ", first update";
    }
    label
}
