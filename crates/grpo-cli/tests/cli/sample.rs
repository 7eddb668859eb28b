//! `grpo sample`.

use snapbox::{Data, str};

use crate::support::{Ended, MOLECULES, Place, small_model};

fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sample", "--model", small_model().to_str().unwrap(), "-n", "50"], more].concat()
}

#[test]
fn a_seed_gives_its_molecules() {
    let place = Place::new();
    let first = place.succeed(&arguments(&["--seed", "3"]));
    assert_eq!(first.stdout.lines().count(), 50);
    let figures: Vec<&str> =
        first.stderr.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(figures, ["drawn", "validity", "uniqueness", "scaffolds", "mean QED", "mean SA"]);
    for same in [
        &["--seed", "3"][..],
        &["--seed", "3", "--threads", "1"],
        &["--seed", "3", "--batch-size", "7"],
    ] {
        assert_eq!(place.succeed(&arguments(same)).stdout, first.stdout, "{same:?}");
    }
    assert_ne!(place.succeed(&arguments(&["--seed", "4"])).stdout, first.stdout);
    assert!(place.files().is_empty());
}

#[test]
fn a_bent_distribution_has_molecules_of_its_own() {
    let place = Place::new();
    let plain = place.succeed(&arguments(&[])).stdout;
    // Options without effect.
    for same in [&["--top-p", "1"], &["--min-p", "0"], &["--repetition-penalty", "1"]] {
        assert_eq!(place.succeed(&arguments(same)).stdout, plain, "{same:?}");
    }
    for other in [&["--top-p", "0.5"], &["--min-p", "0.5"], &["--repetition-penalty", "2"]] {
        let drawn = place.succeed(&arguments(other)).stdout;
        assert_ne!(drawn, plain, "{other:?}");
        let in_small_batches = [other, &["--batch-size", "7"][..]].concat();
        assert_eq!(place.succeed(&arguments(&in_small_batches)).stdout, drawn, "{other:?}");
    }
}

#[test]
fn distinct_molecules_that_are_not_in_a_file() {
    let place = Place::new();
    place.write("known.smi", MOLECULES);
    place.succeed(&arguments(&["--distinct", "--not-in", "known.smi", "-o", "new.smi"]));
    let written = place.read("new.smi");
    let mut lines: Vec<&str> = written.lines().collect();
    assert!(lines.iter().all(|line| MOLECULES.lines().all(|known| known != *line)), "{written}");
    let described = place.succeed(&["describe", "new.smi"]).stdout;
    for (row, line) in described.lines().skip(1).zip(&lines) {
        assert!(row.starts_with(&format!("{line},1,{line},")), "{row}");
    }
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count);

    place.succeed(&arguments(&["-o", "all.smi.gz"]));
    let rows = place.succeed(&["describe", "all.smi.gz"]).stdout;
    assert_eq!(rows.lines().count(), 51);
}

#[test]
fn refuses_invalid_sampling_arguments() {
    let place = Place::new();
    let check = |more: &[&str], expected: Data| place.refuse(&arguments(more), expected);
    let model = small_model().to_str().unwrap();
    place.refuse(
        &["sample", "--model", model, "-n", "0"],
        str!["-n 0 is out of range; expected 1 or more"],
    );
    place.refuse(
        &["sample", "--model", model, "-n", "4000000000"],
        str!["-n 4000000000 is out of range; expected 1 to 10000000"],
    );
    check(
        &["--temperature", "0"],
        str![
            "temperature = 0 is out of range; use top_k = 1 (--top-k 1) for the most likely token at each step"
        ]
        .into(),
    );
    check(
        &["--temperature", "NaN"],
        str![
            "temperature = NaN is out of range; expected 0.001 to 1000 (1 is the model's own distribution)"
        ].into(),
    );
    check(
        &["--top-k", "0"],
        str!["top_k = 0 is out of range; expected 1 or more (remove it to keep all tokens)"].into(),
    );
    // The next number above 1 is not printed as 1.
    for bad in ["0", "1.0000001", "1.5", "NaN"] {
        check(
            &["--top-p", bad],
            format!(
                "top_p = {bad} is out of range; expected a number above 0 and at most 1 (1 keeps all tokens)"
            ).into(),
        );
    }
    for bad in ["1", "-0.1", "NaN"] {
        check(
            &[&format!("--min-p={bad}")],
            format!(
                "min_p = {bad} is out of range; expected 0 or more and less than 1 (0 keeps all tokens)"
            )
            .into(),
        );
    }
    for bad in ["0", "inf", "NaN"] {
        check(
            &["--repetition-penalty", bad],
            format!(
                "repetition_penalty = {bad} is out of range; expected 0.01 to 100 (1 has no effect)"
            )
            .into(),
        );
    }
    check(
        &["--max-new-tokens", "25"],
        str![
            "sampling: a prompt of 1 token with max_new_tokens = 25 exceeds the model's context of 24 tokens; set max_new_tokens to at most 24"
        ].into(),
    );
    check(
        &["--max-new-tokens", "0"],
        str!["max_new_tokens = 0 is out of range; expected 1 or more"].into(),
    );
    check(
        &["--batch-size", "0"],
        str!["batch_size = 0 is out of range; expected 1 or more"].into(),
    );
    check(&["--not-in", "absent.smi"], str!["`absent.smi` does not exist; check the path"].into());
    check(
        &["-o", "absent/x.smi"],
        str!["cannot write absent/x.smi: the folder absent does not exist; create it first"].into(),
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk() {
    let place = Place::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&arguments(&[])).stdout(full).output().unwrap();
    let ended = Ended::of(output);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .stderr
            .ends_with("error: cannot write to standard output: no space left on the disk\n"),
        "{}",
        ended.stderr
    );
}

/// The readers of these files would not find what they expect.
#[test]
fn completions_are_not_written_as_molecules() {
    let place = Place::new();
    place.model_of_texts("text", "gpt2");
    for name in ["x.smi", "x.SMI.gz", "x.csv", "x.txt", "x.parquet", "x.sdf"] {
        let ended = place.run(&["sample", "--model", "text", "--prompt", "C", "-o", name]);
        let said = format!("error: -o {name}: the output is JSON lines");
        assert!(ended.stderr.starts_with(&said), "{}", ended.stderr);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1));
        assert!(!place.path(name).exists());
    }
    place.succeed(&[
        "sample",
        "--model",
        "text",
        "--prompt",
        "C",
        "--max-new-tokens",
        "2",
        "-o",
        "x.jsonl",
    ]);
    assert!(place.read("x.jsonl").starts_with("{\"prompt\""));
}

/// Known molecules are recognized in every spelling, and rows that are not are counted.
#[test]
fn known_molecules_have_other_spellings() {
    let place = Place::new();
    let plain = place.succeed(&arguments(&["--distinct"])).stdout;
    let mut known: Vec<String> = plain
        .lines()
        .enumerate()
        .map(|(index, smiles)| {
            let molecule = grpo_chem::Molecule::parse(smiles).unwrap();
            match index % 3 {
                0 => molecule.randomized_smiles(7).unwrap(),
                1 => format!("[H][H].{smiles}"),
                _ => format!("{smiles} |r|"),
            }
        })
        .collect();
    known.push("C(".to_owned());
    place.write("known.smi", known.join("\n"));
    let ended = place.succeed(&arguments(&["--distinct", "--not-in", "known.smi"]));
    // The rows with an extension are not known.
    let unknown: Vec<&str> = plain.lines().skip(2).step_by(3).collect();
    assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), unknown);
    let warning = format!(
        "warning: --not-in known.smi: {} rows are invalid or not supported; the first is `{}` in line 3: not supported: a CXSMILES extension after the SMILES\n",
        unknown.len() + 1,
        known[2],
    );
    assert!(ended.stderr.starts_with(&warning), "{}", ended.stderr);
}

/// The refusal names only what this model can write.
#[test]
fn a_refused_output_names_what_the_model_writes() {
    let place = Place::new();
    place.run(&arguments(&["-o", "x.parquet"])).assert_refused(
        "-o x.parquet: the output is one molecule per line; use a name that ends in .smi or .txt",
    );
    let refused = place.run(&arguments(&["-o", "x.parquet", "--condition", "qed=0.5"])).stderr;
    assert!(refused.contains("use a name that ends in .smi, .csv or .txt"), "{refused}");
    let refused = place.run(&arguments(&["-o", "x.parquet", "--prompt", "C"])).stderr;
    assert!(refused.contains("the output is JSON lines; use a name that ends in .jsonl or .json"));
}
