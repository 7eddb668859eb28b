//! `grpo`: the one program of the workspace, with its tasks.

use std::process::ExitCode;

use grpo_app::{Infill, Replies};
use grpo_molecules::Molecules;

#[global_allocator]
static ALLOCATOR: grpo_process::Allocator = grpo_process::Allocator;

fn main() -> ExitCode {
    grpo_app::main(&[&Molecules, &Replies, &Infill], option_env!("GRPO_REVISION"))
}
