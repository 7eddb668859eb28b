//! `grpo replay`: repeats a completion that was sampled by a different process.

use std::fs;

use grpo_data::Finish;
use grpo_run::CompletionRecord;
use snapbox::{Data, str};

use crate::support::Place;
use crate::training_texts;

/// Returns the arguments for a replay.
fn arguments<'a>(place: [&'a str; 3], more: &[&'a str]) -> Vec<&'a str> {
    let [step, prompt, sample] = place;
    [&["replay", "run", "--step", step, "--prompt", prompt, "--sample", sample], more].concat()
}

/// Reads the record of a completion.
fn record(place: &Place, of: [&str; 3]) -> CompletionRecord {
    let is_it = |record: &CompletionRecord| {
        [record.step.to_string(), record.prompt.to_string(), record.sample.to_string()] == of
    };
    place.completions("run").into_iter().find(is_it).unwrap()
}

/// Replays a completion successfully and checks that nothing was written.
#[track_caller]
fn find_again(place: &Place, of: [&str; 3], more: &[&str], policy: &str) {
    let before = place.files();
    let ended = place.succeed(&arguments(of, more));
    assert_eq!(place.files(), before, "{of:?} left something behind");
    let record = record(place, of);
    let text = &record.text;
    let prompt = record.prompt_text.as_ref();
    let prompt = prompt.map_or(String::new(), |prompt| format!("prompt       {prompt:?}\n"));
    let [step, prompt_place, sample] = of;
    let expected = format!(
        "completion   step {step}, prompt {prompt_place}, sample {sample} of run\n{policy}{prompt}recorded     {text:?}\nnow          {text:?}\nids          equal\nlogprobs     all {} equal bit for bit\nreward       {}, recomputed: equal\n",
        record.actions,
        record.reward.unwrap(),
    );
    assert_eq!(ended.stdout, expected);
}

/// Creates a run on molecules with three steps that kept the policy after the second step.
fn run_of_molecules() -> Place {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml", "--set", "eval.samples=0"]);
    place
}

#[test]
fn molecules_are_found_again_alone_and_in_batches_of_any_size() {
    let place = run_of_molecules();
    let begin =
        format!("policy       {}, the initial policy\n", crate::support::small_model().display());
    let kept = "policy       run/checkpoints/step-2\n";
    let again = "the policy of step 2 was not saved; training step 1 again\npolicy       trained again, step 1\n";
    for (step, policy) in [("1", begin.as_str()), ("2", again), ("3", kept)] {
        for (prompt, sample) in [("0", "0"), ("1", "3")] {
            let of = [step, prompt, sample];
            for threads in ["1", "2"] {
                find_again(&place, of, &["--threads", threads], policy);
            }
            for size in ["1", "3", "64"] {
                find_again(&place, of, &["--batch-size", size], policy);
            }
        }
    }
    // Replaying with a checkpoint or by training again gives the same result.
    fs::rename(place.path("run/checkpoints"), place.path("elsewhere")).unwrap();
    fs::create_dir(place.path("run/checkpoints")).unwrap();
    let again = "the policy of step 3 was not saved; training steps 1 to 2 again\npolicy       trained again, steps 1 to 2\n";
    find_again(&place, ["3", "1", "2"], &["--threads", "2"], again);
}

#[test]
fn completions_of_prompts_by_an_adapter() {
    for (family, change) in [
        ("llama", "sampling.top_p=0.9"),
        ("qwen3", "base_precision=bf16"),
        ("gpt2", "train.updates_per_rollout=2"),
        ("llama", "train.precision=bf16"),
        ("llama", "train.precision=f16"),
    ] {
        let place = training_texts::place(family);
        let sets = change.split(' ').chain(["save.every=1", "save.keep_last=9"]);
        let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
        place.succeed(&[&["train", "train.toml"], &sets[..]].concat());
        let mut texts = Vec::new();
        for (step, policy) in [
            ("1", "policy       m, the initial policy\n"),
            ("2", "policy       run/checkpoints/step-1\n"),
            ("3", "policy       run/checkpoints/step-2\n"),
        ] {
            for (prompt, sample, threads) in [("0", "1", "1"), ("1", "3", "2")] {
                let of = [step, prompt, sample];
                find_again(&place, of, &["--no-retrain", "--threads", threads], policy);
                texts.push(record(&place, of).prompt_text);
            }
        }
        texts.dedup();
        assert!(texts.len() > 2, "the prompts of the steps are different ones: {texts:?}");
    }
}

#[test]
fn completions_that_were_sampled_with_rounded_weights() {
    let correction = "loss.mismatch={level=\"token\",mode=\"truncate\",max=2.0}";
    for weights in ["bf16", "q8"] {
        let place = Place::for_training();
        let rounded = format!("sampling.weights={weights}");
        let run = ["train", "train.toml", "--set", "eval.samples=0", "--set", &rounded];
        place.succeed(&[&run[..], &["--set", correction]].concat());
        let begin = format!(
            "policy       {}, the initial policy\n",
            crate::support::small_model().display()
        );
        let kept = "policy       run/checkpoints/step-2\n";
        let again = "the policy of step 2 was not saved; training step 1 again\npolicy       trained again, step 1\n";
        for (step, policy) in [("1", begin.as_str()), ("2", again), ("3", kept)] {
            find_again(&place, [step, "1", "3"], &["--threads", "1"], policy);
            find_again(&place, [step, "0", "0"], &["--batch-size", "3"], policy);
        }
    }
}

#[test]
fn stop_strings_of_the_run_are_those_of_the_replay() {
    let place = training_texts::place("llama");
    place.succeed(&["train", "train.toml", "--set", "sampling.stop=[\"e\", \"a\", \"t\"]"]);
    let records = place.completions("run");
    let mut of_step = records.iter().filter(|record| record.step == 1);
    let stopped = of_step.find(|record| record.finish == Finish::Stop);
    let stopped = stopped.expect("one that was stopped");
    assert!(stopped.text.contains(['e', 'a', 't']));
    let of = [stopped.prompt, stopped.sample].map(|place| place.to_string());
    let begin = "policy       m, the initial policy\n";
    find_again(&place, ["1", &of[0], &of[1]], &[], begin);
    find_again(&place, ["1", &of[0], &of[1]], &["--batch-size", "3"], begin);
}

#[test]
fn all_of_a_model_that_kept_nothing() {
    let place = training_texts::place("qwen2");
    let (above, rest) = training_texts::TRAIN.split_once("[lora]").unwrap();
    let (_, below) = rest.split_once("[data]").unwrap();
    place.write("train.toml", format!("{above}[data]{below}"));
    place.succeed(&["train", "train.toml", "--set", "sampling.repetition_penalty=1.3"]);
    let again = "the policy of step 3 was not saved; training steps 1 to 2 again\npolicy       trained again, steps 1 to 2\n";
    find_again(&place, ["3", "0", "2"], &["--threads", "1"], again);
    find_again(&place, ["3", "1", "0"], &["--threads", "2", "--batch-size", "5"], again);
    place.refuse(
        &arguments(["3", "0", "0"], &["--no-retrain"]),
        str!["the policy from step 3 was not saved, and --no-retrain prevents steps 1 to 2 from being trained again; steps that can be replayed without retraining: 1"],
    );
}

#[test]
fn a_record_that_was_changed_is_found() {
    let place = run_of_molecules();
    let of = ["3", "1", "2"];
    let path = place.path("run/completions/step-3.parquet");
    let whole = fs::read(&path).unwrap();
    let right = record(&place, of);
    let (id, logprob, count) = (right.completion_ids[1], right.sampling_logprobs[0], right.actions);
    let check = |change: &dyn Fn(&mut CompletionRecord), expected: Data| {
        fs::write(&path, &whole).unwrap();
        place.falsify([3, 1, 2], change);
        place.refuse(&arguments(of, &[]), expected);
    };
    // An unmodified record matches.
    place.falsify([3, 1, 2], |_| ());
    place.succeed(&arguments(of, &[]));

    let other = id + 1;
    check(
        &|record| record.completion_ids[1] = other,
        format!(
            "the completion differs from the recorded one: ids differ from token 1 on: recorded {other}, now {id} ({count} tokens recorded, {count} now)"
        ).into(),
    );
    let one_off = f32::from_bits(logprob.to_bits() + 1);
    let distance = (one_off - logprob).abs();
    check(
        &|record| record.sampling_logprobs[0] = one_off,
        format!(
            "the completion differs from the recorded one: log-probabilities differ: 1 of {count} by at most {distance:e}"
        ).into(),
    );
    check(
        &|record| record.text = "CCC(CC)".to_owned(),
        str!["the completion differs from the recorded one: the recorded text does not match its token ids"]
            .into(),
    );
    check(
        &|record| record.prompt_text = Some("C".to_owned()),
        str!["the completion differs from the recorded one: its prompt is different"].into(),
    );
    let fewer = count - 1;
    check(
        &|record| {
            record.actions = fewer;
            let fewer = fewer as usize;
            record.completion_ids.truncate(fewer);
            record.outcomes.truncate(fewer);
            record.sampling_logprobs.truncate(fewer);
            record.tokens.iter_mut().for_each(|(_, list)| list.truncate(fewer));
        },
        format!(
            "the completion differs from the recorded one: ids differ in number: {fewer} recorded, {count} now; log-probabilities differ in number: {fewer} recorded, {count} now"
        ).into(),
    );
    check(
        &|record| record.sampling_logprobs.truncate(fewer as usize),
        format!(
            "`run/completions/step-3.parquet` is damaged: `sampling_logprobs` has {fewer} entries, but `actions` is {count} in row 7; restore it from a copy, or train again"
        ).into(),
    );
    check(
        &|record| record.sample = 9,
        str![
            "`run/completions/step-3.parquet` has no row for prompt 1, sample 2, although it has other rows of that step; restore the file from a copy"
        ].into(),
    );
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    place.refuse(
        &arguments(of, &[]),
        str!["`run/completions/step-3.parquet` is damaged: it does not end like a Parquet file; restore it from a copy, or train again"],
    );
}

#[test]
fn a_recorded_reward_is_computed_again() {
    let place = run_of_molecules();
    let of = ["3", "1", "2"];
    let path = place.path("run/completions/step-3.parquet");
    let whole = fs::read(&path).unwrap();
    let right = record(&place, of);
    let check = |change: &dyn Fn(&mut CompletionRecord), expected: Data| {
        fs::write(&path, &whole).unwrap();
        place.falsify([3, 1, 2], change);
        place.refuse(&arguments(of, &[]), expected);
    };
    let reward = right.reward.unwrap();
    let (name, value) = right.parts.first_key_value().unwrap();
    check(
        &|record| record.reward = Some(0.875),
        format!(
            "the completion differs from the recorded one: its reward is now {reward}, but 0.875 was recorded"
        ).into(),
    );
    check(
        &|record| record.parts.values_mut().for_each(|part| *part = 2.0),
        format!(
            "the completion differs from the recorded one: component `{name}` of its reward is now {value}, but 2 was recorded"
        ).into(),
    );
}

#[test]
fn refuses_steps_and_samples_that_no_run_has() {
    let place = run_of_molecules();
    let check = |of, expected| place.refuse(&arguments(of, &[]), expected);
    check(["0", "0", "0"], str!["--step 0 is out of range; run has steps 1 to 3"]);
    check(["4", "0", "0"], str!["--step 4 is out of range; run has steps 1 to 3"]);
    check(["1", "2", "0"], str!["--prompt 2 is out of range; steps of run have prompts 0 to 1"]);
    check(["1", "0", "4"], str!["--sample 4 is out of range; groups of run have samples 0 to 3"]);
    place.refuse(
        &arguments(["1", "0", "0"], &["--batch-size", "0"]),
        str!["--batch-size 0 is out of range; expected 1 or more"],
    );
    place.refuse(
        &arguments(["2", "0", "0"], &["--no-retrain"]),
        str!["the policy from step 2 was not saved, and --no-retrain prevents step 1 from being trained again; steps that can be replayed without retraining: 1, 3"],
    );
    place.refuse(
        &["replay", "none", "--step", "1"],
        str!["`none` is not a run folder (no `run.json`); check the path"],
    );
    fs::remove_file(place.path("run/completions/step-1.parquet")).unwrap();
    check(
        ["1", "0", "0"],
        str![
            "the completions of step 1 were not recorded (save.completions_every = 1); recorded steps: 2, 3"
        ],
    );

    let sparse = ["--run", "sparse", "--set", "save.completions_every=2"];
    place.succeed(&[&["train", "train.toml", "--set", "eval.samples=0"], &sparse[..]].concat());
    place.refuse(
        &["replay", "sparse", "--step", "3"],
        str!["the completions of step 3 were not recorded (save.completions_every = 2; 1 records every step); recorded steps: 2"],
    );
    let never = ["--run", "never", "--set", "save.completions_every=0"];
    place.succeed(&[&["train", "train.toml", "--set", "eval.samples=0"], &never[..]].concat());
    place.refuse(
        &["replay", "never", "--step", "3"],
        str!["the completions of step 3 were not recorded (save.completions_every = 0; 1 records every step); recorded steps: none"],
    );

    let place = Place::for_pretraining();
    place.succeed(&["pretrain", "pretrain.toml", "--set", "pretrain.epochs=1"]);
    place.refuse(
        &["replay", "prior", "--step", "1"],
        str!["`prior` is a run of `grpo pretrain`; expected a run of `grpo train`"],
    );
}

#[test]
fn a_run_whose_files_are_others_now_is_refused() {
    let place = training_texts::place("llama");
    // Folders from the Hugging Face hub have no manifest.
    fs::remove_file(place.path("m/manifest.json")).unwrap();
    place.succeed(&["train", "train.toml", "--set", "save.every=1", "--set", "save.keep_last=9"]);
    let again = || arguments(["2", "0", "0"], &[]);
    place.succeed(&again());

    let prompts = place.read("prompts.jsonl");
    place.write("prompts.jsonl", prompts.replace("two", "six"));
    let ended = place.run(&again());
    let bytes = prompts.len();
    let expected = format!(
        "error: `prompts.jsonl` is not the file that the run was started with: it has {bytes} bytes and SHA-256 "
    );
    assert!(ended.stderr.starts_with(&expected), "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with("; restore the original file, or start a new run with --run\n"),
        "{}",
        ended.stderr
    );
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    fs::remove_file(place.path("prompts.jsonl")).unwrap();
    place.refuse(
        &again(),
        str!["`prompts.jsonl`, an input of the run, does not exist; restore it, or change to the folder from which the run was started: cannot read `prompts.jsonl`: no such file or folder; check that it exists and is readable"],
    );
    place.write("prompts.jsonl", &prompts);

    // End token ids may come from a file that did not exist when the run started.
    place.write("m/generation_config.json", "{\"eos_token_id\": 5}");
    place.refuse(
        &again(),
        str!["`m/generation_config.json` is not an input of the run (run.json); remove it, or restore config.toml"],
    );
    fs::remove_file(place.path("m/generation_config.json")).unwrap();

    // A different model.
    place.model_of_texts("other", "llama");
    let config = place.read("run/config.toml");
    place.write("run/config.toml", config.replace("model = \"m\"", "model = \"other\""));
    place.refuse(
        &again(),
        str!["`run/config.toml` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"],
    );
    place.write("run/config.toml", &config);

    // A modified policy.
    let weights = place.path("run/checkpoints/step-1/adapter_model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let ended = place.run(&again());
    let expected =
        "error: `run/checkpoints/step-1/adapter_model.safetensors` is damaged: its SHA-256 is ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);

    // A different seed changes random numbers and training.
    place.write("run/config.toml", config.replace("seed = 1", "seed = 2"));
    place.refuse(
        &again(),
        str!["`run/config.toml` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"],
    );
    fs::remove_dir_all(place.path("run/checkpoints/step-1")).unwrap();
    place.write("run/config.toml", config.replace("learning_rate = 0.02", "learning_rate = 0.01"));
    place.refuse(
        &again(),
        str!["`run/config.toml` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"],
    );
}
