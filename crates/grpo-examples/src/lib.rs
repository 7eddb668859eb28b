#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod config;
mod files;
mod init_project;

use grpo_task::task::{Task, TaskCommand};

pub use config::with_keys;
pub use files::{ExampleFile, FILES};
pub use init_project::create;

/// Adds the commands `init-project` and `config` to the program.
pub struct Examples;

impl Task for Examples {
    fn name(&self) -> &'static str {
        "examples"
    }

    fn commands(&self) -> Vec<TaskCommand> {
        vec![init_project::command(), config::command()]
    }
}
