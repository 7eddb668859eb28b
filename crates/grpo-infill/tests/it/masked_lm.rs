//! Infiller pretraining.

use std::sync::Arc;

use grpo_infill::{
    CriticConfig, EntropyWeighting, MaskRatioWeighting, MaskedData, MaskedLmConfig,
    MaskedLmMeasures, MaskedLmObjective, ModifierConfig, Passages, Split,
};
use grpo_model::Transformer;
use grpo_train::TransferConfig;

use crate::models::{infiller, passages, random, steps, stream};
use crate::recorder::{self, Recorder};
use crate::training::parameters;

fn data(passages: &Arc<Passages>) -> MaskedData {
    let plan = random(0.4);
    MaskedData {
        characters: passages.characters().clone(),
        train: stream(passages, Split::Train, &plan, 1),
        validation: stream(passages, Split::Validation, &plan, 1),
    }
}

fn config(of_steps: u64) -> MaskedLmConfig {
    MaskedLmConfig {
        steps: steps(of_steps),
        eval_batches: 2,
        modifiers: ModifierConfig::default(),
        critic: None,
        transfer: TransferConfig::default(),
    }
}

fn run(
    model: Transformer,
    config: &MaskedLmConfig,
    seed: u64,
) -> (Recorder<MaskedLmMeasures>, Transformer) {
    let passages = passages(12);
    let data = data(&passages);
    let (recorder, trained, _) =
        recorder::run(MaskedLmObjective::trainer(model, &data, None, config, seed));
    (recorder, trained)
}

/// Returns an infiller trained on the text of `passages`.
pub(crate) fn trained_infiller(passages: &Arc<Passages>, of_steps: u64) -> Transformer {
    run(infiller(passages, false), &config(of_steps), 1).1
}

#[test]
fn a_text_without_a_choice_is_learned() {
    let passages = passages(12);
    let (recorder, _) = run(infiller(&passages, false), &config(350), 1);
    let equal_shares = (passages.characters().base_len() as f64).ln();
    let first = recorder.losses()[0];
    assert!((first - equal_shares).abs() < 0.1, "{first}, not {equal_shares}");
    let last = recorder.last();
    assert!(last.eval_loss < 0.15 && last.eval_accuracy.unwrap() > 0.94, "{last:?}");
    let train_steps: Vec<u64> = recorder.validations.iter().map(|look| look.train_step).collect();
    assert_eq!(train_steps, [50, 100, 150, 200, 250, 300, 350]);
}

/// Returns a configuration with all optional features enabled.
fn everything(of_steps: u64) -> MaskedLmConfig {
    let modifiers = ModifierConfig {
        label_smoothing: 0.1,
        entropy: Some(EntropyWeighting::default()),
        mask_ratio: Some(MaskRatioWeighting::default()),
        judge: None,
    };
    let critic = Some(CriticConfig { warmup_from: 1, warmup_to: 4, ..CriticConfig::default() });
    let mut config = MaskedLmConfig { modifiers, critic, ..config(of_steps) };
    config.steps.dropout = 0.1;
    config
}

#[test]
fn equal_seeds_give_equal_models() {
    let passages = passages(12);
    let run = |seed, threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (recorder, trained) =
            pool.install(|| run(infiller(&passages, true), &everything(6), seed));
        (recorder.losses(), parameters(&trained))
    };
    let first = run(1, 1);
    assert_eq!(first, run(1, 2));
    assert_ne!(first, run(2, 1));
}

#[test]
fn micro_batches_decide_nothing_but_memory() {
    let passages = passages(12);
    let whole = MaskedLmConfig { steps: steps(1), ..everything(1) };
    let mut cut = whole.clone();
    cut.steps.micro_batch_tokens = Some(30);
    let (told_whole, _) = run(infiller(&passages, true), &whole, 1);
    let (told_cut, _) = run(infiller(&passages, true), &cut, 1);
    let (a, b) = (&told_whole.steps[0], &told_cut.steps[0]);
    assert!((a.step_train_loss - b.step_train_loss).abs() < 1e-5, "{a:?} {b:?}");
    assert!((a.grad_norm - b.grad_norm).abs() < 1e-4 * a.grad_norm, "{a:?} {b:?}");
    assert!((a.parts["critic_loss"] - b.parts["critic_loss"]).abs() < 1e-5, "{a:?} {b:?}");
}

#[test]
fn a_critic_learns_what_is_wrong() {
    let passages = passages(12);
    let config = MaskedLmConfig { critic: Some(CriticConfig::default()), ..config(150) };
    let (recorder, _) = run(infiller(&passages, true), &config, 1);
    let critic = |step: usize| recorder.steps[step].parts["critic_loss"];
    let near = std::f64::consts::LN_2;
    assert!((critic(0) - near).abs() < 0.1, "it knows nothing at first: {}", critic(0));
    assert!(critic(149) < 0.25, "{}", critic(149));
}

/// Trains an infiller whose trunk is frozen in the first three steps.
fn transferred(of_steps: u64, factor: Option<f64>) -> Transformer {
    let transfer = TransferConfig {
        freeze_trunk: true,
        unfreeze_at_step: (of_steps > 3).then_some(3),
        unfreeze_learning_rate_factor: factor,
    };
    let mut config =
        MaskedLmConfig { transfer, critic: Some(CriticConfig::default()), ..config(of_steps) };
    config.steps.warmup_steps = 0;
    run(infiller(&passages(12), true), &config, 1).1
}

/// Returns the sums of the absolute changes of the trunk and the critic.
fn changes(before: &Transformer, after: &Transformer) -> [f64; 2] {
    let values = |model: &Transformer| -> Vec<(bool, Vec<f32>)> {
        let value = |p: grpo_model::Parameter| {
            (p.path.starts_with("critic"), p.value().into_data().iter::<f32>().collect())
        };
        grpo_model::parameters(model).into_iter().map(value).collect()
    };
    let mut sums = [0.0; 2];
    for ((is_critic, before), (_, after)) in values(before).into_iter().zip(values(after)) {
        let differences = before.iter().zip(&after).map(|(a, b)| f64::from((a - b).abs()));
        sums[usize::from(is_critic)] += differences.sum::<f64>();
    }
    sums
}

#[test]
fn a_frozen_trunk_stays_until_its_step() {
    let first = infiller(&passages(12), true);
    for (of_steps, factor, is_trained) in
        [(3, None, false), (4, None, true), (4, Some(0.0), false), (4, Some(0.1), true)]
    {
        let [trunk, critic] = changes(&first, &transferred(of_steps, factor));
        assert_eq!(trunk > 0.0, is_trained, "{of_steps} steps, factor {factor:?}: {trunk}");
        assert!(critic > 0.0, "{of_steps} steps, factor {factor:?}");
    }
}

/// The trunk is updated once, so its change is proportional to its learning rate.
#[test]
fn an_unfrozen_trunk_has_its_own_learning_rate() {
    let first = infiller(&passages(12), true);
    let all = [None, Some(0.1), Some(0.2), Some(1.0)];
    let [default, tenth, fifth, whole] = all.map(|factor| changes(&first, &transferred(4, factor)));
    assert_eq!(default, tenth);
    for (factor, [trunk, critic]) in [(2.0, fifth), (10.0, whole)] {
        let ratio = trunk / tenth[0];
        assert!((ratio - factor).abs() < 1e-3 * factor, "{ratio}, expected {factor}");
        assert_eq!(critic, tenth[1]);
    }
}

#[test]
fn refuses_contradictory_settings() {
    let passages = passages(12);
    let refuses = |config: &MaskedLmConfig, critic: bool, expected: &str| {
        let model = infiller(&passages, critic);
        let data = data(&passages);
        let refused = MaskedLmObjective::trainer(model, &data, None, config, 1).err().unwrap();
        assert!(refused.to_string().starts_with(expected), "{refused}");
    };
    let frozen = TransferConfig { freeze_trunk: true, ..TransferConfig::default() };
    let nothing = MaskedLmConfig { transfer: frozen, ..config(5) };
    refuses(&nothing, false, "transfer.freeze_trunk = true leaves nothing to train: ");
    let late = TransferConfig { unfreeze_at_step: Some(1), ..TransferConfig::default() };
    let late = MaskedLmConfig { transfer: late, ..config(5) };
    refuses(&late, false, "transfer.unfreeze_at_step has no effect without ");
    let never = TransferConfig { freeze_trunk: true, unfreeze_at_step: Some(5), ..frozen };
    let never = MaskedLmConfig { transfer: never, ..config(5) };
    refuses(&never, false, "transfer.unfreeze_at_step = 5 is out of range; ");
    let idle = TransferConfig { unfreeze_learning_rate_factor: Some(0.5), ..frozen };
    let idle = MaskedLmConfig { transfer: idle, ..config(5) };
    refuses(&idle, false, "transfer.unfreeze_learning_rate_factor has no effect without ");
    refuses(&config(5), true, "the model has a critic, but section [critic] ");
    refuses(&everything(5), false, "[critic] requires a model with a critic; ");
    let critic = CriticConfig { warmup_from: 3, warmup_to: 2, ..CriticConfig::default() };
    let backwards = MaskedLmConfig { critic: Some(critic), ..config(5) };
    refuses(&backwards, true, "critic.warmup_to = 2 is before critic.warmup_from = 3");
}

#[test]
fn an_interrupted_training_ends_as_one_that_was_not() {
    let passages = passages(12);
    let data = data(&passages);
    let transfer = TransferConfig {
        freeze_trunk: true,
        unfreeze_at_step: Some(3),
        unfreeze_learning_rate_factor: Some(0.3),
    };
    let mut config = MaskedLmConfig { transfer, ..everything(6) };
    config.steps.eval_every = 2;
    let model = infiller(&passages, true);
    let trainer = || MaskedLmObjective::trainer(model.clone(), &data, None, &config, 1).unwrap();
    recorder::check_resumed(trainer, &[2, 5], Transformer::clone, parameters);
}
