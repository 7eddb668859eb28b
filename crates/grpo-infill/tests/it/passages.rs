use crate::texts::{letters, options, read, write};
use flate2::{Compression, write::GzEncoder};
use grpo_data::{CounterRng, Purpose, TextCodec};
use grpo_infill::{BLANK, Characters, MASKING};
use grpo_infill::{PassageOptions, PassageUnit, Passages, Split};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Write;

/// Draws `n` passages from a split and returns the distinct texts.
fn drawn(passages: &Passages, split: Split, n: u32) -> BTreeSet<String> {
    let rng = CounterRng::new(1, Purpose::EVALUATION);
    let text = |i| passages.characters().decode(&passages.passage(split, &rng, [i, 0]));
    (0..n).map(text).collect()
}

fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    texts.into_iter().map(str::to_owned).collect()
}

#[test]
fn passages_of_lines_are_whole_lines_while_they_fit() {
    let text = "one two\nx\n\nthree\nfour five six\n  \n9\nlast line\nlater";
    let passages = read(text, &options(PassageUnit::Lines, 12)).unwrap();
    // "one two", "three", "four five six", "last line" and "later" can start a passage, and the
    // last one is held out (0.2 of 5). "x", "  " and "9" are too short to start one. "four five
    // six" has 13 characters and is truncated.
    assert_eq!(
        drawn(&passages, Split::Train, 100),
        texts(["one two\nx\n\n", "three\n", "four five s\n", "last line\n"])
    );
    // The last line has no line ending in the file, but it has one in the passage.
    assert_eq!(drawn(&passages, Split::Validation, 20), texts(["later\n"]));
    assert_eq!(
        passages.report().to_string(),
        "9 lines, 52 characters kept: passages from 4 positions for training, 1 for validation"
    );
}

#[test]
fn passages_of_a_line_are_lines_that_fit_each_once() {
    let text = "CCO\nC\nCCO\nCCCCCC\nCN\n\nCCN\nCCCCC\nNN\n";
    let passages = read(text, &options(PassageUnit::Line, 5)).unwrap();
    assert_eq!(drawn(&passages, Split::Train, 100), texts(["CCO", "CN", "CCN", "CCCCC"]));
    assert_eq!(drawn(&passages, Split::Validation, 20), texts(["NN"]));
    // Dropped lines are counted. Neither their characters nor line endings are part of the
    // vocabulary.
    assert_eq!(passages.characters().characters(), ['C', 'N', 'O']);
    assert_eq!(
        passages.report().to_string(),
        "9 lines, 15 characters kept: passages from 4 positions for training, 1 for validation, 2 lines of fewer than 2 characters, 1 too long, 1 duplicate"
    );
}

#[test]
fn windows_are_of_one_length_and_come_from_everywhere() {
    let text: String = ('a'..='j').collect();
    let passages = read(&text, &options(PassageUnit::Window, 2)).unwrap();
    let train = ["ab", "bc", "cd", "de", "ef", "fg", "gh"];
    assert_eq!(drawn(&passages, Split::Train, 200), texts(train));
    assert_eq!(drawn(&passages, Split::Validation, 20), texts(["ij"]));
}

#[test]
fn line_ends_and_byte_order_marks_are_those_of_any_editor() {
    let passages = read("\u{feff}ab\r\ncd\ref\r\n", &options(PassageUnit::Line, 8)).unwrap();
    assert_eq!(passages.characters().characters(), ['a', 'b', 'c', 'd', 'e', 'f']);
    assert_eq!(drawn(&passages, Split::Train, 50), texts(["ab", "cd"]));
    assert_eq!(passages.report().lines, 3);
}

#[test]
fn texts_and_files_of_molecules_are_read_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, text: &str, compressed: bool| {
        let mut bytes = text.as_bytes().to_vec();
        if compressed {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&bytes).unwrap();
            bytes = gzip.finish().unwrap();
        }
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let passages =
            Passages::read(&PassageOptions { file: path, ..options(PassageUnit::Line, 8) }, None)
                .unwrap();
        assert_eq!(drawn(&passages, Split::Train, 50), texts(["CCO", "NC"]), "{name}");
        assert_eq!(drawn(&passages, Split::Validation, 20), texts(["CF"]), "{name}");
    };
    check("a.txt", "CCO\nNC\nCF\n", false);
    check("a", "CCO\nNC\nCF", false);
    check("a.txt.gz", "CCO\nNC\nCF\n", true);
    check("a.smi", "smiles name\nCCO ethanol\nNC\nCF x\n", false);
    check("a.smi.gz", "CCO ethanol\nNC\nCF\n", true);
    check("a.csv", "id,smiles\n1,CCO\n2,NC\n3,CF\n", false);
    check("a.csv.gz", "id,smiles\n1,CCO\n2,NC\n3,CF\n", true);
}

#[test]
fn reports_an_unknown_character_with_its_line() {
    let known = Characters::from_texts(["CNO"]).unwrap();
    let check = |name: &str, text: &str, expect: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&folder, name, text);
        let options = options(PassageUnit::Line, 8);
        let error = Passages::read(&PassageOptions { file: path, ..options.clone() }, Some(&known))
            .unwrap_err()
            .to_string();
        let place = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
        assert_eq!(error.replace(&place, ""), expect);
    };
    check(
        "a.txt",
        "CN\n\nCOF\nNN\n",
        "a.txt:3: 'F' (character 3 of \"COF\") is not one of the 3 characters of the model; replace it, or train a model on text that has it",
    );
    // Rows of a molecule file are reported with their own line numbers.
    check(
        "a.smi",
        "smiles\n\nCN\n\nFC\nNN\n",
        "a.smi:5: 'F' (character 1 of \"FC\") is not one of the 3 characters of the model; replace it, or train a model on text that has it",
    );
    for unit in [PassageUnit::Lines, PassageUnit::Window] {
        let folder = tempfile::tempdir().unwrap();
        let file = write(&folder, "a.smi", "CN\nOC\n");
        let shown =
            format!("`{}` has several lines, but the model has no line break", file.display());
        let error = Passages::read(&PassageOptions { file, ..options(unit, 8) }, Some(&known));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(&shown) && error.contains("`--unit line`"), "{error}");
    }
    let fits = read("CN\nOC\n", &options(PassageUnit::Line, 8)).unwrap();
    assert_eq!(fits.characters(), &known);
}

/// Returns the options with a change applied.
fn with(change: impl FnOnce(&mut PassageOptions)) -> PassageOptions {
    let mut options = options(PassageUnit::Lines, 8);
    change(&mut options);
    options
}

#[test]
fn files_that_have_no_passages_are_refused_with_the_reason() {
    let check = |text: &str, options: &PassageOptions, expect: &str| {
        assert_eq!(read(text, options).unwrap_err(), expect);
    };
    let lines = options(PassageUnit::Lines, 8);
    check("", &lines, "`a.txt` is empty; use a file with text");
    check("\u{feff}", &lines, "`a.txt` is empty; use a file with text");
    check(
        "a\nb\n\n  c\n",
        &lines,
        "`a.txt` has 0 lines that can start a passage of at most 8 characters, but at least 2 are required, one of them held out (4 lines, 9 characters kept: passages from 0 positions for training, 0 for validation); use a file with more lines of 2 or more characters",
    );
    check(
        "abcdefghi\nabc\n",
        &options(PassageUnit::Line, 8),
        "`a.txt` has 1 lines that can start a passage of at most 8 characters, but at least 2 are required, one of them held out (2 lines, 3 characters kept: passages from 0 positions for training, 0 for validation, 1 too long); use a file with more lines of 2 or more characters",
    );
    check(
        "ab\ncd\n",
        &lines,
        "the whole text of `a.txt` has only 6 characters, but a passage needs 8 (`length`); use a longer text or a smaller `length`",
    );
    check(
        "abcdefgh",
        &options(PassageUnit::Window, 8),
        "the training text of `a.txt` has only 6 characters, but a passage needs 8 (`length`); use a longer text or a smaller `length`",
    );
    check(
        "abcdefghijkl",
        &options(PassageUnit::Window, 8),
        "the validation text of `a.txt` has only 2 characters, but a passage needs 8 (`length`); use a longer text or a smaller `length`",
    );
    check(
        "ab\nc␣\n",
        &lines,
        "a.txt:2: the text contains the character '␣', which is the blank mark; replace it",
    );
}

#[test]
fn options_outside_their_ranges_are_refused_by_name() {
    let check = |options: PassageOptions, expect: &str| {
        assert_eq!(read("one\ntwo\nthree\n", &options).unwrap_err(), expect);
    };
    check(with(|one| one.length = 1), "length = 1 is out of range; expected 2 to 1048576");
    for (fraction, shown) in [(0.0, "0"), (1.0, "1"), (-0.1, "-0.1"), (f64::NAN, "NaN")] {
        check(
            with(|one| one.validation_fraction = fraction),
            &format!(
                "validation_fraction = {shown} is out of range; expected a number between 0 and 1 (0.1 holds out the last tenth of the file)"
            ),
        );
    }
}

#[test]
fn files_that_cannot_be_read_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let lines = options(PassageUnit::Lines, 8);
    let check = |name: &str, bytes: Option<&[u8]>, expect: &str| {
        let path = folder.path().join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let error = Passages::read(&PassageOptions { file: path, ..lines.clone() }, None)
            .unwrap_err()
            .to_string();
        let place = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
        let error = error.replace(&place, "");
        assert!(error.starts_with(expect), "{error}");
    };
    check("none.txt", None, "`none.txt` does not exist; check the path");
    check(
        "latin1.txt",
        Some(b"one\ntwo\ncaf\xe9\n"),
        "line 3 of `latin1.txt` is not UTF-8 text; save the file as UTF-8",
    );
    check("damaged.txt.gz", Some(b"no gzip"), "`damaged.txt.gz` cannot be decompressed");
    check("no-smiles.csv", Some(b"a,b\n1,2\n"), "`no-smiles.csv` has no column");
}

/// Generates lines, some of which are empty, too long or duplicates.
fn any_lines() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-e ]{0,14}", 2..30)
}

proptest! {
    #[test]
    fn a_passage_is_text_of_its_half(
        lines in any_lines(), unit in 0usize..3, length in 2usize..20, fraction in 0.01f64..0.99
    ) {
        let unit = [PassageUnit::Lines, PassageUnit::Line, PassageUnit::Window][unit];
        let options = PassageOptions { validation_fraction: fraction, ..options(unit, length) };
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let Ok(passages) = read(&text, &options) else { return Ok(()) };
        let rng = CounterRng::new(3, MASKING);
        for (split, i) in [Split::Train, Split::Validation].into_iter().zip(0..) {
            for n in 0..20 {
                let ids = passages.passage(split, &rng, [n, i]);
                prop_assert!((2..=length).contains(&ids.len()));
                prop_assert_eq!(&ids, &passages.passage(split, &rng, [n, i]));
                let found = passages.characters().decode(&ids);
                prop_assert!(!found.contains(BLANK));
                match unit {
                    PassageUnit::Window => prop_assert!(text.contains(&found) && ids.len() == length),
                    PassageUnit::Line => prop_assert!(lines.contains(&found)),
                    PassageUnit::Lines => {
                        let whole = format!("\n{text}").contains(&format!("\n{found}"));
                        let cut = found.strip_suffix('\n').unwrap();
                        let cut = lines.iter().any(|line| line.starts_with(cut) && line.len() >= length);
                        prop_assert!(whole || (cut && ids.len() == length), "{:?}", found);
                    }
                }
            }
        }
    }

    /// The lines are numbered, so their origin is known.
    #[test]
    fn no_line_is_in_both_halves(n in 2usize..80, unit in 0usize..2, fraction in 0.01f64..0.99) {
        let unit = [PassageUnit::Lines, PassageUnit::Line][unit];
        let text: String = (0..n).map(|i| format!("{i:04}\n")).collect();
        let options = PassageOptions { validation_fraction: fraction, ..options(unit, 10) };
        let passages = read(&text, &options).unwrap();
        let lines = |split| -> BTreeSet<usize> {
            let passages = drawn(&passages, split, 400);
            passages.iter().flat_map(|text| text.lines()).map(|line| line.parse().unwrap()).collect()
        };
        let (train, validation) = (lines(Split::Train), lines(Split::Validation));
        prop_assert!(train.last() < validation.first());
        let held = n - validation.first().unwrap();
        prop_assert_eq!(held as u64, passages.report().validation);
        prop_assert!((held as f64 - fraction * n as f64).abs() <= 1.0);
    }
}

#[test]
fn all_beginnings_are_equally_likely() {
    let passages = read(&letters(50), &options(PassageUnit::Line, 8)).unwrap();
    let rng = CounterRng::new(1, MASKING);
    let mut counts = std::collections::BTreeMap::new();
    for i in 0..8000 {
        *counts.entry(passages.passage(Split::Train, &rng, [i, 7])).or_insert(0i32) += 1;
    }
    // 40 lines, each drawn about 200 times with a standard deviation of 14.
    assert_eq!(counts.len(), 40);
    assert!(counts.values().all(|count| (count - 200).abs() < 75), "{counts:?}");
}
