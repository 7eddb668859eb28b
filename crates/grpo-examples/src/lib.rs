#![doc = include_str!("../README.md")]

mod init_project;

use grpo_app::task::{Task, TaskCommand};

/// A file of the examples: its path relative to the project, with `/`, and its content.
pub type ExampleFile = (&'static str, &'static [u8]);

/// The example files, sorted by path.
pub static FILES: &[ExampleFile] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

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
