//! A command line of a stage, as the command's options describe it.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};
use grpo_hub::is_name;

use crate::evaluate::comparison::Method;

/// A valid command line of a command.
pub(super) struct Parsed {
    /// The program with this command as its only one.
    program: Command,
    matches: ArgMatches,
}

/// Heading of the options that name what a command writes.
const OUTPUT: &str = "Output";

/// Names of values that are paths.
const PATHS: [&str; 5] = ["FILE", "FOLDER", "PATH", "CONFIG", "RUN"];

/// Tells the name of something else from a path.
type IsName = fn(&Path) -> bool;

/// Names of values that are a path or the name of something else.
const PATHS_OR_NAMES: [(&str, IsName); 2] =
    [("FOLDER|NAME", is_name), ("CONFIG|TYPE", |path| path.extension().is_none())];

/// Name of values that are a file, or a name and files.
const METHOD: &str = "METHOD";

/// A file or folder that a command is told to write.
pub(super) struct Output {
    pub(super) path: PathBuf,
    pub(super) is_folder: bool,
}

/// A file or folder that a command is told to read.
pub(super) struct Input {
    /// The option that names it, such as `--model`. `None` for an argument.
    pub(super) option: Option<String>,
    pub(super) path: PathBuf,
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(option) = &self.option {
            write!(f, "{option} ")?;
        }
        write!(f, "{}", self.path.display())
    }
}

impl Parsed {
    /// Parses the words of a command.
    ///
    /// # Errors
    /// Returns an error if the command does not accept them.
    pub(super) fn new(
        commands: &Command,
        command: &Command,
        words: &[String],
    ) -> Result<Self, clap::Error> {
        // The other commands would be prepared for each stage.
        let program = Command::new("grpo")
            .disable_help_flag(true)
            .args(commands.get_arguments().filter(|argument| argument.is_global_set()).cloned())
            .subcommand(command.clone());
        let matches = parsed(&program, words)?;
        Ok(Self { program, matches })
    }

    fn arguments(&self) -> impl Iterator<Item = &Arg> {
        self.program.get_subcommands().flat_map(Command::get_arguments)
    }

    /// Returns the names of all options that the command accepts.
    pub(super) fn options(&self) -> Vec<String> {
        self.arguments().map(|argument| argument.get_id().to_string()).collect()
    }

    /// Returns whether the command accepts `--force` in addition to these words.
    pub(super) fn accepts_force(&self, words: &[String]) -> bool {
        let force = "--force".to_owned();
        self.arguments().any(|argument| argument.get_id() == "force")
            && (words.contains(&force)
                || parsed(&self.program, &[words, &[force]].concat()).is_ok())
    }

    /// Returns the files and folders that the command is told to write.
    pub(super) fn written(&self) -> Vec<Output> {
        let mut written = Vec::new();
        for argument in self.arguments().filter(|argument| is_output(argument)) {
            let names = argument.get_value_names().unwrap_or_default();
            if let Some(name) = names.iter().find(|name| PATHS.contains(&name.as_str())) {
                let is_folder = name.as_str() == "FOLDER";
                written.extend(self.values(argument).map(|path| Output { path, is_folder }));
            }
        }
        written
    }

    /// Returns the name and the matched arguments of the command.
    pub(super) fn command(&self) -> Option<(&str, &ArgMatches)> {
        self.matches.subcommand()
    }

    /// Returns the files and folders that options and arguments other than outputs name.
    pub(super) fn inputs(&self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for argument in self.arguments().filter(|argument| !is_output(argument)) {
            let names = argument.get_value_names().unwrap_or_default();
            let is_named = |of: &[&str]| names.iter().any(|name| of.contains(&name.as_str()));
            let or_name = PATHS_OR_NAMES.iter().find(|(name, _)| is_named(&[*name]));
            let paths: Vec<PathBuf> = match (or_name, is_named(&PATHS), is_named(&[METHOD])) {
                (Some((_, is_name)), ..) => {
                    self.values(argument).filter(|path| !is_name(path)).collect()
                }
                (None, true, _) => self.values(argument).collect(),
                (None, false, true) => {
                    let texts = self.values(argument);
                    let texts = texts.map(|text| text.to_string_lossy().into_owned());
                    // Other code refuses an invalid method.
                    texts
                        .filter_map(|text| Method::parse(&text).ok())
                        .flat_map(|of| of.files)
                        .collect()
                }
                (None, false, false) => continue,
            };
            let option = argument.get_long().map(|name| format!("--{name}"));
            inputs.extend(paths.into_iter().map(|path| Input { option: option.clone(), path }));
        }
        inputs
    }

    /// Returns the values of all other options. Those that exist as files and folders are inputs.
    pub(super) fn read(&self) -> Vec<PathBuf> {
        let others = self.arguments().filter(|argument| !is_output(argument));
        others.flat_map(|argument| self.values(argument)).collect()
    }

    fn values(&self, argument: &Arg) -> impl Iterator<Item = PathBuf> {
        let values = self
            .command()
            .map(|(_, matches)| matches)
            .and_then(|matches| matches.get_raw(argument.get_id().as_str()));
        values.into_iter().flatten().map(PathBuf::from)
    }
}

fn is_output(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(OUTPUT)
}

fn parsed(program: &Command, words: &[String]) -> Result<ArgMatches, clap::Error> {
    let program = program.clone();
    program.try_get_matches_from(std::iter::once("grpo").chain(words.iter().map(String::as_str)))
}
