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
    let mut file = FileInPlace::create_beside(&output, &[config], arguments.force)?;
    let written = file.write_all(imported.toml.as_bytes());
    written.with_context(|| format!("cannot write {}", output.display()))?;
    file.finish()?;
    match arguments.json {
        true => say_data(format_args!("{}", imported.json()?)),
        false => {
            imported.print();
            say(format_args!("\nconfiguration {}", output.display()));
        }
    }
    Ok(())
}
