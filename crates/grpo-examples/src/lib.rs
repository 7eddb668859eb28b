#![doc = include_str!("../README.md")]

mod files;
mod gpu_check;
mod init_project;

use grpo_app::task::{Task, TaskCommand};

pub use files::{ExampleFile, FILES};

/// Adds the commands `init-project` and `gpu-check` to the program.
pub struct Examples;

impl Task for Examples {
    fn name(&self) -> &'static str {
        "examples"
    }

    fn commands(&self) -> Vec<TaskCommand> {
        vec![init_project::command(), gpu_check::command()]
    }
}
