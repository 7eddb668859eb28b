//! `grpo eval`: computes metrics of files of generated text, or of a model's completions.

mod arguments;
mod output;
mod rewarded;
mod sampled;
mod tables;

use anyhow::Context;
use grpo_task::eval::{Columns, Generations, Measured, Suite, TEXT_SUITE};
use grpo_task::output::say_aside;
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;

pub(crate) use self::arguments::{ColumnArguments, EvalArguments, suite_named};
use self::arguments::{Gate, Groups};
use self::output::{checked, end, entry, passed_line, report};
use self::rewarded::Rewarded;
use self::tables::{show, show_groups};

/// Returns the suite with this name, or the one that fits the generations.
///
/// # Errors
/// Returns an error if there is no such suite.
pub(crate) fn suite(
    tasks: &Tasks,
    name: Option<&str>,
    generations: &Generations,
) -> anyhow::Result<Suite> {
    let suites = tasks.suites();
    let is_default = |suite: &&Suite| {
        let column = generations.column.as_deref();
        suite.of_endings.contains(&generations.ending.as_str())
            || suite
                .of_model_files
                .iter()
                .any(|name| generations.model_files.iter().any(|f| f == name))
            || column.is_some_and(|column| {
                suite.of_columns.iter().any(|of| of.eq_ignore_ascii_case(column))
            })
    };
    let by_contents = || {
        let suite = suites.iter().find(|suite| suite.fits_contents(generations))?;
        say_aside(format_args!(
            "suite        {}, which fits the contents; choose another with --suite",
            suite.name
        ));
        Some(suite)
    };
    let default = || {
        let suite = suites.iter().find(is_default).or_else(by_contents);
        suite.map_or(TEXT_SUITE.name, |suite| suite.name)
    };
    suite_named(tasks, name.unwrap_or_else(default))
}

pub(crate) fn run(arguments: &EvalArguments, tasks: &Tasks) -> anyhow::Result<()> {
    arguments.check(tasks)?;
    let gates =
        arguments.gate.iter().map(|gate| Gate::parse(gate)).collect::<Result<Vec<_>, _>>()?;
    match &arguments.sampled.model {
        Some(model) => sampled::run(arguments, model, &gates, tasks),
        None => of_files(arguments, &gates, tasks),
    }
}

/// Evaluates files.
fn of_files(arguments: &EvalArguments, gates: &[Gate], tasks: &Tasks) -> anyhow::Result<()> {
    let whole = arguments.reward.is_some() || arguments.by.is_some();
    let columns = Columns { whole, ..arguments.columns.columns(tasks) };
    let reward = arguments.read_reward(tasks)?;
    let output = arguments.create_output()?;
    let mut entries = Vec::new();
    let mut all = Vec::new();
    for file in &arguments.files {
        let _phase = Phase::begin(format!("evaluating {}", file.display()));
        let mut generations = Generations::read(file, &columns)?;
        let suite = suite(tasks, arguments.suite.as_deref(), &generations)?;
        suite.prepare(file, &mut generations)?;
        suite.warn_of_other_texts(file, &generations);
        let rewarded = reward.as_ref();
        let rewarded = rewarded.map(|reward| Rewarded::new(reward, file, &mut generations, tasks));
        let rewarded = rewarded.transpose()?;
        let are_judged = suite.name == TEXT_SUITE.name && generations.are_judged();
        let options = arguments.options.with_pass_for(are_judged);
        let measure = || -> anyhow::Result<(Measured, Option<Groups>)> {
            let mut measured = (suite.measure)(&generations, &options)?;
            if let Some(rewarded) = &rewarded {
                rewarded.add_to(&mut measured, &options)?;
                measured.add_intervals(options.seed)?;
            }
            let groups = arguments.groups(&generations, &measured)?;
            Ok((measured, groups))
        };
        let (measured, groups) = measure().with_context(|| file.display().to_string())?;
        let subject = vec![
            ("file", file.to_string_lossy().into()),
            ("suite", suite.name.into()),
            ("settings", arguments.settings(&options)),
        ];
        entries.push(entry(subject, &measured, groups.as_ref(), &checked(gates, &measured, file)?));
        let passed = options.pass.and_then(|_| passed_line(file, &measured));
        all.push((file, suite, measured, groups, passed));
    }
    let result = report(arguments, entries, output, || {
        let shown: Vec<_> =
            all.iter().map(|(file, suite, measured, ..)| (*file, suite, measured)).collect();
        show(&shown);
        for (file, .., groups, _) in &all {
            if let Some((field, groups)) = groups {
                let title = (all.len() > 1).then(|| file.display().to_string());
                show_groups(title.as_deref(), field, groups);
            }
        }
    })?;
    let passed = all.iter().filter_map(|(.., passed)| passed.as_ref());
    passed.for_each(|line| say_aside(format_args!("{line}")));
    end(&result)
}
