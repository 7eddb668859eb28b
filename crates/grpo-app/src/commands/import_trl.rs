//! `grpo import-trl`: converts a TRL configuration.

use std::io::Write;

use anyhow::Context;

use crate::args::ImportTrlArguments;
use crate::import_trl::{Setting, import};
use crate::output::{FileInPlace, say, say_data};
use crate::task::Tasks;

pub(crate) fn run(arguments: &ImportTrlArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let ImportTrlArguments { config, output, .. } = arguments;
    let output = output.clone().unwrap_or_else(|| config.with_extension("toml"));
    let setting = Setting { processes: arguments.processes, prompts: arguments.prompts };
    let imported = import(config, &output, &setting, tasks)?;
    // Both files are checked before one is written.
    let mut template = None;
    if let Some((path, text)) = &imported.template {
        let mut file = FileInPlace::create_beside(path, &[config, &output], arguments.force)?;
        let written = file.write_all(text.as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        template = Some(file);
    }
    let mut file = FileInPlace::create_beside(&output, &[config], arguments.force)?;
    let written = file.write_all(imported.toml.as_bytes());
    written.with_context(|| format!("cannot write {}", output.display()))?;
    FileInPlace::finish_all([template, Some(file)].into_iter().flatten())?;
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
