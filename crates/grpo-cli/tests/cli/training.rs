//! `grpo pretrain` and `grpo train` from end to end.

use std::collections::{BTreeMap, BTreeSet};

use grpo_run::RunFolder;
use serde_json::{Map, Value};
use snapbox::str;

use crate::resume;
use crate::support::{Ended, Place, small_model};
use crate::texts::entries;

/// Returns the lines of `metrics.jsonl` without timings.
fn metrics(place: &Place, run: &str) -> Vec<Map<String, Value>> {
    resume::metrics(&place.path(run))
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

    // The recorded configuration reproduces the run with any number of threads.
    place.succeed(&["pretrain", "prior/config.toml", "--run", "again", "--threads", "1"]);
    assert_eq!(metrics(&place, "again"), lines);
    for file in ["config.json", "vocabulary.json", "model.safetensors"] {
        let bytes = |run: &str| std::fs::read(place.path(&format!("{run}/model/{file}"))).unwrap();
        assert!(bytes("prior") == bytes("again"), "{file} differs");
    }

    // The model can be trained further.
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
        let distance = sum(&record.tokens["logprobs"]) - sum(&record.sampling_logprobs);
        assert!(record.actions > 0 && distance.abs() < 1e-3, "{distance}");
    }
    let files = entries(&place.path("run/completions"));
    assert_eq!(files, ["step-1.parquet", "step-2.parquet", "step-3.parquet"]);
    let events = entries(&place.path("run"));
    let events = events.iter().filter(|name| name.starts_with("events.out.tfevents."));
    assert_eq!(events.count(), 1);
    let info: Map<String, Value> = serde_json::from_str(&place.read("run/run.json")).unwrap();
    assert_eq!((info["seed"].as_i64(), info["device"].as_str()), (Some(1), Some("cpu")));
    let data = info["data"].as_array().unwrap();
    let name = |file: &Value| file["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(
        data.iter().map(name).collect::<Vec<_>>(),
        ["config.json", "manifest.json", "model.safetensors", "vocabulary.json"]
    );
    assert!(data.iter().all(|file| file["sha256"].as_str().unwrap().len() == 64));
    assert!(place.path("run/checkpoints/step-2/manifest.json").exists());
    assert!(place.path("run/checkpoints/step-2/model.safetensors").exists());

    // The trained model can be used and differs from the initial one.
    let sample = |model: &str| place.succeed(&["sample", "--model", model, "-n", "30"]).stdout;
    assert_ne!(sample("run/model"), sample(small_model().to_str().unwrap()));

    // Repeat from the recorded configuration and with one thread.
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
    // Recording completions does not affect training.
    place.succeed(&["train", "train.toml", "--run", "less", "--set", "save.completions_every=0"]);
    assert_eq!(metrics(&place, "less"), lines);
    assert!(entries(&place.path("less/completions")).is_empty());
    place.succeed(&["train", "train.toml", "--run", "seed", "--set", "seed=2"]);
    assert_ne!(metrics(&place, "seed"), lines);
}

/// Sampler and trainer compute the same. Rounded weights exceed the tolerance.
#[test]
fn a_sampler_that_is_not_the_trainer_is_corrected() {
    let place = Place::for_training();
    let train = |run: &str, more: &[&str]| {
        let arguments = ["train", "train.toml", "--run", run, "--set", "eval.samples=0"];
        place.run(&[&arguments[..], more].concat())
    };
    let ended = train("run", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for line in metrics(&place, "run") {
        assert_eq!(line["sampling/sampling_logp_difference/max"].as_f64(), Some(0.0));
    }
    let rounded = ["--set", "sampling.weights=q8"];
    let ended = train("refused", &rounded);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("a different policy than the trained one"), "{}", ended.stderr);

    let said = "step 1: sampler and trainer differ by more than 0.001 nats, so tokens are importance-weighted; `sampling/corrected` in metrics.jsonl marks such steps\n";
    let own = "loss.mismatch={level=\"token\", mode=\"truncate\", max=2.0}";
    let corrected = |run: &str, more: &[&str]| {
        let ended = train(run, &[&rounded[..], more].concat());
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
        let expected = format!("[sampler_check]\nabove = \"{above}\"\n");
        assert!(place.read(&format!("{run}/config.toml")).contains(&expected), "{run}");
    }

    place.succeed(&["train", "train.toml", "--run", "usual", "--set", "eval.samples=0"]);
    let usual = metrics(&place, "usual");
    assert!(usual.iter().all(|line| !line.contains_key("sampling/corrected")));
    let arguments = ["train", "train.toml", "--run", "none", "--set"];
    place.refuse(
        &[&arguments[..], &["sampler_check.tolerance=0.1"]].concat(),
        str!["--set sampler_check.tolerance=0.1: this key was removed, so delete it: sampler_check.tolerance (it is 0.001; sampler_check.above = \"correct\" admits larger differences)"],
    );
    place.refuse(
        &[&arguments[..], &["sampler_check.above=ignore"]].concat(),
        str!["--set sampler_check.above=ignore: sampler_check.above: unknown value `ignore`, expected `stop` or `correct`"],
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
    // Before the model and the data are read.
    let missing = ["--set", "model=nowhere"];
    place.refuse(&[&arguments[..], &missing].concat(), expected);
    let ended = place.succeed(&[&arguments[..], &["--force"]].concat());
    assert!(ended.stdout.starts_with("the previous run is now run.old-1\n"), "{}", ended.stdout);
    assert_eq!(metrics(&place, "run.old-1"), metrics(&place, "run"));

    // Only runs are renamed by --force.
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/letter.txt", "kept");
    place.write("file", "kept");
    for name in ["mine", "file"] {
        let expected =
            format!("`{name}` exists, but is not a run; use another folder with `--run FOLDER`");
        for force in [&[][..], &["--force"]] {
            place.refuse(
                &[&["train", "train.toml", "--run", name], force].concat(),
                expected.clone(),
            );
        }
    }
}

/// A file size limit simulates a disk that becomes full while writing metrics or models.
#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_becomes_full() {
    let place = Place::for_training();
    let script =
        format!("trap '' XFSZ; ulimit -f 4; exec {} train train.toml", env!("CARGO_BIN_EXE_grpo"));
    let mut shell = std::process::Command::new("sh");
    let ended = Ended::of_command(shell.arg("-c").arg(script).current_dir(place.path(".")));
    assert_eq!(ended.code, Some(1));
    // The error follows the progress lines.
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("error: "), "{last}");
    assert!(
        ended
            .stderr
            .ends_with(": the file is too large; free some space or choose a writable folder\n"),
        "{}",
        ended.stderr
    );
    // No partial model is left behind under any name.
    let files = place.files();
    let weights = files.iter().filter(|(path, _)| path.to_string_lossy().contains("safetensors"));
    assert_eq!(weights.count(), 0, "{files:?}");
}

/// Follows the distinct molecules through the recorded completions of a run.
#[test]
fn the_reward_scores_a_molecule_once_and_a_run_ends_after_its_calls() {
    let place = Place::for_training();
    let settings = [
        "train.max_reward_calls=30",
        "train.prompts_per_step=8",
        "train.steps=100",
        "save.completions_every=1",
        "eval.samples=0",
        "replay={ updates = 1, samples = 4, capacity = 8 }",
    ];
    let set = settings.iter().flat_map(|pair| ["--set", *pair]);
    let ended = place.succeed(&["train", "train.toml"].into_iter().chain(set).collect::<Vec<_>>());
    let line =
        "finished     the reward has scored 30 distinct completions (train.max_reward_calls)";
    assert!(ended.stdout.contains(line), "{}", ended.stdout);
    let run = RunFolder::open(&place.path("run")).unwrap();
    let mut scores: BTreeMap<String, f64> = BTreeMap::new();
    let lines = metrics(&place, "run");
    for (step, line) in (1..).zip(&lines) {
        for record in run.completions_of(step).unwrap() {
            let Ok(molecule) = grpo_chem::Molecule::parse(&record.text) else {
                assert_eq!(record.reward, Some(0.0), "{record:?}");
                continue;
            };
            let canonical = molecule.into_canonical();
            let known = scores.get(&canonical).copied();
            match known {
                Some(score) => assert_eq!(record.reward, Some(score), "{record:?}"),
                None if scores.len() < 30 => {
                    scores.insert(canonical, record.reward.unwrap());
                }
                None => {
                    assert_eq!(record.reward, None, "{record:?}");
                    assert_eq!(record.parts["valid"], 1.0, "{record:?}");
                }
            }
        }
        let records = run.completions_of(step).unwrap();
        let valid = records.iter().map(|record| record.parts["valid"]).sum::<f64>();
        let mean = line["rewards/valid/mean"].as_f64().unwrap();
        assert!((mean - valid / records.len() as f64).abs() < 1e-12, "{line:?}");
        assert_eq!(line["archive/calls"].as_u64(), Some(scores.len() as u64));
        let mut best: Vec<f64> = scores.values().copied().collect();
        best.sort_by(|a, b| b.total_cmp(a));
        best.truncate(10);
        let mean = best.iter().sum::<f64>() / best.len() as f64;
        assert!((line["archive/top_10"].as_f64().unwrap() - mean).abs() < 1e-12);
    }
    assert_eq!(scores.len(), 30);
    let last = lines.len();
    assert!(last < 100);
    place.succeed(&["audit", "run"]);
    let files = place.files();
    for verify in [&[][..], &["--verify"]] {
        let ended = place.succeed(&[&["train", "--resume", "run"], verify].concat());
        let line = format!(
            "finished     run: it ended after step {last} of 100, because the reward has scored 30 distinct completions (train.max_reward_calls);"
        );
        assert!(ended.stdout.contains(&line), "{}", ended.stdout);
        assert_eq!(place.files(), files);
    }
}

/// Recomputes the effect of a diversity filter on the recorded completions with plain loops.
#[test]
fn a_diversity_filter_pays_for_a_text_once() {
    let place = Place::for_training();
    let filter = "diversity_filter={ bucket = \"text\", bucket_size = 1, min_reward = 0.1 }";
    let sizes = ["--set", "train.prompts_per_step=8", "--set", "save.completions_every=1"];
    place.succeed(&[&["train", "train.toml", "--set", filter], &sizes[..]].concat());
    let run = RunFolder::open(&place.path("run")).unwrap();
    let mut seen = BTreeSet::new();
    let mut penalized = 0;
    for (step, line) in (1..).zip(metrics(&place, "run")) {
        let records = run.completions_of(step).unwrap();
        let mut changes = Vec::new();
        for record in &records {
            let is_valid = record.parts["valid"] == 1.0;
            let expected = match record.reward.filter(|reward| is_valid && *reward >= 0.1) {
                None => None,
                Some(_) if seen.insert(record.text.clone()) => Some(0.0),
                Some(reward) => Some(-reward),
            };
            assert_eq!(record.bonus, expected, "{record:?}");
            changes.extend(expected);
        }
        penalized += changes.iter().filter(|change| **change < 0.0).count();
        let share = changes.iter().filter(|change| **change < 0.0).count() as f64
            / changes.len().max(1) as f64;
        assert_eq!(line["diversity_filter/penalized"].as_f64(), Some(share));
        assert_eq!(line["diversity_filter/buckets"].as_u64(), Some(seen.len() as u64));
        assert_eq!(line["diversity_filter/full_buckets"].as_u64(), Some(seen.len() as u64));
        for group in records.chunks(4) {
            let totals: Vec<f64> =
                group.iter().map(|one| one.reward.unwrap() + one.bonus.unwrap_or(0.0)).collect();
            let mean = totals.iter().sum::<f64>() / 4.0;
            let deviation =
                (totals.iter().map(|total| (total - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
            for (one, total) in group.iter().zip(totals) {
                let expected = (total - mean) / (deviation + 1e-4);
                assert!((one.advantage - expected).abs() < 1e-9, "{one:?}");
            }
        }
    }
    assert!(penalized > 0);
    place.succeed(&["audit", "run"]);
    let replay = ["replay", "run", "--step", "3", "--prompt", "0", "--sample", "0"];
    place.succeed(&replay);
}

/// Recomputes a filter by scaffolds: a molecule is paid once, and its copies fill no bucket.
#[test]
fn a_diversity_filter_pays_for_a_molecule_once() {
    let place = Place::for_training();
    let filter = "diversity_filter={ bucket = \"scaffold\", bucket_size = 8, min_reward = 0.1 }";
    let sizes = ["--set", "train.prompts_per_step=8", "--set", "save.completions_every=1"];
    place.succeed(&[&["train", "train.toml", "--set", filter], &sizes[..]].concat());
    let run = RunFolder::open(&place.path("run")).unwrap();
    let mut counted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut copies = 0;
    for (step, line) in (1..).zip(metrics(&place, "run")) {
        for record in run.completions_of(step).unwrap() {
            let molecule = grpo_chem::Molecule::parse(&record.text).ok();
            let expected = match molecule.zip(record.reward.filter(|reward| *reward >= 0.1)) {
                None => None,
                Some((molecule, reward)) => {
                    let bucket = counted.entry(molecule.scaffold().unwrap()).or_default();
                    let is_full = bucket.len() >= 8;
                    let is_new = bucket.insert(molecule.identity().unwrap());
                    copies += u32::from(!is_new);
                    Some(if is_new && !is_full { 0.0 } else { -reward })
                }
            };
            assert_eq!(record.bonus, expected, "{record:?}");
        }
        assert_eq!(line["diversity_filter/buckets"].as_u64(), Some(counted.len() as u64));
        let full = counted.values().filter(|bucket| bucket.len() >= 8).count();
        assert_eq!(line["diversity_filter/full_buckets"].as_u64(), Some(full as u64));
    }
    assert!(copies > 0);
}
