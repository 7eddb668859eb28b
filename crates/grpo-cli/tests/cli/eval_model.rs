//! `grpo eval --model`: completions of held-out prompts are sampled, scored and measured.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value, json};
use snapbox::str;

use crate::fake_hub::{Repo, Server};
use crate::support::{Ended, Place};
use crate::texts::objects;
use crate::training_texts::{self, TRAIN};

/// The last vowel is the answer.
const ANSWER: [&str; 4] = ["--reward", "answer", "--set", "reward.extract=([aeiou])"];
const SHORT: [&str; 2] = ["--max-new-tokens", "6"];

/// Creates a place with the model `m`, `train.toml` and eight held-out prompts with levels.
fn place() -> Place {
    let place = training_texts::place("llama");
    let prompt = |index: usize| {
        let answer = ["e", "a", "i", "o"][index % 4];
        let of = json!({"subject": if index < 3 { "sums" } else { "words" }});
        json!({"prompt": format!("number {index} is"), "answer": answer, "level": index % 3 + 9, "of": of})
    };
    let lines: String = (0..8).map(|index| format!("{}\n", prompt(index))).collect();
    place.write("held-out.jsonl", lines);
    place
}

fn parsed(place: &Place, name: &str) -> Value {
    serde_json::from_str(&place.read(name)).unwrap()
}

fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{found} is not a number"));
    assert!((found - expected).abs() < 1e-12, "{found} {expected}");
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard error of the mean.
fn error(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    (values.iter().map(|value| (value - mean(values)).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt()
}

/// Returns the share of four completions that pass, of their six pairs in which one passes, and the share of
/// the most frequent answers that are right.
fn measured(completions: &[&Map<String, Value>]) -> [f64; 3] {
    let rewards: Vec<f64> = completions.iter().map(|of| of["reward"].as_f64().unwrap()).collect();
    let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
    let pairs: Vec<f64> = pairs.iter().map(|&(a, b)| rewards[a].max(rewards[b])).collect();
    let mut votes: BTreeMap<char, usize> = BTreeMap::new();
    for of in completions {
        let mut vowels = of["completion"].as_str().unwrap().chars().rev();
        if let Some(last) = vowels.find(|c| "aeiou".contains(*c)) {
            *votes.entry(last).or_default() += 1;
        }
    }
    let most = votes.values().max().copied();
    let first: Vec<f64> = votes
        .iter()
        .filter(|(_, votes)| Some(**votes) == most)
        .map(|(vowel, _)| f64::from(u8::from(completions[0]["answer"] == vowel.to_string())))
        .collect();
    [mean(&rewards), mean(&pairs), if first.is_empty() { 0.0 } else { mean(&first) }]
}

#[test]
fn metrics_are_those_of_the_completions() {
    let place = place();
    let model = ["eval", "--model", "m", "--data", "held-out.jsonl", "-n", "4"];
    let measure = ["-k", "1,2,4", "--by", "level", "--gate", "completions > 31"];
    let files = ["-o", "scored.jsonl", "-o", "model.json"];
    let arguments = [&model[..], &ANSWER, &SHORT, &measure, &files].concat();
    let ended = place.succeed(&arguments);
    for part in ["over 8 prompts", "score/mean", "pass_at_4", "majority_at_4", "level", " ± "] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    let said = "sampling     32 completions: 4 for each of 8 prompts, temperature 1, at most 6 tokens, seed 42\n";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);

    let lines = objects(&place.read("scored.jsonl"));
    assert_eq!(lines.len(), 32);
    let of_prompts: Vec<Vec<&Map<String, Value>>> =
        lines.chunks(4).map(|of_prompt| of_prompt.iter().collect()).collect();
    let each: Vec<[f64; 3]> = of_prompts.iter().map(|of| measured(of)).collect();
    let column = |index: usize| each.iter().map(|of| of[index]).collect::<Vec<f64>>();
    assert!(column(0).iter().any(|share| *share > 0.0), "no completion is right: {lines:?}");
    let found = parsed(&place, "model.json");
    for (name, index) in
        [("score/mean", 0), ("pass_at_1", 0), ("pass_at_2", 1), ("majority_at_4", 2)]
    {
        near(&found["metrics"][name], mean(&column(index)));
        near(&found["standard_errors"][name], error(&column(index)));
    }
    // Two votes are as good as one.
    let answered = lines.iter().all(|line| line["rewards/answered"] == 1.0);
    assert!(!answered || found["metrics"]["majority_at_2"] == found["metrics"]["pass_at_1"]);
    for level in 9..=11 {
        let of_level = |index: usize| -> Vec<f64> {
            let is_of = |of: &&Vec<&Map<String, Value>>| of[0]["level"] == level;
            of_prompts.iter().filter(is_of).map(|of| measured(of)[index]).collect()
        };
        let group = &found["by"]["level"][level.to_string()];
        assert_eq!(group["prompts"], of_level(0).len());
        near(&group["metrics"]["score/mean"], mean(&of_level(0)));
        near(&group["standard_errors"]["score/mean"], error(&of_level(0)));
        near(&group["metrics"]["majority_at_4"], mean(&of_level(2)));
    }

    // The file of the completions has the same metrics, without the reward and with it.
    let of_file = ["eval", "scored.jsonl", "-k", "1,2,4", "--by", "of.subject"];
    place.succeed(&[&of_file[..], &["-o", "file.json"]].concat());
    place.succeed(&[&of_file[..4], &ANSWER, &["--by", "level", "-o", "again.json"]].concat());
    let (file, again) = (parsed(&place, "file.json"), parsed(&place, "again.json"));
    for name in ["score/mean", "pass_at_1", "pass_at_2", "pass_at_4"] {
        assert_eq!(file["metrics"][name], found["metrics"][name], "{name}");
        assert_eq!(file["intervals"][name], found["intervals"][name], "{name}");
    }
    assert_eq!(again["metrics"]["majority_at_4"], found["metrics"]["majority_at_4"]);
    assert_eq!(again["by"], found["by"]);
    assert_eq!(file["by"]["of.subject"]["sums"]["prompts"], 3);
}

/// Scores of 0 and 1 say which completions pass, unless another file has other scores or none.
#[test]
fn a_score_of_one_passes_where_all_scores_are_judgements() {
    let place = Place::new();
    let line = |prompt: &str, rest: &str| {
        format!("{{\"prompt\": \"{prompt}\", \"completion\": \"It is five, of course.\"{rest}}}\n")
    };
    let file = |rewards: [&str; 2]| rewards.map(|of| line("a", of) + &line("b", of)).concat();
    place.write("judged.jsonl", file([", \"reward\": 1", ", \"reward\": 0"]));
    place.write("scored.jsonl", file([", \"reward\": 1", ", \"reward\": 0.5"]));
    place.write("bare.jsonl", file(["", ""]));
    for (name, pass) in [("judged", 0.5), ("scored", 1.0), ("bare", 1.0)] {
        place.succeed(&["eval", &format!("{name}.jsonl"), "-o", &format!("{name}.json")]);
        let found = parsed(&place, &format!("{name}.json"));
        assert_eq!(found["metrics"]["pass_at_1"], pass, "{name}");
    }
    place.succeed(&["compare", "judged.jsonl", "x=judged.jsonl", "-o", "same.json"]);
    place.succeed(&["compare", "judged.jsonl", "bare.jsonl", "-o", "other.json"]);
    for (file, expected) in [("same.json", 0.5), ("other.json", 1.0)] {
        near(&parsed(&place, file)["methods"][0]["metrics"]["pass_at_1"]["mean"], expected);
    }
}

/// The random numbers follow from seed, prompt and sample, and from nothing else.
#[test]
fn the_same_completions_are_sampled_again() {
    let place = place();
    let sample = |more: &[&str], name: &str| {
        let model = ["eval", "--model", "m", "--data", "held-out.jsonl", "-n", "3", "-o", name];
        place.succeed(&[&model[..], &ANSWER, &SHORT, more].concat());
        place.read(name)
    };
    let all = sample(&[], "a.jsonl");
    assert_eq!(sample(&["--set", "sampling.batch_size=1", "--threads", "1"], "b.jsonl"), all);
    let first: String = all.lines().take(6).map(|line| format!("{line}\n")).collect();
    assert_eq!(sample(&["--samples", "2"], "c.jsonl"), first);
    assert_ne!(sample(&["--seed", "7"], "d.jsonl"), all);
    assert_ne!(sample(&["--temperature", "0.5"], "e.jsonl"), all);
    // A pattern that cannot find the answers is noticed.
    let arguments = ["eval", "--model", "m", "--data", "held-out.jsonl", "--reward", "answer"];
    let digits = [&arguments[..], &SHORT, &["--set", "reward.extract=([0-9])"]].concat();
    let said = place.succeed(&digits).stderr;
    let expected = "warning      no completion can be right for 8 of 8 prompts; first reason: ";
    assert!(said.contains(expected), "{said}");
}

/// Engine, prompts, reward and random numbers are those of an evaluation of the run.
#[test]
fn a_run_evaluates_its_model_in_the_same_way() {
    let place = place();
    let eval = "samples = 16\ngroup_size = 2\nfile = \"held-out.jsonl\"\n";
    place.write("train.toml", TRAIN.replace("samples = 3\n", eval));
    place.succeed(&["train", "train.toml"]);
    let comparison = parsed(&place, "run/comparison.json");
    let model = ["eval", "--model", "m", "--reward", "run/config.toml", "--seed", "1"];
    for (adapter, when) in [(&[][..], "before"), (&["--adapter", "run/adapter"], "after")] {
        let file = format!("{when}.json");
        place.succeed(&[&model[..], adapter, &["-o", &file]].concat());
        let expected = comparison["reward"][when].as_f64().unwrap();
        near(&parsed(&place, &file)["metrics"]["score/mean"], expected);
    }
}

/// Composite rewards, functions in Python and the keys of `[data]` work as in training.
#[test]
fn the_reward_and_the_data_of_a_configuration_are_used() {
    let place = place();
    place.write("rows.jsonl", "{\"q\": {\"text\": \"two\"}, \"gold\": \"so #### e\"}\n");
    place.write("vowels.py", "def reward(completion):\n    return completion.count('e')\n");
    let pattern = "type = \"pattern\"\npattern = \"[aeiou]\"\n";
    let parts = concat!(
        "type = \"composite\"\nparts = [\n",
        "    { name = \"count\", weight = 0.5, reward = { type = \"python\", file = \"vowels.py\" } },\n",
        "    { name = \"right\", weight = 0.5, reward = { type = \"answer\", extract = \"([aeiou])\" } },\n",
        "]\n",
    );
    let data = "file = \"rows.jsonl\"\nanswer_extract = \"####\"\ntemplate = \"{{ q.text }} is\"\n[data.columns]\nanswer = \"gold\"\n";
    let config = TRAIN.replace(pattern, parts);
    place.write("own.toml", config.replace("file = \"prompts.jsonl\"\n", data));
    let model = ["eval", "--model", "m", "--reward", "own.toml", "-n", "5"];
    let ended = place.succeed(&[&model[..], &["-o", "own.jsonl", "-o", "own.json"]].concat());
    assert!(
        ended.stderr.contains("(\"rows.jsonl\"), because it has no eval.file"),
        "{}",
        ended.stderr
    );
    for line in objects(&place.read("own.jsonl")) {
        let text = line["completion"].as_str().unwrap();
        let last = text.chars().rev().find(|c| "aeiou".contains(*c));
        let is_right = f64::from(u8::from(last == Some('e')));
        let expected = 0.5 * text.matches('e').count() as f64 + 0.5 * is_right;
        near(&line["reward"], expected);
        assert_eq!(line["answer"], "e");
        assert!(line["prompt"].as_str().unwrap().contains("two is"), "{line:?}");
    }
    let found = parsed(&place, "own.json");
    for name in ["majority_at_5", "rewards/count/mean", "rewards/right/mean", "pass_at_5"] {
        assert!(found["metrics"][name].is_number(), "{name}: {found}");
    }
}

#[test]
fn models_and_prompts_can_be_names_of_the_hub() {
    let place = place();
    let files = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"];
    let files = files.map(|name| (name, fs::read(place.path("m").join(name)).unwrap()));
    let prompts = fs::read(place.path("held-out.jsonl")).unwrap();
    let server = Server::start(move |_, request| {
        let files = files.each_ref().map(|(name, body)| (*name, body.as_slice(), false));
        match request.path.contains("/datasets/") {
            true => Repo::new("datasets/org/sums", &[("main/test.jsonl", &prompts, false)]),
            false => Repo::new("models/org/m", &files),
        }
        .reply(request)
    });
    let rest = [&["-n", "2", "--json"][..], &ANSWER, &SHORT].concat();
    let data = "hf://datasets/org/sums/main/test.jsonl";
    let by_name = [&["eval", "--model", "org/m", "--data", data][..], &rest].concat();
    let mut command = place.command(&by_name);
    command.env("HF_ENDPOINT", &server.url).env("HF_HOME", place.path("hf"));
    for variable in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"] {
        command.env_remove(variable);
    }
    let ended = Ended::of_command(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let by_path = ["eval", "--model", "m", "--data", "held-out.jsonl"];
    let expected = place.succeed(&[&by_path[..], &rest].concat());
    let metrics =
        |ended: &Ended| serde_json::from_str::<Value>(&ended.stdout).unwrap()["metrics"].clone();
    assert_eq!(metrics(&ended), metrics(&expected));
}

#[test]
fn what_cannot_be_evaluated_is_refused() {
    let place = place();
    place.write("empty.jsonl", "");
    let model = ["eval", "--model", "m"];
    let with = |more: &[&'static str]| [&model[..], &SHORT, more].concat();
    let data = ["--data", "held-out.jsonl"];
    let refuse = |more: &[&'static str], expected| place.refuse(&with(more), expected);
    let scored = |more: &[&'static str]| [&data[..], &ANSWER, more].concat();
    refuse(
        &data,
        str![
            "--model requires --reward; add a configuration with a [reward] section, or a type such as `answer`"
        ],
    );
    refuse(
        &ANSWER,
        str!["missing prompts; add --data FILE with held-out prompts (JSON lines or Parquet)"],
    );
    refuse(&[&["--data", "empty.jsonl"][..], &ANSWER].concat(), str!["[..]empty.jsonl[..]"]);
    refuse(
        &[&data[..], &["--reward", "accuracy"]].concat(),
        str![
            "--reward accuracy is neither a configuration file nor a type of reward; expected a file such as configs/text/grpo.toml, or one of answer, [..]"
        ],
    );
    refuse(
        &scored(&["--by", "levl"]),
        str![
            "--by levl: held-out.jsonl:1: the record has no field `levl`; it has answer, level, of"
        ],
    );
    refuse(
        &scored(&["-n", "4", "-k", "1,5"]),
        str![
            "-k 5 is out of range; expected 1 to 4, the number of completions per prompt, which -n sets"
        ],
    );
    refuse(&scored(&["-n", "0"]), str!["-n 0 is out of range; expected 1 to 1000"]);
    refuse(&scored(&["--samples", "0"]), str!["--samples 0 is out of range; expected 1 or more"]);
    refuse(
        &scored(&["--temperature", "0.5", "--set", "sampling.temperature=1"]),
        str!["--temperature and --set sampling.temperature set the same value; remove one of them"],
    );
    refuse(
        &scored(&["--temperature", "-1"]),
        str!["grpo eval sets sampling.temperature=-1.0: [..]"],
    );
    refuse(
        &scored(&["-o", "a.csv"]),
        str![
            "-o a.csv: the output is metrics in JSON, or completions in JSON lines; use a name that ends in .json or .jsonl"
        ],
    );
    refuse(
        &scored(&["-o", "a.jsonl", "-o", "b.jsonl"]),
        str!["-o a.jsonl and -o b.jsonl would have the same contents; remove one"],
    );
    refuse(&scored(&["-o", "held-out.jsonl", "--force"]), str!["[..]held-out.jsonl[..]"]);
    refuse(
        &scored(&["--pass", "good"]),
        str![
            "--pass good: unknown condition; expected quality, exact, answer, score:X, relevance:X or pattern:REGEX"
        ],
    );
    // The answer of the record is missing.
    place.write("bare.jsonl", "{\"prompt\": \"two\"}\n");
    refuse(
        &[&["--data", "bare.jsonl"][..], &ANSWER].concat(),
        str!["bare.jsonl:1: the prompt's record is missing field 'answer'"],
    );
    let absent = ["eval", "--model", "absent", "--data", "held-out.jsonl"];
    place.refuse(
        &[&absent[..], &ANSWER].concat(),
        str![[r#"model = "absent": model folder absent does not exist; [..]"#]],
    );
}

#[test]
fn files_of_completions_are_refused_in_their_own_words() {
    let place = place();
    // A file of completions has a line for each text.
    place.refuse(
        &["eval", "held-out.jsonl", "-o", "a.jsonl"],
        str!["-o a.jsonl: the output is JSON; use a name that ends in .json"],
    );
    place.write("s.jsonl", "{\"prompt\": \"two\", \"completion\": \"e\", \"level\": 1}\n");
    place.refuse(
        &["eval", "s.jsonl", "--by", "levl"],
        str![[r#"s.jsonl: --by levl: the record of the prompt "two" has no field `levl`; it has prompt, completion, level"#]],
    );
}
