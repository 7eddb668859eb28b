//! Invalid input files for `grpo pretrain`.

use std::fs;

use serde_json::{Map, Value};
use snapbox::data::Inline;
use snapbox::{IntoData, str};

use crate::support::{MOLECULES, PRETRAIN_TOML, Place};
use crate::texts::objects;

/// Pretrains on a file with the given name and contents.
#[track_caller]
fn check(name: &str, content: &str, expected: impl IntoData) {
    let place = Place::for_pretraining();
    place.write(name, content);
    let file = format!("data.file={name}");
    place.refuse(&["pretrain", "pretrain.toml", "--set", &file], expected);
}

#[test]
fn nothing_to_train_on() {
    check(
        "empty.smi",
        "",
        str![
            "`empty.smi` has no molecules; write one SMILES per line, or a CSV table with a column `smiles`"
        ],
    );
    check(
        "blank.smi",
        "\n \n\n",
        str![
            "`blank.smi` has no molecules; write one SMILES per line, or a CSV table with a column `smiles`"
        ],
    );
    for (name, is, remedy) in [
        (
            "my.smiles",
            "is a list of molecules",
            "if each line is a SMILES, rename it to end in `.smi`",
        ),
        (
            "my.tsv",
            "is a table",
            "rename it to end in `.csv`, which may have tabs between its cells",
        ),
    ] {
        let expected = format!(
            "--set data.file={name}: `{name}` {is}, which cannot be read here; expected a name ending in `.smi`, `.smi.gz`, `.csv`, `.csv.gz`, `.jsonl`, `.jsonl.gz`, `.json`, `.json.gz` or `.parquet`; {remedy}"
        );
        check(name, "CCO\n", expected);
    }
    let place = Place::for_pretraining();
    place.write("three.smi", "CCO\nCCN\nCCC\n");
    let ended = place.run(&["pretrain", "pretrain.toml", "--set", "data.file=three.smi"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1));
    assert!(
        ended.stderr.contains(
            "of 3 rows of `three.smi` are usable training molecules, but at least 20 are required"
        ),
        "{}",
        ended.stderr
    );
    assert!(!place.path("prior").exists());
}

#[test]
fn refuses_missing_files_and_other_kinds() {
    let place = Place::for_pretraining();
    place.refuse(
        &["pretrain", "pretrain.toml", "--set", "data.file=absent.smi"],
        str!["`absent.smi` does not exist; check the path"],
    );
    check(
        "molecules.sdf",
        MOLECULES,
        str![
            "--set data.file=molecules.sdf: cannot determine the format of `molecules.sdf` from its name; expected a name ending in `.smi`, `.smi.gz`, `.csv`, `.csv.gz`, `.jsonl`, `.jsonl.gz`, `.json`, `.json.gz` or `.parquet`"
        ],
    );
    check(
        "molecules.csv",
        "id,structure\n1,CCO\n",
        str![
            "`molecules.csv` has no column `smiles`, `canonical_smiles`, `molecule` (columns: `id`, `structure`); rename the column that contains the SMILES or set `data.smiles_column`"
        ],
    );
}

#[test]
fn a_token_outside_the_vocabulary_is_counted_and_reported() {
    let place = Place::for_pretraining();
    place.write("tokens.json", format!("{{{}}}", tokens()));
    place.write("molecules.smi", format!("{MOLECULES}CCBr\nCCS\n"));
    let ended = place.succeed(&[
        "pretrain",
        "pretrain.toml",
        "--set",
        "data.vocabulary=tokens.json",
        "--set",
        "pretrain.epochs=1",
    ]);
    let (first, rest) = ended.stdout.split_once('\n').unwrap();
    assert!(first.starts_with("molecules.smi: 66 rows: "), "{first}");
    assert!(first.ends_with(", 2 with a token outside the vocabulary"), "{first}");
    assert!(rest.starts_with(
        "  longest molecule: 9 tokens (limit: 23)\n  left out: line 65: CCBr has token Br, which is not in the vocabulary\n  left out: line 66: CCS has token S, which is not in the vocabulary\n"
    ), "{rest}");
    assert!(place.path("prior/model/model.safetensors").exists());
}

/// Returns the tokens of [`MOLECULES`] as members of a JSON object.
fn tokens() -> String {
    let tokens = ["#", "(", ")", "1", "<", "=", "C", "N", "O"];
    tokens.iter().enumerate().map(|(i, t)| format!("\"{t}\": {i}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn numbers_of_a_pretraining_out_of_range() {
    let place = Place::for_pretraining();
    let refuse = |pair: &str, expected: Inline| {
        place.refuse(&["pretrain", "pretrain.toml", "--set", pair], expected);
    };
    let check = |pair: &str, expected: Inline| {
        place.refuse(&["pretrain", "pretrain.toml", "--check", "--set", pair], expected.clone());
        refuse(pair, expected);
    };
    check(
        "pretrain.epochs=0",
        str!["--set pretrain.epochs=0: pretrain.epochs = 0 is out of range; expected 1 to 1000000"],
    );
    check(
        "model.n_head=3",
        str![
            "pretrain.toml:12: model.n_embd = 16 is not a multiple of model.n_head = 3; change one of them"
        ],
    );
    check(
        "model.block_size=0",
        str![
            "--set model.block_size=0: model.block_size = 0 is out of range; expected 1 to 1048576"
        ],
    );
    check(
        "data.validation_fraction=1.5",
        str![
            "--set data.validation_fraction=1.5: data.validation_fraction = 1.5 is out of range; expected 0 or more and less than 1"
        ],
    );
    // A column of the data can say which rows are for validation.
    refuse(
        "data.validation_fraction=0",
        str![
            "no molecule in molecules.smi is left for validation, so the best model cannot be selected; increase data.validation_fraction (now 0), or use a larger file"
        ],
    );
    check(
        "start=elsewhere",
        str![
            "the configuration has both `start` and [model]; keep `start` to train an existing model, or [model] to create a new one"
        ],
    );
    place.write("pretrain.toml", PRETRAIN_TOML.replace("min_molecules = 20\n", ""));
    place.write("texts.jsonl", "{\"text\": \"A rose.\"}\n");
    check(
        "data.file=texts.jsonl",
        str![
            "[model] creates models for molecules only (.smi or .csv); for the text in texts.jsonl, set `start` to a model folder (`grpo init` creates one with random weights)"
        ],
    );
}

/// The vocabulary of the model has aromatic atoms, so it learns benzene rings as `c1ccccc1`, and rows
/// that it cannot read as their canonical SMILES.
#[test]
fn rows_that_do_not_fit_are_rewritten() {
    let place = Place::for_pretraining();
    let mut tokens: Vec<&str> = vec!["#", "(", ")", "1", "<", "=", "C", "N", "O", "c"];
    tokens.push("[C@H]");
    let tokens: Vec<String> =
        tokens.iter().enumerate().map(|(i, token)| format!("\"{token}\": {i}")).collect();
    place.write("tokens.json", format!("{{{}}}", tokens.join(", ")));
    let rows = [
        // Kekulé, the same molecule again, hydrogens as atoms, dashes, ring numbers, an own spelling.
        "C1=CC=CC=C1C",
        "CC1=CC=CC=C1",
        "C1=CC=CC=C1O",
        "[CH3][CH2][OH]",
        "C-C-C-N-C-C-O",
        "C3CC3",
        "C(=CC)C",
        // Too long as written, but not as its canonical SMILES.
        "[H]OC([H])([H])C([H])([H])C([H])([H])C([H])([H])[H]",
        "CCBr",
        "CCC |r|",
    ];
    place.write("molecules.smi", format!("{MOLECULES}{}\n", rows.join("\n")));
    let ended = place.succeed(&[
        "pretrain",
        "pretrain.toml",
        "--set",
        "data.vocabulary=tokens.json",
        "--set",
        "pretrain.epochs=1",
    ]);
    let (first, rest) = ended.stdout.split_once('\n').unwrap();
    // Ethanol, cyclopropane and butanol are in the file already.
    assert!(
        first.ends_with(", 3 rewritten as canonical SMILES to fit the vocabulary, 1 with a token outside the vocabulary, 1 invalid or not supported, 4 duplicate"),
        "{first}"
    );
    assert!(rest.contains("left out: line 74: CCC |r| is invalid or not supported: not supported: a CXSMILES extension"), "{rest}");
}

#[test]
fn the_kept_model_is_that_of_the_lowest_validation_loss() {
    let place = Place::for_pretraining();
    // The learning rate is high enough for the loss to oscillate.
    let sets = [
        "pretrain.epochs=8",
        "pretrain.learning_rate_floor=1",
        "pretrain.optimizer.learning_rate=0.1",
        "save.every=1",
        "save.keep_last=99",
    ];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["pretrain", "pretrain.toml"].into_iter().chain(sets).collect();
    place.succeed(&arguments);
    let lines = objects(&place.read("prior/metrics.jsonl"));
    let of_line = |line: &Map<String, Value>| {
        Some((line.get("eval_loss")?.as_f64()?, line["train_step"].as_u64()?))
    };
    let losses: Vec<(f64, u64)> = lines.iter().filter_map(of_line).collect();
    let (_, best) = *losses.iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let (_, last) = *losses.last().unwrap();
    assert!(best < last, "{losses:?}");
    let weights =
        |folder: &str| fs::read(place.path(&format!("prior/{folder}/model.safetensors"))).unwrap();
    assert!(weights("model") == weights(&format!("checkpoints/step-{best}")));
    assert!(weights("model") != weights(&format!("checkpoints/step-{last}")));
}

/// A property whose column has gaps is not needed unless the model is trained on it.
#[test]
fn gaps_in_columns_that_are_not_used_leave_no_row_out() {
    let place = Place::for_pretraining();
    let rows = MOLECULES.lines().map(|line| line.split(' ').next().unwrap());
    let rows: String = rows.map(|smiles| format!("{smiles},\n")).collect();
    place.write("gaps.csv", format!("smiles,qed\n{rows}"));
    let pretrain = ["pretrain", "pretrain.toml", "--set", "data.file=gaps.csv"];
    let said = place.succeed(&[&pretrain[..], &["--set", "pretrain.epochs=1"]].concat()).stdout;
    assert!(!said.contains("missing scaffold or property"), "{said}");
    // Nor if it is trained on another one that has no gaps.
    let trained = |said: &str| {
        let rows = said.lines().find_map(|line| line.split_once(" for training, "));
        rows.unwrap_or_else(|| panic!("{said}")).0.rsplit(' ').next().unwrap().to_owned()
    };
    let all = trained(&said);
    let rows = MOLECULES.lines().map(|line| line.split(' ').next().unwrap()).zip(1..);
    let rows: String = rows.map(|(smiles, logp)| format!("{smiles},,{logp},\n")).collect();
    place.write("some.csv", format!("smiles,qed,logp,scaffold_smiles\n{rows}"));
    let conditions = "data.conditions={properties=[\"logp\"],from_columns=true}";
    let sets = ["--set", "pretrain.epochs=1", "--set", conditions, "--run", "conditional"];
    let some = ["pretrain", "pretrain.toml", "--set", "data.file=some.csv"];
    let said = place.succeed(&[&some[..], &sets].concat()).stdout;
    assert!(!said.contains("missing scaffold or property"), "{said}");
    assert_eq!(trained(&said), all, "{said}");
    // A key by its usual name.
    let pretrain = [&pretrain[..], &["--run", "other"]].concat();
    place.refuse(
        &[&pretrain[..], &["--set", "data.column=smiles"]].concat(),
        str!["--set data.column=smiles: unknown key 'data.column'; did you mean 'smiles_column'?"],
    );
    // All columns that are missing are named.
    let conditions =
        "data.conditions={properties=[\"logp\",\"tpsa\"],from_columns=true,scaffold=true}";
    place.refuse(
        &[&pretrain[..], &["--set", conditions]].concat(),
        str!["`gaps.csv` has no columns logp, tpsa, scaffold_smiles; add them, or set data.conditions.from_columns = false to compute the conditions"],
    );
}
