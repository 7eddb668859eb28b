//! The files in the repository work as described in the README.

use std::path::PathBuf;

use crate::support::{Ended, Place};

/// Runs the program in the root of the repository.
fn run(arguments: &[&str]) -> Ended {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Place::new().command(arguments);
    Ended::of_command(command.current_dir(root))
}

#[test]
fn the_bundled_prior_writes_valid_molecules() {
    let sampled = run(&["sample", "-n", "300"]);
    assert_eq!(sampled.code, Some(0), "{}", sampled.stderr);
    assert_eq!(sampled.stdout.lines().count(), 300);
    let validity = sampled.stderr.lines().find_map(|line| line.strip_prefix("validity"));
    let validity: f64 = validity.unwrap().trim().parse().unwrap();
    // The validity is at least 0.9 on average. For 300 samples, three standard errors are 0.05.
    assert!(validity >= 0.85, "{validity}");
}

#[test]
fn the_bundled_configurations_run() {
    let place = Place::new();
    let path = |name: &str| place.path(name).display().to_string();
    let small = ["train.steps=1", "train.prompts_per_step=1", "eval.samples=20"];
    for (name, row) in [
        ("grpo", "mean reward, valid"),
        ("conditional", "|asked − measured| logP"),
        ("pmo", "mean reward, valid"),
        ("pmo-reinvent", "mean reward, valid"),
    ] {
        let config = format!("configs/molecules/{name}.toml");
        let mut arguments = vec!["train", &config];
        arguments.extend(small.iter().flat_map(|pair| ["--set", pair]));
        let folder = path(name);
        arguments.extend(["--run", &folder]);
        let trained = run(&arguments);
        assert_eq!(trained.code, Some(0), "{}", trained.stderr);
        assert!(trained.stdout.contains(row), "{}", trained.stdout);
    }

    // Uses fewer molecules than the bundled data, so that an epoch takes a second.
    let drawn = path("drawn.smi");
    let sampled = run(&["sample", "-n", "40", "--distinct", "-o", &drawn]);
    assert_eq!(sampled.code, Some(0), "{}", sampled.stderr);
    for name in ["finetune", "pretrain", "conditional-prior"] {
        let config = format!("configs/molecules/{name}.toml");
        let (data, folder) = (format!("data.file={drawn}"), path(name));
        let few = "data.min_molecules=10";
        let ended = run(&[
            "pretrain",
            &config,
            "--set",
            &data,
            "--set",
            few,
            "--set",
            "pretrain.epochs=1",
            "--set",
            "data.validation_fraction=0.2",
            "--run",
            &folder,
        ]);
        assert_eq!(ended.code, Some(0), "{name}: {}", ended.stderr);
        assert!(place.path(name).join("model/model.safetensors").is_file());
    }
}

#[test]
fn the_bundled_molecules_are_as_many_as_stated_and_valid() {
    let place = Place::new();
    let table = place.path("described.csv").display().to_string();
    let described = run(&["describe", "data/molecules/molecules.smi.gz", "-o", &table]);
    assert_eq!(described.code, Some(0), "{}", described.stderr);
    let table = place.read("described.csv");
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert!(rows.len() >= 20_000, "{} molecules", rows.len());
    let invalid = rows.iter().filter(|row| row.split(',').nth(1) != Some("1")).count();
    assert_eq!(invalid, 0);
    let distinct: std::collections::BTreeSet<&str> =
        rows.iter().filter_map(|row| row.split(',').next()).collect();
    assert_eq!(distinct.len(), rows.len());
}

#[test]
fn the_bundled_reward_is_of_drug_likeness_and_accessibility() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs/molecules/grpo.toml");
    let config: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let expected: toml::Table = "type = 'molecule'\nqed = 0.7\nsa = 0.3".parse().unwrap();
    assert_eq!(config["reward"], toml::Value::Table(expected));
}

/// The configurations are parsed in an empty folder and only fail because of missing files. Each other
/// command names the one that they are for.
#[test]
fn each_configuration_is_valid() {
    let configs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let files = |folder: &PathBuf| {
        let entries = std::fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        // Not the job script of `slurm`.
        let is_config = |path: &PathBuf| path.extension().is_none_or(|ending| ending == "toml");
        let mut paths: Vec<PathBuf> = paths.filter(is_config).collect();
        paths.sort();
        paths
    };
    let place = Place::new();
    let mut read = 0;
    for path in files(&configs).iter().flat_map(files) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let command = match name {
            "pipeline" | "comparison" => "run",
            "engagement" => "train-engagement",
            _ if name.ends_with("judge") => "train-judge",
            _ if name.contains("grpo")
                || name.starts_with("pmo")
                || ["combined", "components", "conditional"].contains(&name) =>
            {
                "train"
            }
            _ => "pretrain",
        };
        let path = path.to_str().unwrap();
        for other in ["train", "pretrain", "train-judge", "train-engagement"] {
            if other != command {
                let words = format!(
                    "{path} is a configuration of `grpo {command}`; run `grpo {command} {path}`"
                );
                place.refuse(&[other, path], &words);
            }
        }
        if command == "run" {
            // Pipelines have separate tests.
            continue;
        }
        place.refuse(
            &["run", path],
            format!(
                "{path} configures a single training run, not a pipeline; run `grpo {command} {path}`"
            ),
        );
        let ended = place.run(&[command, path, "--run", "run"]);
        let is_missing = |words| ended.stderr.contains(words);
        assert_eq!(ended.code, Some(1), "{name}: {}", ended.stderr);
        assert!(is_missing("does not exist; "), "{name}: {}", ended.stderr);
        read += 1;
    }
    assert!(read > 25, "{read} configurations");
}
