//! `grpo split-data`: splits tweets and replies for supervised training and GRPO.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::split_files::{
    DRAWING, FILES, PHASE1, PHASE2, STATISTICS, TEST, clear_leftovers, complete, has_parts,
    name_all, refuse_foreign, settings_of,
};
use crate::{
    MOST_DIFFERENCE, MOST_LISTED, PairFile, PairRecord, PhaseStatistics, PhaseSummary,
    RepeatedPair, SkippedLine, read_pairs, split_phases,
};
use anyhow::Context;
use clap::Args;
use grpo_data::statistics::TestResult;
use grpo_data::{OwnFolder, counted};
use grpo_report::{Scores, distributions};
use grpo_run::{DataFile, lock_folder, sha256};
use serde::Serialize;

use grpo_task::output::{create_folder, is_same_place, refuse_input, say};
use grpo_task::task::{CommandGroup, TaskCommand};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo split-data --input data/replies/replies.jsonl
  grpo split-data --input pairs.jsonl --split-ratio 0.7 --test-fraction 0.1 --output-dir data/mine

Files in the output folder: train_phase1_sft.jsonl, train_phase2_grpo.jsonl and, with --test-fraction, test_held_out.jsonl
with the unchanged lines of the input,
phase_split_statistics.json with a comparison of both and all skipped lines, and phase_split_distributions.svg.")]
pub(crate) struct SplitDataArguments {
    /// File of pairs (.jsonl, .jsonl.gz or .parquet), or a folder of them
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    input: PathBuf,
    /// Output folder
    #[arg(long, value_name = "FOLDER", help_heading = "Output", default_value = "data/processed")]
    output_dir: PathBuf,
    /// Fraction of the pairs used for the supervised phase, between 0 and 1, after test pairs are held out
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.5,
        allow_negative_numbers = true,
        help_heading = "Split"
    )]
    split_ratio: f64,
    /// Fraction of the pairs to hold out for testing, at least 0 and less than 1
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        help_heading = "Split"
    )]
    test_fraction: f64,
    /// Random seed
    #[arg(long, default_value_t = 42, help_heading = "Split")]
    seed: u64,
    /// Overwrite the files from a different previous split
    #[arg(long, help_heading = "Output")]
    force: bool,
    /// Check that the output folder already holds this split, then exit without writing anything
    #[arg(long, conflicts_with = "force", help_heading = "Output")]
    verify: bool,
}

/// The contents of `phase_split_statistics.json`.
#[derive(Serialize)]
struct StatisticsFile<'a> {
    #[serde(flatten)]
    statistics: &'a PhaseStatistics,
    input: &'a Path,
    /// Input files with their sizes and SHA-256 hashes.
    files: Vec<InputFile>,
    split_ratio: f64,
    test_fraction: f64,
    seed: u64,
    pairs: usize,
    tweets: usize,
    /// Number of invalid input lines, which do not belong to any part.
    invalid: usize,
    /// The first invalid input lines.
    skipped: &'a [SkippedLine],
    /// Repeated pairs. They are in the same part as the first occurrence.
    duplicates: Vec<Duplicate>,
    /// SHA-256 hash of the file of each part.
    outputs: BTreeMap<&'a str, String>,
}

#[derive(Serialize)]
struct InputFile {
    path: PathBuf,
    bytes: u64,
    sha256: String,
}

#[derive(Serialize)]
struct Duplicate {
    file: PathBuf,
    line: u64,
    first_file: PathBuf,
    first_line: u64,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Split tweets and replies for supervised training and for GRPO",
        "All replies to a tweet go to the same phase. The split is stratified by engagement to keep the phases comparable.",
    ];
    TaskCommand::new("split-data", &about, CommandGroup::Prepare, |_, arguments| run(arguments))
}

pub(crate) fn run(arguments: &SplitDataArguments) -> anyhow::Result<()> {
    let folder = &arguments.output_dir;
    // Otherwise, the output would be read as input the next time, and every pair would be
    // duplicated.
    anyhow::ensure!(
        !(arguments.input.is_dir() && is_same_place(&arguments.input, folder)),
        "{} is the input; use another folder for --output-dir",
        folder.display()
    );
    anyhow::ensure!(
        !folder.exists() || folder.is_dir(),
        "{} is a file, not a folder; use a folder for --output-dir",
        folder.display()
    );
    grpo_task::recorded_folders::refuse_inside(&folder.join(PHASE1), "--output-dir")?;
    let read = read_pairs(&arguments.input)?;
    let inputs: Vec<&Path> = read.files.iter().map(PathBuf::as_path).collect();
    for name in FILES {
        refuse_input("another folder for --output-dir", &folder.join(name), &inputs)?;
    }
    report(&read);
    let SplitDataArguments { split_ratio, test_fraction, seed, .. } = *arguments;
    let split = split_phases(&read.pairs, split_ratio, test_fraction, seed)?;
    let [phase1, phase2, test]: [Vec<&PairRecord>; 3] = [&split.phase1, &split.phase2, &split.test]
        .map(|places| places.iter().map(|place| &read.pairs[*place]).collect());
    let statistics = PhaseStatistics::new(&phase1, &phase2, &test);

    let lines =
        |places: &[usize]| places.iter().map(|at| format!("{}\n", read.texts[*at])).collect();
    let parts = [(PHASE1, &split.phase1), (PHASE2, &split.phase2), (TEST, &split.test)];
    let written = parts.into_iter().filter(|(_, places)| !places.is_empty());
    let texts: Vec<(&str, String)> = written.map(|(name, places)| (name, lines(places))).collect();
    let file = StatisticsFile {
        statistics: &statistics,
        input: &arguments.input,
        files: read.files.iter().map(|path| input_file(path)).collect::<Result<_, _>>()?,
        split_ratio,
        test_fraction,
        seed,
        pairs: read.pairs.len(),
        tweets: read.tweets(),
        invalid: read.invalid,
        skipped: &read.skipped,
        duplicates: duplicates(&read),
        outputs: texts.iter().map(|(name, text)| (*name, sha256(text.as_bytes()))).collect(),
    };
    let json = serde_json::to_string_pretty(&file)? + "\n";
    let scores = |name, pairs: &[&PairRecord]| Scores {
        name,
        values: pairs.iter().map(|pair| pair.engagement()).collect(),
    };
    let samples = [scores("phase 1: supervised", &phase1), scores("phase 2: GRPO", &phase2)];
    let drawing = distributions("Engagement score (reply likes / tweet likes)", &samples);
    // The statistics are written last, so their presence indicates that the output is complete.
    let contents = [texts, vec![(DRAWING, drawing), (STATISTICS, json)]].concat();
    write_split(arguments, &statistics, &file.outputs, &contents)
}

/// Writes the files of a split, unless the folder already holds it. `outputs` are the hashes of its
/// parts.
fn write_split(
    arguments: &SplitDataArguments,
    statistics: &PhaseStatistics,
    outputs: &BTreeMap<&str, String>,
    contents: &[(&str, String)],
) -> anyhow::Result<()> {
    let folder = &arguments.output_dir;
    let holds = |own: &OwnFolder| anyhow::Ok(!arguments.force && has_parts(own, outputs)?);
    let unchanged = || {
        tell(statistics);
        say(format_args!("unchanged    {} already holds this split", folder.display()));
    };
    let open = || {
        OwnFolder::open(folder)
            .with_context(|| format!("cannot open the folder {}", folder.display()))
    };
    if folder.is_dir() {
        let own = open()?;
        if holds(&own)? {
            unchanged();
            return Ok(());
        }
        // Before anything is written.
        if !arguments.verify {
            refuse_earlier(arguments, &own)?;
        }
    }
    anyhow::ensure!(
        !arguments.verify,
        "{} does not hold this split; write it without --verify",
        folder.display()
    );
    create_folder(folder)?;
    // Two concurrent splits could leave a mixture of their files, with some pairs in both phases.
    let own = open()?;
    refuse_foreign(&own)?;
    let _lock = lock_folder(&own)?;
    grpo_task::recorded_folders::refuse_inside(&folder.join(PHASE1), "--output-dir")?;
    if holds(&own)? {
        unchanged();
        return Ok(());
    }
    refuse_earlier(arguments, &own)?;
    clear_leftovers(&own)?;
    name_all(&own, complete(folder, contents)?)?;
    tell(statistics);
    say(format_args!("written      {}", folder.display()));
    Ok(())
}

/// Returns an error if the folder contains another split, unless `--force` is given.
fn refuse_earlier(arguments: &SplitDataArguments, folder: &OwnFolder) -> anyhow::Result<()> {
    for name in FILES {
        let path = arguments.output_dir.join(name);
        if arguments.force || path.symlink_metadata().is_err() {
            continue;
        }
        let settings = settings_of(folder)
            .map(|settings| format!(" and belongs to another split ({settings})"));
        anyhow::bail!(
            "{} already exists{}; use another --output-dir, or replace it with --force",
            path.display(),
            settings.unwrap_or_default()
        );
    }
    Ok(())
}

fn input_file(path: &Path) -> anyhow::Result<InputFile> {
    let DataFile { path, bytes, sha256, .. } = DataFile::measure("pairs", path)?;
    Ok(InputFile { path, bytes, sha256 })
}

/// Maximum number of lines of each kind that are printed individually. The statistics file lists
/// all of them.
const MOST_LINES: usize = 20;

fn report(read: &PairFile) {
    say(format_args!(
        "{}: {} from {}, {} skipped",
        read.path.display(),
        counted(read.pairs.len(), "pair"),
        counted(read.tweets(), "tweet"),
        counted(read.invalid, "line")
    ));
    read.unsaid().into_iter().for_each(|unsaid| say(format_args!("  {unsaid}")));
    let skipped = read.skipped.iter().map(|line| format!("left out: {line}"));
    let repeated = duplicates(read).into_iter().map(|pair| {
        format!(
            "kept duplicate of {}:{}: {}:{}",
            pair.first_file.display(),
            pair.first_line,
            pair.file.display(),
            pair.line
        )
    });
    for lines in [skipped.collect::<Vec<_>>(), repeated.collect()] {
        lines.iter().take(MOST_LINES).for_each(|line| say(format_args!("  {line}")));
        if lines.len() > MOST_LINES {
            say(format_args!("  and {} more in {STATISTICS}", lines.len() - MOST_LINES));
        }
    }
    if read.invalid > read.skipped.len() {
        say(format_args!("  {STATISTICS} lists the first {MOST_LISTED} invalid lines"));
    }
}

fn duplicates(read: &PairFile) -> Vec<Duplicate> {
    let duplicate = |of: RepeatedPair| {
        let (pair, first) = (&read.pairs[of.pair], &read.pairs[of.first]);
        Duplicate {
            file: pair.file.clone(),
            line: pair.line,
            first_file: first.file.clone(),
            first_line: first.line,
        }
    };
    read.duplicates().into_iter().map(duplicate).collect()
}

/// Formats a number with four decimals, or in scientific notation if it is large.
fn short(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value:.4}") } else { format!("{value:.3e}") }
}

fn tell(statistics: &PhaseStatistics) {
    let phases = [("phase 1", &statistics.phase1), ("phase 2", &statistics.phase2)];
    for (name, phase) in phases.into_iter().chain(statistics.test.iter().map(|test| ("test", test)))
    {
        let PhaseSummary { count, tweets, engagement, length, .. } = phase;
        say(format_args!(
            "{name:<12} {} from {}; engagement: mean {}, median {}; reply characters: mean {:.0}",
            counted(*count, "pair"),
            counted(*tweets, "tweet"),
            short(engagement.mean),
            short(engagement.median),
            length.mean
        ));
    }
    let quartiles = &statistics.quartiles;
    let counts: Vec<String> = quartiles.counts.iter().map(u64::to_string).collect();
    say(format_args!(
        "quartiles    {} pairs; largest deviation of a phase's share {:.4}, {} {MOST_DIFFERENCE}",
        counts.join(", "),
        quartiles.max_difference,
        if quartiles.alike { "within" } else { "more than" }
    ));
    if !quartiles.alike {
        say(format_args!(
            "WARNING: the phases differ; there may be too few tweets, or one tweet with most of the replies"
        ));
    }
    let tests = [
        ("chi-square", &statistics.chi_square),
        ("Kolmogorov–Smirnov", &statistics.kolmogorov_smirnov),
    ];
    let said = tests.into_iter().filter_map(|(name, test)| {
        let TestResult { statistic, p_value, .. } = test.as_ref()?;
        Some(format!("{name} {statistic:.4} (p = {p_value:.3})"))
    });
    say(format_args!("alike?       {}", said.collect::<Vec<_>>().join(", ")));
}
