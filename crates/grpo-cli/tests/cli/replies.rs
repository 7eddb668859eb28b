//! Both training phases for replies, and the configurations in configs/replies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use snapbox::str;

use crate::pairs::{PRETRAIN, lines, short_pairs};
use crate::support::{Ended, Place};
use crate::texts::{VOCABULARY, config, objects};
use crate::training_texts;

/// A few pairs with short prompts.
fn pairs(tweets: u64) -> String {
    lines(&short_pairs(tweets))
}

/// Configuration for supervised training that also samples replies.
fn supervised() -> String {
    let eval = "[pretrain.eval]\nprompts = 8\nrows = 8\ngenerations = 2\nmax_new_tokens = 6\n";
    PRETRAIN.replace("run = \"run\"", "run = \"supervised\"") + "\n" + eval
}

const GRPO: &str = r#"run = "grpo"
model = "m"
adapter = "supervised/adapter"
seed = 1

[data]
file = "pairs.jsonl"

[data.replies]
instruction = "the user asks"

[train]
steps = 2
prompts_per_step = 8
group_size = 4

[sampling]
max_new_tokens = 6

[reward]
type = "heuristic"
embedder = { type = "hashed_ngrams", width = 64 }

[optimizer]
learning_rate = 2e-2

[eval]
samples = 4
file = "held-out.jsonl"

[save]
completions_every = 1
"#;

/// Creates a place with a model, pairs and the configurations of both phases.
pub(crate) fn place() -> Place {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    place.write("pairs.jsonl", pairs(8));
    place.write("held-out.jsonl", pairs(2));
    place.write("supervised.toml", supervised());
    place.write("grpo.toml", GRPO);
    place
}

fn adapter(place: &Place, run: &str) -> Vec<u8> {
    fs::read(place.path(&format!("{run}/adapter/adapter_model.safetensors"))).unwrap()
}

#[test]
fn the_grpo_phase_goes_on_from_the_adapter_of_the_supervised_one() {
    let place = place();
    let base = fs::read(place.path("m/model.safetensors")).unwrap();
    place.succeed(&["pretrain", "supervised.toml"]);
    let Ended { stdout, .. } = place.succeed(&["train", "grpo.toml", "--plain"]);
    assert!(stdout.contains("\nheld out     held-out.jsonl: 4 pairs from 2 tweets\n"), "{stdout}");
    let lines = objects(&place.read("grpo/metrics.jsonl"));
    let number = |line: usize, name: &str| lines[line][name].as_f64().unwrap();
    // The reference is the initial adapter, and the policy moves away from it.
    assert_eq!(number(0, "kl"), 0.0);
    assert!(number(0, "grad_norm") > 0.0 && number(1, "kl") > 0.0);
    assert!((0.0..=1.0).contains(&number(0, "rewards/relevance/mean")));
    assert!(adapter(&place, "grpo") != adapter(&place, "supervised"));
    assert!(base == fs::read(place.path("m/model.safetensors")).unwrap());
    // The sampled text is scored as it is, including empty texts.
    for record in place.completions("grpo") {
        let is_empty = record.text.trim().chars().count() < 3;
        assert_eq!(record.reward == Some(0.0), is_empty, "{record:?}");
        assert_eq!(record.completion_ids.len(), record.actions as usize);
    }

    // Both phases use the same prompts. Thinking is disabled by default.
    let sampled: BTreeSet<String> =
        place.completions("grpo").into_iter().filter_map(|record| record.prompt_text).collect();
    assert_eq!(sampled.len(), 8);
    let shown = objects(&place.read("supervised/samples.jsonl"));
    let shown: BTreeSet<&str> = shown.iter().filter_map(|row| row["prompt"].as_str()).collect();
    assert_eq!(shown.len(), 2);
    assert!(shown.iter().all(|prompt| sampled.contains(*prompt)), "{shown:?}, {sampled:?}");
    let off = ["--set", "data.thinking=false", "--run", "off"];
    place.succeed(&[&["pretrain", "supervised.toml"], &off[..]].concat());
    assert!(adapter(&place, "off") == adapter(&place, "supervised"));
    let off = ["--set", "data.thinking=false", "--run", "off-too", "--plain"];
    place.succeed(&[&["train", "grpo.toml"], &off[..]].concat());
    assert_eq!(place.completions("off-too"), place.completions("grpo"));
    for (command, file) in [("pretrain", "supervised.toml"), ("train", "grpo.toml")] {
        place.refuse(
            &[command, file, "--run", "new", "--set", "data.thinking=true"],
            str!["--set data.thinking=true: data.thinking = true requires replies with thinking, but those of [data.replies] have none; remove it"],
        );
    }
}

#[test]
fn a_configuration_of_the_other_phase_is_named() {
    let place = place();
    for (command, file, other) in
        [("train", "supervised.toml", "pretrain"), ("pretrain", "grpo.toml", "train")]
    {
        let words =
            format!("{file} is a configuration of `grpo {other}`; run `grpo {other} {file}`");
        place.refuse(&[command, file], &words);
    }
    let words = "supervised.toml is a configuration of `grpo pretrain`; run `grpo pretrain supervised.toml`";
    place.refuse(&["train", "supervised.toml", "--check"], words);
}

/// `--tweet` uses the prompt configured in `[data.replies]`.
#[test]
fn a_tweet_is_put_to_the_model_as_in_the_training() {
    let place = Place::new();
    // The context of the bundled model is long enough for this prompt.
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/replies/model");
    let ids = |arguments: &[&str]| {
        let of_model = ["sample", "--model", model, "--max-new-tokens", "2"];
        let Ended { stdout, .. } = place.succeed(&[&of_model[..], arguments].concat());
        objects(&stdout).into_iter().map(|line| line["prompt_ids"].clone()).collect::<Vec<_>>()
    };
    let prompt = "Write an engaging reply to this tweet.\n\nthe fox\n\nReply:";
    let of_chat = ids(&["--chat", "--thinking", "false", "--prompt", prompt]);
    assert_eq!(ids(&["--tweet", "the fox"]), of_chat);
    assert_eq!(ids(&["--tweet", "the dog", "--tweet", "the fox"])[1], of_chat[0]);
    let ended = place.run(&["sample", "--model", model, "--tweet", "x", "--thinking", "true"]);
    assert!(ended.code != Some(0) && ended.stderr.contains("--thinking"), "{}", ended.stderr);
}

#[test]
fn replies_to_a_file_of_tweets_have_references() {
    let place = Place::new();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/replies/model");
    let pair =
        |tweet: &str, reply: &str| json!({"tweet_id": tweet, "tweet": tweet, "reply": reply});
    let pairs = [pair("the fox", "runs"), pair("the dog", "sits"), pair("the fox", "jumps")];
    place.write("pairs.jsonl", pairs.map(|pair| format!("{pair}\n")).concat());
    let sample = |more: &[&str]| {
        let of_model = ["sample", "--model", model, "--tweets", "pairs.jsonl"];
        let of_model = [&of_model[..], &["--max-new-tokens", "2", "-n", "2"], more].concat();
        objects(&place.succeed(&of_model).stdout)
    };
    let lines = sample(&[]);
    let references: Vec<_> = lines.iter().map(|line| line["references"].clone()).collect();
    let [fox, dog] = [json!(["runs", "jumps"]), json!(["sits"])];
    assert_eq!(references, [&fox, &fox, &dog, &dog].map(Clone::clone));
    let of_option = place.succeed(&[
        "sample",
        "--model",
        model,
        "--tweet",
        "the fox",
        "--max-new-tokens",
        "2",
        "-n",
        "2",
    ]);
    assert_eq!(objects(&of_option.stdout)[1]["completion_ids"], lines[1]["completion_ids"]);
    let helpful = sample(&["--template", "helpful"]);
    assert!(helpful[0]["prompt"].to_string().contains("helpful assistant"), "{:?}", helpful[0]);
    place.refuse(
        &["sample", "--model", model, "--template", "helpful"],
        "--template has no effect without --tweet or --tweets; add one of them",
    );
}

#[test]
fn no_example_of_a_combined_loss_is_left_out_silently() {
    let place = place();
    let long = json!({"tweet_id": "long", "tweet": "fox", "reply": "the dog ".repeat(99)});
    fs::create_dir(place.path("more")).unwrap();
    place.write("more/a.jsonl", pairs(2) + "{broken\n");
    place.write("more/b.jsonl", format!("{long}\n"));
    let combined = "combined = { file = \"more\", measure = \"distinct\", batch_size = 2, every = 2 }\ndiversity_bonus = { weight = 0.1, measure = \"bleu\" }\n";
    place.write(
        "combined.toml",
        combined.to_owned()
            + &GRPO.replace("adapter = \"supervised/adapter\"", "lora = { rank = 2, alpha = 4 }"),
    );
    let Ended { stdout, .. } = place.succeed(&["train", "combined.toml", "--plain"]);
    for said in [
        "\nexamples     more: 5 pairs from 3 tweets, 1 line skipped (more/a.jsonl:5: the line is not a JSON object",
        "1 skipped with more than 49 tokens (more/b.jsonl:1: ",
        "training: 4 examples from 2 tweets",
    ] {
        assert!(stdout.contains(said), "{said}: {stdout}");
    }
    // For folders, the files in it are recorded and checked when resuming.
    let info: Value = serde_json::from_str(&place.read("grpo/run.json")).unwrap();
    let of_examples = info["data"].as_array().unwrap().iter().filter(|it| it["role"] == "examples");
    let paths: Vec<&str> = of_examples.map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["more/a.jsonl", "more/b.jsonl"]);
    place.succeed(&["train", "--resume", "grpo", "--plain"]);
    // Steps on examples alone pass the audit, and the bonus is part of the reward.
    place.succeed(&["audit", "grpo"]);
    let lines = objects(&place.read("grpo/metrics.jsonl"));
    let number = |name: &str| lines[1][name].as_f64().unwrap();
    let terms = 0.3 * number("combined/supervised_loss") + 0.5 * number("combined/grpo_loss")
        - 0.2 * number("combined/diversity");
    assert!((number("loss") - terms).abs() < 1e-9, "{lines:?}");
    assert_ne!(number("combined/supervised_loss"), number("combined/mean_supervised_loss"));
    assert!(number("diversity_bonus/mean") > 0.0);
    place.write("more/b.jsonl", pairs(1));
    assert_eq!(place.run(&["train", "--resume", "grpo"]).code, Some(1));
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the names of all configurations in configs/replies.
fn configurations() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("configs/replies")).unwrap();
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let names = entries.map(|entry| stem(entry.unwrap().path()));
    names.filter(|name| !["pipeline", "comparison"].contains(&name.as_str())).collect()
}

/// Returns a configuration preceded by those that it extends.
fn layers(name: &str) -> Vec<toml::Table> {
    let text = fs::read_to_string(root().join(format!("configs/replies/{name}.toml"))).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let base = table.get("extends").and_then(toml::Value::as_str);
    let mut all = base.map_or_else(Vec::new, |base| layers(base.trim_end_matches(".toml")));
    all.push(table);
    all
}

/// Returns the command that a configuration is for.
fn command(name: &str) -> &'static str {
    let layers = layers(name);
    let has = |section: &str| layers.iter().any(|layer| layer.contains_key(section));
    match (has("pretrain"), has("objective")) {
        (true, _) => "pretrain",
        (false, true) => "train-engagement",
        (false, false) => "train",
    }
}

/// In the original project, some configurations had sections and keys that the loader did not know.
#[test]
fn the_bundled_configurations_of_replies_are_valid() {
    let mut of_command = BTreeMap::<_, u32>::new();
    for name in configurations() {
        let command = command(&name);
        *of_command.entry(command).or_default() += 1;
        let file = format!("configs/replies/{name}.toml");
        let checked = |more: &[&str]| {
            let arguments = [&[command, &file, "--check"], more].concat();
            let mut command = Place::new().command(&arguments);
            Ended::of_command(command.current_dir(root()))
        };
        let good = checked(&[]);
        let said = format!("{file}: configuration is valid (models and data were not read)\n");
        assert!(good.stdout.starts_with(&said), "{name}: {}", good.stderr);
        assert_eq!(good.code, Some(0), "{name}: {}", good.stderr);
        assert_eq!(checked(&["--set", "data.fil=x"]).code, Some(1), "{name}");
    }
    // At least six paradigms and the engagement model.
    assert!(of_command["pretrain"] >= 4 && of_command["train"] >= 2, "{of_command:?}");
    assert_eq!(of_command["train-engagement"], 1);
}

/// Returns the value of a key in a configuration or the nearest one that it extends.
#[track_caller]
fn setting(name: &str, key: &[&str]) -> toml::Value {
    let value = |layer: &toml::Table| {
        let (first, rest) = key.split_first()?;
        rest.iter().try_fold(layer.get(*first)?, |value, part| value.get(part)).cloned()
    };
    layers(name).iter().rev().find_map(value).unwrap_or_else(|| panic!("{name} lacks {key:?}"))
}

#[test]
fn the_bundled_variants_differ_in_their_weight_of_diversity() {
    for (name, weight) in [
        ("conservative-polychromic", 0.15),
        ("polychromic", 0.3),
        ("polychromic-moderate", 1.0),
        ("polychromic-aggressive", 2.0),
    ] {
        let setting = |key: &str| setting(name, &["pretrain", "diversity", key]);
        assert_eq!(setting("weight").as_float(), Some(weight), "{name}");
        let (generations, every) = (setting("generations"), setting("every"));
        assert_eq!([generations.as_integer(), every.as_integer()], [Some(6), Some(1)], "{name}");
    }
}

/// The adapters of the bundled configurations, for a small model of the same family.
#[test]
fn the_bundled_adapters_have_rank_16_on_seven_layers() {
    let place = training_texts::place("qwen3");
    // No matrix has fewer than 16 rows or columns.
    let wide = config("qwen3", VOCABULARY).replace("\"head_dim\": 8", "\"head_dim\": 16");
    place.config_folder("wide-source", &wide);
    place.add_tokenizer("wide-source");
    place.succeed(&["init", "wide-source/config.json", "-o", "wide"]);
    for name in ["supervised", "grpo-alone"] {
        let lora = format!("lora={}", setting(name, &["lora"]));
        let sets = ["model=wide", &lora, "train.steps=1", "eval.samples=0"];
        let sets = sets.into_iter().flat_map(|set| ["--set", set]);
        let train = ["train", "train.toml", "--run", name];
        place.succeed(&train.into_iter().chain(sets).collect::<Vec<_>>());
        let text = place.read(&format!("{name}/adapter/adapter_config.json"));
        let adapter: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(adapter["r"], 16, "{name}");
        let targets = adapter["target_modules"].as_array().unwrap().iter();
        let targets: BTreeSet<&str> = targets.map(|target| target.as_str().unwrap()).collect();
        let attention = ["q_proj", "k_proj", "v_proj", "o_proj"];
        let seven = attention.into_iter().chain(["gate_proj", "up_proj", "down_proj"]);
        assert_eq!(targets, seven.collect(), "{name}");
    }
}

/// Returns all paths in a configuration and those that it extends.
fn paths(name: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let keys = [
        &["run"][..],
        &["model"],
        &["start"],
        &["adapter"],
        &["data", "file"],
        &["eval", "file"],
        &["combined", "file"],
        &["reward", "learned", "model"],
    ];
    let layers = layers(name);
    for (layer, key) in layers.iter().flat_map(|layer| keys.map(|key| (layer, key))) {
        let whole = toml::Value::Table(layer.clone());
        let value = key.iter().try_fold(&whole, |value, part| value.get(part));
        if let Some(value) = value {
            found.insert(key.join("."), value.as_str().unwrap().to_owned());
        }
    }
    found
}

/// In the original project, some configurations referred to files that no step wrote.
#[test]
fn the_bundled_configurations_of_replies_name_what_the_steps_before_write() {
    let place = Place::new();
    let input = root().join("data/replies/replies.jsonl");
    let input = input.to_str().unwrap();
    place.succeed(&["split-data", "--input", input, "--output-dir", "runs/replies/data"]);
    let mut of_split = BTreeSet::new();
    let names = configurations();
    // The bundled model itself is made from files described in data/README.md.
    for name in names.iter().filter(|name| *name != "base-model") {
        let paths = paths(name);
        for key in ["data.file", "eval.file", "combined.file"] {
            let Some(file) = paths.get(key) else { continue };
            let is_there = match file.starts_with("runs/") {
                true => place.path(file).is_file(),
                false => root().join(file).is_file(),
            };
            assert!(is_there, "{name}: {key} = {file}");
            if let Some(file) = file.strip_prefix("runs/replies/data/") {
                of_split.insert((key, file.to_owned()));
            }
        }
        for key in ["model", "start"] {
            let Some(folder) = paths.get(key) else { continue };
            assert!(root().join(folder).join("config.json").is_file(), "{name}: {key} = {folder}");
        }
    }
    let expected = [
        ("combined.file", "train_phase1_sft.jsonl"),
        ("data.file", "train_phase1_sft.jsonl"),
        ("data.file", "train_phase2_grpo.jsonl"),
    ];
    assert_eq!(of_split, expected.map(|(key, file)| (key, file.to_owned())).into());

    let run = |name: &str| PathBuf::from(&paths(name)["run"]);
    for (later, key, before, what) in [
        ("grpo", "adapter", "baseline", "adapter"),
        ("combined", "adapter", "baseline", "adapter"),
        ("grpo-from-polychromic", "adapter", "polychromic", "adapter"),
        ("grpo-hybrid", "reward.learned.model", "engagement", "model"),
    ] {
        assert_eq!(Path::new(&paths(later)[key]), run(before).join(what), "{later}");
    }
    assert_eq!(paths("grpo")["model"], paths("supervised")["start"]);
    let runs: BTreeSet<PathBuf> = names.iter().map(|name| run(name)).collect();
    assert_eq!(runs.len(), names.len());
}

#[test]
fn the_bundled_comparison_is_valid() {
    let arguments = ["run", "configs/replies/comparison.toml", "--check"];
    let mut command = Place::new().command(&arguments);
    let ended = Ended::of_command(command.current_dir(root()));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // The split, seven methods with three seeds, their samples, the comparison and the verdict.
    assert_eq!(ended.stdout.lines().count(), 1 + 21 + 21 + 1 + 1, "{}", ended.stdout);
    let methods = [
        "baseline",
        "polychromic",
        "conservative",
        "conservative-polychromic",
        "grpo",
        "grpo-from-polychromic",
        "grpo-alone",
    ];
    for method in methods {
        for stage in [format!("{method}-456"), format!("sample-{method}-42")] {
            let is_listed = |line: &str| line.starts_with(&format!("{stage} "));
            assert!(ended.stdout.lines().any(is_listed), "{stage}: {}", ended.stdout);
        }
    }
}
