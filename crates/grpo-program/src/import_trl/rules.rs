//! TRL keys that correspond to one of our keys with the same meaning.

use toml::Value;

use super::draft::Draft;

/// The type of a value.
enum Kind {
    Number,
    Integer,
    Boolean,
    /// One of these strings. The first one is TRL's default.
    Choice(&'static [&'static str]),
}

/// TRL's default for a key.
enum Theirs {
    Number(f64),
    Integer(i64),
    Boolean(bool),
    /// The first choice.
    First,
    /// The key is not set.
    Unset,
}

struct Rule {
    trl: &'static str,
    here: &'static str,
    kind: Kind,
    theirs: Theirs,
    /// Numbers that turn the key off. Our key is then omitted.
    off: &'static [f64],
}

/// Creates a rule for a key that cannot be turned off.
const fn rule(trl: &'static str, here: &'static str, kind: Kind, theirs: Theirs) -> Rule {
    Rule { trl, here, kind, theirs, off: &[] }
}

const RULES: &[Rule] = &[
    rule("seed", "seed", Kind::Integer, Theirs::Integer(42)),
    rule("num_generations", "train.group_size", Kind::Integer, Theirs::Integer(8)),
    rule(
        "activation_checkpointing",
        "train.activation_checkpointing",
        Kind::Boolean,
        Theirs::Boolean(true),
    ),
    rule("max_prompt_length", "data.max_prompt_tokens", Kind::Integer, Theirs::Unset),
    rule("max_completion_length", "sampling.max_new_tokens", Kind::Integer, Theirs::Integer(512)),
    rule("temperature", "sampling.temperature", Kind::Number, Theirs::Number(1.0)),
    Rule { off: &[0.0, -1.0], ..rule("top_k", "sampling.top_k", Kind::Integer, Theirs::Unset) },
    Rule { off: &[1.0], ..rule("top_p", "sampling.top_p", Kind::Number, Theirs::Unset) },
    rule("min_p", "sampling.min_p", Kind::Number, Theirs::Unset),
    Rule {
        off: &[1.0],
        ..rule("repetition_penalty", "sampling.repetition_penalty", Kind::Number, Theirs::Unset)
    },
    rule(
        "multi_objective_aggregation",
        "advantage.aggregation",
        Kind::Choice(&["sum_then_normalize", "normalize_then_sum"]),
        Theirs::First,
    ),
    rule("beta", "loss.kl_coef", Kind::Number, Theirs::Number(0.0)),
    rule("use_bias_correction_kl", "loss.kl_bias_correction", Kind::Boolean, Theirs::Boolean(true)),
    rule("off_policy_mask_threshold", "loss.off_policy_threshold", Kind::Number, Theirs::Unset),
    Rule {
        off: &[1.0],
        ..rule("top_entropy_quantile", "loss.high_entropy_share", Kind::Number, Theirs::Unset)
    },
    rule("learning_rate", "optimizer.learning_rate", Kind::Number, Theirs::Number(1e-6)),
    rule("adam_epsilon", "optimizer.epsilon", Kind::Number, Theirs::Number(1e-8)),
    rule("weight_decay", "optimizer.weight_decay", Kind::Number, Theirs::Number(0.0)),
];

/// Applies all rules.
pub(super) fn apply(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    for rule in RULES {
        let given = value_of(draft, rule)?;
        let number = given.as_ref().and_then(|value| {
            value.as_float().or_else(|| value.as_integer().map(|value| value as f64))
        });
        if number.is_some_and(|number| rule.off.contains(&number)) {
            draft.same(&[rule.trl], "off, which is the default here");
        } else if let Some(value) = given.or_else(|| theirs(rule)) {
            let note = match rule.trl {
                "max_prompt_length" => "longer prompts are dropped; TRL truncated their beginning",
                _ => "",
            };
            draft.set(&[rule.trl], rule.here, value, note);
        }
    }
    Ok(())
}

/// Returns the value in the file.
fn value_of(draft: &Draft<'_>, rule: &Rule) -> anyhow::Result<Option<Value>> {
    let (given, key) = (draft.given, rule.trl);
    Ok(match &rule.kind {
        Kind::Number => given.number(key)?.map(Value::Float),
        Kind::Integer => given.integer(key)?.map(Value::Integer),
        Kind::Boolean => given.boolean(key)?.map(Value::Boolean),
        Kind::Choice(_) if !given.has(key) => None,
        Kind::Choice(choices) => Some(Value::from(given.choice(key, choices)?)),
    })
}

/// Returns TRL's default.
fn theirs(rule: &Rule) -> Option<Value> {
    match (&rule.theirs, &rule.kind) {
        (Theirs::Number(number), _) => Some(Value::Float(*number)),
        (Theirs::Integer(number), _) => Some(Value::Integer(*number)),
        (Theirs::Boolean(value), _) => Some(Value::Boolean(*value)),
        (Theirs::First, Kind::Choice(choices)) => choices.first().map(|first| Value::from(*first)),
        (Theirs::First | Theirs::Unset, _) => None,
    }
}

/// Returns whether a rule covers this key.
pub(super) fn is_known(key: &str) -> bool {
    RULES.iter().any(|rule| rule.trl == key)
}
