//! Creates prompts and training examples from pairs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use grpo_data::{
    ChatOptions, Codec, CompletionSource, DataError, Example, Examples, Prompt, SplitFractions,
    counted,
};
use serde_json::{Map, Value};

use crate::{
    PairFile, PairRecord, PairSummary, ReplyTemplate, SkippedLine, read_pairs, split_by_tweet,
};

/// GRPO prompts, one per tweet.
#[derive(Clone, Debug)]
pub struct ReplyPrompts {
    /// The prompts, in order of the first pair of each tweet. They have the fields `tweet`,
    /// `tweet_id` and `reply`, where `reply` is the first of the replies with the most likes.
    pub prompts: Vec<Prompt>,
    /// Location of each prompt as `file:line`.
    pub places: Vec<String>,
    /// Report on the input pairs.
    pub report: PairReport,
    /// All files that were read.
    pub files: Vec<PathBuf>,
}

/// Supervised training examples, one per pair. The loss covers the reply and the end of the
/// assistant's message but not the prompt.
#[derive(Clone, Debug)]
pub struct ReplyExamples {
    /// Training and validation examples. No tweet is in both splits.
    pub examples: Examples,
    /// Report on the input pairs.
    pub report: PairReport,
    /// All files that were read.
    pub files: Vec<PathBuf>,
}

/// Report on the pairs that were used and dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairReport {
    /// Summary of the number of pairs, tweets and invalid lines.
    pub read: String,
    /// Pairs that were dropped because they contain a special token of the tokenizer.
    pub special: Vec<SkippedLine>,
    /// Pairs that were dropped because they are too long, formatted as `file:line: tokens`.
    pub too_long: Vec<String>,
    /// Maximum number of tokens.
    pub longest: usize,
    /// Name and summary of each split.
    pub parts: Vec<(&'static str, PairSummary)>,
}

impl PairReport {
    fn new(read: &PairFile, longest: usize) -> Self {
        Self { read: read.to_string(), longest, ..Self::default() }
    }

    /// Returns `false` and records the pair if a text contains a special token.
    ///
    /// Special tokens are signals to the model. For example, a tweet could end the user's message
    /// and start a fake message from the assistant.
    fn takes_text(
        &mut self,
        pair: &PairRecord,
        key: &'static str,
        text: &str,
        codec: &Codec,
    ) -> Result<bool, DataError> {
        let token = codec.special_token_in(text).map_err(at(pair))?;
        if let Some(token) = token {
            let (file, line) = (pair.file.clone(), pair.line);
            let reason = format!("`{key}` contains the special token {token:?}");
            self.special.push(SkippedLine { file, line, reason });
        }
        Ok(token.is_none())
    }

    /// Returns `false` and records the pair if a sequence is too long.
    fn takes(&mut self, pair: &PairRecord, tokens: usize) -> bool {
        if tokens > self.longest {
            self.too_long.push(format!("{}: {tokens}", place(pair)));
        }
        tokens <= self.longest
    }

    /// Returns the error for input without usable pairs.
    fn nothing_left(&self, path: &Path) -> DataError {
        let message = format!("no usable pairs in `{}`: {self}", path.display());
        DataError::NoRecords { too_long: self.too_long.len(), message }
    }

    /// Returns the report as a list of lines.
    pub fn lines(&self) -> Vec<String> {
        let mut first = self.read.clone();
        let listed = |all: &[String]| {
            let more = if all.len() > NAMED { ", …" } else { "" };
            format!("({}{more})", all[..all.len().min(NAMED)].join(", "))
        };
        if !self.special.is_empty() {
            let named: Vec<String> = self.special.iter().map(ToString::to_string).collect();
            let (count, named) = (named.len(), listed(&named));
            first += &format!("; {count} skipped with special tokens {named}");
        }
        if !self.too_long.is_empty() {
            let (count, longest) = (self.too_long.len(), self.longest);
            let named = listed(&self.too_long);
            first +=
                &format!("; {count} skipped with more than {} {named}", counted(longest, "token"));
        }
        let parts = self.parts.iter().map(|(name, summary)| format!("{name}: {summary}"));
        std::iter::once(first).chain(parts).collect()
    }
}

impl fmt::Display for PairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n  "))
    }
}

/// Maximum number of sequences listed in a report.
const NAMED: usize = 3;

impl ReplyPrompts {
    /// Reads prompts from a file or folder. Tweets are dropped and counted if their prompt has more
    /// than `longest` tokens or if they contain a special token. `thinking` is passed to the chat
    /// template.
    ///
    /// # Errors
    /// Returns an error if [`read_pairs`] or [`Codec::prompt`] fails, or if no usable tweet
    /// remains.
    pub fn read(
        path: &Path,
        codec: &Codec,
        template: &ReplyTemplate,
        thinking: bool,
        longest: usize,
    ) -> Result<Self, DataError> {
        let file = read_pairs(path)?;
        let encoder = Encoder { codec, template, thinking };
        let mut report = PairReport::new(&file, longest);
        let (mut prompts, mut places) = (Vec::new(), Vec::new());
        let mut used = Vec::new();
        for replies in replies_of_tweets(&file.pairs) {
            let first = replies[0];
            if !report.takes_text(first, "tweet", &first.tweet, codec)? {
                continue;
            }
            let ids = encoder.prompt(first).map_err(at(first))?;
            if report.takes(first, ids.len()) {
                let prompt = Prompt::of_ids(prompts.len() as u32, ids);
                prompts.push(Prompt { fields: fields(&replies), ..prompt });
                places.push(place(first));
                used.extend(replies);
            }
        }
        if prompts.is_empty() {
            return Err(report.nothing_left(path));
        }
        report.parts = vec![("used", PairSummary::new(used))];
        Ok(Self { prompts, places, report, files: file.files })
    }
}

impl ReplyExamples {
    /// Reads examples from a file or folder.
    ///
    /// Pairs are dropped and counted if they have more than `longest` tokens in total or contain a
    /// special token. A fraction `validation_fraction` of the remaining tweets is held out, chosen
    /// with `seed`. `thinking` is passed to the chat template.
    ///
    /// # Errors
    /// Returns an error if the pairs cannot be read or encoded, or if too few tweets remain. See
    /// [`read_pairs`] and [`Codec`].
    pub fn read(
        path: &Path,
        codec: &Codec,
        template: &ReplyTemplate,
        thinking: bool,
        longest: usize,
        validation_fraction: f64,
        seed: u64,
    ) -> Result<Self, DataError> {
        let file = read_pairs(path)?;
        let encoder = Encoder { codec, template, thinking };
        let mut report = PairReport::new(&file, longest);
        // Pairs are moved and their lines dropped to avoid holding a large corpus in memory twice.
        let PairFile { pairs: read, files, .. } = file;
        let (mut pairs, mut all) = (Vec::new(), Vec::new());
        for pair in read {
            if !report.takes_text(&pair, "tweet", &pair.tweet, codec)?
                || !report.takes_text(&pair, "reply", &pair.reply, codec)?
            {
                continue;
            }
            let example = encoder.example(&pair).map_err(at(&pair))?;
            if report.takes(&pair, example.ids.len()) {
                pairs.push(pair);
                all.push(Some(example));
            }
        }
        if all.is_empty() {
            return Err(report.nothing_left(path));
        }
        let train = 1.0 - validation_fraction;
        let fractions = SplitFractions { train, validation: validation_fraction, test: 0.0 };
        let split = split_by_tweet(&pairs, &fractions, seed)?;
        let summary = |places: &[usize]| PairSummary::new(places.iter().map(|at| &pairs[*at]));
        report.parts =
            vec![("training", summary(&split.train)), ("validation", summary(&split.validation))];
        let mut take = |places: &[usize]| places.iter().filter_map(|at| all[*at].take()).collect();
        let examples = Examples::new(take(&split.train), take(&split.validation));
        Ok(Self { examples, report, files })
    }
}

/// Groups pairs by tweet, in order of first occurrence.
fn replies_of_tweets(pairs: &[PairRecord]) -> Vec<Vec<&PairRecord>> {
    let mut places = BTreeMap::new();
    let mut tweets: Vec<Vec<&PairRecord>> = Vec::new();
    for pair in pairs {
        let place = *places.entry(pair.tweet_id.as_str()).or_insert(tweets.len());
        if place == tweets.len() {
            tweets.push(Vec::new());
        }
        tweets[place].push(pair);
    }
    tweets
}

/// Returns the fields that rewards can use.
fn fields(replies: &[&PairRecord]) -> Map<String, Value> {
    let first = replies[0];
    let most = replies.iter().map(|pair| pair.reply_likes()).max();
    let best = replies.iter().find(|pair| Some(pair.reply_likes()) == most).unwrap_or(&first);
    let fields = [("tweet", &first.tweet), ("tweet_id", &first.tweet_id), ("reply", &best.reply)];
    fields.map(|(key, text)| (key.to_owned(), text.as_str().into())).into_iter().collect()
}

/// Encodes pairs with a codec and a prompt template.
struct Encoder<'a> {
    codec: &'a Codec,
    template: &'a ReplyTemplate,
    thinking: bool,
}

impl Encoder<'_> {
    fn prompt(&self, pair: &PairRecord) -> Result<Vec<u32>, DataError> {
        let options = ChatOptions::for_answer(Some(self.thinking));
        self.codec.prompt(&self.template.prompt(&pair.tweet), &options)
    }

    fn example(&self, pair: &PairRecord) -> Result<Example, DataError> {
        let prompt = self.prompt(pair)?;
        let reply = self.codec.completion(&CompletionSource::Text(pair.reply.clone()))?;
        let first_target = prompt.len();
        let end = self.codec.learned_end()?.filter(|end| reply.last() != Some(end));
        Ok(Example::new([prompt, reply, end.into_iter().collect()].concat(), first_target))
    }
}

fn at(pair: &PairRecord) -> impl FnOnce(DataError) -> DataError {
    move |error| error.at_line(&pair.file, pair.line)
}

fn place(pair: &PairRecord) -> String {
    format!("{}:{}", pair.file.display(), pair.line)
}
