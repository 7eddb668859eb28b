//! `grpo config`: what the keys of configuration files mean.

mod page;
mod reference;
mod words;

use anyhow::bail;
use clap::Args;
use grpo_task::config::nearest;
use grpo_task::output::say_data;
use grpo_task::task::{CommandGroup, TaskCommand};

use self::reference::{Key, Reference, Section, joined, names, schema_text};
use self::words::{first_sentence, without_links};

pub use self::page::with_keys;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo config                     the basic keys
  grpo config --all               all keys
  grpo config train.group_size    what a key means, its type, default and range
  grpo config loss                all keys of a section
  grpo config --schema train      a JSON schema, with which editors complete keys")]
pub(crate) struct ConfigArguments {
    /// Key such as train.steps, or a section such as train
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// List all keys
    #[arg(long, conflicts_with = "key", help_heading = "Keys")]
    all: bool,
    /// Print the JSON schema of the files of a command (train if none is named)
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, default_missing_value = "train", conflicts_with_all = ["key", "all"], help_heading = "Keys")]
    schema: Option<String>,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = "Explain the keys of configuration files";
    let long = "Prints the meaning, type, default and range of a key, all keys of a section, or without KEY the basic keys, which most runs need.";
    TaskCommand::new("config", &[about, long], CommandGroup::Start, |_, arguments| run(arguments))
}

fn run(arguments: &ConfigArguments) -> anyhow::Result<()> {
    if let Some(name) = &arguments.schema {
        return print_schema(name);
    }
    let reference = Reference::read()?;
    match &arguments.key {
        Some(key) => explain(&reference, key),
        None => {
            list_keys(&reference, arguments.all);
            Ok(())
        }
    }
}

fn print_schema(name: &str) -> anyhow::Result<()> {
    let names: Vec<String> = names()?.into_iter().map(str::to_owned).collect();
    if !names.iter().any(|known| known == name) {
        let hint = match nearest(&names, name) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("there are: {}", names.join(", ")),
        };
        bail!("--schema {name}: no configuration file has this name; {hint}");
    }
    say_data(format_args!("{}", schema_text(name)?.trim_end()));
    Ok(())
}

/// Prints the keys that most runs need, or all keys.
fn list_keys(reference: &Reference, all: bool) {
    for (kind, file) in reference.files.iter().enumerate() {
        let keys = reference.keys().filter(|(section, _)| section.kind == kind);
        let mut keys = keys.filter(|(_, key)| all || key.is_basic).peekable();
        if keys.peek().is_none() {
            continue;
        }
        say_data(format_args!("{}", file.command));
        for (section, key) in keys {
            let path = section.path_of(key);
            let meaning = without_links(&first_sentence(&key.meaning));
            say_data(format_args!("  {path:<28} {meaning}"));
        }
    }
    let rest = match all {
        true => String::new(),
        false => format!("; `grpo config --all` lists all {}", reference.keys().count()),
    };
    say_data(format_args!(
        "`grpo config KEY` explains a key, `grpo config SECTION` lists the keys of a section{rest}"
    ));
}

/// Explains a key or a section.
fn explain(reference: &Reference, key: &str) -> anyhow::Result<()> {
    let asked = key.replace("[]", "").trim_matches(['[', ']']).to_owned();
    let path = own_path(reference, &asked);
    let mut is_found = false;
    for (section, key) in reference.keys().filter(|(section, key)| section.path_of(key) == path) {
        explain_key(reference, section, key);
        is_found = true;
    }
    let has_key = is_found;
    for section in &reference.sections {
        let is_asked = !path.is_empty() && section.path == path;
        let is_below = section.path.starts_with(&format!("{path}."));
        if is_asked || (is_below && !has_key) {
            list(reference, section);
            is_found = true;
        }
    }
    if is_found {
        return Ok(());
    }
    let names: Vec<String> = reference
        .keys()
        .flat_map(|(section, key)| [section.path_of(key), section.path.clone()])
        .filter(|name| !name.is_empty())
        .collect();
    // Without its section, a key is found by its name.
    let ending: Vec<&String> = names.iter().filter(|name| ends_with(name, &asked)).collect();
    let hint = match (&ending[..], nearest(&names, &asked)) {
        ([], Some(near)) => format!("did you mean '{near}'?"),
        ([], None) => "`grpo config` lists the basic keys".to_owned(),
        (ending, _) => {
            let mut ending: Vec<&str> = ending.iter().map(|name| name.as_str()).collect();
            ending.dedup();
            ending.truncate(8);
            format!("there are: {}", ending.join(", "))
        }
    };
    bail!("no configuration file has the key '{asked}'; {hint}")
}

fn ends_with(name: &str, end: &str) -> bool {
    name.strip_suffix(end).is_some_and(|before| before.ends_with('.'))
}

/// Replaces the path of a section whose keys are listed elsewhere.
fn own_path(reference: &Reference, path: &str) -> String {
    for section in &reference.sections {
        if let (Some(first), Some(rest)) = (&section.same_as, path.strip_prefix(&section.path))
            && (rest.is_empty() || rest.starts_with('.'))
            && !reference.keys().any(|(section, key)| section.path_of(key) == path)
        {
            return joined(first, rest.trim_start_matches('.')).trim_end_matches('.').to_owned();
        }
    }
    path.to_owned()
}

fn title(reference: &Reference, section: &Section) -> String {
    let command = reference.command(section);
    match &section.form {
        Some((tag, value)) => format!("{command}, {tag} = \"{value}\""),
        None => command.to_owned(),
    }
}

fn explain_key(reference: &Reference, section: &Section, key: &Key) {
    let mut facts = vec![key.type_name.clone()];
    if key.is_required {
        facts.push("required".to_owned());
    }
    if !key.default.is_empty() {
        facts.push(format!("default {}", key.default));
    }
    if !key.range.is_empty() {
        facts.push(format!("range {}", key.range));
    }
    say_data(format_args!("{}   {}", section.path_of(key), title(reference, section)));
    say_data(format_args!("  {}", facts.join("; ")));
    say_data(format_args!("  {}", without_links(&key.meaning).replace('\n', "\n  ")));
    for (value, meaning) in &key.choices {
        let meaning = without_links(&first_sentence(meaning));
        say_data(format_args!("  {:<24} {meaning}", format!("\"{value}\"")));
    }
}

fn list(reference: &Reference, section: &Section) {
    let name = match section.is_list {
        true => format!("[[{}]]", section.path),
        false => format!("[{}]", section.path),
    };
    say_data(format_args!("{name}   {}", title(reference, section)));
    if !section.meaning.is_empty() {
        say_data(format_args!("  {}", without_links(&first_sentence(&section.meaning))));
    }
    if let Some(first) = &section.same_as {
        say_data(format_args!("  the keys of [{first}]"));
    }
    for key in &section.keys {
        let default = match key.is_required {
            true => "required",
            false => &key.default,
        };
        let meaning = without_links(&first_sentence(&key.meaning));
        say_data(format_args!("  {:<24} {default:<16} {meaning}", key.name));
    }
}
