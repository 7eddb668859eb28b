//! `grpo compare`: compares methods by the metrics of `grpo eval`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_report::{comparison_charts, render_comparison};

use crate::commands::eval::{ColumnArguments, suite};
use crate::eval::{Compared, DEFAULT_PASS, Generations, Method, SuiteOptions};
use crate::output::{FileInPlace, refuse_existing, say, table};
use crate::phase::Phase;
use crate::task::Tasks;

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
        Ok(match path.extension().and_then(|ending| ending.to_str()).unwrap_or_default() {
            "md" => Self::Markdown,
            "tex" => Self::Latex,
            "json" => Self::Json,
            "html" => Self::Html,
            _ => anyhow::bail!(
                "-o {}: unknown format; use a name that ends in .md, .tex, .json or .html",
                path.display()
            ),
        })
    }
}

impl CompareArguments {
    /// Returns the command line without its outputs.
    fn command(&self) -> String {
        let SuiteOptions { k, pass, .. } = &self.options;
        let ks: Vec<String> = k.iter().map(usize::to_string).collect();
        let suite = self.suite.iter().map(|name| format!("--suite {name}"));
        let pass = (pass != DEFAULT_PASS).then(|| format!("--pass {pass}"));
        let ks = (!ks.is_empty()).then(|| format!("-k {}", ks.join(",")));
        let words = ["grpo compare".to_owned()].into_iter().chain(self.methods.iter().cloned());
        words.chain(suite).chain(pass).chain(ks).collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn run(arguments: &CompareArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let methods = arguments.methods.iter().map(|text| Method::parse(text));
    let methods = methods.collect::<anyhow::Result<Vec<_>>>()?;
    for (index, method) in methods.iter().enumerate() {
        anyhow::ensure!(
            methods[..index].iter().all(|other| other.name != method.name),
            "two methods are named {}; write NAME=FILE to name them",
            method.name
        );
    }
    let objectives = match arguments.objectives.as_slice() {
        [] => None,
        [one, other] => Some([one.clone(), other.clone()]),
        other => anyhow::bail!("--objectives lists {} metrics; expected two", other.len()),
    };
    let mut formats = Vec::new();
    for path in &arguments.output {
        formats.push((path, Format::of(path)?));
        refuse_existing(path, arguments.force)?;
    }
    let columns = arguments.columns.columns(tasks);
    let first = Generations::read(&methods[0].files[0], &columns)?;
    let suite = suite(tasks, arguments.suite.as_deref(), &first)?;
    let phase = Phase::begin("evaluating the files");
    let compared = Compared::new(&methods, &suite, &arguments.options, &columns, objectives)?;
    drop(phase);
    let inputs: Vec<&Path> =
        methods.iter().flat_map(|of| &of.files).map(PathBuf::as_path).collect();
    for (path, format) in formats {
        let mut file = FileInPlace::create_beside(path, &inputs, arguments.force)?;
        let text = match format {
            Format::Markdown => compared.markdown(),
            Format::Latex => compared.latex(),
            Format::Json => {
                serde_json::to_string_pretty(&compared).context("the metrics are finite")? + "\n"
            }
            Format::Html => {
                let page = compared.page(arguments.command(), &suite, &arguments.options)?;
                render_comparison(&page)?
            }
        };
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.finish()?;
    }
    if let Some(folder) = &arguments.svg {
        let page = compared.page(arguments.command(), &suite, &arguments.options)?;
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        for chart in comparison_charts(&page)? {
            let path = folder.join(chart.file_name);
            let mut file = FileInPlace::create_beside(&path, &inputs, arguments.force)?;
            file.write_all(chart.svg.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
            file.finish()?;
        }
    }
    let (header, rows) = compared.rows();
    say(format_args!("{}", table(header, rows, 1..)));
    for line in [compared.legend(), compared.front().trim().to_owned()] {
        if !line.is_empty() {
            say(format_args!("{line}"));
        }
    }
    Ok(())
}
