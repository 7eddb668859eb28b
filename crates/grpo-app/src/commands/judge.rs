//! `grpo judge`: a language model behind an OpenAI-compatible endpoint compares or rates answers.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::{regular_file, short_text};
use grpo_endpoint::{
    Cache, ChatAnswer, ChatSettings, Client, EndpointConfig, EndpointError, Prices,
};
use grpo_eval::judge::{
    JudgeAgreement, JudgedPair, Pair, PairwiseSummary, ScoreSummary, ScoredText, score_question,
};
use grpo_eval::stats::{Bootstrap, Estimate};
use serde_json::{Map, Value, json};

use crate::commands::eval::ColumnArguments;
use crate::eval::{Columns, Generations};
use crate::output::{FileInPlace, Progress, refuse_existing, refuse_same, say, say_aside};

/// What makes an answer good, unless `--criteria` says something else.
const CRITERIA: &str =
    "The better answer fits the prompt, is interesting to read, and sounds like a person wrote it.";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo judge grpo.jsonl base.jsonl --endpoint http://localhost:8000 --model judge -o judged.json
  grpo judge grpo.jsonl --endpoint https://api.openai.com/v1 --api-key-env OPENAI_API_KEY --model gpt-4.1-mini --cache judge-cache.jsonl

Each pair is judged twice, with swapped order; a pair counts as won if both judgements agree. With one file, each
answer gets a score from 1 to 10. docs/metrics.md describes all numbers.")]
pub(crate) struct JudgeArguments {
    /// File of answers to judge, as for `grpo eval`
    #[arg(value_name = "FILE", help_heading = "Input")]
    file: PathBuf,
    /// File of answers to compare with; without it, answers are rated from 1 to 10
    #[arg(value_name = "OTHER", help_heading = "Input")]
    other: Option<PathBuf>,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Number of answers per prompt, from the first one on
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Input")]
    per_prompt: usize,
    /// Text file that says what makes an answer good
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    criteria: Option<PathBuf>,
    /// Base URL of the server
    #[arg(long, value_name = "URL", help_heading = "Judge")]
    endpoint: String,
    /// Name of the model on the server
    #[arg(long, value_name = "NAME", help_heading = "Judge")]
    model: String,
    /// Environment variable with the API key
    #[arg(long, value_name = "NAME", help_heading = "Judge")]
    api_key_env: Option<String>,
    /// File of replies: requests in it are not sent again
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
    cache: Option<PathBuf>,
    /// Maximum number of requests at the same time
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Judge")]
    parallel: usize,
    /// Time limit of a request in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, help_heading = "Judge")]
    time_limit: f64,
    /// Maximum length of a judgement in tokens
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Judge")]
    max_tokens: u32,
    /// Prices of a million prompt tokens and a million completion tokens, to show the cost
    #[arg(long, value_name = "PROMPT,COMPLETION", value_delimiter = ',', help_heading = "Judge")]
    prices: Vec<f64>,
    /// Results of another judge for the same pairs (JSON from -o), to measure the agreement
    #[arg(long, value_name = "FILE", requires = "other", help_heading = "Judge")]
    agreement_with: Option<PathBuf>,
    /// Seed of the bootstrap intervals
    #[arg(long, default_value_t = 42, help_heading = "Judge")]
    seed: u64,
    /// Write the results and all judgements to this file (JSON)
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    force: bool,
}

pub(crate) fn run(arguments: &JudgeArguments) -> anyhow::Result<()> {
    check(arguments)?;
    let criteria = match &arguments.criteria {
        None => CRITERIA.to_owned(),
        Some(path) => regular_file::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?,
    };
    let columns = arguments.columns.plain();
    let answers = Generations::read(&arguments.file, &columns)?;
    let bootstrap = Bootstrap { seed: arguments.seed, ..Bootstrap::default() };
    let mut judge = Judge::new(arguments)?;
    let results = match &arguments.other {
        Some(other) => {
            let pairs = pairs(arguments, &answers, other, &columns)?;
            let judged = judge.compare(&pairs, &criteria)?;
            let summary = PairwiseSummary::new(&judged, &bootstrap)?;
            show_pairs(&summary);
            let mut results = Map::from_iter([("summary".to_owned(), json!(summary))]);
            if let Some(path) = &arguments.agreement_with {
                let agreement = JudgeAgreement::new(&judged, &earlier(path)?)
                    .with_context(|| format!("--agreement-with {}", path.display()))?;
                say(format_args!(
                    "other judge  agreement {}, kappa {} over {} pairs",
                    number(agreement.agreement),
                    number(agreement.kappa),
                    agreement.pairs
                ));
                results.insert("agreement".to_owned(), json!(agreement));
            }
            results.insert("pairs".to_owned(), json!(judged));
            results
        }
        None => {
            let scored = judge.rate(&answers, arguments.per_prompt, &criteria)?;
            let summary = ScoreSummary::new(&scored, &bootstrap)?;
            show_scores(&summary);
            Map::from_iter([
                ("summary".to_owned(), json!(summary)),
                ("texts".to_owned(), json!(scored)),
            ])
        }
    };
    let usage = judge.client.usage();
    let cost = arguments.prices.first().zip(arguments.prices.get(1));
    let cost = cost.map(|(prompt, completion)| {
        usage.cost(&Prices { prompt: *prompt, completion: *completion })
    });
    say(format_args!(
        "requests     {} ({} repeated, {} answers from the cache), {} + {} tokens{}",
        usage.requests,
        usage.retries,
        usage.cache_hits,
        usage.prompt_tokens,
        usage.completion_tokens,
        cost.map_or(String::new(), |cost| format!(", cost {cost:.4}"))
    ));
    if let Some(path) = &arguments.output {
        let mut all = Map::from_iter([
            ("model".to_owned(), json!(arguments.model)),
            ("endpoint".to_owned(), json!(arguments.endpoint)),
            ("criteria".to_owned(), json!(criteria)),
            ("usage".to_owned(), json!(usage)),
            ("cost".to_owned(), json!(cost)),
        ]);
        all.extend(results);
        let inputs = [Some(&arguments.file), arguments.other.as_ref()].into_iter().flatten();
        let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
        let mut file = FileInPlace::create_beside(path, &inputs, arguments.force)?;
        let text = serde_json::to_string_pretty(&all).context("the numbers are finite")? + "\n";
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.finish()?;
    }
    Ok(())
}

fn check(arguments: &JudgeArguments) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.per_prompt > 0, "--per-prompt 0 is out of range; expected 1 or more");
    let are_prices = arguments.prices.iter().all(|price| *price >= 0.0 && price.is_finite());
    anyhow::ensure!(
        [0, 2].contains(&arguments.prices.len()) && are_prices,
        "--prices: expected two numbers of at least 0, for prompt and completion tokens, e.g. 0.4,1.6"
    );
    let outputs = [("--output", arguments.output.as_ref()), ("--cache", arguments.cache.as_ref())];
    refuse_same(&outputs)?;
    arguments.output.as_ref().map_or(Ok(()), |path| refuse_existing(path, arguments.force))
}

/// Returns the pairs: the first answers to each prompt in both files.
fn pairs(
    arguments: &JudgeArguments,
    answers: &Generations,
    other: &Path,
    columns: &Columns,
) -> anyhow::Result<Vec<Pair>> {
    let others = Generations::read(other, columns)?;
    let by_prompt: HashMap<&str, _> =
        others.prompts.iter().map(|prompt| (prompt.prompt.as_str(), prompt)).collect();
    let mut pairs = Vec::new();
    for (index, prompt) in answers.prompts.iter().enumerate() {
        let same = by_prompt.get(prompt.prompt.as_str()).with_context(|| {
            format!(
                "the prompt \"{}\" is in {}, but not in {}; judge answers to the same prompts",
                short_text(&prompt.prompt),
                arguments.file.display(),
                other.display()
            )
        })?;
        let both = prompt.texts().zip(same.texts()).take(arguments.per_prompt);
        for (sample, (a, b)) in both.enumerate() {
            pairs.push(Pair {
                id: format!("{index}-{sample}"),
                prompt: prompt.prompt.clone(),
                a: a.to_owned(),
                b: b.to_owned(),
            });
        }
    }
    Ok(pairs)
}

/// Reads the judgements of another judge.
fn earlier(path: &Path) -> anyhow::Result<Vec<JudgedPair>> {
    let text = regular_file::read_to_string(path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let parsed: Option<Value> = serde_json::from_str(&text).ok();
    let pairs = parsed.and_then(|mut all| serde_json::from_value(all["pairs"].take()).ok());
    pairs.with_context(|| {
        format!("{} has no judged pairs; use a file that `grpo judge -o` wrote", path.display())
    })
}

/// A model behind an endpoint.
struct Judge {
    client: Client,
    settings: ChatSettings,
}

type Reply = Result<ChatAnswer, EndpointError>;

impl Judge {
    fn new(arguments: &JudgeArguments) -> anyhow::Result<Self> {
        let mut config = EndpointConfig::new(&arguments.endpoint);
        config.api_key_env = arguments.api_key_env.clone();
        config.parallel = arguments.parallel;
        config.time_limit = arguments.time_limit;
        let mut client = Client::new(config)?;
        if let Some(path) = &arguments.cache {
            client = client.with_cache(Cache::open(path)?);
        }
        let mut settings = ChatSettings::new(&arguments.model);
        settings.max_tokens = arguments.max_tokens;
        settings.check()?;
        Ok(Self { client, settings })
    }

    /// Compares the answers of each pair in both orders.
    fn compare(&mut self, pairs: &[Pair], criteria: &str) -> anyhow::Result<Vec<JudgedPair>> {
        let questions = pairs.iter().flat_map(|pair| pair.questions(criteria)).collect();
        let replies = self.ask(questions)?;
        let judged = |(pair, replies): (&Pair, &[Reply])| {
            let text = |reply: &Reply| reply.as_ref().ok().map(|answer| answer.text.clone());
            let texts = [text(&replies[0]), text(&replies[1])];
            JudgedPair::new(pair, texts.each_ref().map(Option::as_deref))
        };
        Ok(pairs.iter().zip(replies.chunks(2)).map(judged).collect())
    }

    /// Rates the first answers to each prompt.
    fn rate(
        &mut self,
        answers: &Generations,
        per_prompt: usize,
        criteria: &str,
    ) -> anyhow::Result<Vec<ScoredText>> {
        let mut texts = Vec::new();
        for (index, prompt) in answers.prompts.iter().enumerate() {
            for (sample, text) in prompt.texts().take(per_prompt).enumerate() {
                texts.push((format!("{index}-{sample}"), prompt.prompt.as_str(), text));
            }
        }
        let question =
            |(_, prompt, text): &(String, &str, &str)| score_question(criteria, prompt, text);
        let replies = self.ask(texts.iter().map(question).collect())?;
        let scored = |((id, prompt, _), reply): ((String, &str, &str), Reply)| {
            ScoredText::new(id, prompt, reply.as_ref().ok().map(|answer| answer.text.as_str()))
        };
        Ok(texts.into_iter().zip(replies).map(scored).collect())
    }

    /// Asks all questions. Questions that the server refuses have an error.
    fn ask(&mut self, questions: Vec<String>) -> anyhow::Result<Vec<Reply>> {
        let progress = Progress::new(questions.len() as u64);
        let requests: Vec<_> = questions.into_iter().map(|text| self.settings.ask(text)).collect();
        let step = |of: grpo_endpoint::Progress| {
            progress.step(format!("{} requests", of.usage.requests));
        };
        let replies = self.client.send_all(&requests, step)?;
        progress.finish();
        if let Some(error) = replies.iter().find_map(|reply| reply.as_ref().err()) {
            say_aside(format_args!(
                "warning: questions without an answer, the first because of: {error}"
            ));
        }
        Ok(replies)
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.3}"))
}

fn interval(estimate: Option<&Estimate>) -> String {
    estimate.map_or(String::new(), |of| format!(" [{:.3}, {:.3}]", of.low, of.high))
}

fn show_pairs(of: &PairwiseSummary) {
    say(format_args!(
        "pairs        {}: {} won, {} tied, {} lost; {} answers unparsable, {} missing",
        of.pairs, of.wins, of.ties, of.losses, of.unparsable, of.unanswered
    ));
    say(format_args!(
        "win rate     {}{}, sign test p = {}",
        number(of.win_rate),
        interval(of.interval.as_ref()),
        number(of.p_value)
    ));
    say(format_args!(
        "order        agreement {}, kappa {}; the first response won both times in {}, the second in {}",
        number(of.orders.agreement),
        number(of.orders.kappa),
        number(of.first_position),
        number(of.second_position)
    ));
}

fn show_scores(of: &ScoreSummary) {
    say(format_args!(
        "score        {}{} over {} of {} texts; {} answers unparsable, {} missing",
        number(of.mean),
        interval(of.interval.as_ref()),
        of.scored,
        of.texts,
        of.unparsable,
        of.unanswered
    ));
}
