//! Loss, advantages, entropy bonus, reference and optimizer.

use toml::{Table, Value};

use super::draft::Draft;
use super::steps::Length;

/// Values of `loss_type`, which are the names of our presets. TRL's default comes first.
const LOSSES: [&str; 8] = ["dapo", "grpo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"];

/// Gradient norm that is never reached.
const NO_CLIPPING: f64 = 1e9;

pub(super) fn apply(draft: &mut Draft<'_>, length: Length) -> anyhow::Result<()> {
    let preset = draft.given.choice("loss_type", &LOSSES)?;
    let note = match preset {
        "bnpo" => "its result depends on train.micro_batch_tokens; in TRL, on the per-device batch",
        _ => "",
    };
    draft.set(&["loss_type"], "loss.preset", preset, note);
    surrogate(draft, preset)?;
    ratio_level(draft, preset)?;
    scale(draft, preset)?;
    entropy(draft)?;
    reference(draft, length)?;
    optimizer(draft)
}

/// Sets the constants of the surrogate.
fn surrogate(draft: &mut Draft<'_>, preset: &str) -> anyhow::Result<()> {
    let given = draft.given;
    let number = |key: &str, default: f64| -> anyhow::Result<f64> {
        Ok(given.number(key)?.unwrap_or(default))
    };
    let epsilon = number("epsilon", 0.2)?;
    let high = number("epsilon_high", epsilon)?;
    let float = |value: f64| Some(Value::Float(value));
    // `epsilon` also determines the upper bound if `epsilon_high` is not set.
    let of_high: &[&str] = match given.has("epsilon_high") {
        true => &["epsilon_high"],
        false => &["epsilon_high", "epsilon"],
    };
    match preset {
        "sapo" => {
            let keys = ["sapo_temperature_pos", "sapo_temperature_neg"];
            let names = ["temperature_positive", "temperature_negative"];
            let theirs = [1.0, 1.05];
            constants(draft, preset, &keys, &names, &theirs)
        }
        "vespo" => {
            let keys = ["vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"];
            let names = ["k_positive", "lambda_positive", "k_negative", "lambda_negative"];
            constants(draft, preset, &keys, &names, &[2.0, 3.0, 3.0, 2.0])
        }
        "cispo" => {
            let note = "largest ratio";
            draft.set_over(float(5.0), of_high, "loss.cap", Value::Float(high), note.to_owned());
            Ok(())
        }
        _ => {
            let (low_here, high_here) = match preset {
                "luspo" => (3e-4, 4e-4),
                "dapo" => (0.2, 0.28),
                _ => (0.2, 0.2),
            };
            let (low, none) = (Value::Float(epsilon), String::new());
            draft.set_over(float(low_here), &["epsilon"], "loss.epsilon_low", low, none.clone());
            let value = Value::Float(high);
            draft.set_over(float(high_here), of_high, "loss.epsilon_high", value, none);
            if let Some(delta) = given.number("delta")? {
                draft.set(&["delta"], "loss.delta", delta, "");
            }
            Ok(())
        }
    }
}

/// Sets a surrogate with all its constants. Our defaults are TRL's.
fn constants(
    draft: &mut Draft<'_>,
    name: &str,
    keys: &[&str],
    names: &[&str],
    theirs: &[f64],
) -> anyhow::Result<()> {
    let table = || Table::from_iter([("type".to_owned(), Value::from(name))]);
    let (mut surrogate, mut default) = (table(), table());
    for ((key, name), theirs) in keys.iter().zip(names).zip(theirs) {
        let value = draft.given.number(key)?.unwrap_or(*theirs);
        surrogate.insert((*name).to_owned(), Value::Float(value));
        default.insert((*name).to_owned(), Value::Float(*theirs));
    }
    let (value, default) = (Value::Table(surrogate), Some(Value::Table(default)));
    draft.set_over(default, keys, "loss.surrogate", value, String::new());
    Ok(())
}

fn ratio_level(draft: &mut Draft<'_>, preset: &str) -> anyhow::Result<()> {
    let key = "importance_sampling_level";
    let level = draft.given.choice(key, &["token", "sequence"])?;
    if preset == "vespo" {
        draft.same(&[key], "the vespo surrogate has one weight per completion at either level");
        return Ok(());
    }
    let here = if preset == "luspo" { "sequence" } else { "token" };
    let note = match (preset, level) {
        ("luspo", "token") => "LUSPO is meant for \"sequence\"",
        _ => "",
    };
    let here = Some(Value::from(here));
    draft.set_over(here, &[key], "loss.ratio_level", Value::from(level), note.to_owned());
    Ok(())
}

/// Sets how rewards are scaled.
fn scale(draft: &mut Draft<'_>, preset: &str) -> anyhow::Result<()> {
    let (given, key) = (draft.given, "scale_rewards");
    let scale = match given.get(key).and_then(serde_json::Value::as_bool) {
        Some(true) => "group",
        Some(false) => "none",
        None => match given.text(key)?.as_deref() {
            Some("True" | "true") => "group",
            Some("False" | "false") => "none",
            _ => given.choice(key, &["group", "batch", "none"])?,
        },
    };
    if given.text("multi_objective_aggregation")?.as_deref() == Some("normalize_then_sum") {
        let note =
            "normalize_then_sum divides by the deviation of each group and then of the batch";
        draft.same(&[key], note);
        return Ok(());
    }
    let here = Some(Value::from(if preset == "dr_grpo" { "none" } else { "group" }));
    draft.set_over(here, &[key], "advantage.scale", Value::from(scale), String::new());
    Ok(())
}

fn entropy(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let coefficient = given.number("entropy_coef")?.unwrap_or(0.0);
    let text = |value: &str| Value::from(value);
    if given.boolean("use_adaptive_entropy")? == Some(true) {
        let number = |key: &str, theirs: f64| -> anyhow::Result<Value> {
            Ok(Value::Float(given.number(key)?.unwrap_or(theirs)))
        };
        let bonus = Table::from_iter([
            ("type".to_owned(), text("adaptive")),
            ("initial".to_owned(), Value::Float(coefficient)),
            ("target".to_owned(), number("entropy_target", 0.2)?),
            ("delta".to_owned(), number("entropy_coef_delta", 0.005)?),
            ("min".to_owned(), number("entropy_coef_min", 0.0)?),
            ("max".to_owned(), number("entropy_coef_max", 1.0)?),
        ]);
        let keys = [
            "use_adaptive_entropy",
            "entropy_coef",
            "entropy_target",
            "entropy_coef_delta",
            "entropy_coef_min",
            "entropy_coef_max",
        ];
        draft.set(&keys, "loss.entropy_bonus", Value::Table(bonus), "");
    } else if coefficient != 0.0 {
        let bonus = Table::from_iter([
            ("type".to_owned(), text("static")),
            ("coef".to_owned(), Value::Float(coefficient)),
        ]);
        draft.set(&["entropy_coef"], "loss.entropy_bonus", Value::Table(bonus), "");
    }
    Ok(())
}

/// Sets updates of the reference.
fn reference(draft: &mut Draft<'_>, length: Length) -> anyhow::Result<()> {
    let given = draft.given;
    if given.boolean("sync_ref_model")? != Some(true) {
        return Ok(());
    }
    let every = given.count("ref_model_sync_steps", 512, 1..=1_000_000_000)?;
    let every = length.rollouts(every as f64).max(1);
    let mix = given.number("ref_model_mixup_alpha")?.unwrap_or(0.6);
    draft.set(&["sync_ref_model", "ref_model_sync_steps"], "reference.every_steps", every, "");
    draft.set(&["ref_model_mixup_alpha"], "reference.mix", mix, "");
    Ok(())
}

fn optimizer(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let betas =
        [given.number("adam_beta1")?.unwrap_or(0.9), given.number("adam_beta2")?.unwrap_or(0.999)];
    let betas = Value::Array(betas.map(Value::Float).to_vec());
    draft.set(&["adam_beta1", "adam_beta2"], "optimizer.betas", betas, "");
    let (norm, note) = match given.number("max_grad_norm")?.unwrap_or(1.0) {
        0.0 => (NO_CLIPPING, "no clipping"),
        norm => (norm, ""),
    };
    draft.set(&["max_grad_norm"], "optimizer.max_grad_norm", norm, note);
    if given.number("weight_decay")?.is_some_and(|decay| decay > 0.0) {
        draft.point_out(
            "weight_decay",
            "all but biases and norms",
            "optimizer.weight_decay_on = \"linear\"",
            "embeddings have no weight decay here",
        );
    }
    Ok(())
}
