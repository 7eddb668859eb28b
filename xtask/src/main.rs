//! Development tasks for this repository. Run `cargo xtask --help` for a list.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]
#![allow(clippy::disallowed_methods, reason = "a tool for developers")]

mod bench;
mod book;
mod build;
mod ci;
mod mpi;
mod process;
mod replies;
mod split_data;
mod test;
mod tidy;
mod train;
mod venv;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks for this repository.
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Build(build::Build),
    SplitData(split_data::SplitData),
    Test(test::Test),
    /// Run all checks that a change must pass: format, tidy, dependencies, lints, tests and docs;
    /// stops at the first failure
    Ci,
    /// Check project rules that neither the compiler nor clippy covers; prints one line per
    /// violation
    Tidy,
    /// Write the JSON schemas in configs/schema/ and the tables of docs/configuration.md and docs/metrics.md again,
    /// after a key of a configuration or a metric has changed
    ConfigReference,
    Bench(bench::Bench),
    MakeReplies(replies::MakeReplies),
    #[command(hide = true)]
    BookLinks(book::BookLinks),
}

fn main() -> ExitCode {
    if let Some(rustdoc) = std::env::var_os(ci::RUSTDOC) {
        return ci::rustdoc(&rustdoc);
    }
    let Arguments { command } = Arguments::parse();
    let root = workspace::root();
    let done = match command {
        Command::Train(train) => train::train(&root, train),
        Command::Build(build) => build::build(&root, &build),
        Command::SplitData(split) => split_data::split_data(&root, split),
        Command::Test(test) => test::test(&root, &test, []),
        Command::Ci => ci::ci(&root),
        Command::Tidy => tidy::tidy(&root),
        Command::ConfigReference => test::config_reference(&root),
        Command::Bench(bench) => bench::bench(&root, &bench),
        Command::MakeReplies(make) => replies::make_replies(&root, &make),
        Command::BookLinks(links) => book::book_links(&root, &links),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            process::exit_code_of(&error)
        }
    }
}
