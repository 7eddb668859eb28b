//! `grpo judge`: a language model behind an OpenAI-compatible endpoint compares or rates answers.

mod inputs;
mod shown;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::Shortened;
use grpo_eval::judge::{
    JudgeAgreement, JudgeAnswer, JudgedPair, Pair, PairwiseSummary, ScoreSummary, ScoredText,
    score_question,
};
use grpo_eval::stats::{Bootstrap, rater_agreement};
use grpo_servers::{
    Cache, ChatAnswer, ChatSettings, Client, EndpointConfig, EndpointError, Prices,
};
use grpo_task::eval::Generations;
use grpo_task::output::{
    FileInPlace, JSON, Progress, refuse_input, refuse_same, say, say_aside, sentence,
};
use serde_json::{Map, Value, json};

use self::shown::{
    is_one_per_prompt, number, show_pairs, show_per_prompt, show_scores, show_usage,
};
use crate::evaluate::eval::ColumnArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo judge grpo.jsonl base.jsonl --endpoint http://localhost:8000 --model judge -o judged.json
  grpo judge grpo.jsonl --endpoint https://api.openai.com/v1 --api-key-env OPENAI_API_KEY --model gpt-4.1-mini --cache judge-cache.jsonl

Each pair is judged twice, with swapped order; a pair counts as won if both judgements agree. With one file, each answer gets a score from 1 to 10. The exit code is 1 if no pair or answer could be judged. docs/metrics.md describes all numbers.")]
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
    /// Maximum number of retries after a timeout, a failed connection, or status 408, 429 or 5xx
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Judge")]
    retries: u32,
    /// Longest pause before a retry in seconds; a server that asks for a longer one ends the command
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, help_heading = "Judge")]
    longest_pause: f64,
    /// PEM file with the certificates to trust instead of Mozilla's roots
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
    ca_file: Option<PathBuf>,
    /// More keys of each request as a JSON object, e.g. '{"seed": 7}'; null removes a key
    #[arg(long, value_name = "JSON", help_heading = "Judge")]
    extra: Option<String>,
    /// Maximum length of a judgement in tokens
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Judge")]
    max_tokens: u32,
    /// Prices of a million prompt tokens and a million completion tokens, to show the cost
    #[arg(long, value_name = "PROMPT,COMPLETION", value_delimiter = ',', help_heading = "Judge")]
    prices: Vec<f64>,
    /// Results of another judge for the same pairs or answers (JSON from -o), to measure the agreement
    #[arg(long, value_name = "FILE", help_heading = "Judge")]
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
    // Before the first request, whose costs would be lost.
    let inputs = input_files(arguments);
    let create = |path: &PathBuf| FileInPlace::create_beside(path, JSON, &inputs, arguments.force);
    let output = arguments.output.as_ref().map(create).transpose()?;
    let criteria = inputs::criteria(arguments.criteria.as_deref())?;
    let bootstrap = Bootstrap { seed: arguments.seed, ..Bootstrap::default() };
    let Judged { judge, results, failure } = match &arguments.other {
        Some(other) => compare(arguments, other, &criteria, &bootstrap)?,
        None => rate(arguments, &criteria, &bootstrap)?,
    };
    let usage = judge.client.usage();
    let cost = arguments.prices.first().zip(arguments.prices.get(1));
    let cost = cost.map(|(prompt, completion)| {
        usage.cost(&Prices { prompt: *prompt, completion: *completion })
    });
    show_usage(&usage, cost);
    let mut kept = String::new();
    if let Some(mut file) = output {
        let path = file.path().display().to_string();
        let all = all_results(arguments, &judge, &criteria, cost, results);
        let text = serde_json::to_string_pretty(&all).context("the numbers are finite")? + "\n";
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {path}"))?;
        file.finish()?;
        kept = format!("; the judge's answers are in {path}");
    }
    match failure {
        Some(failure) => anyhow::bail!("{failure}{kept}"),
        None => Ok(()),
    }
}

/// Returns the content of the output file.
fn all_results(
    arguments: &JudgeArguments,
    judge: &Judge,
    criteria: &str,
    cost: Option<f64>,
    results: Map<String, Value>,
) -> Map<String, Value> {
    let mut all = Map::from_iter([
        ("file".to_owned(), json!(arguments.file.display().to_string())),
        (
            "other".to_owned(),
            json!(arguments.other.as_ref().map(|path| path.display().to_string())),
        ),
        ("per_prompt".to_owned(), json!(arguments.per_prompt)),
        ("model".to_owned(), json!(arguments.model)),
        ("reported_models".to_owned(), json!(judge.reported_models)),
        ("endpoint".to_owned(), json!(arguments.endpoint)),
        ("max_tokens".to_owned(), json!(arguments.max_tokens)),
        ("extra".to_owned(), json!(judge.settings.extra)),
        ("criteria".to_owned(), json!(criteria)),
        ("seed".to_owned(), json!(arguments.seed)),
        ("usage".to_owned(), json!(judge.client.usage())),
        ("cost".to_owned(), json!(cost)),
    ]);
    all.extend(results);
    all
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
    let inputs = input_files(arguments);
    if let Some(cache) = &arguments.cache {
        refuse_input("another file for --cache", cache, &inputs)?;
    }
    Ok(())
}

fn input_files(arguments: &JudgeArguments) -> Vec<&Path> {
    let JudgeArguments { file, other, criteria, ca_file, agreement_with, .. } = arguments;
    let optional = [other, criteria, ca_file, agreement_with].into_iter().flatten();
    std::iter::once(file).chain(optional).map(PathBuf::as_path).collect()
}

/// What was judged.
struct Judged {
    judge: Judge,
    /// For the output file.
    results: Map<String, Value>,
    /// Why the command fails although there are results.
    failure: Option<String>,
}

/// Returns the failure of a judge whose answers cannot be used.
fn unusable(what: &str, [unparsable, truncated, unanswered]: [usize; 3]) -> String {
    format!(
        "none of the {what}: {unparsable} unparsable, {truncated} truncated, {unanswered} missing; use another --model, or raise --max-tokens"
    )
}

/// Compares two files.
fn compare(
    arguments: &JudgeArguments,
    other: &Path,
    criteria: &str,
    bootstrap: &Bootstrap,
) -> anyhow::Result<Judged> {
    let files = [arguments.file.as_path(), other];
    let found = inputs::pairs(files, &arguments.columns.plain(), arguments.per_prompt)?;
    let other_judge = arguments.agreement_with.as_deref();
    let other_judge =
        other_judge.map(|path| inputs::other_judge(path, &found.pairs)).transpose()?;
    let mut judge = Judge::new(arguments)?;
    let judged = judge.compare(&found.pairs, criteria)?;
    let summary = PairwiseSummary::new(&judged, bootstrap)?;
    show_pairs(&summary, is_one_per_prompt(&judged));
    show_per_prompt(&found.per_prompt, arguments.per_prompt);
    let mut results = Map::from_iter([("summary".to_owned(), json!(summary))]);
    let failure = (summary.judged == 0).then(|| {
        let counts = [summary.unparsable, summary.truncated, summary.unanswered];
        let pairs = summary.pairs;
        unusable(&format!("{pairs} pairs has usable answers in both orders"), counts)
    });
    if let Some(other_judge) = other_judge {
        let agreement = JudgeAgreement::new(&judged, &other_judge)?;
        say(format_args!(
            "other judge  agreement {}, kappa {} over {} pairs",
            number(agreement.agreement),
            number(agreement.kappa),
            agreement.pairs
        ));
        results.insert("agreement".to_owned(), json!(agreement));
    }
    results.insert("pairs".to_owned(), json!(judged));
    Ok(Judged { judge, results, failure })
}

/// Rates the answers of a file.
fn rate(
    arguments: &JudgeArguments,
    criteria: &str,
    bootstrap: &Bootstrap,
) -> anyhow::Result<Judged> {
    let answers = inputs::answers(&arguments.file, &arguments.columns.plain())?;
    let other_judge = arguments.agreement_with.as_deref();
    let other_judge = other_judge
        .map(|path| inputs::other_ratings(path, &answers, arguments.per_prompt))
        .transpose()?;
    let mut judge = Judge::new(arguments)?;
    let scored = judge.rate(&answers, arguments.per_prompt, criteria)?;
    let summary = ScoreSummary::new(&scored, bootstrap)?;
    show_scores(&summary);
    let counts = answers.prompts.iter().map(|of| of.generations.len().min(arguments.per_prompt));
    show_per_prompt(&counts.collect::<Vec<_>>(), arguments.per_prompt);
    let mut results = Map::from_iter([("summary".to_owned(), json!(summary))]);
    let mut failure = (summary.scored == 0).then(|| {
        let counts = [summary.unparsable, summary.truncated, summary.unanswered];
        unusable(&format!("{} texts has a usable answer", summary.texts), counts)
    });
    if let (Some(other_judge), None) = (other_judge, &failure) {
        match agreement_of_ratings(&scored, &other_judge) {
            Ok(agreement) => drop(results.insert("agreement".to_owned(), agreement)),
            Err(error) => failure = Some(sentence(&error)),
        }
    }
    results.insert("texts".to_owned(), json!(scored));
    Ok(Judged { judge, results, failure })
}

/// Prints and returns the correlation of two judges' ratings of the texts that both rated.
fn agreement_of_ratings(own: &[ScoredText], other: &[ScoredText]) -> anyhow::Result<Value> {
    let of = |text: &ScoredText| text.score.given().map(f64::from);
    let both = own.iter().zip(other).filter_map(|(own, other)| Some((of(own)?, of(other)?)));
    let (own, other): (Vec<f64>, Vec<f64>) = both.unzip();
    let (test, band) = rater_agreement(&own, &other).context("--agreement-with")?;
    let band = json!(band);
    say(format_args!(
        "other judge  Spearman {} (p = {}) over {} texts: {} agreement",
        number(Some(test.statistic)),
        number(Some(test.p_value)),
        own.len(),
        band.as_str().unwrap_or_default()
    ));
    Ok(
        json!({"spearman": test.statistic, "p_value": test.p_value, "texts": own.len(), "band": band}),
    )
}

/// A model behind an endpoint.
struct Judge {
    client: Client,
    settings: ChatSettings,
    /// Names of the model according to the server.
    reported_models: BTreeSet<String>,
}

type Reply = Result<ChatAnswer, EndpointError>;

impl Judge {
    fn new(arguments: &JudgeArguments) -> anyhow::Result<Self> {
        let mut config = EndpointConfig::new(&arguments.endpoint);
        config.api_key_env = arguments.api_key_env.clone();
        config.parallel = arguments.parallel;
        config.time_limit = arguments.time_limit;
        config.retries = arguments.retries;
        config.longest_pause = arguments.longest_pause;
        config.ca_file = arguments.ca_file.clone();
        let mut settings = ChatSettings::new(&arguments.model);
        settings.max_tokens = arguments.max_tokens;
        if let Some(extra) = &arguments.extra {
            settings.extra = serde_json::from_str(extra).with_context(|| {
                let extra = Shortened(extra);
                format!("--extra {extra}: expected a JSON object, e.g. '{{\"seed\": 7}}'")
            })?;
        }
        settings.check().map_err(in_options)?;
        let mut client = Client::new(config).map_err(in_options)?;
        if let Some(path) = &arguments.cache {
            client = client.with_cache(Cache::open(path)?);
        }
        Ok(Self { client, settings, reported_models: BTreeSet::new() })
    }

    /// Compares the answers of each pair in both orders.
    fn compare(&mut self, pairs: &[Pair], criteria: &str) -> anyhow::Result<Vec<JudgedPair>> {
        let questions = pairs.iter().flat_map(|pair| pair.questions(criteria)).collect();
        let replies = self.ask(questions)?;
        let judged = |(pair, replies): (&Pair, &[Reply])| {
            JudgedPair::new(pair, [answer(&replies[0]), answer(&replies[1])])
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
        let scored = |((id, prompt, text), reply): ((String, &str, &str), Reply)| {
            ScoredText::new(id, prompt, text, answer(&reply))
        };
        Ok(texts.into_iter().zip(replies).map(scored).collect())
    }

    /// Asks all questions. Questions that the server refuses have an error.
    fn ask(&mut self, questions: Vec<String>) -> anyhow::Result<Vec<Reply>> {
        let progress = Progress::new(questions.len() as u64);
        let requests: Vec<_> = questions.into_iter().map(|text| self.settings.ask(text)).collect();
        let step = |of: grpo_servers::Progress| {
            progress.step(format!("{} requests", of.usage.requests));
        };
        let replies = self.client.send_all(&requests, step).map_err(in_options)?;
        progress.finish();
        let models = replies.iter().flatten().filter_map(|answer| answer.model.clone());
        self.reported_models.extend(models);
        if let Some(error) = replies.iter().find_map(|reply| reply.as_ref().err()) {
            let error = in_options(error.clone());
            say_aside(format_args!(
                "warning: questions without an answer, the first because of: {error}"
            ));
        }
        Ok(replies)
    }
}

/// Names the options of the command instead of the settings of an endpoint.
fn in_options(error: EndpointError) -> EndpointError {
    error.with_names(|setting| {
        Some(match setting {
            "url" => "--endpoint",
            "model" => "--model",
            "api_key_env" => "--api-key-env",
            "parallel" => "--parallel",
            "time_limit" => "--time-limit",
            "retries" => "--retries",
            "longest_pause" => "--longest-pause",
            "ca_file" => "--ca-file",
            "extra" => "--extra",
            "max_tokens" => "--max-tokens",
            _ => return None,
        })
    })
}

fn answer(reply: &Reply) -> Option<JudgeAnswer<'_>> {
    let ChatAnswer { text, is_truncated, .. } = reply.as_ref().ok()?;
    Some(JudgeAnswer { text, is_truncated: *is_truncated })
}
