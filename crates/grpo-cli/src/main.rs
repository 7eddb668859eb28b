//! The `grpo` command-line program with all its tasks.

use std::process::ExitCode;

use grpo_bench::Bench;
use grpo_examples::Examples;
use grpo_infill::Infill;
use grpo_molecules::Molecules;
use grpo_replies::Replies;

#[global_allocator]
static ALLOCATOR: grpo_runtime::Allocator = grpo_runtime::Allocator;

fn main() -> ExitCode {
    grpo_program::main(
        &[&Molecules, &Replies, &Infill, &Examples, &Bench],
        option_env!("GRPO_REVISION"),
    )
}
