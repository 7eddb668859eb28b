//! `cargo xtask make-replies`.

mod corpus;
mod grammar;
mod random;
mod records;
mod written;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use grammar::Grammar;
use records::Record;

/// Makes the bundled pairs of tweets and replies, or a corpus of pairs from a grammar
///
/// With --source: a record for each reply that a person wrote, with made-up likes, authors and times; better replies have more
/// likes, on the average. With --corpus: pairs {tweet_id, tweet, reply} of data/replies/grammar.toml, all different, to
/// pre-train a tiny model on. The same files and seed give the same records.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  cargo xtask make-replies --source data/replies/written/*.jsonl -o data/replies/replies.jsonl --held-out data/replies/held-out.jsonl
  cargo xtask make-replies --corpus pairs.jsonl --pairs 60000"
)]
pub(crate) struct MakeReplies {
    /// Written tweets, a line each: {topic, tone, tweet, replies: [{quality, reply}]}
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "output", required_unless_present = "corpus")]
    source: Vec<PathBuf>,
    /// Write their records to this file
    #[arg(short, long, value_name = "FILE", requires = "source")]
    output: Option<PathBuf>,
    /// Write those of every seventh tweet to this file instead, which nothing is to be trained on
    #[arg(long, value_name = "FILE", requires = "source")]
    held_out: Option<PathBuf>,
    /// Write pairs from the grammar to this file
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    corpus: Option<PathBuf>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 60_000, conflicts_with = "source", value_parser = pairs)]
    pairs: usize,
    /// Another grammar than data/replies/grammar.toml
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    grammar: Option<PathBuf>,
    /// Other numbers, other pairs
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

pub(crate) fn make_replies(root: &Path, make: &MakeReplies) -> Result<()> {
    if let Some(output) = &make.output {
        let mut records = records::records(&written::read(&make.source)?, make.seed);
        if let Some(held_out) = &make.held_out {
            let (apart, others) = records.into_iter().partition(Record::is_of_seventh_tweet);
            records = others;
            write_records(held_out, &apart)?;
        }
        write_records(output, &records)?;
    }
    if let Some(corpus) = &make.corpus {
        let path = make.grammar.clone().unwrap_or_else(|| root.join("data/replies/grammar.toml"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        let grammar = Grammar::parse(&text).with_context(|| path.display().to_string())?;
        let pairs = corpus::pairs(&grammar, make.pairs, make.seed)?;
        write_lines(corpus, &pairs)?;
        let (count, fillings) = (pairs.len(), corpus::fillings(&grammar));
        println!("{}: {count} pairs; the templates have {fillings:.2e} fillings", corpus.display());
    }
    Ok(())
}

fn write_records(path: &Path, records: &[Record]) -> Result<()> {
    write_lines(path, records)?;
    println!("{}: {}", path.display(), records::summary(records));
    Ok(())
}

fn pairs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=10_000_000) => Ok(count),
        _ => Err("a number from 1 to 10,000,000 is expected".into()),
    }
}

/// The file comes into being whole or not at all.
fn write_lines<T: Serialize>(path: &Path, records: &[T]) -> Result<()> {
    let mut text = String::new();
    for record in records {
        text += &serde_json::to_string(record)?;
        text.push('\n');
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    let write = || {
        std::fs::write(&beside, &text)?;
        std::fs::rename(&beside, path)
    };
    let written = write();
    if written.is_err() {
        // Where it cannot be removed there is nothing else to say.
        std::fs::remove_file(&beside).ok();
    }
    written.with_context(|| format!("{} cannot be written", path.display()))
}
