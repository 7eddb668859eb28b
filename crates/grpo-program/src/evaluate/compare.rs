//! `grpo compare`: compares methods by the metrics of `grpo eval`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_report::{comparison_charts, render_comparison};
use grpo_task::eval::{Generations, SuiteOptions, TEXT_SUITE};
use grpo_task::output::{
    FileInPlace, Formats, SVG, command_line, create_folder, refuse_same, say, table,
};
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;

use crate::evaluate::comparison::{Compared, Method};
use crate::evaluate::eval::{ColumnArguments, suite, suite_named};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo compare supervised.jsonl grpo.jsonl
  grpo compare base=b1.jsonl,b2.jsonl,b3.jsonl grpo=g1.jsonl,g2.jsonl,g3.jsonl -o table.md
  grpo compare prior.smi grpo.smi --references test.smi -o table.tex")]
pub(crate) struct CompareArguments {
    /// Methods: FILE, or NAME=FILE,FILE with a file per seed. The first one is the baseline
    #[arg(required = true, num_args = 2.., value_name = "METHOD", help_heading = "Input")]
    methods: Vec<String>,
    /// Metrics to compute [default: what fits the first file]
    #[arg(long, value_name = "NAME", help_heading = "Metrics")]
    suite: Option<String>,
    #[command(flatten)]
    options: SuiteOptions,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Two metrics of the Pareto front, e.g. rouge_l,distinct_2 [default: a quality and a diversity
    /// metric that all files have]
    #[arg(long, value_name = "METRICS", value_delimiter = ',', help_heading = "Metrics")]
    objectives: Vec<String>,
    /// Write the comparison to this file: Markdown (.md), LaTeX (.tex), JSON (.json), or a page with
    /// charts (.html); repeatable
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Vec<PathBuf>,
    /// Write each chart of the page as an SVG file into this folder
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

const FORMATS: Formats =
    Formats { written: "a table, JSON or a page", endings: &["md", "tex", "json", "html"] };

/// Format of an output file.
#[derive(Clone, Copy)]
enum Format {
    Markdown,
    Latex,
    Json,
    Html,
}

impl Format {
    fn of(path: &Path) -> anyhow::Result<Self> {
        Ok(match FORMATS.require("-o", path)? {
            "md" => Self::Markdown,
            "tex" => Self::Latex,
            "json" => Self::Json,
            _ => Self::Html,
        })
    }
}

impl CompareArguments {
    /// Returns the command line without its outputs.
    fn command(&self) -> String {
        let mut words = vec!["grpo".to_owned(), "compare".to_owned()];
        words.extend(self.methods.iter().cloned());
        words.extend(self.suite.iter().map(|name| format!("--suite={name}")));
        words.extend(self.options.words());
        words.extend(self.columns.words());
        if !self.objectives.is_empty() {
            words.push(format!("--objectives={}", self.objectives.join(",")));
        }
        command_line(words)
    }

    /// Checks the values that do not depend on the files.
    pub(crate) fn check(&self, tasks: &Tasks) -> anyhow::Result<()> {
        self.methods()?;
        self.objectives()?;
        self.output.iter().try_for_each(|path| Format::of(path).map(drop))?;
        self.suite.iter().try_for_each(|name| suite_named(tasks, name).map(drop))
    }

    /// Returns the methods, whose names are different.
    fn methods(&self) -> anyhow::Result<Vec<Method>> {
        let methods = self.methods.iter().map(|text| Method::parse(text));
        let methods = methods.collect::<anyhow::Result<Vec<_>>>()?;
        for (index, method) in methods.iter().enumerate() {
            anyhow::ensure!(
                methods[..index].iter().all(|other| other.name != method.name),
                "two methods are named {}; write NAME=FILE to name them",
                method.name
            );
        }
        Ok(methods)
    }

    /// Returns the two metrics of the Pareto front, if they are given.
    fn objectives(&self) -> anyhow::Result<Option<[String; 2]>> {
        match self.objectives.as_slice() {
            [] => Ok(None),
            [one, other] if one == other => {
                anyhow::bail!("--objectives lists `{one}` twice; choose two different metrics")
            }
            [one, other] => Ok(Some([one.clone(), other.clone()])),
            other => anyhow::bail!("--objectives lists {} metrics; expected two", other.len()),
        }
    }

    /// Refuses a folder of `--svg` that is a file, or that contains files that are not to be replaced.
    fn check_svg(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.svg else { return Ok(()) };
        anyhow::ensure!(
            !folder.exists() || folder.is_dir(),
            "{} is a file, not a folder; use a folder for --svg",
            folder.display()
        );
        let is_used = std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        anyhow::ensure!(
            self.force || !is_used,
            "--svg {}: the folder is not empty; choose another one, or replace files in it with --force",
            folder.display()
        );
        Ok(())
    }
}

pub(crate) fn run(arguments: &CompareArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let methods = arguments.methods()?;
    let objectives = arguments.objectives()?;
    let mut formats = Vec::new();
    for path in &arguments.output {
        formats.push((path, Format::of(path)?));
    }
    refuse_same(&arguments.output.iter().map(|path| ("-o", Some(path))).collect::<Vec<_>>())?;
    let inputs = methods.iter().flat_map(|of| &of.files).chain(arguments.options.files());
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
    let create = |(path, format): (&PathBuf, Format)| {
        Ok((FileInPlace::create_beside(path, FORMATS, &inputs, arguments.force)?, format))
    };
    let outputs = formats.into_iter().map(create).collect::<anyhow::Result<Vec<_>>>()?;
    arguments.check_svg()?;
    let columns = arguments.columns.columns(tasks);
    let first_file = &methods[0].files[0];
    let mut first = Generations::read(first_file, &columns)?;
    let suite = suite(tasks, arguments.suite.as_deref(), &first)?;
    suite.prepare(first_file, &mut first)?;
    let phase = Phase::begin("evaluating the files");
    // All files have the same rule, so that they can be compared. Another error of a file follows.
    let is_judged = |file: &PathBuf| {
        Generations::read(file, &columns).is_ok_and(|generations| generations.are_judged())
    };
    let are_judged = suite.name == TEXT_SUITE.name
        && first.are_judged()
        && methods.iter().flat_map(|of| &of.files).skip(1).all(is_judged);
    let options = arguments.options.with_pass_for(are_judged);
    let compared = Compared::new(&methods, first, &suite, &options, &columns, objectives)?;
    drop(phase);
    let needs_page =
        arguments.svg.is_some() || outputs.iter().any(|(_, format)| matches!(format, Format::Html));
    let page = needs_page.then(|| compared.page(arguments.command(), &suite)).transpose()?;
    let mut files = Vec::new();
    for (file, format) in outputs {
        let text = match format {
            Format::Markdown => compared.markdown(),
            Format::Latex => compared.latex(),
            Format::Json => {
                serde_json::to_string_pretty(&compared).context("the metrics are finite")? + "\n"
            }
            Format::Html => page.as_ref().map_or(Ok(String::new()), render_comparison)?,
        };
        files.push(file.with_text(&text)?);
    }
    if let (Some(folder), Some(page)) = (&arguments.svg, &page) {
        create_folder(folder)?;
        for chart in comparison_charts(page)? {
            let path = folder.join(chart.file_name);
            let file = FileInPlace::create_for("--svg", &path, SVG, &inputs, arguments.force)?;
            files.push(file.with_text(&chart.svg)?);
        }
    }
    FileInPlace::finish_all(files)?;
    let (header, rows) = compared.rows();
    say(format_args!("{}", table(header, rows, 1..)));
    for line in [compared.legend(), compared.front().trim().to_owned()] {
        if !line.is_empty() {
            say(format_args!("{line}"));
        }
    }
    Ok(())
}
