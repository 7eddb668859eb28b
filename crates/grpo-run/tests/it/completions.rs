//! Completion files in Parquet format.

use crate::folder::{Existing, create};
use grpo_data::{Finish, TokenColumns};
use grpo_run::{CompletionRecord, RecordedOutcome, RunFolder};
use parquet::basic::{Repetition, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use tempfile::{TempDir, tempdir};

const PARTS: [&str; 2] = ["qed", "sa"];

fn run() -> (TempDir, RunFolder) {
    let folder = tempdir().unwrap();
    let (run, _) = create(&folder.path().join("one"), Existing::Refuse).unwrap();
    (folder, run)
}

fn completion(step: u64, sample: u32) -> CompletionRecord {
    CompletionRecord {
        step,
        prompt: 7,
        prompt_text: Some("two and\ntwo".into()),
        prompt_ids: vec![3, 9],
        sample,
        text: "CCO".into(),
        reward: Some(0.1),
        bonus: None,
        outcome: RecordedOutcome::Scored,
        reason: None,
        info: None,
        parts: BTreeMap::from([("qed".into(), 0.5)]),
        advantage: -0.25,
        actions: 4,
        finish: Finish::EndToken,
        policy_version: 3,
        completion_ids: vec![3, 3, 7, 0],
        sampling_logprobs: vec![-0.1, -1e-7, -3.123_456_7, -0.0],
        tokens: TokenColumns::from_iter([
            ("logprobs", vec![-0.1, -2e-7, -3.123_456_8, -0.0]),
            ("ref_logprobs", vec![-0.5, -1.0, -1.5, -2.0]),
            ("entropies", vec![1.0, 0.0, 2.0, 0.5]),
            ("gradients", vec![1e-20, -0.25, 0.0, 3.0]),
            ("surrogate_gradients", vec![0.0, -0.5, 0.0, 1.0]),
        ]),
        outcomes: ["moved", "clipped", "moved+clipped", "moved"].map(str::to_owned).to_vec(),
    }
}

/// Returns the columns of a completion without tokens.
fn no_tokens() -> TokenColumns<f32> {
    let names = ["logprobs", "ref_logprobs", "entropies", "gradients", "surrogate_gradients"];
    names.into_iter().map(|name| (name, Vec::new())).collect()
}

fn failed(step: u64, sample: u32) -> CompletionRecord {
    let lists = CompletionRecord {
        completion_ids: vec![],
        sampling_logprobs: vec![],
        tokens: no_tokens(),
        outcomes: vec![],
        ..completion(step, sample)
    };
    CompletionRecord {
        prompt_text: None,
        reward: None,
        bonus: None,
        outcome: RecordedOutcome::Failed,
        reason: Some("no chemistry".into()),
        parts: BTreeMap::new(),
        actions: 0,
        finish: Finish::Length,
        ..lists
    }
}

#[test]
fn what_is_written_is_read() {
    let (_folder, run) = run();
    let abstained =
        CompletionRecord { outcome: RecordedOutcome::Abstained, reason: None, ..failed(2, 2) };
    let stopped = CompletionRecord { finish: Finish::Stop, ..completion(2, 3) };
    let records = [completion(2, 0), failed(2, 1), abstained, stopped];
    run.write_completions(2, &records, &PARTS).unwrap();
    assert_eq!(run.completions_of(2).unwrap(), records);
    run.write_completions(4, &[], &PARTS).unwrap();
    assert_eq!(run.completions_of(4).unwrap(), []);
}

/// A number per token needs no code here.
#[test]
fn further_numbers_per_token_are_passed_through() {
    let (_folder, run) = run();
    let mut record = completion(2, 0);
    record.tokens.push("ratios", vec![1.0, 0.5, 2.0, 1.25]);
    run.write_completions(2, &[record.clone()], &PARTS).unwrap();
    assert_eq!(run.completions_of(2).unwrap(), [record]);
}

#[test]
fn files_of_a_run_have_the_same_columns_whatever_was_scored() {
    let (_folder, run) = run();
    run.write_completions(1, &[completion(1, 0)], &PARTS).unwrap();
    run.write_completions(2, &[failed(2, 0)], &PARTS).unwrap();
    let schema = |step| {
        let file = File::open(run.completions_path(step)).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        reader.metadata().file_metadata().schema_descr().root_schema_ptr()
    };
    assert_eq!(schema(1), schema(2));
    let fields = schema(1);
    let names: Vec<&str> = fields.get_fields().iter().map(|field| field.name()).collect();
    let expected = [
        "step",
        "prompt",
        "prompt_text",
        "prompt_ids",
        "sample",
        "text",
        "reward",
        "bonus",
        "outcome",
        "reason",
        "info",
        "rewards/qed",
        "rewards/sa",
        "advantage",
        "actions",
        "finish",
        "policy_version",
        "completion_ids",
        "sampling_logprobs",
        "logprobs",
        "ref_logprobs",
        "entropies",
        "gradients",
        "surrogate_gradients",
        "outcomes",
    ];
    assert_eq!(names, expected);
    let qed = &fields.get_fields()[11];
    assert_eq!(qed.get_physical_type(), Physical::DOUBLE);
    assert_eq!(qed.get_basic_info().repetition(), Repetition::OPTIONAL);
}

#[test]
#[should_panic(expected = "part `qed` is not one of [\"valid\"]")]
fn a_part_without_a_column_is_a_fault_of_ours() {
    let (_folder, run) = run();
    let _written = run.write_completions(1, &[completion(1, 0)], &["valid"]);
}

#[test]
fn steps_are_those_of_files_that_we_write() {
    let (_folder, run) = run();
    assert_eq!(run.completion_steps().unwrap(), [0_u64; 0]);
    for step in [20, 3, 100] {
        run.write_completions(step, &[completion(step, 0)], &PARTS).unwrap();
    }
    let folder = run.path().join("completions");
    for name in
        ["completions.jsonl", "step-4.parquet.bak", ".step-5.parquet.tmp-0", "step-07.parquet"]
    {
        fs::write(folder.join(name), "x").unwrap();
    }
    assert_eq!(run.completion_steps().unwrap(), [3, 20, 100]);
    // Resuming from step 19 writes step 20 again.
    run.remove_completions_from(20).unwrap();
    assert_eq!(run.completion_steps().unwrap(), [3]);
    assert!(folder.join("completions.jsonl").exists());
    // The existing file is replaced entirely.
    run.write_completions(3, &[completion(3, 1)], &PARTS).unwrap();
    assert_eq!(run.completions_of(3).unwrap(), [completion(3, 1)]);
    fs::remove_dir_all(folder).unwrap();
    assert_eq!(run.completion_steps().unwrap(), [0_u64; 0]);
}

#[test]
fn what_does_not_fit_together_is_named() {
    let (_folder, run) = run();
    let check = |change: &dyn Fn(&mut CompletionRecord), expected: &str| {
        let mut second = completion(1, 1);
        change(&mut second);
        run.write_completions(1, &[completion(1, 0), second], &PARTS).unwrap();
        let path = run.completions_path(1);
        let expected = format!(
            "`{}` is damaged: {expected} in row 2; restore it from a copy, or train again",
            path.display()
        );
        assert_eq!(run.completions_of(1).unwrap_err().to_string(), expected);
    };
    check(&|record| record.step = 2, "`step` is 2, which differs from the file name");
    check(&|record| record.reward = None, "`reward` does not match `outcome`");
    check(
        &|record| record.outcome = RecordedOutcome::Abstained,
        "`reward` does not match `outcome`",
    );
    check(&|record| record.reason = Some("x".into()), "`reason` does not match `outcome`");
    check(&|record| record.actions = 5, "`completion_ids` has 4 entries, but `actions` is 5");
    check(&|record| drop(record.outcomes.pop()), "`outcomes` has 3 entries, but `actions` is 4");
    check(
        &|record| record.prompt = u32::MAX,
        "`prompt` is not an integer within the allowed range",
    );
    check(
        &|record| record.completion_ids[1] = u32::MAX,
        "`completion_ids` is not a list of whole numbers",
    );
}

/// Readers of columns check the file first.
#[test]
fn a_file_of_another_step_is_refused_by_its_path() {
    let (folder, run) = run();
    run.write_completions(1, &[completion(1, 0)], &PARTS).unwrap();
    let (whole, copy) = (run.completions_path(1), run.completions_path(2));
    fs::copy(&whole, &copy).unwrap();
    RunFolder::check_completions(&whole).unwrap();
    let error = RunFolder::check_completions(&copy).unwrap_err().to_string();
    let expected = format!(
        "`{}` is damaged: `step` is 1, which differs from the file name in row 1; restore it from a copy, or train again",
        copy.display()
    );
    assert_eq!(error, expected);
    // A copy outside of the run is a file like any other.
    let outside = tempfile::tempdir_in(folder.path()).unwrap();
    let outside = outside.path().join("step-2.parquet");
    fs::copy(&whole, &outside).unwrap();
    RunFolder::check_completions(&outside).unwrap();
}

#[test]
fn what_is_no_such_file_is_named() {
    let (_folder, run) = run();
    let path = run.completions_path(1);
    let missing = run.completions_of(1).unwrap_err().to_string();
    let expected = format!(
        "cannot read `{}`: No such file or directory (os error 2); check that it exists and is readable",
        path.display()
    );
    assert_eq!(missing, expected);
    let damage = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = run.completions_of(1).unwrap_err().to_string();
        let begin = format!("`{}` is damaged: ", path.display());
        let end = "; restore it from a copy, or train again";
        let reason = error.strip_prefix(&begin).and_then(|rest| rest.strip_suffix(end));
        reason.unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    damage(b"");
    damage(b"PAR1");
    // A Parquet file with different contents.
    run.write_completions(1, &[completion(1, 0)], &PARTS).unwrap();
    let whole = fs::read(&path).unwrap();
    let other = replaced(&whole, b"ref_logprobs", b"rex_logprobs");
    assert_eq!(damage(&other), "missing column `ref_logprobs`");
    let other = replaced(&whole, b"end_token", b"end_taken");
    let reason = damage(&other);
    assert!(reason.contains("end_taken") || reason.contains("rc"), "{reason}");
}

/// Files without this column, as written by older versions, can be read too.
#[test]
fn a_bonus_is_read_where_there_is_a_column_for_it() {
    let (_folder, run) = run();
    let record = CompletionRecord { bonus: Some(0.125), ..completion(1, 0) };
    run.write_completions(1, std::slice::from_ref(&record), &PARTS).unwrap();
    assert_eq!(run.completions_of(1).unwrap(), std::slice::from_ref(&record));
    let path = run.completions_path(1);
    let older = replaced(&fs::read(&path).unwrap(), b"bonus", b"other");
    fs::write(&path, older).unwrap();
    assert_eq!(run.completions_of(1).unwrap(), [CompletionRecord { bonus: None, ..record }]);
}

#[test]
fn prompt_ids_are_read_where_there_is_a_column_for_them() {
    let (_folder, run) = run();
    let record = completion(1, 0);
    run.write_completions(1, std::slice::from_ref(&record), &PARTS).unwrap();
    assert_eq!(run.completions_of(1).unwrap(), std::slice::from_ref(&record));
    let path = run.completions_path(1);
    let older = replaced(&fs::read(&path).unwrap(), b"prompt_ids", b"prompt_old");
    fs::write(&path, older).unwrap();
    assert_eq!(run.completions_of(1).unwrap(), [CompletionRecord { prompt_ids: vec![], ..record }]);
}

#[test]
fn info_is_read_where_there_is_a_column_for_it() {
    let (_folder, run) = run();
    let record = CompletionRecord { info: Some("pose 3".into()), ..completion(1, 0) };
    run.write_completions(1, std::slice::from_ref(&record), &PARTS).unwrap();
    assert_eq!(run.completions_of(1).unwrap(), std::slice::from_ref(&record));
    let path = run.completions_path(1);
    let older = replaced(&fs::read(&path).unwrap(), b"info", b"none");
    fs::write(&path, older).unwrap();
    assert_eq!(run.completions_of(1).unwrap(), [CompletionRecord { info: None, ..record }]);
}

/// The file was written when the column was called `fates`.
#[test]
fn outcomes_are_read_under_their_former_name() {
    let (_folder, run) = run();
    let old = "/../grpo-cli/tests/fuzz/corpus/run/completions/step-2.parquet";
    let old = fs::read(format!("{}{old}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    run.write_completions(2, &[completion(2, 0)], &PARTS).unwrap();
    fs::write(run.completions_path(2), old).unwrap();
    let records = run.completions_of(2).unwrap();
    let outcomes = records.iter().flat_map(|record| &record.outcomes);
    assert!(outcomes.clone().count() > 0 && outcomes.clone().all(|of| !of.is_empty()));
    for record in &records {
        assert_eq!(record.outcomes.len(), record.actions as usize);
    }
}

/// Returns `bytes` with every `old` replaced by `new`, which must have the same length.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut found = 0;
    for at in 0..=bytes.len() - old.len() {
        if &bytes[at..at + old.len()] == old {
            bytes[at..at + old.len()].copy_from_slice(new);
            found += 1;
        }
    }
    assert!(found > 0, "nothing to replace");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Truncated or modified files result in an error or in records, but never in a panic or an
    /// abort.
    #[test]
    fn damage_is_survived(at in 0.0..1.0_f64, bit in 0..8_u32, is_cut: bool) {
        let (_folder, run) = run();
        let records: Vec<CompletionRecord> = (0..20).map(|sample| completion(1, sample)).collect();
        run.write_completions(1, &records, &PARTS).unwrap();
        let path = run.completions_path(1);
        let mut bytes = fs::read(&path).unwrap();
        let place = (at * bytes.len() as f64) as usize;
        if is_cut {
            bytes.truncate(place);
        } else {
            bytes[place] ^= 1 << bit;
        }
        fs::write(&path, &bytes).unwrap();
        let read = run.completions_of(1);
        prop_assert!(!is_cut || read.is_err());
    }
}
