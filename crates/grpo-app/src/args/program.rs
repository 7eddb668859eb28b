//! The program's commands with those of its tasks among them.

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::args::{Arguments, Command};
use crate::output::say_aside;
use crate::task::{TaskCommand, Tasks};
use crate::visible::visible;

/// What the program is asked to do.
pub(crate) struct Asked {
    pub(crate) threads: Option<usize>,
    pub(crate) command: AskedCommand,
}

#[expect(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub(crate) enum AskedCommand {
    /// A command of the program itself, with all its options.
    Own(Command, ArgMatches),
    /// A command of a task.
    OfTask(TaskCommand, ArgMatches),
}

/// Reads a command line; help, version and wrong arguments end the process.
pub(crate) fn parse(
    tasks: &Tasks,
    command_line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Asked {
    let (program, commands) = program(tasks);
    let matches = program.try_get_matches_from(command_line).unwrap_or_else(|error| exit(&error));
    let threads = matches.get_one("threads").copied();
    let (name, own) = matches.subcommand().expect("clap asks for a command");
    let of_task = commands.into_iter().find(|command| command.command.get_name() == name);
    let command = match of_task {
        Some(command) => AskedCommand::OfTask(command, own.clone()),
        None => {
            let arguments =
                Arguments::from_arg_matches(&matches).unwrap_or_else(|error| exit(&error));
            AskedCommand::Own(arguments.command, own.clone())
        }
    };
    Asked { threads, command }
}

/// Ends the process with what clap says. It repeats arguments as they are, and the name of a file may be somebody else's.
fn exit(error: &clap::Error) -> ! {
    let text = error.to_string();
    if visible(&text) == text {
        error.exit();
    }
    say_aside(format_args!("{}", text.trim_end()));
    std::process::exit(error.exit_code());
}

/// The commands of the program with those of tasks among them.
pub(crate) fn program(tasks: &Tasks) -> (clap::Command, Vec<TaskCommand>) {
    /// Places in the help between two commands of the program.
    const BETWEEN: usize = 30;
    let mut program = Arguments::command();
    let names: Vec<String> =
        program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for (place, name) in names.iter().enumerate() {
        program = program.mut_subcommand(name, |command| command.display_order(place * BETWEEN));
    }
    program = program.mut_subcommand("sample", |sample| {
        // The doc comment of a task's options would take the place of what the command does.
        let about = sample.get_about().cloned().unwrap_or_default();
        tasks.sampling().fold(sample, |sample, task| task.options(sample)).about(about)
    });
    let commands: Vec<TaskCommand> = tasks.iter().flat_map(|task| task.commands()).collect();
    for (index, TaskCommand { command, behind, .. }) in commands.iter().enumerate() {
        let place = names.iter().position(|name| name == behind).unwrap_or(names.len());
        program = program.subcommand(command.clone().display_order(place * BETWEEN + 1 + index));
    }
    (program, commands)
}
