//! The commands that a run suggests at its end. Each of them works as printed.

use grpo_data::{Codec, Prompt};
use grpo_task::output::{command_line, say};
use serde_json::Value;

use crate::train::session::Session;

/// Prompts that are longer would fill the screen; the command then reads the file of prompts.
const LONGEST_PROMPT: usize = 200;
/// Number of prompts among which to look for a short one.
const LOOKED_AT: u32 = 50;

/// Prints the commands to run after training.
pub(super) fn next_steps(session: &Session) {
    let Session { folder, file, training, .. } = session;
    let run = folder.path().display().to_string();
    let every = file.settings.save.completions_every;
    let step = (every > 0).then(|| training.steps() / every * every).filter(|step| *step > 0);
    let explain = match step {
        Some(step) => ["explain", &run, "--step", &step.to_string()].map(str::to_owned).to_vec(),
        None => vec!["audit".to_owned(), run.clone()],
    };
    let report = vec!["report".to_owned(), run];
    let commands = try_out(session).into_iter().chain([report, explain]);
    for (command, title) in commands.zip(["next"].into_iter().chain(std::iter::repeat(""))) {
        say(format_args!("{title:<12} grpo {}", command_line(command)));
    }
}

/// Returns the arguments of a command that shows what the trained model does, if there is one that
/// fits on a line.
fn try_out(session: &Session) -> Option<Vec<String>> {
    let Session { folder, kind, file, prompts, .. } = session;
    let trained = folder.path().join(kind).display().to_string();
    // An adapter can only be used with its base model.
    let model = match *kind {
        "adapter" => vec![
            "--model".to_owned(),
            file.settings.model.display().to_string(),
            "--adapter".to_owned(),
            trained,
        ],
        _ => vec!["--model".to_owned(), trained],
    };
    let prompts = prompts.first(LOOKED_AT).unwrap_or_default();
    if let Some(source) = &file.source {
        return source.try_out(&model, prompts.first()?);
    }
    let mut command = vec!["sample".to_owned()];
    command.extend(model);
    if let Some(data) = &file.data {
        let of_prompt = |prompt: &Prompt| match data.reader.prompt_option(prompt) {
            Some((name, text)) => Some(vec![option(name, &text)?]),
            None => given(prompt, session.codec()).filter(|_| data.reader.holds_prompts()),
        };
        match prompts.iter().find_map(of_prompt) {
            Some(options) => command.extend(options),
            // `grpo sample` does not know the columns and the template of a configuration.
            None if data.reader.holds_prompts() && data.reader.settings().is_empty() => {
                let first = data.files().paths().next()?.display().to_string();
                command.extend(["--prompts".to_owned(), first]);
            }
            None => return None,
        }
    }
    Some(command)
}

/// Formats an option with a text, if it fits on a line. With `=`, the text may start with a hyphen.
fn option(name: &str, text: &str) -> Option<String> {
    let is_short = text.chars().count() <= LONGEST_PROMPT;
    let is_line = !text.trim().is_empty() && !text.contains(char::is_control);
    (is_short && is_line).then(|| format!("--{name}={text}"))
}

/// Returns the options of `grpo sample` for the prompt of a record. `None` if it is not short, or if
/// it cannot be written as an option.
fn given(prompt: &Prompt, codec: &Codec) -> Option<Vec<String>> {
    if let Some(messages) = prompt.fields.get("prompt").and_then(Value::as_array) {
        let [message] = &messages[..] else { return None };
        let is_of_user = message.get("role").and_then(Value::as_str) == Some("user");
        let text = message.get("content")?.as_str().filter(|_| is_of_user)?;
        return Some(vec!["--chat".to_owned(), option("prompt", text)?]);
    }
    let text = codec.is_text().then(|| codec.decode(&prompt.ids))?;
    let source = grpo_data::PromptSource::Text(text.clone());
    let ids = codec.prompt(&source, &grpo_data::ChatOptions::default()).ok()?;
    (ids == prompt.ids).then_some(vec![option("prompt", &text)?])
}
