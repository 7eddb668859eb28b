use grpo_data::TextCodec;
use grpo_molecules::{Corpus, CorpusOptions, DropReason, SplitBy, Vocabulary};
use grpo_molecules::{MoleculeRecord, ReadOptions};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn vocabulary() -> Vocabulary {
    Vocabulary::from_smiles(["CNO"]).unwrap()
}

fn options() -> CorpusOptions {
    CorpusOptions {
        max_tokens: 20,
        validation_fraction: 0.0,
        seed: 1,
        min_molecules: 1,
        needed_columns: vec!["logp".to_owned()],
    }
}

fn records<'a>(rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<MoleculeRecord> {
    rows.into_iter()
        .zip(1..)
        .map(|((smiles, split), line)| MoleculeRecord {
            conditions: Default::default(),
            line,
            smiles: smiles.to_owned(),
            name: None,
            split: (!split.is_empty()).then(|| split.to_owned()),
        })
        .collect()
}

fn corpus(rows: &[(&str, &str)]) -> Corpus {
    Corpus::from_records(records(rows.iter().copied()), &vocabulary(), &options()).unwrap()
}

fn texts(sequences: &[Vec<u32>]) -> Vec<String> {
    sequences.iter().map(|ids| vocabulary().decode(ids)).collect()
}

/// Generates `n` different molecules. The oxygen makes sure that no molecule is the reverse of another.
fn molecules(n: u32) -> Vec<String> {
    let bit = |i: u32, at: u32| if i >> at & 1 == 1 { 'N' } else { 'C' };
    let chain = |i| (0..12).map(|at| bit(i, at)).collect::<String>();
    (0..n).map(|i| format!("O{}", chain(i))).collect()
}

#[test]
fn rows_with_a_missing_cell_are_dropped_and_counted() {
    let mut rows =
        records([("C", ""), ("CN", ""), ("CNNNNN", ""), ("CNNNNNNNNNNNNNNNNNNNNNN", "")]);
    for (row, logp) in rows.iter_mut().zip([Some("1.5"), None, Some("2"), Some("3")]) {
        row.conditions.insert("logp".to_owned(), logp.map(str::to_owned));
        // Nothing needs these columns.
        row.conditions.insert("qed".to_owned(), None);
        row.conditions.insert("scaffold_smiles".to_owned(), None);
    }
    let corpus = Corpus::from_records(rows, &vocabulary(), &options()).unwrap();
    assert_eq!(texts(&corpus.train), ["C", "CNNNNN"]);
    assert_eq!((corpus.report.incomplete, corpus.report.longest), (1, 23));
    assert_eq!(
        corpus.report.to_string(),
        "4 rows: 2 for training, 0 for validation, 1 too long, 1 with a missing scaffold or property"
    );
}

#[test]
fn every_row_is_kept_or_counted() {
    let rows: Vec<_> =
        ["C", "CF", "CN", "C", "", "CCCCCCCCCCCCCCCCCCCCC", "C(", "CCCCCCCCCCCCCCCCCCCC"]
            .map(|smiles| (smiles, ""))
            .into();
    let corpus = corpus(&rows);
    assert_eq!(texts(&corpus.train), ["C", "CN", "CCCCCCCCCCCCCCCCCCCC"]);
    assert!(corpus.validation.is_empty());
    let report = corpus.report;
    assert_eq!(
        report.to_string(),
        "8 rows: 3 for training, 0 for validation, 2 with a token outside the vocabulary, 1 too long, 1 duplicate, 1 empty"
    );
    let reasons: Vec<_> = report.examples.iter().map(|one| (one.line, &one.reason)).collect();
    assert_eq!(
        reasons,
        [
            (2, &DropReason::UnknownToken("F".into())),
            (4, &DropReason::Duplicate),
            (6, &DropReason::TooLong(21)),
            (7, &DropReason::UnknownToken("(".into())),
        ]
    );
    assert_eq!(report.examples[0].smiles, "CF");
}

#[test]
fn invalid_molecules_are_not_learned() {
    let vocabulary = Vocabulary::from_smiles(["C1CC1", "CN(C)C"]).unwrap();
    let rows = ["C1CC", "C", "N(C)(C)(C)(C)C", "C1CC", "C1CC1"].map(|smiles| (smiles, ""));
    let corpus = Corpus::from_records(records(rows), &vocabulary, &options()).unwrap();
    let kept: Vec<_> = corpus.train.iter().map(|ids| vocabulary.decode(ids)).collect();
    assert_eq!(kept, ["C", "C1CC1"]);
    assert_eq!(
        corpus.report.to_string(),
        "5 rows: 2 for training, 0 for validation, 3 invalid or not supported"
    );
    assert_eq!(
        corpus.report.examples.iter().map(|one| one.line).collect::<Vec<_>>(),
        [1, 3, 4],
        "each invalid row is reported, even if it is repeated"
    );
    let reason = corpus.report.examples[0].to_string();
    assert!(reason.starts_with("line 1: C1CC is invalid or not supported: "), "{reason}");
}

#[test]
fn spellings_of_a_molecule_are_on_the_same_side_of_the_split() {
    let molecules = molecules(40);
    let reversed = |smiles: &String| smiles.chars().rev().collect::<String>();
    let rows: Vec<String> = molecules.iter().flat_map(|one| [one.clone(), reversed(one)]).collect();
    let options = CorpusOptions { validation_fraction: 0.3, ..options() };
    let records = records(rows.iter().map(|smiles| (smiles.as_str(), "")));
    let corpus = Corpus::from_records(records, &vocabulary(), &options).unwrap();
    let [train, validation] = [texts(&corpus.train), texts(&corpus.validation)];
    assert!(validation.len() > 10);
    assert!(validation.iter().all(|smiles| !train.contains(&reversed(smiles))));
}

/// More rows than are parsed at once.
#[test]
fn a_long_file_is_read_in_order() {
    let molecules = molecules(3000);
    let rows = molecules.iter().chain(&molecules).map(|smiles| (smiles.as_str(), ""));
    let corpus = Corpus::from_records(records(rows), &vocabulary(), &options()).unwrap();
    assert_eq!(texts(&corpus.train), molecules);
    assert_eq!((corpus.report.rows, corpus.report.duplicates), (6000, 3000));
    assert_eq!(corpus.report.examples[0].line, 3001);
}

#[test]
fn only_a_few_examples_are_kept() {
    let rows = [("C", ""), ("C", ""), ("C", ""), ("C", ""), ("C", ""), ("C", "")];
    let report = corpus(&rows).report;
    assert_eq!((report.duplicates, report.examples.len()), (5, 3));
}

#[test]
fn a_corpus_without_molecules_is_an_error() {
    let error = |rows: &[(&str, &str)], min_molecules| {
        let options = CorpusOptions { min_molecules, ..options() };
        let records = records(rows.iter().copied());
        Corpus::from_records(records, &vocabulary(), &options).unwrap_err().to_string()
    };
    assert_eq!(
        error(&[("F", "")], 0),
        "only 0 of 1 rows of the file are usable training molecules, but at least 1 are required (1 rows: 0 for training, 0 for validation, 1 with a token outside the vocabulary); use a larger file, lower `data.min_molecules`, or use a vocabulary and a length limit that fit the file"
    );
    assert!(error(&[], 1).starts_with("the file has no molecules; write one SMILES per line"));
    let rows = [("C", ""), ("CC", ""), ("CCC", ""), ("CCCC", "")];
    let options = CorpusOptions { min_molecules: 2, validation_fraction: 0.99, ..options() };
    let held_out = Corpus::from_records(records(rows), &vocabulary(), &options).unwrap_err();
    assert_eq!(
        held_out.to_string(),
        "only 1 of 4 rows of the file are usable training molecules, but at least 2 are required (4 rows: 1 for training, 3 for validation); lower `data.validation_fraction` (now 0.99), which holds out the others"
    );
    assert!(
        error(&[("C", "")], 2).starts_with(
            "only 1 of 1 rows of the file are usable training molecules, but at least 2"
        )
    );
}

#[test]
fn the_column_splits_where_it_has_both_sides() {
    let check = |rows: &[(&str, &str)], by, train: &[&str], validation: &[&str], held_out| {
        let corpus = corpus(rows);
        assert_eq!(texts(&corpus.train), train);
        assert_eq!(texts(&corpus.validation), validation);
        assert_eq!((corpus.report.split_by, corpus.report.held_out), (by, held_out));
    };
    // MOSES
    let moses = [("C", "train"), ("N", "test"), ("O", "test_scaffolds"), ("CC", "Train")];
    check(&moses, SplitBy::Column, &["C", "CC"], &["N"], 1);
    // GuacaMol
    let guacamol = [("C", "train"), ("N", "val"), ("O", "test"), ("CC", "")];
    check(&guacamol, SplitBy::Column, &["C"], &["N"], 2);
    let valid = [("C", "training"), ("N", "VALID"), ("O", "validation")];
    check(&valid, SplitBy::Column, &["C"], &["N", "O"], 0);
    let one_side = [("C", "train"), ("N", "train")];
    check(&one_side, SplitBy::Hash, &["C", "N"], &[], 0);
    let for_the_end = [("C", "train"), ("N", "test_scaffolds"), ("O", "")];
    check(&for_the_end, SplitBy::Hash, &["C"], &[], 2);
    let no_split = [("C", "zinc"), ("N", "chembl"), ("O", "test")];
    check(&no_split, SplitBy::Hash, &["C", "N", "O"], &[], 0);
}

#[test]
fn the_fraction_is_the_nearest_whole_number_and_never_none_of_several() {
    let check = |n: u32, validation_fraction: f64, expect: usize| {
        let options = CorpusOptions { validation_fraction, ..options() };
        let molecules = molecules(n);
        let rows = molecules.iter().map(|smiles| (smiles.as_str(), ""));
        let corpus = Corpus::from_records(records(rows), &vocabulary(), &options).unwrap();
        assert_eq!(corpus.validation.len(), expect);
        assert_eq!(corpus.train.len(), n as usize - expect);
    };
    check(1000, 0.05, 50);
    check(1000, 0.0, 0);
    check(3, 0.1, 1);
    check(2, 0.9, 1);
    check(1, 0.5, 0);
}

#[test]
fn a_file_is_read_with_its_empty_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.smi");
    std::fs::write(&path, "C\n\nN\n").unwrap();
    let corpus = Corpus::read(&path, &ReadOptions::default(), &vocabulary(), &options()).unwrap();
    assert_eq!(corpus.report.to_string(), "3 rows: 2 for training, 0 for validation, 1 empty");
    std::fs::write(&path, "C\nN\n\u{7f}\n").unwrap();
    let corpus = Corpus::read(&path, &ReadOptions::default(), &vocabulary(), &options()).unwrap();
    assert_eq!(corpus.report.unknown_token, 1);
    std::fs::write(&path, b"C\n\xff\n").unwrap();
    assert!(Corpus::read(&path, &ReadOptions::default(), &vocabulary(), &options()).is_err());
}

proptest! {
    #[test]
    fn the_order_of_the_file_does_not_decide_the_split(
        molecules in Just(molecules(60)).prop_shuffle(), seed in 0u64..3
    ) {
        let options = CorpusOptions { validation_fraction: 0.2, seed, ..options() };
        let split = |molecules: &[String]| {
            let rows = records(molecules.iter().map(|smiles| (smiles.as_str(), "")));
            let corpus = Corpus::from_records(rows, &vocabulary(), &options).unwrap();
            corpus.validation.into_iter().collect::<BTreeSet<_>>()
        };
        let mut sorted = molecules.clone();
        sorted.sort();
        prop_assert_eq!(split(&molecules), split(&sorted));
    }
}

#[test]
fn another_seed_holds_out_other_molecules() {
    let held = |seed| {
        let options = CorpusOptions { validation_fraction: 0.2, seed, ..options() };
        let molecules = molecules(60);
        let rows = records(molecules.iter().map(|smiles| (smiles.as_str(), "")));
        Corpus::from_records(rows, &vocabulary(), &options).unwrap().validation
    };
    assert_ne!(held(1), held(2));
}
