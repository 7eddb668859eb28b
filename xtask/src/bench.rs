//! The `cargo xtask bench` command.

mod cases;
mod isa;
mod peer;
mod report;
mod scaling;
mod surroundings;
mod table;
mod worker;

use std::path::PathBuf;

pub(crate) use cases::run as bench;
use isa::Isa;

/// Run the system benchmarks
///
/// Each case runs in a separate process and measures sampling, training or full GRPO steps on
/// models of different sizes. See docs/benchmarks.md for the cases and for how to interpret the
/// ratios. Results are written to target/bench/ as JSON.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask bench                                  all cases
  cargo xtask bench --quick                          those that take seconds
  cargo xtask bench --case sampling                  those with this in their names
  cargo xtask bench --against                        also PyTorch, transformers and TRL
  cargo xtask bench --against --case step-small --python venv/bin/python
  cargo xtask bench --isa avx2                       as on a processor without AVX-512
  cargo xtask bench --scaling                        tokens/s by threads, batch, length and model
  cargo bench --workspace --bench functions          Criterion's benchmarks of single functions")]
pub(crate) struct Bench {
    /// Run only the case named TEXT or, if there is none, those whose names contain it; repeatable
    #[arg(long, value_name = "TEXT")]
    case: Vec<String>,
    /// Run only cases that take seconds, and lower the default of --repeat to 2
    #[arg(long)]
    quick: bool,
    /// Number of repetitions of each case [default: 5, or 3 with --scaling]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: Option<u32>,
    /// Number of threads per program [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Number of threads for the peer, in case it is faster with fewer
    #[arg(long, value_name = "N", requires = "against", value_parser = clap::value_parser!(u16).range(1..=1024))]
    peer_threads: Option<u16>,
    /// Also measure PyTorch, transformers and TRL, alternating between both sides
    #[arg(long)]
    against: bool,
    /// Python interpreter with these packages; without it, they are installed into
    /// target/peers/venv
    #[arg(long, value_name = "PATH", requires = "against")]
    python: Option<PathBuf>,
    /// Limit all programs to an instruction set (requires gdb)
    #[arg(long, value_name = "NAME", value_enum)]
    isa: Option<Isa>,
    /// Measure how the cost of a token depends on threads, batch, length and size of the model, and
    /// draw charts next to the results; takes 10 minutes and 15 GB of memory
    #[arg(long, conflicts_with_all = ["case", "quick", "threads", "against", "isa", "list"])]
    scaling: bool,
    /// Write the results to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// List the cases without running them
    #[arg(long)]
    list: bool,
}
