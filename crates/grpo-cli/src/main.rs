//! `grpo`: the one program of the workspace.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: grpo_process::Allocator = grpo_process::Allocator;

fn main() -> ExitCode {
    grpo_app::main(option_env!("GRPO_REVISION"))
}
