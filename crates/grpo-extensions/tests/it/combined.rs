//! Tests GRPO steps with auxiliary losses: supervised examples and completion diversity.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_core::{AdvantageConfig, EntropyBonus, group_advantages};
use grpo_data::{Example, Sample};
use grpo_eval::DiversityMeasure;
use grpo_extensions::{
    BonusMeasure, CombinedConfig, ConfiguredRun, DiversityBonusConfig, ExtensionConfig,
};
use grpo_model::Transformer;
use grpo_train::{
    Decode, Grpo, GrpoConfig, Metrics, NextTokens, Parts, StepExtension, StepExtensions, StepReport,
};

use crate::oracle::advantages;
use crate::support::{SEED, config, model, parameters, parts, pattern, take_step, vocabulary};

/// Decodes each id to a word.
fn words() -> Decode {
    Arc::new(|ids| ids.iter().map(|id| format!("w{id} ")).collect())
}

fn settings(weights: [f64; 3], every: u32) -> CombinedConfig {
    let [supervised_weight, grpo_weight, diversity_weight] = weights;
    CombinedConfig {
        file: PathBuf::from("pairs.jsonl"),
        supervised_weight,
        grpo_weight,
        diversity_weight,
        measure: DiversityMeasure::Distinct,
        embedder: None,
        batch_size: 2,
        every,
    }
}

fn examples() -> Vec<Example> {
    let boundary = vocabulary().boundary();
    [[1, 2, 3], [2, 2, 1], [3, 1, 1]]
        .map(|ids| Example::of_all([&[boundary], ids.as_slice(), &[boundary]].concat()))
        .to_vec()
}

fn begin(config: GrpoConfig, extensions: StepExtensions<Transformer>) -> Grpo<Transformer> {
    let policy = model(vocabulary().len(), 2.0);
    let actions = Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] });
    let parts = Parts { extensions, ..parts(actions, pattern("w3"), policy, words()) };
    Grpo::new(parts, config, SEED).unwrap()
}

/// Begins a run, with auxiliary losses if `combined` is set.
fn begin_with(config: GrpoConfig, combined: Option<CombinedConfig>) -> Grpo<Transformer> {
    let build = |combined: CombinedConfig| {
        let built = combined.build(examples(), &Device::flex(), SEED).unwrap();
        Box::new(built) as Box<dyn StepExtension<_>>
    };
    begin(config, combined.map(build).into_iter().collect())
}

/// Performs several steps and returns their reports and the final weights.
fn run(combined: impl Into<Option<CombinedConfig>>, steps: u32) -> (Vec<StepReport>, Vec<f32>) {
    let mut grpo = begin_with(config(), combined.into());
    let reports = (0..steps).map(|step| take_step(&mut grpo, step)).collect();
    (reports, parameters(grpo.policy()))
}

/// Returns a loss term of a step.
fn term(report: &StepReport, name: &str) -> f64 {
    Metrics::of(report, 0).get(&format!("combined/{name}")).unwrap()
}

/// Returns the gradient norm of a step, which is the only observable that AdamW does not rescale.
/// The GRPO weight must be positive, but is chosen too small to have an effect.
fn norm([supervised, grpo, diversity]: [f64; 3]) -> f64 {
    let weights = [supervised, grpo.max(1e-6), diversity];
    run(settings(weights, 1), 1).0[0].learned.grad_norm()
}

#[test]
fn with_the_weight_of_grpo_alone_it_is_grpo() {
    let (plain, combined) = (run(None, 3), run(settings([0.0, 1.0, 0.0], 1), 3));
    assert_eq!(plain.1, combined.1);
    let losses =
        |reports: &[StepReport]| reports.iter().map(|r| r.learned.loss()).collect::<Vec<_>>();
    assert_eq!(losses(&plain.0), losses(&combined.0));
}

#[test]
fn every_term_has_its_weight_and_moves_the_policy() {
    let alone = [norm([1.0, 0.0, 0.0]), norm([0.0, 1.0, 0.0]), norm([0.0, 0.0, 1.0])];
    assert!(alone.iter().all(|norm| *norm > 1e-3), "{alone:?}");
    for term in 0..3 {
        let mut weights = [0.0; 3];
        weights[term] = 0.25;
        let scaled = norm(weights);
        assert!((scaled - 0.25 * alone[term]).abs() < 1e-5 * alone[term], "{term}: {scaled}");
    }
    // Gradients are summed. Weights cannot be negative, so |a − b|² is not available. However, |a|²
    // can be derived from |a + b| and |2a + b|.
    let squares = |weights| norm(weights) * norm(weights);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let of = |first: f64, second: f64| {
            let mut weights = [0.0; 3];
            (weights[one], weights[other]) = (first, second);
            squares(weights)
        };
        // |ta + b|² is a parabola in t: t²|a|² + 2t a·b + |b|².
        let second_difference = of(2.0, 1.0) - 2.0 * of(1.0, 1.0) + of(0.0, 1.0);
        let expected = 2.0 * alone[one] * alone[one];
        let tolerance = 1e-3 * (expected + of(2.0, 1.0));
        assert!((second_difference - expected).abs() < tolerance, "{one}, {other}");
    }
}

#[test]
fn the_loss_is_the_weighted_sum_of_its_terms() {
    let reports = [1, 3].map(|every| run(settings([0.3, 0.5, 0.2], every), 2).0);
    for report in reports.iter().flatten() {
        let [supervised, grpo, diversity] =
            ["supervised_loss", "grpo_loss", "diversity"].map(|name| term(report, name));
        let sum = 0.3 * supervised + 0.5 * grpo - 0.2 * diversity;
        assert!((report.learned.loss() - sum).abs() < 1e-12, "{report:?}");
        assert!(supervised > 0.1 && (0.0..=1.0).contains(&diversity));
    }
    // Later optimizer steps use different examples and a policy that was trained on the previous
    // ones.
    let means = reports.each_ref().map(|reports| {
        ["supervised_loss", "mean_supervised_loss"].map(|name| term(&reports[0], name))
    });
    assert_eq!(means[0][0], means[0][1]);
    assert_eq!(means[0][0], means[1][0]);
    assert!((means[1][0] - means[1][1]).abs() > 1e-6, "{means:?}");
    assert_eq!(Metrics::of(&run(None, 1).0[0], 0).get("combined/diversity"), None);
}

#[test]
fn what_is_recorded_of_tokens_has_the_weight_of_grpo() {
    let gradients = |combined| {
        let mut grpo = begin_with(config(), combined);
        grpo.set_recording(true);
        let report = take_step(&mut grpo, 0);
        let traces = report.samples().map(|sample| sample.trace.as_ref().unwrap());
        let all = traces.flat_map(|trace| {
            let of = |name| trace.numbers[name].iter();
            of("gradients").chain(of("surrogate_gradients"))
        });
        all.copied().collect::<Vec<f64>>()
    };
    let (plain, combined) = (gradients(None), gradients(Some(settings([0.3, 0.5, 0.2], 1))));
    assert!(plain.iter().any(|gradient| gradient.abs() > 1e-4));
    assert!(plain.iter().zip(&combined).all(|(plain, half)| *half == 0.5 * plain));
}

/// Two out of three optimizer steps don't need completions and use the next examples.
#[test]
fn steps_of_examples_alone_follow_each_rollout() {
    let (reports, _) = run(settings([0.5, 0.5, 0.0], 3), 12);
    for (step, report) in reports.iter().enumerate() {
        let versions: Vec<u64> = report.observed.ledger.updates.iter().map(|u| u.version).collect();
        let first = 3 * step as u64 + 1;
        assert_eq!(versions, [first, first + 1, first + 2]);
        assert_eq!(report.observed.ledger.rollout.policy_version, first - 1);
        let used: Vec<usize> =
            report.observed.ledger.updates.iter().map(|update| update.completions.len()).collect();
        assert_eq!(used, [24, 0, 0]);
    }
    let [first, last] = [0, 11].map(|step| term(&reports[step], "mean_supervised_loss"));
    assert!(last < 0.7 * first, "{last} of {first}");
}

/// The entropy bonus is only part of the GRPO loss.
#[test]
fn the_loss_without_the_entropy_bonus_is_that_of_grpo() {
    let coef = 0.05;
    let with_bonus = |combined| {
        let mut config = config();
        config.loss.entropy_bonus = Some(EntropyBonus::Static { coef });
        take_step(&mut begin_with(config, combined), 0)
    };
    let (alone, combined) = (with_bonus(None), with_bonus(Some(settings([0.3, 0.5, 0.2], 1))));
    // The policy is the same, so the completions are too.
    let without = |report: &StepReport| report.learned.policy_loss() + report.learned.kl_penalty();
    assert_eq!(without(&alone), without(&combined));
    let entropy = combined.learned.tokens().kept_entropy().unwrap();
    let grpo_loss = term(&combined, "grpo_loss");
    assert!(coef * entropy > 1e-3);
    assert!((without(&combined) - coef * entropy - grpo_loss).abs() < 1e-12);
}

/// A guard on the gradient norm also covers optimizer steps that only use examples.
#[test]
fn every_optimizer_step_is_in_the_norm_of_the_gradients() {
    let every = |every| run(settings([1.0, 1e-6, 0.0], every), 1).0[0].learned.grad_norm();
    // With almost no weight on GRPO, every optimizer step is a step of supervised training. The
    // second of two steps per rollout must be the same as the first step of the next rollout.
    let (reports, _) = run(settings([1.0, 1e-6, 0.0], 1), 3);
    let norms: Vec<f64> = reports.iter().map(|report| report.learned.grad_norm()).collect();
    assert!((norms[0] - norms[1]).abs() > 1e-4, "{norms:?}");
    assert!((every(2) - (norms[0] + norms[1]) / 2.0).abs() < 1e-5, "{norms:?}");
    assert!((every(3) - norms.iter().sum::<f64>() / 3.0).abs() < 1e-5, "{norms:?}");
}

#[test]
fn diversity_can_be_held_up() {
    let after = |weight| {
        let (reports, _) = run(settings([0.0, 1.0, weight], 1), 25);
        let last = reports[20..].iter().map(|report| term(report, "diversity"));
        last.sum::<f64>() / 5.0
    };
    let (without, with) = (after(0.0), after(1.0));
    assert!(with > without + 0.1, "{with} against {without}");
}

#[test]
fn the_bonus_affects_advantages_but_not_rewards() {
    let bonus = DiversityBonusConfig { weight: 0.5, measure: BonusMeasure::Bleu, embedder: None };
    let bonus = bonus.build(&Device::flex(), None).unwrap();
    let mut grpo = begin(config(), vec![Box::new(bonus)]);
    let names = grpo.reward_names();
    assert_eq!(names.terms, ["reward", "diversity_bonus"]);
    assert!(!names.parts.contains(&"diversity_bonus".into()));
    let report = take_step(&mut grpo, 0);
    let metrics = Metrics::of(&report, 0);
    // The reward excludes the bonus, but advantages include it.
    let mean = metrics.get("diversity_bonus/mean").unwrap();
    assert!(mean > 0.005, "{mean}");
    let correct = metrics.get("rewards/correct/mean").unwrap();
    assert!((metrics.get("reward").unwrap() - correct).abs() < 1e-12);
    let both = |sample: &Sample| Some(sample.reward()? + sample.bonus?.total());
    let totals: Vec<Vec<Option<f64>>> =
        report.groups.iter().map(|group| group.samples.iter().map(both).collect()).collect();
    let expected = group_advantages(&totals, &AdvantageConfig::default()).unwrap();
    assert_eq!(advantages(&report), expected.groups.concat());
    assert!(metrics.get("reward_share/diversity_bonus").is_some());
    assert!(metrics.get("reward_share/reward").is_some());
}

#[test]
fn refuses_invalid_combinations() {
    let check = |combined: &CombinedConfig, config: &GrpoConfig| {
        let run = ConfiguredRun { config, extensions: &["combined"], has_prompts: true };
        combined.check()?;
        ExtensionConfig::<Transformer>::check(combined, &run)
    };
    let mut twice = config();
    twice.train.updates_per_rollout = 2;
    assert_eq!(
        check(&settings([0.3, 0.5, 0.2], 1), &twice).unwrap_err().to_string(),
        "train.updates_per_rollout = 2 is not possible with [combined]: its diversity term is valid only for samples of the current policy, so each rollout has one update; set it to 1, and use combined.every for more optimizer steps"
    );
    let none = settings([0.3, 0.5, 0.2], 1);
    let built = none.build(Vec::new(), &Device::flex(), SEED).err().unwrap().to_string();
    assert!(built.contains(" contains no examples"), "{built}");
    let checked = |weights, every| check(&settings(weights, every), &config());
    assert!(checked([0.3, -0.5, 0.2], 1).is_err());
    let refused = |weights, every| checked(weights, every).unwrap_err().to_string();
    assert!(refused([0.3, 0.0, 0.2], 1).starts_with("combined.grpo_weight = 0 "));
    let nothing = refused([0.0, 0.5, 0.2], 2);
    assert!(nothing.starts_with("combined.every = 2 adds "), "{nothing}");
    checked([0.0, 0.5, 0.2], 1).unwrap();
    assert!(checked([0.3, 0.5, 0.2], 0).is_err());
}
