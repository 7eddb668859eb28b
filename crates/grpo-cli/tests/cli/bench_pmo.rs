//! `grpo bench-pmo`.

use std::collections::BTreeMap;
use std::fs;

use grpo_run::{CompletionRecord, RecordedOutcome, RunFolder};
use snapbox::str;

use crate::support::Place;

#[test]
fn oracles_score_a_file() {
    let place = Place::new();
    place.write("a.smi", "CCO\nC1CC\nCC1=CC=C(C=C1)C1=CC(=NN1C1=CC=C(C=C1)S(N)(=O)=O)C(F)(F)F\n");
    place.succeed(&["bench-pmo", "--score", "a.smi", "-o", "scores.csv"]);
    let csv = place.read("scores.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[0].len(), rows[0][0]), (4, 21, "smiles"));
    let column = rows[0].iter().position(|name| *name == "celecoxib_rediscovery").unwrap();
    assert_eq!((rows[2][column], rows[3][column]), ("0.000000", "1.000000"));
    let ended = place.succeed(&["bench-pmo", "--score", "a.smi", "--tasks", "qed"]);
    assert_eq!(ended.stdout.lines().next(), Some("smiles,qed"));
    let qed = rows[0].iter().position(|name| *name == "qed").unwrap();
    assert_eq!(ended.stdout.lines().nth(1), Some(&*format!("CCO,{}", rows[1][qed])));
    place.refuse(
        &["bench-pmo", "--score", "a.smi", "--tasks", "celecoxib"],
        str!["--tasks: unknown oracle 'celecoxib'; did you mean 'celecoxib_rediscovery'?"],
    );
}

/// An option without effect is refused: some are for runs, the others for `--score`.
#[test]
fn options_of_runs_and_of_scores_exclude_each_other() {
    let place = Place::new();
    place.write("a.smi", "CCO\n");
    for (option, name) in [
        ("own.toml", "[FILE]"),
        ("--seeds=2", "--seeds <SEEDS>"),
        ("--budget=9", "--budget <N>"),
        ("--set=seed=1", "--set <KEY=VALUE>"),
        ("--check", "--check"),
    ] {
        let ended = place.run(&["bench-pmo", "--score", "a.smi", option]);
        assert_eq!(ended.code, Some(2), "{option}: {}", ended.stderr);
        let said = format!("'--score <FILE>' cannot be used with '{name}'");
        assert!(ended.stderr.contains(&said), "{option}: {}", ended.stderr);
    }
    for option in ["--column=smiles", "--force"] {
        for run in ["--seeds=2", "--check", "own.toml"] {
            let ended = place.run(&["bench-pmo", option, run]);
            assert_eq!(ended.code, Some(2), "{option} {run}: {}", ended.stderr);
        }
    }
}

/// Follows the distinct molecules through the recorded completions of a run, and computes the area
/// with a plain loop.
#[test]
fn runs_are_ranked_by_the_area_under_their_curve() {
    let place = Place::for_training();
    let sets = ["train.steps=200", "train.prompts_per_step=16", "save.completions_every=1"];
    let few = |budget: &'static str, rest: &[&'static str]| -> Vec<&'static str> {
        let mut all = vec!["bench-pmo", "train.toml", "--tasks", "qed,median1", "--seeds", "7,"];
        all.extend(sets.iter().flat_map(|set| ["--set", *set]));
        all.extend(["--budget", budget, "-o", "bench"]);
        all.extend(rest);
        all
    };
    place.succeed(&few("40", &["--check"]));
    assert!(!place.path("bench").exists());
    let ended = place.succeed(&few("40", &[]));
    assert!(ended.stdout.contains("| oracle | grpo | GenMol |"), "{}", ended.stdout);
    let results = place.read("bench/results.csv");
    let row = results.lines().nth(1).unwrap();
    let fields: Vec<&str> = row.split(',').collect();
    assert_eq!((fields[0], fields[1], fields[4]), ("qed", "7", "40"));

    let run = RunFolder::open(&place.path("bench/qed/seed-7")).unwrap();
    let mut scores: BTreeMap<String, f64> = BTreeMap::new();
    let mut top = 0.0;
    for step in 1..=run.read_metrics().unwrap().len() as u64 {
        for record in run.completions_of(step).unwrap() {
            let Ok(molecule) = grpo_chem::Molecule::parse(&record.text) else { continue };
            if scores.len() < 40 {
                let qed = grpo_chem::qed_and_sa(&record.text).unwrap().qed;
                scores.entry(molecule.into_canonical()).or_insert(qed);
            }
            let mut best: Vec<f64> = scores.values().copied().collect();
            best.sort_by(|a, b| b.total_cmp(a));
            best.truncate(10);
            top = best.iter().sum::<f64>() / best.len() as f64;
        }
    }
    // The only point of the curve is at 40 calls: a triangle from 0.
    let auc: f64 = fields[2].parse().unwrap();
    assert!((auc - top / 2.0).abs() < 1e-6, "{auc} {top}");
    assert!((fields[3].parse::<f64>().unwrap() - top).abs() < 1e-6);
    place.succeed(&["audit", "bench/qed/seed-7"]);
    samples_of_the_last_step_are_reproduced(&place, &run);

    // Finished runs are kept, and a missing one is trained with the same result.
    fs::remove_dir_all(place.path("bench/median1")).unwrap();
    let model = fs::metadata(place.path("bench/qed/seed-7/model")).unwrap().modified().unwrap();
    place.succeed(&few("40", &[]));
    let untimed = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect()
    };
    assert_eq!(untimed(&place.read("bench/results.csv")), untimed(&results));
    let after = fs::metadata(place.path("bench/qed/seed-7/model")).unwrap().modified().unwrap();
    assert_eq!(model, after);
    place.refuse(
        &few("50", &[]),
        str!["bench/sweep.toml is of runs with other options; choose another folder with -o, or delete this one"],
    );
    place.refuse(
        &["bench-pmo", "train.toml", "--tasks", "qed,qed", "-o", "other"],
        str!["--tasks: qed occurs twice; remove one"],
    );
    place.refuse(
        &["bench-pmo", "train.toml", "--set", "reward.task=qed", "-o", "other"],
        str!["--set reward.task=qed: the benchmark sets reward.task itself; remove this option"],
    );
    let edited = place.read("train.toml").replace("max_new_tokens = 20", "max_new_tokens = 21");
    place.write("train.toml", edited);
    place.refuse(
        &few("40", &[]),
        str!["train.toml no longer matches bench/[..]/seed-7/config.toml: sampling.max_new_tokens is now 21, but was 20; the results in this folder would not be comparable with those of new runs: undo the edit, or choose another folder with -o"],
    );
}

/// The budget ends within the last step, and some molecules occur twice.
#[track_caller]
fn samples_of_the_last_step_are_reproduced(place: &Place, run: &RunFolder) {
    let last = run.read_metrics().unwrap().len();
    let records = run.completions_of(last as u64).unwrap();
    let is_refused = |record: &&CompletionRecord| record.outcome == RecordedOutcome::Abstained;
    let (refused, scored): (Vec<_>, Vec<_>) = records.iter().partition(is_refused);
    for (record, expected) in [
        (
            refused[0],
            "reward       none recorded because train.max_reward_calls was reached; not checked",
        ),
        (scored[0], ", recomputed: equal"),
    ] {
        let [step, prompt, sample] =
            [last as u64, record.prompt.into(), record.sample.into()].map(|at: u64| at.to_string());
        let ended = place.succeed(&[
            "replay",
            "bench/qed/seed-7",
            "--step",
            &step,
            "--prompt",
            &prompt,
            "--sample",
            &sample,
        ]);
        assert!(ended.stdout.contains(expected), "{}", ended.stdout);
    }
}

#[test]
fn the_bundled_configuration_is_the_default() {
    let place = Place::new();
    place.refuse(
        &["bench-pmo", "--tasks", "all", "--seeds", "5", "--budget", "10000"],
        str!["configuration file configs/molecules/pmo.toml does not exist; `grpo init-project DIR` writes the examples into a new folder"],
    );
}
