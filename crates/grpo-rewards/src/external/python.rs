//! Rewards computed by Python functions. A helper script runs them in the user's interpreter.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use grpo_data::{ConfigFault, LARGEST_REWARD, OneOrSeveral, regular_file};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::carrier::{Carrier, Connection, Fault};
use super::command::{Program, check_program};
use super::output::Output;
use super::process::Answers;
use super::protocol::Shape;
use super::reward::ExternalReward;
use super::section::CarrierConfig;

/// The helper script, which only depends on the Python standard library.
const HELPER: &str = include_str!("helper.py");
/// Time limit for importing the user's file.
const IMPORT_LIMIT: Duration = Duration::from_secs(300);

/// Configuration of the reward type `python`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PythonConfig {
    /// The Python file; recorded with its SHA-256 in `run.json`.
    #[schemars(extend("x-basic" = true))]
    file: PathBuf,
    /// Name of the function, or several names.
    #[serde(default = "default_function")]
    #[schemars(extend("x-basic" = true))]
    function: OneOrSeveral,
    /// Weights of several functions. Default: 1 each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<f64>>,
    /// Program that runs the file.
    #[serde(default = "default_interpreter")]
    interpreter: String,
}

fn default_function() -> OneOrSeveral {
    OneOrSeveral::One("reward".to_owned())
}

fn default_interpreter() -> String {
    "python3".to_owned()
}

impl CarrierConfig for PythonConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        let names = self.function.as_slice();
        if names.is_empty() {
            return ConfigFault::refuse(
                "reward.function is empty; expected the name of a function or a list of names",
            );
        }
        let Some(weights) = &self.weights else { return Ok(()) };
        if matches!(self.function, OneOrSeveral::One(_)) {
            return ConfigFault::refuse(
                "reward.weights has no effect with a single function; remove it, or make reward.function a list",
            );
        }
        if weights.len() != names.len() {
            return ConfigFault::refuse(format!(
                "reward.weights has {} numbers, but reward.function has {} names; expected one weight per function",
                weights.len(),
                names.len()
            ));
        }
        let are_bounded = weights.iter().all(|weight| weight.abs() <= LARGEST_REWARD);
        match are_bounded && weights.iter().any(|weight| *weight != 0.0) {
            true => Ok(()),
            false => ConfigFault::refuse(
                "reward.weights must be numbers up to 1e100 in magnitude, and at least one must be nonzero",
            ),
        }
    }

    fn describe(&self) -> String {
        format!("runs {} with `{}`", self.file.display(), self.interpreter)
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        let fault = match regular_file::open(&self.file) {
            Ok(_) => return Ok(vec![("reward", self.file.clone())]),
            Err(error) if error.kind() == ErrorKind::NotFound => "does not exist".to_owned(),
            Err(error) => format!("cannot be read ({error})"),
        };
        ConfigFault::refuse(format!(
            "reward.file: file {} {fault}; expected a Python file with the reward function",
            self.file.display()
        ))
    }

    /// If there are several functions, each is a component of the sum.
    fn shape(&self) -> Shape {
        match &self.function {
            OneOrSeveral::One(_) => Shape::default(),
            OneOrSeveral::Several(names) => Shape {
                components: names.clone(),
                weights: Some(self.weights.clone().unwrap_or_else(|| vec![1.0; names.len()])),
            },
        }
    }

    fn carrier(&self) -> Result<Box<dyn Carrier>, ConfigFault> {
        self.files()?;
        check_program("interpreter", &self.interpreter)?;
        let file = self.file.display().to_string();
        let mut command: Vec<String> =
            [&self.interpreter, "-c", HELPER, &file].map(str::to_owned).into();
        command.extend(self.function.as_slice().iter().cloned());
        let name = format!("the reward {file}");
        Ok(Box::new(Imported(Program { command, name, answers: Answers::ByLine })))
    }

    /// Imports the file, so that errors in it are reported before the run starts.
    fn prepare(&self, reward: &ExternalReward) -> Result<(), ConfigFault> {
        let refuse =
            |reason: &str| ConfigFault::new("", format!("reward.file: {}", reason.trim_end()), "");
        let connection = reward.connected().map_err(|fault| refuse(&fault.reason()))?;
        reward.add_idle(connection);
        Ok(())
    }
}

/// An interpreter that imports the user's file before its first request, so that the time limit of
/// the request does not include the import.
struct Imported(Program);

impl Carrier for Imported {
    fn connect(
        &self,
        output: &Arc<Output>,
        cancelled: &AtomicBool,
    ) -> Result<Box<dyn Connection>, Fault> {
        let mut connection = self.0.connect(output, cancelled)?;
        let reply = connection.exchange(b"{\"id\":0,\"items\":[]}\n", IMPORT_LIMIT, cancelled)?;
        let reply: Value = serde_json::from_slice(&reply).unwrap_or_default();
        match reply.get("error").and_then(Value::as_str) {
            Some(error) => Err(Fault::Other(error.to_owned())),
            None => Ok(connection),
        }
    }
}
