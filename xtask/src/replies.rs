//! The `cargo xtask make-replies` command.

mod grammar;
mod random;
mod records;
mod written;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use grammar::Grammar;
use records::Record;

/// Generate the bundled tweets and replies, or a corpus of pairs from a grammar
///
/// With --source, writes a record for each human-written reply and adds made-up likes, authors and
/// times; better replies get more likes on average. With --corpus, writes distinct pairs {tweet_id,
/// tweet, reply} generated from data/replies/grammar.toml, for pretraining a tiny model. The same
/// files and seed always give the same records.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  cargo xtask make-replies --source data/replies/written/*.jsonl -o data/replies/replies.jsonl --held-out data/replies/held-out.jsonl
  cargo xtask make-replies --corpus pairs.jsonl --pairs 60000"
)]
pub(crate) struct MakeReplies {
    /// File of human-written tweets, one per line: {topic, tone, tweet, replies: [{quality,
    /// reply}]}
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "output", required_unless_present = "corpus")]
    source: Vec<PathBuf>,
    /// Write the records to FILE
    #[arg(short, long, value_name = "FILE", requires = "source")]
    output: Option<PathBuf>,
    /// Write the records of every seventh tweet to FILE instead, to be held out from training
    #[arg(long, value_name = "FILE", requires = "source")]
    held_out: Option<PathBuf>,
    /// Write pairs generated from the grammar to FILE
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    corpus: Option<PathBuf>,
    /// Number of pairs to generate
    #[arg(long, value_name = "N", default_value_t = 60_000, conflicts_with = "source", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pairs: u32,
    /// Grammar to use instead of data/replies/grammar.toml
    #[arg(long, value_name = "FILE", conflicts_with = "source")]
    grammar: Option<PathBuf>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
}

pub(crate) fn make_replies(root: &Path, make: &MakeReplies) -> Result<()> {
    if let Some(output) = &make.output {
        let mut records = records::records(&written::read(&make.source)?, make.seed);
        if let Some(held_out) = &make.held_out {
            let (apart, others) = records.into_iter().partition(Record::is_of_seventh_tweet);
            records = others;
            write_lines(held_out, &lines(&apart)?)?;
        }
        write_lines(output, &lines(&records)?)?;
    }
    if let Some(corpus) = &make.corpus {
        let path = make.grammar.clone().unwrap_or_else(|| root.join("data/replies/grammar.toml"));
        write_lines(corpus, &lines(&grammar(&path)?.pairs(make.pairs as usize, make.seed)?)?)?;
    }
    Ok(())
}

fn grammar(path: &Path) -> Result<Grammar> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

fn lines<T: Serialize>(records: &[T]) -> Result<String> {
    let line = |record| Ok(serde_json::to_string(record)? + "\n");
    records.iter().map(line).collect()
}

fn write_lines(path: &Path, lines: &str) -> Result<()> {
    std::fs::write(path, lines).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}: {} lines", path.display(), lines.lines().count());
    Ok(())
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// The files in data/replies match the output for the written sources.
    #[test]
    fn the_bundled_pairs_are_made_byte_for_byte() {
        let data = crate::workspace::root().join("data/replies");
        let sources =
            ["home", "leisure", "work"].map(|name| data.join(format!("written/{name}.jsonl")));
        let records = records::records(&written::read(&sources).unwrap(), 42);
        let (apart, others): (Vec<_>, Vec<_>) =
            records.into_iter().partition(Record::is_of_seventh_tweet);
        for (name, records) in [("replies.jsonl", others), ("held-out.jsonl", apart)] {
            let bundled = std::fs::read_to_string(data.join(name)).unwrap();
            assert!(lines(&records).unwrap() == bundled, "{name} has other bytes");
        }
    }

    /// The corpus on which the bundled model was pretrained.
    #[test]
    fn the_corpus_of_the_grammar_is_made_byte_for_byte() {
        let grammar = grammar(&crate::workspace::root().join("data/replies/grammar.toml")).unwrap();
        let corpus = lines(&grammar.pairs(60_000, 42).unwrap()).unwrap();
        let hash: String =
            Sha256::digest(corpus).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, "34e57326ff05e748b829a62dc37982debebbe140e7873e23fd1d60c6fdddac33");
    }

    #[test]
    fn reports_a_grammar_that_is_too_small() {
        let text = r#"
            quality_weights = [1, 0, 0, 0, 0]
            shared = { when = ["today", "last night"] }
            lists = { thing = [] }
            tweets = [{ kind = "plain", texts = ["I like my {thing} {when}, and so do you."] }]
            replies = [{ quality = 0, texts = ["and your {thing}?"] }]
            topics = [{ name = "food", thing = ["soup"] }]
        "#;
        let grammar: Grammar = toml::from_str(text).unwrap();
        let error = grammar.pairs(10, 1).unwrap_err().to_string();
        assert_eq!(error, "the grammar produces only 2 pairs, not 10: add words or templates");
        let unknown: Grammar = toml::from_str(&text.replace("{when}", "{where}")).unwrap();
        let error = unknown.pairs(10, 1).unwrap_err().to_string();
        assert_eq!(error, "`I like my {thing} {where}, and so do you.`: unknown list `where`");
    }
}
