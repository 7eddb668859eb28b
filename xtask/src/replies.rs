//! `cargo xtask make-replies`.

mod corpus;
mod grammar;
mod random;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use grammar::Grammar;

/// Makes the bundled pairs of tweets and replies, or a corpus of pairs from the grammar
///
/// With --corpus: pairs {tweet_id, tweet, reply} of data/replies/grammar.toml, all different, to pre-train a tiny model on.
/// The same seed gives the same file.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask make-replies --corpus pairs.jsonl --pairs 60000")]
pub(crate) struct MakeReplies {
    /// Write pairs from the grammar to this file
    #[arg(long, value_name = "FILE")]
    corpus: PathBuf,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    pairs: usize,
    /// Another grammar than data/replies/grammar.toml
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// Other pairs
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

pub(crate) fn make_replies(root: &Path, make: &MakeReplies) -> Result<()> {
    let path = make.grammar.clone().unwrap_or_else(|| root.join("data/replies/grammar.toml"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    let grammar = Grammar::parse(&text).with_context(|| path.display().to_string())?;
    let pairs = corpus::pairs(&grammar, make.pairs, make.seed)?;
    write_lines(&make.corpus, &pairs)?;
    let fillings = corpus::fillings(&grammar);
    println!(
        "{}: {} pairs; the grammar's templates have {fillings:.2e} fillings",
        make.corpus.display(),
        pairs.len()
    );
    Ok(())
}

/// The file comes into being whole or not at all.
fn write_lines<T: Serialize>(path: &Path, records: &[T]) -> Result<()> {
    let mut text = String::new();
    for record in records {
        text += &serde_json::to_string(record)?;
        text.push('\n');
    }
    let beside = path.with_extension("partial");
    let write = || {
        std::fs::write(&beside, &text)?;
        std::fs::rename(&beside, path)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}
