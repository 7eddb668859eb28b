//! Reward functions.

use toml::Value;

use super::draft::Draft;

/// Reward functions that TRL provides by name, and what they are in `trl.rewards`.
const OF_TRL: [(&str, &str); 4] = [
    ("accuracy_reward", "from trl.rewards import accuracy_reward"),
    ("reasoning_accuracy_reward", "from trl.rewards import reasoning_accuracy_reward"),
    ("think_format_reward", "from trl.rewards import think_format_reward"),
    (
        "get_soft_overlong_punishment",
        "import trl.rewards; get_soft_overlong_punishment = trl.rewards.get_soft_overlong_punishment(1280, 256)",
    ),
];

/// Reward functions that open-r1 provides by name, and what they are in `open_r1.rewards`.
const OF_OPEN_R1: [(&str, &str); 6] = [
    ("accuracy", "from open_r1.rewards import accuracy_reward as accuracy"),
    ("format", "from open_r1.rewards import format_reward as format"),
    ("reasoning_steps", "from open_r1.rewards import reasoning_steps_reward as reasoning_steps"),
    ("length", "from open_r1.rewards import len_reward as length"),
    ("tag_count", "from open_r1.rewards import tag_count_reward as tag_count"),
    (
        "code_format",
        "from open_r1.rewards import get_code_format_reward; code_format = get_code_format_reward()",
    ),
];

/// A function of the file: its name there and the line that defines it.
struct Function {
    name: String,
    line: Option<String>,
}

/// Sets the reward: the functions of a Python file.
pub(super) fn apply(draft: &mut Draft<'_>) -> anyhow::Result<()> {
    let given = draft.given;
    let names = given.texts("reward_funcs")?.unwrap_or_default();
    let weights = given.numbers("reward_weights")?;
    if let Some(weights) = weights.as_ref().filter(|weights| weights.len() != names.len())
        && !names.is_empty()
        && !given.has("reward_model_name_or_path")
    {
        return Err(given.fault(&format!(
            "reward_weights has {} numbers, but reward_funcs has {} names; expected one weight per function",
            weights.len(),
            names.len()
        )));
    }
    draft.placeholder("reward.type", "python", "functions of a Python file");
    if names.is_empty() {
        draft.placeholder("reward.file", "rewards.py", "fill in");
        draft.remind("Write the reward function `reward` in rewards.py, or set another [reward].");
        return Ok(());
    }
    let key = "reward_funcs";
    let note = "TRL's signature; chat prompts and completions are messages, as in TRL";
    let module = only_module(&names);
    let functions = match &module {
        Some(_) => names
            .iter()
            .map(|name| Function { name: split(name).1.to_owned(), line: None })
            .collect(),
        None => functions(&names),
    };
    let file = match module {
        Some(module) => format!("{}.py", module.replace('.', "/")),
        None => "rewards.py".to_owned(),
    };
    draft.set(&[key], "reward.file", file.clone(), note);
    let in_file: Vec<&str> = functions.iter().map(|function| &*function.name).collect();
    if in_file != ["reward"] {
        let names = in_file.iter().map(|name| Value::from(*name)).collect();
        draft.set(&[key], "reward.function", Value::Array(names), "");
    }
    if let Some(weights) = weights.filter(|weights| weights.len() == names.len()) {
        let weights = weights.into_iter().map(Value::Float).collect();
        draft.set(&["reward_weights"], "reward.weights", Value::Array(weights), "");
    }
    let all = in_file.join(", ");
    let lines: Vec<&str> =
        functions.iter().filter_map(|function| function.line.as_deref()).collect();
    let undefined: Vec<&str> =
        functions.iter().filter(|it| it.line.is_none()).map(|it| &*it.name).collect();
    draft.remind(match (lines.as_slice(), undefined.as_slice()) {
        ([], _) if module.is_some() => {
            format!("Check that {file} has {all}; functions written for TRL run unchanged.")
        }
        ([], _) => format!("Write {file} with {all}; functions written for TRL run unchanged."),
        (lines, []) => format!("Write {file}, one line each: {}", lines.join("; ")),
        (lines, undefined) => format!(
            "Write {file} with {}, and one line each: {}",
            undefined.join(", "),
            lines.join("; ")
        ),
    });
    Ok(())
}

/// Splits a name into its module and the name in it.
fn split(name: &str) -> (Option<&str>, &str) {
    name.rsplit_once('.').map_or((None, name), |(module, name)| (Some(module), name))
}

/// Returns the module of all functions, if it is one.
fn only_module(names: &[String]) -> Option<&str> {
    let module = split(names.first()?).0?;
    names.iter().all(|name| split(name).0 == Some(module)).then_some(module)
}

/// Returns the functions of one file that imports them from several modules.
fn functions(names: &[String]) -> Vec<Function> {
    let mut functions: Vec<Function> = vec![];
    for full in names {
        let (module, name) = split(full);
        let is_taken = names.iter().filter(|other| split(other).1 == name).count() > 1;
        functions.push(match module {
            Some(module) if is_taken => {
                let alias = format!("{}_{name}", module.replace('.', "_"));
                let line = Some(format!("from {module} import {name} as {alias}"));
                Function { name: alias, line }
            }
            Some(module) => {
                let line = Some(format!("from {module} import {name}"));
                Function { name: name.to_owned(), line }
            }
            None => {
                let mut known = OF_TRL.iter().chain(&OF_OPEN_R1);
                let line =
                    known.find(|(known, _)| known == full).map(|(_, line)| (*line).to_owned());
                Function { name: name.to_owned(), line }
            }
        });
    }
    functions
}
