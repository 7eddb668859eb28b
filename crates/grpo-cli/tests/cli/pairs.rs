//! Tweets and replies: `grpo split-data` and the two training phases that use its output.

use std::collections::BTreeSet;
use std::fs;

use grpo_replies::{PairRecord, PhaseStatistics, read_pairs};
use grpo_run::sha256_of_file;
use serde_json::{Value, json};
use snapbox::data::Inline;
use snapbox::str;

use crate::support::Place;

/// Pairs for 120 tweets with 2 to 5 replies each. Many replies have the same number of likes.
fn pairs() -> Vec<Value> {
    let mut state = 7_u64;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let mut pairs = Vec::new();
    for tweet in 0..120 {
        for reply in 0..2 + next(4) {
            let likes = [0, 5, 5, 10, 10, 20, 60][next(7) as usize];
            pairs.push(json!({
                "tweet_id": tweet, "tweet": format!("the fox {tweet}"), "tweet_likes": 100,
                "reply": format!("two and {tweet} are {reply}"), "reply_likes": likes,
                "reply_author": format!("a{}", next(9)),
            }));
        }
    }
    pairs
}

pub(crate) fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

const OUTPUTS: [&str; 4] = [
    "train_phase1_sft.jsonl",
    "train_phase2_grpo.jsonl",
    "phase_split_statistics.json",
    "phase_split_distributions.svg",
];

#[test]
fn a_split_has_whole_tweets_and_statistics_that_can_be_computed_again() {
    let place = Place::new();
    let text = lines(&pairs());
    place.write("pairs.jsonl", &text);
    let ended = place.succeed(&["split-data", "--input", "pairs.jsonl"]);
    let expected =
        format!("pairs.jsonl: {} pairs from 120 tweets, 0 lines skipped\n", text.lines().count());
    assert!(ended.stdout.starts_with(&expected), "{}", ended.stdout);
    assert!(ended.stdout.contains(", within 0.02\n"), "{}", ended.stdout);

    let output = |at: usize| place.read(&format!("data/processed/{}", OUTPUTS[at]));
    let (one, other) = (output(0), output(1));
    // Each input line is in one of the outputs, unchanged and in order.
    let (mut of_one, mut of_other) = (one.lines().peekable(), other.lines().peekable());
    for line in text.lines() {
        let phase = if of_one.peek() == Some(&line) { &mut of_one } else { &mut of_other };
        assert_eq!(phase.next(), Some(line));
    }
    assert_eq!((of_one.next(), of_other.next()), (None, None));

    let read =
        |name: &str| read_pairs(&place.path(&format!("data/processed/{name}"))).unwrap().pairs;
    let (one, other) = (read(OUTPUTS[0]), read(OUTPUTS[1]));
    let ids = |pairs: &[PairRecord]| -> BTreeSet<String> {
        pairs.iter().map(|pair| pair.tweet_id.clone()).collect()
    };
    assert!(ids(&one).is_disjoint(&ids(&other)));

    let mut file: Value = serde_json::from_str(&output(2)).unwrap();
    for key in ["count", "engagement", "length"] {
        assert!(file["phase1"].get(key).is_some() && file["phase2"].get(key).is_some());
    }
    let told = [
        "input",
        "files",
        "split_ratio",
        "test_fraction",
        "seed",
        "pairs",
        "tweets",
        "skipped",
        "duplicates",
        "outputs",
        "invalid",
    ];
    let rest = file.as_object_mut().unwrap();
    let told: Vec<Value> = told.iter().map(|key| rest.shift_remove(*key).unwrap()).collect();
    let bytes = text.len();
    assert_eq!((&told[1][0]["path"], &told[1][0]["bytes"]), (&json!("pairs.jsonl"), &json!(bytes)));
    let sha256 = sha256_of_file(&place.path("pairs.jsonl")).unwrap();
    assert_eq!(told[1][0]["sha256"], json!(sha256));
    for name in &OUTPUTS[..2] {
        let sha256 = sha256_of_file(&place.path(&format!("data/processed/{name}"))).unwrap();
        assert_eq!(told[9][name], json!(sha256));
    }
    let pairs = one.len() + other.len();
    assert_eq!(told[2..7], [json!(0.5), json!(0.0), json!(42), json!(pairs), json!(120)]);
    let refs = |pairs: &'static [PairRecord]| pairs.iter().collect::<Vec<_>>();
    let again = PhaseStatistics::new(&refs(one.leak()), &refs(other.leak()), &[]);
    assert!(again.quartiles.max_difference <= 0.02);
    assert_eq!(serde_json::to_value(&again).unwrap(), file);
    assert!(output(3).starts_with("<svg"));

    a_seed_decides_the_split(&place);
}

/// Repeating a split gives the same result, and a different seed gives a different split.
fn a_seed_decides_the_split(place: &Place) {
    place.succeed(&["split-data", "--input", "pairs.jsonl", "--output-dir", "two", "--seed", "42"]);
    for name in OUTPUTS {
        assert_eq!(
            place.read(&format!("two/{name}")),
            place.read(&format!("data/processed/{name}"))
        );
    }
    let other = ["--output-dir", "two", "--seed", "1", "--force"];
    place.succeed(&[&["split-data", "--input", "pairs.jsonl"][..], &other].concat());
    assert_ne!(
        place.read("two/train_phase1_sft.jsonl"),
        place.read("data/processed/train_phase1_sft.jsonl")
    );
}

#[test]
fn held_out_tweets_are_in_a_file_of_their_own() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&pairs()));
    let split = |arguments: &[&str]| {
        let all = ["split-data", "--input", "pairs.jsonl", "--output-dir", "out", "--force"];
        place.succeed(&[&all[..], arguments].concat()).stdout
    };
    let output = split(&["--test-fraction", "0.2"]);
    assert!(output.contains("\ntest         "), "{output}");
    let tweets = |name: &str| -> BTreeSet<String> {
        let read = read_pairs(&place.path("out").join(name)).unwrap();
        read.pairs.into_iter().map(|pair| pair.tweet_id).collect()
    };
    let parts = ["train_phase1_sft.jsonl", "train_phase2_grpo.jsonl", "test_held_out.jsonl"];
    let [phase1, phase2, test] = parts.map(tweets);
    assert_eq!(phase1.len() + phase2.len() + test.len(), 120);
    assert!(phase1.union(&phase2).all(|tweet| !test.contains(tweet)));
    assert!(!test.is_empty());
    // Without test pairs, those of the previous split would be in a phase.
    split(&[]);
    assert!(!place.path("out/test_held_out.jsonl").exists());
    place.refuse(
        &["split-data", "--input", "pairs.jsonl", "--output-dir", "new", "--test-fraction", "1"],
        str![
            "`test-fraction` is 1; expected at least 0 and less than 1 (the fraction of test pairs)"
        ],
    );
    assert!(!place.path("new").exists());
}

/// Mixing phases of two splits would put tweets in both phases.
#[test]
fn the_phases_of_two_splits_are_not_read() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&pairs()));
    let split = |folder: &str, seed: &str| {
        let arguments =
            ["split-data", "--input", "pairs.jsonl", "--seed", seed, "--output-dir", folder];
        place.succeed(&[&arguments[..], &["--force"]].concat());
    };
    split("one", "1");
    split("two", "2");
    let read = |name: &str| read_pairs(&place.path(name)).map(|read| read.pairs.len());
    read("one/train_phase1_sft.jsonl").unwrap();
    let phase2 = "train_phase2_grpo.jsonl";
    std::fs::copy(place.path("two").join(phase2), place.path("one").join(phase2)).unwrap();
    let error = read("one/train_phase2_grpo.jsonl").unwrap_err().to_string();
    assert!(error.contains("changed after the split"), "{error}");
    // The process was killed while renaming files. The partial output is rejected and later removed
    // by the next split.
    place.write("one/.split-unfinished", "");
    place.write("one/.train_phase1_sft.jsonl.99-0", "half");
    let error = read("one/train_phase1_sft.jsonl").unwrap_err().to_string();
    assert!(error.contains("`grpo split-data` did not finish in its folder"), "{error}");
    split("one", "1");
    read("one/train_phase1_sft.jsonl").unwrap();
    assert!(!place.path("one/.train_phase1_sft.jsonl.99-0").exists());
    assert!(!place.path("one/.split-unfinished").exists());
}

/// A pipeline accepts the results of a split that the user made by hand.
#[test]
fn an_equal_split_is_accepted() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&pairs()));
    let split = ["split-data", "--input", "pairs.jsonl", "--output-dir", "out"];
    place.refuse(
        &[&split[..], &["--verify"]].concat(),
        str!["out does not hold this split; write it without --verify"],
    );
    assert!(!place.path("out").exists());
    place.succeed(&split);
    let before = place.files();
    for options in [&[][..], &["--verify"], &["--seed=42"]] {
        let ended = place.succeed(&[&split[..], options].concat());
        let unchanged = "unchanged    out already holds this split\n";
        assert!(ended.stdout.ends_with(unchanged), "{}", ended.stdout);
        assert_eq!(place.files(), before);
    }
    // The remedy of a pipeline that did not write the split itself.
    let pipeline = |seed: &str| {
        place.write("p.toml", format!("[[stages]]\nname = \"split\"\ncommand = \"split-data\"\narguments = [\"--input\", \"pairs.jsonl\", \"--output-dir=out\", \"--seed={seed}\"]\noutputs = [\"out/phase_split_statistics.json\"]\n"));
    };
    pipeline("42");
    let reused = place.succeed(&["run", "p.toml"]);
    assert!(reused.stderr.contains("is finished and reused"), "{}", reused.stderr);
    assert!(place.succeed(&["run", "p.toml", "--check"]).stdout.contains("finished, reused"));
    pipeline("7");
    place.refuse(
        &["run", "p.toml"],
        str!["out/phase_split_statistics.json exists, but this pipeline did not write it; rename the folder out (--force does so), or let stage `split` write to another folder"],
    );
    fs::rename(place.path("out"), place.path("renamed")).unwrap();
    place.succeed(&["run", "p.toml"]);
    fs::remove_dir_all(place.path("out")).unwrap();
    fs::rename(place.path("renamed"), place.path("out")).unwrap();
    fs::remove_file(place.path(".out.stage.json")).unwrap();
    place.succeed(&["run", "p.toml", "--force"]);
    assert!(place.path("out.old-1/train_phase1_sft.jsonl").is_file());
    // Split again by hand, with other options.
    let by_hand = [&split[..], &["--seed=8", "--force"]].concat();
    place.succeed(&by_hand);
    let reused = place.succeed(&["run", "p.toml"]).stderr;
    let warning = "split        warning: out/phase_split_statistics.json has changed since this pipeline wrote it, and is used as it is; rename out to run the stage again\n";
    assert!(reused.contains(warning), "{reused}");
    pipeline("9");
    place.refuse(
        &["run", "p.toml"],
        str!["out/phase_split_statistics.json has changed since this pipeline wrote it, and stage `split` would replace it; rename the folder out (--force does so), or let stage `split` write to another folder"],
    );
    fs::rename(place.path("out"), place.path("by-hand")).unwrap();
    place.succeed(&["run", "p.toml"]);
    place.succeed(&by_hand);
    place.succeed(&["run", "p.toml", "--force"]);
    assert!(place.path("out.old-2/train_phase1_sft.jsonl").is_file());
    // Other arguments, a changed part, and a part too many.
    let other = "out/train_phase1_sft.jsonl already exists and belongs to another split (--input pairs.jsonl, --split-ratio 0.5, --test-fraction 0.0, --seed 9); use another --output-dir, or replace it with --force";
    place.refuse(&split, other);
    place.succeed(&[&split[..], &["--force"]].concat());
    place.write("out/test_held_out.jsonl", "{}\n");
    assert_eq!(place.run(&[&split[..], &["--verify"]].concat()).code, Some(1));
    fs::remove_file(place.path("out/test_held_out.jsonl")).unwrap();
    place.succeed(&[&split[..], &["--verify"]].concat());
    fs::remove_file(place.path("out/phase_split_distributions.svg")).unwrap();
    assert_eq!(place.run(&[&split[..], &["--verify"]].concat()).code, Some(1));
    place.succeed(&[&split[..], &["--force"]].concat());
    place.write("out/train_phase2_grpo.jsonl", "{}\n");
    assert_eq!(place.run(&split).code, Some(1));
}

/// Two concurrent splits would mix their files and put pairs in both phases.
#[test]
fn one_split_at_a_time_writes_into_a_folder() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&pairs()));
    let arguments = ["split-data", "--input", "pairs.jsonl", "--output-dir", "out", "--force"];
    place.succeed(&arguments);
    let lock = std::fs::File::options().write(true).open(place.path("out/.lock")).unwrap();
    lock.try_lock().unwrap();
    place.refuse(
        &arguments,
        str!["another process is writing to `out`; wait for it to finish, or use another folder"],
    );
    drop(lock);
    place.succeed(&arguments);
}

#[test]
fn reports_broken_lines_and_repeated_pairs() {
    let place = Place::new();
    let mut records = pairs();
    records.insert(1, records[0].clone());
    let mut text = lines(&records).into_bytes();
    text.extend(b"not json\n{\"tweet_id\": 1}\n\n{\"tweet_id\": 2, \"tweet\": \"\xff\"}\n");
    place.write("pairs.jsonl", &text);
    let ended = place.succeed(&["split-data", "--input", "pairs.jsonl", "--output-dir", "out"]);
    let first = records.len() + 1;
    let expected = [
        format!("{} pairs from 120 tweets, 3 lines skipped\n", records.len()),
        format!(
            "  left out: pairs.jsonl:{first}: the line is not a JSON object: expected true, false or null at column 2\n"
        ),
        format!("  left out: pairs.jsonl:{}: missing `tweet` or `reply`\n", first + 1),
        format!("  left out: pairs.jsonl:{}: the line is not UTF-8 text\n", first + 3),
        "  kept duplicate of pairs.jsonl:1: pairs.jsonl:2\n".to_owned(),
    ];
    for words in expected {
        assert!(ended.stdout.contains(&words), "{words}: {}", ended.stdout);
    }
    let file: Value = serde_json::from_str(&place.read("out/phase_split_statistics.json")).unwrap();
    assert_eq!(file["skipped"].as_array().unwrap().len(), 3);
    let reason =
        json!({"file": "pairs.jsonl", "line": first + 1, "reason": "missing `tweet` or `reply`"});
    assert_eq!(file["skipped"][1], reason);
    let duplicate =
        json!({"file": "pairs.jsonl", "line": 2, "first_file": "pairs.jsonl", "first_line": 1});
    assert_eq!(file["duplicates"], json!([duplicate]));
    let counts: u64 =
        file["quartiles"]["counts"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!(counts, records.len() as u64);
}

#[test]
fn an_impossible_split_leaves_no_files() {
    let place = Place::new();
    place.write("pairs.jsonl", lines(&pairs()));
    place.write("none.jsonl", "{}\n");
    place.write("one.jsonl", lines(&pairs()[..1]));
    let check = |arguments: &[&str], expected: Inline| {
        place.refuse(&[&["split-data", "--input"], arguments].concat(), expected);
    };
    check(
        &["none.jsonl"],
        str![
            "`none.jsonl` has no valid pairs: 1 line was skipped (first: none.jsonl:1: missing `tweet_id`, `tweet` or `reply`); write one object per line with `tweet_id`, `tweet` and `reply`"
        ],
    );
    check(&["missing.jsonl"], str!["`missing.jsonl` does not exist; check the path"]);
    check(
        &["one.jsonl"],
        str![
            "cannot split 1 distinct tweet into 2 parts, because all replies to a tweet stay together; use at least 2 tweets"
        ],
    );
    check(
        &["pairs.jsonl", "--split-ratio", "1"],
        str![
            "`split-ratio` is 1; expected a number between 0 and 1 (the fraction of pairs in the supervised phase)"
        ],
    );
    check(
        &["pairs.jsonl", "--output-dir", "one.jsonl"],
        str!["one.jsonl is a file, not a folder; use a folder for --output-dir"],
    );
    place.write("phase_split_statistics.json", "{}");
    check(
        &["pairs.jsonl", "--output-dir", "."],
        str![
            "./phase_split_statistics.json already exists; use another --output-dir, or replace it with --force"
        ],
    );
    place.write("train_phase2_grpo.jsonl", lines(&pairs()));
    check(
        &["train_phase2_grpo.jsonl", "--output-dir", ".", "--force"],
        str!["./train_phase2_grpo.jsonl is the input; use another folder for --output-dir"],
    );
    // Writing a split into its input folder would duplicate each pair.
    std::fs::create_dir(place.path("in")).unwrap();
    place.write("in/pairs.jsonl", lines(&pairs()));
    check(
        &["in", "--output-dir", "./in/"],
        str!["./in/ is the input; use another folder for --output-dir"],
    );
    assert_eq!(std::fs::read_dir(place.path("in")).unwrap().count(), 1);
}

#[test]
fn reports_an_uneven_split() {
    let place = Place::new();
    let mut pairs = pairs();
    pairs.truncate(3);
    (pairs[0]["tweet_id"], pairs[0]["tweet"]) = (json!("a"), json!("another"));
    pairs[0].as_object_mut().unwrap().remove("tweet_likes");
    pairs[0]["reply_likes"] = json!(50);
    place.write("pairs.jsonl", lines(&pairs));
    let ended = place.succeed(&["split-data", "--input", "pairs.jsonl"]);
    assert!(ended.stdout.contains("\nWARNING: the phases differ; "), "{}", ended.stdout);
    let unsaid = "\n  1 pair is missing `tweet_likes` (using 1)\n";
    assert!(ended.stdout.contains(unsaid), "{}", ended.stdout);
}

/// Configuration for supervised training on `pairs.jsonl`.
pub(crate) const PRETRAIN: &str = r#"run = "run"
seed = 1
start = "m"

[lora]
rank = 2
alpha = 4

[data]
file = "pairs.jsonl"
validation_fraction = 0.25

[data.replies]
instruction = "the user asks"

[pretrain]
epochs = 1
batch_size = 4

[pretrain.optimizer]
learning_rate = 3e-2
"#;

/// A few pairs with short prompts that fit in a context of 48 tokens.
pub(crate) fn short_pairs(tweets: u64) -> Vec<Value> {
    let pair = |place: u64| {
        json!({
            "tweet_id": place / 2, "tweet": format!("fox {}", place / 2),
            "reply": if place.is_multiple_of(2) { "two" } else { "the dog" },
            "reply_likes": place, "reply_author": format!("a{}", place % 3),
        })
    };
    (0..2 * tweets).map(pair).collect()
}

#[test]
fn the_supervised_phase_reads_pairs_and_holds_out_tweets() {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    place.write("pretrain.toml", PRETRAIN);
    let mut long = short_pairs(8)[0].clone();
    long["reply"] = "the dog ".repeat(1250).into();
    place.write(
        "pairs.jsonl",
        lines(&short_pairs(8))
            + &long.to_string()
            + "\n{\"tweet_id\":9,\"tweet\":\"fox\",\"reply\":\"\"}\n",
    );
    let ended = place.succeed(&["pretrain", "pretrain.toml"]);
    for words in [
        "pairs.jsonl: 17 pairs from 8 tweets, 1 line skipped (pairs.jsonl:18: `reply` is empty); 1 skipped with more than 49 tokens (pairs.jsonl:17: ",
        "  training: 12 examples from 6 tweets by 3 authors; likes: mean ",
        "  validation: 4 examples from 2 tweets by ",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    let info: Value = serde_json::from_str(&place.read("run/run.json")).unwrap();
    assert!(info.to_string().contains("pairs.jsonl"), "{info}");
    // From the recorded configuration, and with a folder of files.
    std::fs::create_dir(place.path("folder")).unwrap();
    place.write("folder/a.jsonl", lines(&short_pairs(8)[..8]));
    place.write("folder/b.jsonl", lines(&short_pairs(8)[8..]));
    let ended = place.succeed(&[
        "pretrain",
        "run/config.toml",
        "--run",
        "two",
        "--set",
        "data.file=folder",
    ]);
    assert!(ended.stdout.starts_with("folder: 16 pairs from 8 tweets\n"), "{}", ended.stdout);

    place.refuse(
        &["pretrain", "pretrain.toml", "--run", "new", "--set", "data.replies.instruction="],
        str!["--set data.replies.instruction=: `data.replies.instruction` is empty; expected a sentence that says what to write"],
    );
    place.refuse(
        &["pretrain", "pretrain.toml", "--run", "new", "--set", "data.vocabulary=v.json"],
        str!["--set data.vocabulary=v.json: data.vocabulary: this key is only valid for files of molecules (.smi, .csv), not for pairs.jsonl; remove it"],
    );
    let ended =
        place.run(&["pretrain", "pretrain.toml", "--run", "new", "--set", "data.max_tokens=3"]);
    let expected = "error: no usable pairs in `pairs.jsonl`: 17 pairs from 8 tweets";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    assert!(ended.stderr.contains("17 skipped with more than 3 tokens"), "{}", ended.stderr);
}

#[test]
fn the_grpo_phase_has_a_prompt_for_each_tweet() {
    let place = crate::training_texts::place("qwen3");
    place.write("pairs.jsonl", lines(&short_pairs(8)));
    let sets = [
        "data.file=pairs.jsonl",
        "data.replies.instruction=the user asks",
        "train.prompts_per_step=8",
        "train.steps=1",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let ended = place.succeed(&[&["train", "train.toml"], sets.as_slice()].concat());
    assert!(
        ended.stdout.contains("prompts      pairs.jsonl: 16 pairs from 8 tweets\n"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("used: 16 examples from 8 tweets by 3 authors"),
        "{}",
        ended.stdout
    );
    let prompts: BTreeSet<String> =
        place.completions("run").into_iter().filter_map(|record| record.prompt_text).collect();
    let expected = (0..8).map(|tweet| {
        format!("user\nthe user asks\n\nfox {tweet}\n\nReply:\nassistant\n<think></think>")
    });
    assert_eq!(prompts, expected.collect());

    // There is no space for a prompt, and the limit was not set by the user.
    let many = ["train", "train.toml", "--run", "new"];
    let ended =
        place.run(&[&many, sets.as_slice(), &["--set", "sampling.max_new_tokens=40"]].concat());
    let expected = "error: sampling.max_new_tokens = 40 leaves only 9 of the model's 48 tokens for a prompt: no usable pairs in `pairs.jsonl`: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);

    // An unknown key.
    let ended = place.run(
        &[
            &["train", "train.toml", "--run", "new", "--check"],
            sets.as_slice(),
            &["--set", "data.replies.words=1"],
        ]
        .concat(),
    );
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("words"), "{}", ended.stderr);
}
