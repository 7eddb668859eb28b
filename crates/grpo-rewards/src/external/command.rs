//! Rewards computed by a program.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::ConfigFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::carrier::{Carrier, Connection, Fault};
use super::output::Output;
use super::process::{self, Answers};
use super::protocol::{Format, Shape};
use super::section::CarrierConfig;

/// Configuration of the reward type `command`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandConfig {
    /// The program and its arguments; arguments that are files are recorded in `run.json`.
    #[schemars(extend("x-basic" = true))]
    command: Vec<String>,
    /// `json`: the [message](#message) below. `reinvent`: the format of REINVENT 4's
    /// `ExternalProcess`.
    #[serde(default)]
    format: FormatName,
    /// With `reinvent`: the list of the payload that is the reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    property: Option<String>,
    /// Components of the reply that are recorded; with `json`, all that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    components: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FormatName {
    #[default]
    Json,
    Reinvent,
}

impl CarrierConfig for CommandConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        if self.command.first().is_none_or(String::is_empty) {
            return ConfigFault::refuse(
                "reward.command is empty; expected a program and its arguments, such as [\"python3\", \"score.py\"]",
            );
        }
        match self.format == FormatName::Json && self.property.is_some() {
            true => ConfigFault::refuse(
                "reward.property has no effect without format = \"reinvent\"; remove it",
            ),
            false => Ok(()),
        }
    }

    fn describe(&self) -> String {
        format!("runs the program `{}`", self.command.join(" "))
    }

    /// Returns all arguments that are files, and the program if it is specified by its path.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        let (program, arguments) = self.command.split_first().expect("the command is not empty");
        let program = program.contains('/').then_some(program);
        let paths = program.into_iter().chain(arguments).map(PathBuf::from);
        Ok(paths.filter(|path| path.is_file()).map(|path| ("command", path)).collect())
    }

    fn format(&self) -> Format {
        let property = self.property.clone();
        match self.format {
            FormatName::Json => Format::Json,
            FormatName::Reinvent => {
                Format::Reinvent { property: property.unwrap_or_else(|| "predictions".to_owned()) }
            }
        }
    }

    fn shape(&self) -> Shape {
        Shape { components: self.components.clone(), weights: None }
    }

    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault> {
        check_program("command", &self.command[0])?;
        let answers = match self.format {
            FormatName::Json => Answers::ByLine,
            FormatName::Reinvent => Answers::AtItsEnd,
        };
        let name = format!("the reward program `{}`", self.command.join(" "));
        Ok(Box::new(Program { command: self.command.clone(), name, answers }))
    }
}

/// The command line of a reward program.
pub(super) struct Program {
    pub(super) command: Vec<String>,
    /// Display name for error messages.
    pub(super) name: String,
    pub(super) answers: Answers,
}

impl Carrier for Program {
    fn connect(&self, output: &Arc<Output>, _: &AtomicBool) -> Result<Box<dyn Connection>, Fault> {
        process::start(&self.command, &self.name, self.answers, output)
    }
}

/// Returns an error if a program is not an executable file, here or in `PATH`.
pub(super) fn check_program(key: &str, program: &str) -> Result<(), ConfigFault> {
    let refuse = |what: String| ConfigFault::refuse(format!("reward.{key}: {what}"));
    let is_path = program.contains('/') || [".", ".."].contains(&program);
    let found: Vec<PathBuf> = match is_path {
        true => vec![PathBuf::from(program)],
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
        }
    };
    if found.iter().any(|path| path.is_file() && is_executable(path)) {
        return Ok(());
    }
    if is_path && Path::new(program).is_dir() {
        return refuse(format!("`{program}` is a folder; expected a program"));
    }
    match found.iter().find(|path| path.is_file()) {
        Some(file) => refuse(format!(
            "{0} is not executable; run `chmod +x {0}`, or name its interpreter first, as in [\"python3\", \"score.py\"]",
            file.display()
        )),
        None => {
            let place = if is_path { "here" } else { "in PATH" };
            refuse(format!("cannot find program `{program}` {place}; install it or use its path"))
        }
    }
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    true
}
