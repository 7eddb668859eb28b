//! Compares pairs of answers with a language model as the judge:
//!
//! ```text
//! cargo run -p grpo-endpoint --example judge -- http://localhost:8000 MODEL pairs.jsonl cache.jsonl
//! ```
//!
//! Each line of `pairs.jsonl` is an object with `id`, `prompt`, `a` and `b`. The API key, if the
//! server needs one, is in the environment variable `JUDGE_API_KEY`, and the path of a PEM file with
//! certificates in `JUDGE_CA_FILE`. A fifth argument is a JSON object with more keys of the request.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its results")]

use std::error::Error;
use std::process::ExitCode;

use grpo_data::regular_file;
use grpo_endpoint::{Answers, Cache, ChatAnswer, ChatSettings, Client, EndpointConfig};
use grpo_eval::judge::{JudgedPair, Pair, PairwiseSummary};
use grpo_eval::stats::Bootstrap;

const CRITERIA: &str = "The better response answers the prompt correctly, completely and politely.";

fn main() -> ExitCode {
    match judge() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn judge() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, model, pairs, cache, extra @ ..] = arguments.as_slice() else {
        return Err("expected URL MODEL PAIRS.jsonl CACHE.jsonl [EXTRA]".into());
    };
    let text = regular_file::read_to_string(pairs.as_ref())?;
    let pairs: Vec<Pair> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;

    let mut config = EndpointConfig::new(url);
    config.api_key_env = std::env::var_os("JUDGE_API_KEY").map(|_| "JUDGE_API_KEY".to_owned());
    config.ca_file = std::env::var_os("JUDGE_CA_FILE").map(Into::into);
    let mut settings = ChatSettings::new(model);
    if let Some(extra) = extra.first() {
        settings.extra = serde_json::from_str(extra)?;
    }
    settings.check()?;
    let mut client = Client::new(config)?.with_cache(Cache::open(cache.as_ref())?);

    // Two questions per pair: with `a` first and with `b` first.
    let questions = pairs.iter().flat_map(|pair| pair.questions(CRITERIA));
    let requests: Vec<_> = questions.map(|question| settings.ask(question)).collect();
    let answers = client.send_all(&requests, |progress| {
        eprint!("\r{} of {}", progress.done, progress.total);
    });
    eprintln!();
    let answers: Answers<ChatAnswer> = answers?;
    if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
        eprintln!("the first question without an answer: {error}");
    }

    let texts: Vec<Option<&str>> =
        answers.iter().map(|answer| Some(answer.as_ref().ok()?.text.as_str())).collect();
    let judged: Vec<JudgedPair> = pairs
        .iter()
        .zip(texts.chunks_exact(2))
        .map(|(pair, texts)| JudgedPair::new(pair, [texts[0], texts[1]]))
        .collect();
    let summary = PairwiseSummary::new(&judged, &Bootstrap::default())?;
    println!("{}", serde_json::to_string_pretty(&summary)?);
    println!("{}", serde_json::to_string(&client.usage())?);
    Ok(())
}
