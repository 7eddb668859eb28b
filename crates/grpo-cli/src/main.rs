//! `grpo`: the one program of the workspace. It reads arguments and configuration files, chooses a device,
//! and prints; everything else is in the libraries.

mod args;
mod commands;
mod config;
mod device;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};

/// Keeps the large buffers of a step instead of giving them back to the system and clearing them again,
/// which took a sixth of a training step with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The sentence first; each cause behind it, where it says something new.
            eprintln!("error: {}", output::sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    device::set_threads(arguments.threads)?;
    match arguments.command {
        Command::Pretrain(arguments) => commands::pretrain::run(&arguments),
    }
}
