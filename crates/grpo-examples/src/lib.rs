#![doc = include_str!("../README.md")]

mod files;
mod init_project;

use grpo_app::task::{Task, TaskCommand};

pub use files::{ExampleFile, FILES};
pub use init_project::create;

/// Adds the command `init-project` to the program.
pub struct Examples;

impl Task for Examples {
    fn name(&self) -> &'static str {
        "examples"
    }

    fn commands(&self) -> Vec<TaskCommand> {
        vec![init_project::command()]
    }
}
