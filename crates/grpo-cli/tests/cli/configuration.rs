//! Invalid configuration files.

use snapbox::{IntoData, str};

use crate::support::Place;

/// Adds a `--set` option to a valid training command.
#[track_caller]
fn check_set(pair: &str, expected: impl IntoData) {
    Place::for_training().refuse(&["train", "train.toml", "--set", pair], expected);
}

/// Replaces text in a valid configuration.
#[track_caller]
fn check_text(from: &str, to: &str, expected: impl IntoData) {
    let place = Place::for_training();
    let text = place.read("train.toml");
    assert!(text.contains(from), "{from} is not in the configuration");
    place.write("train.toml", text.replacen(from, to, 1));
    place.refuse(&["train", "train.toml"], expected);
}

#[test]
fn keys_without_effect_are_refused() {
    let place = Place::for_training();
    let check = |sets: &[&str], expected: &str| {
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        let ended = place.run(&[&["train", "train.toml", "--check"][..], &sets].concat());
        assert_eq!(ended.code, Some(1), "{sets:?}");
        assert!(ended.stderr.ends_with(&format!("{expected}\n")), "{sets:?}: {}", ended.stderr);
    };
    check(
        &["advantage.scale=none", "advantage.epsilon=0.5"],
        "advantage: epsilon has no effect with scale = \"none\"; remove it",
    );
    check(
        &["advantage.quantile=0.5"],
        "advantage: quantile has no effect without baseline = \"quantile\"; remove it, or set baseline = \"quantile\"",
    );
    check(
        &["advantage.baseline=quantile", "advantage.quantile=1.5"],
        "advantage: quantile = 1.5 is out of range; it must be above 0 and at most 1",
    );
    check(
        &["loss.preset=dr_grpo", "advantage.deviation=population"],
        "advantage: deviation has no effect with scale = \"none\"; remove it",
    );
    check(
        &["reward.logp_centre=3.5"],
        "reward.logp_centre = 3.5 has no effect because reward.logp is 0; remove it, or set a weight for reward.logp",
    );
    check(
        &["loss.preset=reinforce", "loss.ratio_level=sequence", "loss.kl_coef=0"],
        "loss: ratio_level = \"sequence\" has no effect with this surrogate; remove it, or choose another preset",
    );
    check(
        &["loss.preset=reinforce", "train.updates_per_rollout=2"],
        "train.updates_per_rollout = 2: the reinforce surrogate has no importance ratio, so every update but the first would be off-policy without correction; set it to 1, or choose a loss with a ratio",
    );
    check(&["eval.group_size=1001"], "eval.group_size = 1001 is out of range; expected 1 to 1000");
    // Default values are always accepted, even if they are set explicitly.
    for set in ["advantage.epsilon=1e-4", "reward.logp_centre=2.5", "loss.ratio_level=token"] {
        let none = ["--set", "advantage.scale=none", "--set", "loss.preset=reinforce"];
        place.succeed(&[&["train", "train.toml", "--check", "--set", set][..], &none].concat());
    }
}

#[test]
fn reports_an_unknown_key_with_its_line_and_the_nearest_one() {
    check_text(
        "group_size = 4",
        "groupsize = 4",
        str!["train.toml:8: unknown key 'train.groupsize'; did you mean 'group_size'?"],
    );
    check_text(
        "seed = 1",
        "sed = 1",
        str!["train.toml:3: unknown key 'sed'; did you mean 'seed'?"],
    );
    check_text(
        "qed = 0.7",
        "qde = 0.7",
        str!["train.toml:16: unknown key 'reward.qde'; did you mean 'qed'?"],
    );
    check_text("[loss]", "[lost]", str!["train.toml:19: unknown key 'lost'; did you mean 'loss'?"]);
    // A key that is taken out before the section is read.
    check_text(
        "steps = 3",
        "epoch = 3",
        str!["train.toml:6: unknown key 'train.epoch'; did you mean 'epochs'?"],
    );
    check_text(
        "steps = 3",
        "num_train_epochs = 3",
        str![
            "train.toml:6: unknown key 'train.num_train_epochs'; it is called 'train.epochs' here"
        ],
    );
    check_text(
        "kl_coef = 0.05",
        "zzz = 1",
        str![
            "train.toml:20: unknown key 'loss.zzz'; there are: preset, surrogate, epsilon_low, epsilon_high, delta, cap, ratio_level, reduction, kl_coef, kl_estimator, kl_placement, kl_bias_correction, off_policy_threshold, high_entropy_share, mismatch, entropy_bonus"
        ],
    );
}

#[test]
fn reports_a_wrong_type_with_its_line() {
    check_text(
        "steps = 3",
        "steps = \"three\"",
        str![[r#"train.toml:6: train.steps: found "three"; expected a whole number"#]],
    );
    check_text(
        "steps = 3",
        "steps = -3",
        str!["train.toml:6: train.steps: found -3; expected a whole number that is not negative"],
    );
    check_text(
        "learning_rate = 1e-2",
        "learning_rate = true",
        str!["train.toml:23: optimizer.learning_rate: found true; expected a number"],
    );
    check_text(
        "type = \"molecule\"",
        "type = \"molecules\"",
        str![
            "train.toml:15: reward.type: unknown reward type `molecules`; expected one of answer, command, components, composite, conditions, heuristic, http, hybrid, infill, learned, molecule, pattern, pmo, python"
        ],
    );
}

#[test]
fn reports_a_missing_key() {
    check_text("group_size = 4\n", "", str!["train.toml:5: train: missing key `group_size`"]);
    check_text("seed = 1\n", "", str!["train.toml: missing key `seed`"]);
    // An empty file is a configuration of the command that reads it.
    let place = Place::new();
    place.write("empty.toml", "");
    for (command, missing) in [
        ("train", "section [reward] is missing; add it and set `type` to one of "),
        ("pretrain", "missing key `run`"),
        ("run", "missing key `stages`"),
    ] {
        for check in [&[][..], &["--check"]] {
            let ended = place.run(&[&[command, "empty.toml"], check].concat());
            let expected = format!("error: empty.toml: {missing}");
            assert_eq!(ended.code, Some(1), "{command}");
            assert!(ended.stderr.starts_with(&expected), "{command}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_value_out_of_range_is_refused_before_the_run_begins() {
    check_set(
        "train.group_size=1",
        str![
            "--set train.group_size=1: train.group_size = 1 is out of range; expected 2 to 1000000"
        ],
    );
    check_set(
        "sampling.stop=[\"\"]",
        str![[
            r#"--set sampling.stop=[""]: sampling: stop string is empty, which would end every completion after its first token; remove it"#
        ]],
    );
    check_set(
        "loss.epsilon_low=2",
        str!["--set loss.epsilon_low=2: loss: epsilon_low = 2 is out of range; it must be 0 to 1"],
    );
    check_set(
        "loss.surrogate={type=\"reinforce\", bogus=1}",
        str![[
            r#"--set loss.surrogate={type="reinforce", bogus=1}: unknown key 'loss.surrogate.bogus'; there are none"#
        ]],
    );
    check_set(
        "loss.surrogate={type=\"cispo\", cap=-1.0}",
        str![[
            r#"--set loss.surrogate={type="cispo", cap=-1.0}: loss: cap = -1 is out of range; it must be above 0 and finite"#
        ]],
    );
    check_text(
        "max_new_tokens = 20",
        "max_new_tokens = 20\n[advantage]\naggregation = \"normalize_then_sum\"\nscale = \"none\"",
        str![[
            r#"train.toml:15: advantage: scale has no effect with aggregation = "normalize_then_sum", which divides by the deviation of each group and then of the batch; remove it"#
        ]],
    );
    check_set(
        "sampling.max_new_tokens=0",
        str![
            "--set sampling.max_new_tokens=0: sampling.max_new_tokens is missing or 0; set the maximum number of tokens per completion, from 1 to 1000000"
        ],
    );
    for (key, least) in [("train.group_size", 2), ("sampling.batch_size", 1)] {
        check_set(
            &format!("{key}=0"),
            format!("--set {key}=0: {key} = 0 is out of range; expected {least} to 1000000"),
        );
    }
    check_set(
        "sampling.max_new_tokens=25",
        str![
            "sampling: a prompt of 1 token with max_new_tokens = 25 exceeds the model's context of 24 tokens; set max_new_tokens to at most 24"
        ],
    );
}

#[test]
fn sampling_and_reward_values_out_of_range_are_refused() {
    check_set(
        "sampling.temperature=0",
        str![
            "--set sampling.temperature=0: sampling: temperature = 0 is out of range; use top_k = 1 (--top-k 1) for the most likely token at each step"
        ],
    );
    check_set(
        "sampling.top_k=0",
        str![
            "--set sampling.top_k=0: sampling: top_k = 0 is out of range; expected 1 or more (remove it to keep all tokens)"
        ],
    );
    check_set(
        "sampling.repetition_penalty=-1.0",
        str![
            "--set sampling.repetition_penalty=-1.0: sampling: repetition_penalty = -1 is out of range; expected 0.01 to 100 (1 has no effect)"
        ],
    );
    check_text(
        "max_new_tokens = 20",
        "max_new_tokens = 20\ntop_p = 1.5",
        str![
            "train.toml:13: sampling: top_p = 1.5 is out of range; expected a number above 0 and at most 1 (1 keeps all tokens)"
        ],
    );
    check_text(
        "max_new_tokens = 20",
        "max_new_tokens = 20\nmin_p = 1",
        str![
            "train.toml:13: sampling: min_p = 1 is out of range; expected 0 or more and less than 1 (0 keeps all tokens)"
        ],
    );
    check_set(
        "reward.sa=0.5",
        str![
            "--set reward.sa=0.5: reward.qed, reward.sa and reward.logp must be at least 0 and sum to 1, but they sum to 1.2"
        ],
    );
}

/// A resumed run keeps its configuration. The error explains this instead of showing the usage.
#[test]
fn options_of_new_runs_are_refused_with_resume() {
    let place = Place::new();
    for (command, given) in [
        ("train", "--set=train.steps=9"),
        ("train", "--run=other"),
        ("train", "--force"),
        ("train", "--check"),
        ("pretrain", "--set=seed=1"),
        ("trial", "--steps=20"),
        ("train-judge", "--run=other"),
    ] {
        for words in [[command, "--resume=run", given], [command, given, "--resume=run"]] {
            let ended = place.run(&words);
            let name = given.split('=').next().unwrap();
            let said = format!(
                "error: {name} cannot be used with --resume, because a resumed run keeps its folder and its recorded configuration; leave {name} out, or leave --resume out to start a new run\n"
            );
            assert_eq!((ended.code, ended.stderr), (Some(2), said), "{words:?}");
        }
    }
}

#[test]
fn a_learning_rate_of_zero_is_noted() {
    let place = Place::for_training();
    let note = "note         optimizer.learning_rate = 0, so training does not change the policy\n";
    for (rate, is_noted) in [("0", true), ("0.0", true), ("1e-4", false)] {
        let rate = format!("optimizer.learning_rate={rate}");
        let ended = place.succeed(&["train", "train.toml", "--check", "--set", &rate]);
        assert_eq!(ended.stdout.contains(note), is_noted, "{rate}: {}", ended.stdout);
    }
}

/// The model does not exist yet, and nothing is written.
#[test]
fn a_configuration_can_be_checked_alone() {
    let place = Place::for_training();
    let arguments = ["train", "train.toml", "--check", "--set", "model=nowhere"];
    let before = place.files();
    assert_eq!(
        place.succeed(&arguments).stdout,
        "train.toml: configuration is valid (models and data were not read)\nnote         nowhere does not exist yet\n"
    );
    assert_eq!(place.files(), before);
    // A run can begin in an empty folder.
    std::fs::create_dir(place.path("base")).unwrap();
    let existing = [&arguments[..], &["--run", "base"]].concat();
    let note = "note         run folder `base` already exists; use another folder with `--run FOLDER`, or add `--force` to rename the old one\n";
    assert!(!place.succeed(&existing).stdout.contains(note));
    place.write("base/run.json", "{}");
    assert!(place.succeed(&existing).stdout.contains(note));
    assert!(!place.succeed(&[&existing[..], &["--force"]].concat()).stdout.contains(note));
    // The run folder in place of its model, and a reward whose file is missing.
    std::fs::create_dir(place.path("base/model")).unwrap();
    let reward = "reward={ type = \"python\", file = \"none.py\" }";
    let noted =
        place.succeed(&["train", "train.toml", "--check", "--set", "model=base", "--set", reward]);
    let [model, reward] = [
        "note         base is a run folder; its model is in base/model\n",
        "note         reward.file: file none.py does not exist; expected a Python file with the reward function\n",
    ];
    assert!(noted.stdout.contains(&format!("{model}{reward}")), "{}", noted.stdout);
    for source in ["conditions.file=nope.csv", "conditions.molecules=nope.csv"] {
        let noted = place.succeed(&["train", "train.toml", "--check", "--set", source]);
        let note = "note         nope.csv does not exist yet; check the path\n";
        assert!(noted.stdout.contains(note), "{}", noted.stdout);
    }
    let noted = place.succeed(&["train", "train.toml", "--check", "--set", "adapter=base"]);
    let adapter = "note         base is a run folder without a trained adapter\n";
    assert!(noted.stdout.contains(adapter), "{}", noted.stdout);
    place.refuse(
        &[&arguments[..], &["--set", "train.stepz=5"]].concat(),
        str!["--set train.stepz=5: unknown key 'train.stepz'; did you mean 'steps'?"],
    );
    let filter = |keys: &str| format!("diversity_filter={{ {keys} }}");
    for (keys, expected) in [
        (
            "bucket = \"scafold\"",
            "diversity_filter.bucket = \"scafold\" is unknown; expected \"scaffold\", \"topological_scaffold\", \"smiles\", \"text\"\n",
        ),
        (
            "bucket = \"smiles\", bucket_size = 0",
            "diversity_filter.bucket_size = 0 is out of range; expected 1 to 1000000\n",
        ),
        (
            "bucket = \"smiles\", penalty = \"steep\"",
            "expected one of `step`, `linear`, `sigmoid`\n",
        ),
    ] {
        let ended = place.run(&[&arguments[..], &["--set", &filter(keys)]].concat());
        assert!(ended.code == Some(1) && ended.stderr.ends_with(expected), "{}", ended.stderr);
    }
    for other in [
        "advantage.aggregation=normalize_then_sum",
        "diversity_bonus={ weight = 0.1, measure = \"bleu\" }",
    ] {
        let filter = filter("bucket = \"smiles\"");
        let ended = place.run(&[&arguments[..], &["--set", &filter, "--set", other]].concat());
        assert!(ended.stderr.ends_with("; remove one of them\n"), "{}", ended.stderr);
    }
    place.refuse(
        &[&arguments[..], &["--set", "train.group_size=1"]].concat(),
        str![
            "--set train.group_size=1: train.group_size = 1 is out of range; expected 2 to 1000000"
        ],
    );
}

#[test]
fn set_names_itself_where_it_is_wrong() {
    check_set(
        "train.stepz=5",
        str!["--set train.stepz=5: unknown key 'train.stepz'; did you mean 'steps'?"],
    );
    check_set(
        "train.steps=many",
        str![[r#"--set train.steps=many: train.steps: found "many"; expected a whole number"#]],
    );
    check_set(
        "train.steps",
        str!["--set train.steps: expected KEY=VALUE, as in --set train.steps=50"],
    );
    check_set("=5", str!["--set =5: expected KEY=VALUE, as in --set train.steps=50"]);
}

#[test]
fn a_configuration_that_cannot_be_read() {
    let place = Place::new();
    place.refuse(
        &["train", "absent.toml"],
        str!["configuration file absent.toml does not exist; check the path"],
    );
    place.write("broken.toml", "run = \"a\"\nseed = = 1\n");
    let ended = place.run(&["train", "broken.toml"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.starts_with("error: broken.toml:2: "), "{}", ended.stderr);
    place.write("bytes.toml", [b'a', 0xff, 0xfe]);
    place.refuse(
        &["train", "bytes.toml"],
        str!["cannot read the configuration bytes.toml: it is not UTF-8 text"],
    );
}

#[test]
fn layers_of_configuration() {
    let place = Place::for_training();
    place.write("mine.toml", "extends = \"train.toml\"\n\n[train]\nsteps = 0\n");
    // The upper layer takes precedence, and the lower layer provides all other keys.
    place.refuse(
        &["train", "mine.toml"],
        str!["mine.toml:4: train.steps = 0 is out of range; expected 1 to 1000000000"],
    );
    place.write("mine.toml", "extends = \"train.toml\"\n\n[train]\nstep = 0\n");
    place.refuse(
        &["train", "mine.toml"],
        str!["mine.toml:4: unknown key 'train.step'; did you mean 'steps'?"],
    );
    place.write("lower.toml", place.read("train.toml").replace("group_size", "groupsize"));
    place.write("mine.toml", "extends = \"lower.toml\"\n");
    place.refuse(
        &["train", "mine.toml"],
        str!["lower.toml:8: unknown key 'train.groupsize'; did you mean 'group_size'?"],
    );
    place.write("mine.toml", "extends = \"absent.toml\"\n");
    place.refuse(
        &["train", "mine.toml"],
        str!["mine.toml extends absent.toml: configuration file absent.toml does not exist; check the path"],
    );
    place.write("mine.toml", "extends = 3\n");
    place.refuse(
        &["train", "mine.toml"],
        str!["mine.toml: extends = 3 is not a path; write it as a string, relative to this file"],
    );
}

#[test]
fn a_configuration_that_extends_itself() {
    let place = Place::new();
    place.write("mine.toml", "extends = \"mine.toml\"\n");
    place.refuse(
        &["train", "mine.toml"],
        str!["mine.toml extends mine.toml: mine.toml: extends itself"],
    );
    // The same file through a path that grows with every cycle.
    std::fs::create_dir(place.path("sub")).unwrap();
    place.write("sub/mine.toml", "extends = \"../sub/mine.toml\"\n");
    place.refuse(
        &["train", "sub/mine.toml"],
        str!["sub/mine.toml extends sub/../sub/mine.toml: sub/../sub/mine.toml: extends itself"],
    );
}

#[test]
fn no_threads() {
    let place = Place::for_training();
    place.refuse(
        &["train", "train.toml", "--threads", "0"],
        str!["--threads 0 is out of range; expected 1 to 1024"],
    );
}

/// The values would be assigned to the keys of the section by position.
#[test]
fn a_list_is_not_a_section() {
    for section in ["save", "optimizer", "eval", "train", "sampling", "schedule", "lora"] {
        for list in ["[5]", "[]", "[2, 4]"] {
            check_set(
                &format!("{section}={list}"),
                format!("--set {section}={list}: {section}: found a list; expected a table"),
            );
        }
    }
}

#[test]
fn messages_stay_short() {
    let long = "x".repeat(5000);
    for set in [format!("train.steps={long}"), format!("{long}={long}"), long.clone()] {
        let place = Place::for_training();
        let ended = place.run(&["train", "train.toml", "--check", "--set", &set]);
        assert!(ended.code == Some(1) && ended.stderr.len() < 700, "{}", ended.stderr);
    }
    check_set(
        ".=1",
        str![
            "--set .=1: a part of the key is empty; expected KEY=VALUE, as in --set train.steps=50"
        ],
    );
}
