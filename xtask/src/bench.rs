//! `cargo xtask bench`.

mod cases;
mod peer;
mod report;
mod surroundings;
mod table;
mod worker;

use std::path::PathBuf;

pub(crate) use cases::run as bench;

/// Measure the whole system
///
/// Each case runs in a process of its own: sampling, training, whole GRPO steps, on models of several sizes.
/// What the cases are, and what the ratios mean: docs/benchmarks.md. Results lie under target/bench/ as JSON.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench                                  all cases
  cargo xtask bench --quick                          those that take seconds
  cargo xtask bench --case sampling                  those with this in their names
  cargo xtask bench --against                        beside PyTorch, transformers and TRL
  cargo xtask bench --against --case step-small --python venv/bin/python
  cargo bench --workspace --bench functions          Criterion's benchmarks of single functions")]
pub(crate) struct Bench {
    /// Only cases with this in their names (may be given more than once)
    #[arg(long, value_name = "TEXT")]
    case: Vec<String>,
    /// Only cases that take seconds, and two repetitions where --repeat says nothing else
    #[arg(long)]
    quick: bool,
    /// Repetitions of each case; 5 where nothing is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: Option<u32>,
    /// Threads of each program [default: all of the machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Threads of the other side, where it is faster with fewer
    #[arg(long, value_name = "N", requires = "against", value_parser = clap::value_parser!(u16).range(1..=1024))]
    peer_threads: Option<u16>,
    /// Measure PyTorch, transformers and TRL too, a repetition of ours and one of theirs in turn
    #[arg(long)]
    against: bool,
    /// The interpreter that has them; without it they are installed into target/peers/venv
    #[arg(long, value_name = "PATH", requires = "against")]
    python: Option<PathBuf>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Name the cases and measure nothing
    #[arg(long)]
    list: bool,
}
