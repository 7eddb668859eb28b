//! Conditions of molecules: pre-training, sampling and GRPO with properties and scaffolds.

use snapbox::str;

use crate::support::{Ended, PRETRAIN_TOML, Place, signal, train_toml};

/// Adds what a small conditional model needs to the pre-training configuration.
fn conditional(extra: &str) -> String {
    let conditions = format!(
        "[data.conditions]\nproperties = [\"logp\", \"tpsa\"]\nscaffold = true\n{extra}\n[pretrain.condition_dropout]\nvalues = 0.2\n\n[model]"
    );
    PRETRAIN_TOML.replace("[model]", &conditions).replace("epochs = 30", "epochs = 6")
}

/// Creates a place with a conditional model in `prior/model`.
fn with_model(extra: &str) -> Place {
    let place = Place::for_pretraining();
    let toml = conditional(extra);
    // A model that requires all values cannot be trained on subsets of them.
    let is_partial = !extra.contains("partial = false");
    let toml = toml.replace("values = 0.2", &format!("values = 0.2\nsubsets = {is_partial}"));
    place.write("pretrain.toml", toml);
    place.succeed(&["pretrain", "pretrain.toml"]);
    place
}

const CONDITIONS: &str = "\n[conditions]\nscaffolds = [\"C1CCC1C\", \"C1CC1\"]\n\n[conditions.properties]\nlogp = { low = 0.0, high = 1.5 }\ntpsa = [0.0, 20.2]\n";

/// Creates a place with a conditional model and `train.toml`.
pub(crate) fn trainable() -> Place {
    let place = with_model("");
    place.write("train.toml", training());
    place
}

fn training() -> String {
    let toml = train_toml();
    let (before, _) = toml.split_once("model = ").unwrap();
    let (_, after) = toml.split_once("seed = ").unwrap();
    let toml = format!("{before}model = \"prior/model\"\nseed = {after}");
    let reward = "type = \"molecule\"\nqed = 0.7\nsa = 0.3";
    assert!(toml.contains(reward));
    toml.replace(reward, "type = \"conditions\"") + CONDITIONS
}

#[test]
fn a_model_is_asked_for_properties_and_a_scaffold() {
    let place = with_model("");
    let model = ["sample", "--model", "prior/model", "-n", "20"];
    let plain = place.succeed(&model);
    assert_eq!(plain.stdout.lines().count(), 20);
    let asked = ["--condition", "tpsa=20.2,logp=0.5", "--scaffold", "CC1CCCC1", "-o", "a.smi"];
    let ended = place.succeed(&[&model[..], &asked].concat());
    assert!(ended.stderr.contains("tpsa=20.2 logp=0.5 scaffold=C1CCCC1: 20 drawn, validity "));
    assert!(ended.stderr.contains("|asked − measured| logp: mean "), "{}", ended.stderr);
    assert!(ended.stderr.contains("scaffold     mean similarity "), "{}", ended.stderr);
    // A few molecules, of which at most one is valid, have no standard deviation.
    let few = ["sample", "--model", "prior/model", "-n", "1", "--condition", "logp=0.5"];
    for seed in ["1", "2", "3"] {
        let said = place.succeed(&[&few[..], &["--seed", seed]].concat()).stderr;
        assert!(!said.contains("NaN"), "{said}");
    }
    assert!(ended.stderr.contains("with 0.8 or more: validity "), "{}", ended.stderr);
    let lines = place.read("a.smi");
    // Invalid molecules are kept.
    assert_eq!(lines.lines().count(), 20);
    let name = " asked tpsa=20.2 logp=0.5 scaffold=C1CCCC1";
    assert!(lines.lines().all(|line| line.ends_with(name)), "{lines}");
    let unusual = place.succeed(&[&model[..], &["--condition", "LogP=300"]].concat());
    let warning = "warning: logp=300 is ";
    assert!(unusual.stderr.contains(warning), "{}", unusual.stderr);

    place.write("conditions.csv", "logp,tpsa,scaffold_smiles\n1.0,,\n,20.2,C1CC1\n");
    let file = ["--conditions", "conditions.csv", "--grid", "moses", "-o", "b.csv"];
    let ended = place.succeed(&[&model[..], &file].concat());
    // Two rows of the file; 3 + 3 single values and 4 pairs of the grid.
    assert!(ended.stderr.contains("conditions         12\n"), "{}", ended.stderr);
    let csv = place.read("b.csv");
    let mut lines = csv.lines();
    assert_eq!(
        lines.next(),
        Some(
            "molecule,smiles,condition,scaffold_cond,qed,sas,logp,tpsa,validity,unique,novelty,asked"
        )
    );
    assert!(lines.clone().any(|line| line.contains(",20.2,C1CC1,")));
    assert!(lines.clone().any(|line| line.contains(",\"(40.0, 2.0)\",,")));
    assert!(lines.clone().any(|line| line.ends_with(",tpsa=40 logp=2")));
    let has_six = |cell: &str| cell.rsplit_once('.').is_some_and(|(_, of)| of.len() == 6);
    assert!(lines.clone().all(|line| line.rsplit(',').skip(2).take(6).all(has_six)), "{csv}");
    // The columns of a table of molecules select the suite.
    let ended = place.succeed(&["eval", "b.csv"]);
    assert!(ended.stdout.contains("internal_diversity"), "{}", ended.stdout);
}

#[test]
fn the_statistics_are_stored_and_an_lstm_reads_scaffolds() {
    let place = with_model("scaffold_length = 8\nlstm_layers = 2\npartial = false");
    let config = place.read("prior/model/config.json");
    for key in ["\"num_props\": 2", "\"lstm_layers\": 2", "\"scaffold_maxlen\": 8", "\"deviation\""]
    {
        assert!(config.contains(key), "{config}");
    }
    let arguments = ["sample", "--model", "prior/model", "-n", "5"];
    place.succeed(
        &[&arguments[..], &["--condition", "logp=1,tpsa=20", "--scaffold", "C1CC1"]].concat(),
    );
    place.refuse(
        &[&arguments[..], &["--condition", "logp=1"]].concat(),
        str!["the model requires a value for each of its properties (logp, tpsa), but tpsa is missing"],
    );
}

#[test]
fn grpo_records_replays_and_resumes_conditions() {
    let place = with_model("");
    place.write("train.toml", training());
    let ended = place.succeed(&["train", "train.toml"]);
    assert!(ended.stdout.contains("|asked − measured| logP"), "{}", ended.stdout);
    let records = place.completions("run");
    let texts: Vec<&str> = records.iter().filter_map(|r| r.prompt_text.as_deref()).collect();
    assert_eq!(texts.len(), records.len());
    assert!(texts.iter().all(|t| t.starts_with("logp=") && t.contains(" tpsa=")), "{texts:?}");
    assert!(texts.iter().any(|t| t.ends_with("scaffold=C1CC1")), "{texts:?}");
    let replayed =
        place.succeed(&["replay", "run", "--step", "3", "--prompt", "1", "--sample", "2"]);
    assert!(replayed.stdout.contains("equal bit for bit"), "{}", replayed.stdout);
    assert!(replayed.stdout.contains("prompt       \"logp="), "{}", replayed.stdout);
    place.succeed(&["audit", "run"]);
    let explained = place.succeed(&["explain", "run", "--step", "1"]);
    assert!(explained.stdout.contains("scaffold=C1"), "{}", explained.stdout);

    // The same seed asks for the same conditions.
    place.succeed(&["train", "train.toml", "--run", "whole"]);
    let of =
        |run: &str| place.completions(run).into_iter().map(|r| (r.prompt_text, r.completion_ids));
    assert!(of("run").eq(of("whole")));
    let metrics = |run: &str| place.read(&format!("{run}/ledger.jsonl"));
    assert_eq!(metrics("run"), metrics("whole"));

    // An interrupted run that is resumed asks for the conditions that it would have asked for.
    let long = ["train", "train.toml", "--set", "train.steps=40", "--set", "save.every=1", "--run"];
    place.succeed(&[&long[..], &["long"]].concat());
    let child = place.spawn(&[&long[..], &["cut", "--threads=1"]].concat());
    place.wait_for_lines("cut/metrics.jsonl", 2);
    signal(&child, "-TERM");
    let ended = Ended::wait_for(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(place.read("cut/metrics.jsonl").lines().count() < 40);
    place.succeed(&["train", "--resume", "cut"]);
    assert!(of("cut").eq(of("long")));
    assert_eq!(metrics("cut"), metrics("long"));
}

/// With two conditions per step and three in the file, epochs end in the second and third step.
#[test]
fn a_reference_follows_by_passes_over_the_conditions() {
    let place = with_model("");
    let (toml, _) =
        training().split_once("\n[conditions]").map(|(a, b)| (a.to_owned(), b)).unwrap();
    place.write("train.toml", toml + "\n[conditions]\nfile = \"asked.csv\"\n");
    place.write("asked.csv", "logp,tpsa\n0.5,0\n1.0,20.2\n1.5,40.5\n");
    place.succeed(&[
        "train",
        "train.toml",
        "--set",
        "reference.every_epochs=1",
        "--set",
        "train.steps=3",
        "--set",
        "train.prompts_per_step=2",
        "--set",
        "save.completions_every=1",
    ]);
    let line = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
    let metrics = place.read("run/metrics.jsonl");
    let ages: Vec<_> =
        metrics.lines().map(|l| line(l)["reference_age"].as_i64().unwrap()).collect();
    assert_eq!(ages, [0, 1, 0]);
    // Each epoch asks for each condition once.
    let records = place.completions("run");
    let mut asked: Vec<(u64, String)> = records
        .into_iter()
        .map(|record| (record.step * 2 + u64::from(record.prompt), record.prompt_text.unwrap()))
        .collect();
    asked.sort();
    asked.dedup();
    for epoch in asked.chunks(3) {
        let mut different: Vec<&String> = epoch.iter().map(|(_, text)| text).collect();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 3, "{asked:?}");
    }
}

#[test]
fn conditions_that_do_not_fit_are_refused() {
    let place = with_model("");
    let sample = ["sample", "--model", "prior/model"];
    for (arguments, expected) in [
        (["--condition", "qed=0.5"], str!["the model does not accept qed, only logp, tpsa"]),
        (
            ["--condition", "logp"],
            str![
                "--condition: 'logp' is not of the form PROPERTY=NUMBER; write, for example, logp=3,tpsa=60"
            ],
        ),
        (
            ["--scaffold", "CCO"],
            str![
                "--scaffold: 'CCO' has no rings, so it has no scaffold; use a molecule with a ring"
            ],
        ),
        (
            ["--scaffold", "c1ccccc1"],
            str!["scaffold: `[..]` (character [..] of `c1ccccc1`) is not in the vocabulary; [..]"],
        ),
    ] {
        place.refuse(&[&sample[..], &arguments].concat(), expected);
    }
    for (contents, expected) in [
        (
            "lopg,tpsa\n3,60\n",
            str!["--conditions: asked.csv: the column `lopg` is not a condition; [..]"],
        ),
        (
            "lopg\n3\n",
            str!["--conditions: `asked.csv` has no column with a condition (columns: [..]"],
        ),
        ("logp\n", str!["--conditions: `asked.csv` has no conditions; add a row with a value"]),
    ] {
        place.write("asked.csv", contents);
        place.refuse(&[&sample[..], &["--conditions", "asked.csv"]].concat(), expected);
    }
    place.write("train.toml", train_toml() + CONDITIONS);
    place.refuse(
        &["train", "train.toml"],
        str!["[conditions] requires a model that takes conditions, such as one trained with [data.conditions]"],
    );
    let most = training().replace("[conditions]\n", "[conditions]\nfile = \"a.csv\"\n");
    place.write("train.toml", most);
    place.refuse(
        &["train", "train.toml"],
        str!["train.toml:[..] [conditions] requires one of `file`, `molecules`, or values to draw (`properties`, `scaffolds`)"],
    );
}
