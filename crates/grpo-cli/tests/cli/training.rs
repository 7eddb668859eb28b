//! `grpo pretrain` and `grpo train` from end to end.

use serde_json::{Map, Value};
use snapbox::str;

use crate::support::{Ended, Place, small_model};
use crate::texts::entries;

/// The lines of a run's `metrics.jsonl`, without times.
fn metrics(place: &Place, run: &str) -> Vec<Map<String, Value>> {
    let text = place.read(&format!("{run}/metrics.jsonl"));
    text.lines()
        .map(|line| {
            let mut line: Map<String, Value> = serde_json::from_str(line).unwrap();
            line.retain(|name, _| {
                !["time/", "memory/"].iter().any(|folder| name.starts_with(folder))
                    && !["step_time", "tokens_per_second"].contains(&name.as_str())
            });
            line
        })
        .collect()
}

#[test]
fn a_pretraining_leaves_a_model_and_its_record() {
    let place = Place::for_pretraining();
    let arguments = ["pretrain", "pretrain.toml", "--set", "pretrain.epochs=3"];
    let ended = place.succeed(&arguments);
    assert!(ended.stdout.starts_with("molecules.smi: 64 rows: "), "{}", ended.stdout);
    assert!(ended.stdout.ends_with("model        prior/model\n"), "{}", ended.stdout);
    let lines = metrics(&place, "prior");
    let losses: Vec<f64> =
        lines.iter().filter_map(|line| line.get("eval_loss")?.as_f64()).collect();
    assert_eq!(losses.len(), 3);
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[2] < losses[0], "{losses:?}");

    // The record of the run is a configuration that gives the same again, with any number of threads.
    place.succeed(&["pretrain", "prior/config.toml", "--run", "again", "--threads", "1"]);
    assert_eq!(metrics(&place, "again"), lines);
    for file in ["config.json", "vocabulary.json", "model.safetensors"] {
        let bytes = |run: &str| std::fs::read(place.path(&format!("{run}/model/{file}"))).unwrap();
        assert!(bytes("prior") == bytes("again"), "{file} differs");
    }

    // And the model can be trained further.
    let text = place.read("pretrain.toml");
    let (above, model_on) = text.split_once("[model]").unwrap();
    let (_, below) = model_on.split_once("[pretrain]").unwrap();
    place.write("on.toml", format!("start = \"prior/model\"\n{above}[pretrain]{below}"));
    place.succeed(&["pretrain", "on.toml", "--run", "on", "--set", "pretrain.epochs=1"]);
    let first = metrics(&place, "on")[0]["step_train_loss"].as_f64().unwrap();
    let afresh = lines[0]["step_train_loss"].as_f64().unwrap();
    assert!(first < 0.9 * afresh, "{first} after {afresh}");
}

#[test]
fn a_training_leaves_all_that_one_needs_to_repeat_it() {
    let place = Place::for_training();
    let ended = place.succeed(&["train", "train.toml"]);
    assert!(ended.stdout.starts_with("run folder   run\n"), "{}", ended.stdout);
    for row in ["20 molecules", "validity", "uniqueness", "mean reward, all", "mean QED, valid"] {
        assert!(ended.stdout.contains(row), "{row}: {}", ended.stdout);
    }
    let lines = metrics(&place, "run");
    assert_eq!(lines.len(), 3);
    for (line, step) in lines.iter().zip(1..) {
        assert_eq!(line["step"].as_i64(), Some(step));
        for (name, value) in line {
            assert!(value.as_f64().is_some_and(f64::is_finite), "{name} is {value}");
        }
        assert!(line.contains_key("kl"));
    }
    assert_eq!(lines[0]["kl"].as_f64(), Some(0.0));
    assert!(lines[2]["kl"].as_f64().unwrap() > 0.0);

    let completions = place.completions("run");
    assert_eq!(completions.len(), 3 * 2 * 4);
    for record in &completions {
        assert_eq!(record.prompt_text, None, "there is no prompt but the beginning mark");
        assert!(record.reward.is_some() && record.parts.contains_key("valid"), "{record:?}");
        let sum = |values: &[f32]| values.iter().map(|&value| f64::from(value)).sum::<f64>();
        let distance = sum(&record.logprobs) - sum(&record.sampling_logprobs);
        assert!(record.actions > 0 && distance.abs() < 1e-3, "{distance}");
    }
    let files = entries(&place.path("run/completions"));
    assert_eq!(files, ["step-1.parquet", "step-2.parquet", "step-3.parquet"]);
    let events = entries(&place.path("run"));
    let events = events.iter().filter(|name| name.starts_with("events.out.tfevents."));
    assert_eq!(events.count(), 1);
    let info: Map<String, Value> = serde_json::from_str(&place.read("run/run.json")).unwrap();
    assert_eq!((info["seed"].as_i64(), info["device"].as_str()), (Some(1), Some("flex")));
    let data = info["data"].as_array().unwrap();
    let name = |file: &Value| file["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(
        data.iter().map(name).collect::<Vec<_>>(),
        ["config.json", "manifest.json", "model.safetensors", "vocabulary.json"]
    );
    assert!(data.iter().all(|file| file["sha256"].as_str().unwrap().len() == 64));
    assert!(place.path("run/checkpoints/step-2/manifest.json").exists());
    assert!(place.path("run/checkpoints/step-2/model.safetensors").exists());

    // The model is one, and another than at the beginning.
    let sample = |model: &str| place.succeed(&["sample", "--model", model, "-n", "30"]).stdout;
    assert_ne!(sample("run/model"), sample(small_model().to_str().unwrap()));

    // The same again from the record of the run, and with one thread.
    place.succeed(&["train", "run/config.toml", "--run", "other"]);
    assert_eq!(metrics(&place, "other"), lines);
    place.succeed(&["train", "train.toml", "--run", "one", "--threads", "1"]);
    assert_eq!(metrics(&place, "one"), lines);
    assert_eq!(place.completions("one"), completions);
    for step in ["step-1", "step-3"] {
        let bytes = |run: &str| {
            std::fs::read(place.path(&format!("{run}/completions/{step}.parquet"))).unwrap()
        };
        assert!(bytes("one") == bytes("run"), "{step}");
    }
    // What is recorded moves nothing.
    place.succeed(&["train", "train.toml", "--run", "less", "--set", "save.completions_every=0"]);
    assert_eq!(metrics(&place, "less"), lines);
    assert!(entries(&place.path("less/completions")).is_empty());
    place.succeed(&["train", "train.toml", "--run", "seed", "--set", "seed=2"]);
    assert_ne!(metrics(&place, "seed"), lines);
}

/// No two programs add up in the same order: without any tolerance, the sampler is never the trainer.
#[test]
fn a_sampler_that_is_not_the_trainer_ends_the_run_or_is_corrected() {
    let place = Place::for_training();
    let train = |run: &str, more: &[&str]| {
        let strict = ["--set", "eval.samples=0", "--set", "sampler_check.tolerance=0"];
        place.run(&[&["train", "train.toml", "--run", run], &strict[..], more].concat())
    };
    let ended = train("run", &[]);
    assert_eq!(ended.code, Some(1));
    let begin =
        "error: the training of run ended early: step 1: the sampler recorded log-probability -";
    assert!(ended.stderr.starts_with(begin), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains(", which exceeds sampler_check.tolerance = 0; find the difference, or "),
        "{}",
        ended.stderr
    );
    assert_eq!(place.read("run/metrics.jsonl"), "");
    let weights =
        |folder: &std::path::Path| std::fs::read(folder.join("model.safetensors")).unwrap();
    assert!(weights(&place.path("run/model")) == weights(small_model()), "the policy moved");

    let said = "step 1: the sampler is further from the trainer than sampler_check.tolerance, and its tokens are weighed; `sampling/corrected` in metrics.jsonl marks such steps\n";
    let own = "loss.mismatch={level=\"token\", mode=\"truncate\", max=2.0}";
    let corrected = |run: &str, more: &[&str]| {
        let ended = train(run, more);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stdout.matches(said).count(), 1, "{}", ended.stdout);
        let lines = metrics(&place, run);
        assert!(lines.iter().all(|line| line["sampling/corrected"].as_i64() == Some(1)));
        lines
    };
    let by_check = corrected("correct", &["--set", "sampler_check.above=correct"]);
    let by_hand = corrected("own", &["--set", own]);
    assert_eq!(by_check, by_hand);
    assert!(by_check[0].contains_key("sampling/importance_sampling_ratio/mean"));
    for (run, above) in [("run", "stop"), ("correct", "correct"), ("own", "correct")] {
        let expected = format!("[sampler_check]\ntolerance = 0.0\nabove = \"{above}\"\n");
        assert!(place.read(&format!("{run}/config.toml")).contains(&expected), "{run}");
    }

    place.succeed(&["train", "train.toml", "--run", "usual", "--set", "eval.samples=0"]);
    let usual = metrics(&place, "usual");
    assert!(usual.iter().all(|line| !line.contains_key("sampling/corrected")));
    let arguments = ["train", "train.toml", "--run", "none", "--set"];
    place.refuse(
        &[&arguments[..], &["sampler_check.tolerance=-1"]].concat(),
        str!["--set sampler_check.tolerance=-1: sampler_check.tolerance = -1 is out of range; expected 0 or more"],
    );
    place.refuse(
        &[&arguments[..], &["sampler_check.above=ignore"]].concat(),
        str!["--set sampler_check.above=ignore: sampler_check.above: unknown variant `ignore`, expected `stop` or `correct`"],
    );
}

#[test]
fn a_run_folder_that_exists_is_kept() {
    let place = Place::for_training();
    let arguments = ["train", "train.toml", "--set", "train.steps=1", "--set", "eval.samples=0"];
    let ended = place.succeed(&arguments);
    assert!(ended.stdout.contains("no comparison: eval.samples = 0"), "{}", ended.stdout);
    let expected = "run folder `run` already exists; use another folder with `--run FOLDER`, or add `--force` to rename the old one";
    place.refuse(&arguments, expected);
    let ended = place.succeed(&[&arguments[..], &["--force"]].concat());
    assert!(ended.stdout.starts_with("the older run is now ./run.old-1\n"), "{}", ended.stdout);
    assert_eq!(metrics(&place, "run.old-1"), metrics(&place, "run"));

    // Only a run is moved aside.
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/letter.txt", "kept");
    place.refuse(
        &["train", "train.toml", "--run", "mine", "--force"],
        str!["`mine` is not a run folder (no `run.json`); check the path"],
    );
    place.refuse(&["train", "train.toml", "--run", "mine"], expected.replace("`run`", "`mine`"));
    place.write("file", "kept");
    place.refuse(&["train", "train.toml", "--run", "file"], expected.replace("`run`", "`file`"));
}

/// Metrics and models that the disk has no room for, by a limit on the size of files.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_becomes_full() {
    let place = Place::for_training();
    let script =
        format!("trap '' XFSZ; ulimit -f 4; exec {} train train.toml", env!("CARGO_BIN_EXE_grpo"));
    let mut shell = std::process::Command::new("sh");
    let ended =
        Ended::of(shell.arg("-c").arg(script).current_dir(place.path(".")).output().unwrap());
    assert_eq!(ended.code, Some(1));
    // Behind the lines of progress.
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: "), "{last}");
    assert!(
        ended
            .stderr
            .ends_with(": the file is too large; free some space or choose a writable folder\n"),
        "{}",
        ended.stderr
    );
    // No half of a model, under its name or another.
    let files = place.files();
    let weights = files.iter().filter(|(path, _)| path.to_string_lossy().contains("safetensors"));
    assert_eq!(weights.count(), 0, "{files:?}");
}
