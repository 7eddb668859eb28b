//! The command-line interface, including the commands of tasks.

use std::ffi::OsString;
use std::fmt::Write;
use std::io::{ErrorKind, Write as _};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};
use grpo_data::{plain_numbers, without_passwords};
use grpo_task::device::DeviceName;
use grpo_task::output::{check_written, note_closed, note_lost, say_aside, say_error};
use grpo_task::task::{CommandGroup, TaskCommand, Tasks};
use grpo_task::visible::visible;

use crate::args::{Arguments, Command, GLOBAL};
use crate::train::ranks::let_first_report;

/// A parsed command line.
pub(crate) struct Asked {
    pub(crate) threads: Option<usize>,
    pub(crate) quiet: bool,
    pub(crate) device: Option<DeviceName>,
    pub(crate) command: AskedCommand,
}

#[expect(clippy::large_enum_variant, reason = "there is only one per process")]
pub(crate) enum AskedCommand {
    /// A built-in command with all its options.
    Own(Command, ArgMatches),
    /// A command defined by a task.
    OfTask(TaskCommand, ArgMatches),
}

/// Parses a command line. Exits the process for `--help`, `--version` and invalid arguments.
pub(crate) fn parse(
    tasks: &Tasks,
    command_line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Asked {
    let (program, commands) = program(tasks);
    let matches = program.try_get_matches_from(command_line).unwrap_or_else(|error| exit(&error));
    let threads = matches.get_one("threads").copied();
    let quiet = matches.get_flag("quiet");
    let device = matches.get_one("device").copied();
    let (name, own) = matches.subcommand().expect("clap requires a command");
    let of_task = commands.into_iter().find(|command| command.command.get_name() == name);
    let command = match of_task {
        Some(command) => AskedCommand::OfTask(command, own.clone()),
        None => {
            let arguments =
                Arguments::from_arg_matches(&matches).unwrap_or_else(|error| exit(&error));
            AskedCommand::Own(arguments.command, own.clone())
        }
    };
    Asked { threads, quiet, device, command }
}

/// Prints clap's message and exits the process. The message is escaped because it repeats
/// arguments, which may contain file names from untrusted sources, and its words of Rust are replaced.
fn exit(error: &clap::Error) -> ! {
    if error.use_stderr() {
        let_first_report();
    }
    if let Some(refused) = conflict_with_resume(error) {
        say_error(&anyhow::anyhow!(refused));
        std::process::exit(error.exit_code());
    }
    let written = error.to_string();
    let text = plain_numbers(&without_passwords(&written));
    if written == text && visible(&text) == text {
        // `error.exit()` would ignore write errors, e.g. on a full disk.
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        if let Err(fault) = printed
            && fault.kind() != ErrorKind::BrokenPipe
        {
            note_lost(&fault);
        }
        if !error.use_stderr() {
            note_closed();
        }
        if let Err(lost) = check_written() {
            say_error(&lost);
            std::process::exit(1);
        }
        std::process::exit(error.exit_code());
    }
    say_aside(format_args!("{}", text.trim_end()));
    std::process::exit(error.exit_code());
}

/// Explains why an option does not go with `--resume`.
fn conflict_with_resume(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    if error.kind() != clap::error::ErrorKind::ArgumentConflict {
        return None;
    }
    let [one, other] = [text(ContextKind::InvalidArg)?, text(ContextKind::PriorArg)?];
    let name = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    let (one, other) = (name(&one), name(&other));
    let given = match (one.as_str(), other.as_str()) {
        ("--resume", given) | (given, "--resume") => given.trim_matches(['[', ']', '<', '>']),
        _ => return None,
    };
    Some(format!(
        "{given} cannot be used with --resume, because a resumed run keeps its folder and its recorded configuration; leave {given} out, or leave --resume out to start a new run"
    ))
}

/// Returns the complete clap command and the commands of tasks.
pub(crate) fn program(tasks: &Tasks) -> (clap::Command, Vec<TaskCommand>) {
    let mut program = Arguments::command().disable_help_flag(true).arg(help_option());
    program = program.mut_subcommand("sample", |sample| {
        // Otherwise, the doc comment of the task's options would replace the command's description.
        let about = sample.get_about().cloned().unwrap_or_default();
        let after = sample.get_after_help().cloned().unwrap_or_default();
        let sample = tasks.sampling().fold(sample, |sample, task| task.options(sample));
        sample.about(about).after_help(after)
    });
    if let Some(folder) = tasks.iter().find_map(|task| task.default_model()) {
        let model = |arg: Arg| arg.default_value(folder).required(false);
        for command in ["sample", "attention"] {
            program = program.mut_subcommand(command, |command| command.mut_arg("model", model));
        }
    }
    let commands: Vec<TaskCommand> = tasks.iter().flat_map(|task| task.commands()).collect();
    for TaskCommand { command, .. } in &commands {
        program = program.subcommand(command.clone());
    }
    let help = grouped_help(&program, &commands);
    (program.help_template(help), commands)
}

/// Returns the `--help` option under the heading for global options.
fn help_option() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .global(true)
        .help("Summary with -h, full help with --help")
        .help_heading(GLOBAL)
}

/// Command that new users run first, if it exists.
const FIRST: &str = "init-project";

/// Returns the template of the help text, with commands sorted into groups.
fn grouped_help(program: &clap::Command, of_tasks: &[TaskCommand]) -> StyledStr {
    let header = *program.get_styles().get_header();
    let literal = *program.get_styles().get_literal();
    let group_of = |name: &str| {
        let of_task = of_tasks.iter().find(|command| command.command.get_name() == name);
        of_task.map_or_else(|| group_of_own(name), |command| command.group)
    };
    // Commands modified above have moved to the end, so use the original order.
    let own = Arguments::command();
    let place = |name: &str| own.get_subcommands().position(|other| other.get_name() == name);
    let names = || program.get_subcommands().map(clap::Command::get_name);
    let width = names().map(str::len).max().unwrap_or(0);
    let mut help = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (group, title) in CommandGroup::TITLES {
        let of_group = |command: &&clap::Command| group_of(command.get_name()) == group;
        let mut commands: Vec<_> = program.get_subcommands().filter(of_group).collect();
        if commands.is_empty() {
            continue;
        }
        commands.sort_by_key(|command| place(command.get_name()).unwrap_or(usize::MAX));
        let _infallible = writeln!(help, "\n{header}{title}:{header:#}");
        for command in commands {
            let (name, about) = (command.get_name(), command.get_about().cloned());
            let about = about.unwrap_or_default();
            let _infallible = writeln!(help, "  {literal}{name:width$}{literal:#}  {about}");
        }
    }
    let _infallible = writeln!(help, "\n{header}{GLOBAL}:{header:#}\n{{options}}");
    if names().any(|name| name == FIRST) {
        let _infallible = write!(
            help,
            "\n{header}First steps:{header:#}\n  grpo init-project demo && cd demo\n  grpo train configs/molecules/grpo.toml\n  grpo report runs/molecules\n"
        );
    }
    help.push_str("\n`grpo COMMAND --help` describes a command, with examples.");
    help.into()
}

/// Returns the group of a built-in command.
fn group_of_own(name: &str) -> CommandGroup {
    match name {
        "run" | "train" | "trial" | "pretrain" => CommandGroup::Train,
        "sample" | "logprob" | "merge" | "export" | "init" => CommandGroup::Use,
        "explain" | "replay" | "audit" | "report" => CommandGroup::Inspect,
        "score" | "eval" | "compare" | "judge" | "dynamics" | "sweep" | "adapter-layers"
        | "attention" => CommandGroup::Evaluate,
        "train-tokenizer" | "import-trl" => CommandGroup::Prepare,
        _ => CommandGroup::Other,
    }
}
