//! `grpo import-trl`: converts a TRL configuration.

use std::path::Path;

use grpo_task::output::{FileInPlace, Formats, say, say_data};
use grpo_task::task::Tasks;

use crate::args::ImportTrlArguments;
use crate::import_trl::{Setting, import};

const CONFIGURATION: Formats = Formats { written: "a configuration in TOML", endings: &["toml"] };
const TEMPLATE: Formats = Formats { written: "a chat template", endings: &["jinja"] };

pub(crate) fn run(arguments: &ImportTrlArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let ImportTrlArguments { config, output, .. } = arguments;
    let output = output.clone().unwrap_or_else(|| config.with_extension("toml"));
    let setting = Setting { processes: arguments.processes, prompts: arguments.prompts };
    let file = FileInPlace::create_beside(&output, CONFIGURATION, &[config], arguments.force)?;
    let imported = import(config, &output, &setting, tasks)?;
    // Both files are checked before one is written.
    let template = imported.template.as_ref().map(|(path, text)| {
        let inputs: [&Path; 2] = [config, &output];
        FileInPlace::create_beside(path, TEMPLATE, &inputs, arguments.force)?.with_text(text)
    });
    let files = [template.transpose()?, Some(file.with_text(&imported.toml)?)];
    FileInPlace::finish_all(files.into_iter().flatten())?;
    match arguments.json {
        true => say_data(format_args!("{}", imported.json()?)),
        false => {
            imported.print();
            say(format_args!("\nconfiguration {}", output.display()));
            if let Some((path, _)) = &imported.template {
                say(format_args!("template      {}", path.display()));
            }
        }
    }
    Ok(())
}
