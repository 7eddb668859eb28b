use grpo_data::{Finish, TokenColumns};
use grpo_run::{
    CompletionRecord, Existing, LedgerCompletion, LedgerRollout, LedgerStep, LedgerUpdate,
    RecordedOutcome, ReferenceChange, RunFolder, RunInfo,
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use tempfile::tempdir;

fn line(step: u64) -> LedgerStep {
    let completions: Vec<LedgerCompletion> = (0..2)
        .map(|sample| LedgerCompletion::of(step, [7, sample], 3, [1, 2], &[-0.5, -1.0]))
        .collect();
    LedgerStep {
        step,
        rollout: LedgerRollout {
            policy_version: 3,
            weights: "a".into(),
            completions: completions.clone(),
        },
        updates: vec![LedgerUpdate {
            version: 4,
            weights: "b".into(),
            learning_rate: 1e-4,
            completions,
            replayed: None,
        }],
        reference: "c".into(),
        reference_changed: Some(ReferenceChange { mix: 0.6, weights: "d".into() }),
        base: None,
        recorded: None,
        previous: None,
    }
}

/// Returns the expected line. Its digests are computed independently.
fn text(step: u64) -> String {
    let entry = |sample: u32| {
        let mut bytes = Vec::new();
        bytes.extend(step.to_le_bytes());
        bytes.extend(7_u32.to_le_bytes());
        bytes.extend(sample.to_le_bytes());
        bytes.extend(3_u64.to_le_bytes());
        bytes.extend(2_u64.to_le_bytes());
        bytes.extend([0x00, 0x00, 0x00, 0xbf, 0x00, 0x00, 0x80, 0xbf]);
        bytes.extend([1, 0, 0, 0, 2, 0, 0, 0]);
        let hash = Sha256::digest(&bytes);
        let digits: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[7,{sample},3,\"{digits}\"]")
    };
    let completions = format!("[{},{}]", entry(0), entry(1));
    format!(
        "{{\"step\":{step},\"rollout\":{{\"policy_version\":3,\"weights\":\"a\",\"completions\":{completions}}},\"updates\":[{{\"version\":4,\"weights\":\"b\",\"learning_rate\":0.0001,\"completions\":{completions}}}],\"reference\":\"c\",\"reference_changed\":{{\"mix\":0.6,\"weights\":\"d\"}},\"base\":null}}\n"
    )
}

fn folder(path: &std::path::Path) -> RunFolder {
    let info = RunInfo {
        config_sha256: String::new(),
        command: vec![],
        started: String::new(),
        versions: BTreeMap::new(),
        git_revision: None,
        seed: 1,
        device: "cpu".into(),
        gpu: None,
        threads: 1,
        chained: false,
        data: vec![],
    };
    RunFolder::create(path, Existing::Refuse, "", &info).unwrap().0
}

#[test]
fn writes_reads_and_resumes_lines() {
    let place = tempdir().unwrap();
    let run = folder(&place.path().join("run"));
    assert_eq!(run.read_ledger().unwrap(), None);
    let mut ledger = run.ledger_from(1).unwrap();
    assert_eq!(run.read_ledger().unwrap(), Some(vec![]));
    for step in 1..=3 {
        ledger.append(&line(step)).unwrap();
    }
    let written = fs::read_to_string(run.ledger_path()).unwrap();
    // Each line is extended by the hash of the previous line.
    let mut previous = "0".repeat(64);
    for (step, line) in (1..).zip(written.lines()) {
        let expected = format!(
            "{},\"previous\":\"{previous}\"}}",
            text(step).trim_end().trim_end_matches('}')
        );
        assert_eq!(line, expected);
        previous = Sha256::digest(line).iter().map(|byte| format!("{byte:02x}")).collect();
    }
    assert_eq!(ledger.head(), previous);
    let read = |steps: &[u64]| {
        let found = run.read_ledger().unwrap().unwrap().into_iter();
        let found: Vec<LedgerStep> =
            found.map(|line| LedgerStep { previous: None, ..line }).collect();
        assert_eq!(found, steps.iter().map(|step| line(*step)).collect::<Vec<_>>());
    };
    read(&[1, 2, 3]);
    // Step 3 is written again.
    run.ledger_from(3).unwrap().append(&line(3)).unwrap();
    assert_eq!(fs::read_to_string(run.ledger_path()).unwrap(), written);
    drop(run.ledger_from(2).unwrap());
    read(&[1]);
}

#[test]
fn refuses_invalid_lines() {
    let place = tempdir().unwrap();
    let run = folder(&place.path().join("run"));
    let check = |change: (&str, &str), expected: &str| {
        fs::write(run.ledger_path(), text(1).replace(change.0, change.1)).unwrap();
        let error = run.read_ledger().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(("\"base\"", "\"bases\""), "unknown key `bases`");
    check(("\"mix\":0.6", "\"mix\":\"half\""), "found \"half\"; expected a number");
    for digest in ["", "0", "+123456789abcdef", "0123456789ABCDEF", "00123456789abcdef", "ä"] {
        let digests = text(1);
        let digits = &digests[digests.find("[7,0,3,\"").unwrap() + 8..][..16];
        check(
            (digits, digest),
            &format!("`{digest}` is not a completion digest; expected 16 hexadecimal digits"),
        );
    }
}

fn record(step: u64, ids: Vec<u32>, logprobs: Vec<f32>) -> CompletionRecord {
    CompletionRecord {
        step,
        prompt_text: None,
        prompt_ids: vec![],
        prompt: 5,
        sample: 6,
        text: "CCO".into(),
        reward: None,
        bonus: None,
        outcome: RecordedOutcome::Abstained,
        reason: None,
        info: None,
        parts: BTreeMap::new(),
        advantage: 0.0,
        actions: ids.len() as u32,
        finish: Finish::EndToken,
        policy_version: 9,
        tokens: TokenColumns::from_iter([("logprobs", logprobs.clone())]),
        outcomes: vec!["moved".into(); ids.len()],
        completion_ids: ids,
        sampling_logprobs: logprobs,
    }
}

#[test]
fn a_record_has_the_entry_of_its_completion() {
    let entry = LedgerCompletion::of(4, [5, 6], 9, [1, 2, 3], &[-0.1, -0.0, -7.25]);
    let of_record = record(4, vec![1, 2, 3], vec![-0.1, -0.0, -7.25]);
    assert_eq!(LedgerCompletion::of_record(&of_record), Some(entry));
    assert_eq!(LedgerCompletion::of_record(&record(4, vec![], vec![])), None);
}

type Parts = (u64, [u32; 2], u64, Vec<u32>, Vec<f32>);

fn parts() -> impl Strategy<Value = Parts> {
    let tokens = proptest::collection::vec((0..4_u32, -2.0..=0.0_f32), 1..4);
    (1..3_u64, [0..2_u32, 0..2_u32], 0..2_u64, tokens).prop_map(|(step, place, version, tokens)| {
        let (ids, logprobs) = tokens.into_iter().unzip();
        (step, place, version, ids, logprobs)
    })
}

fn entry((step, place, version, ids, logprobs): &Parts) -> LedgerCompletion {
    LedgerCompletion::of(*step, *place, *version, ids.iter().copied(), logprobs)
}

proptest! {
    #[test]
    fn equal_digests_are_of_equal_completions(a in parts(), b in parts(), bit in 0..32_u32) {
        let bits = |parts: &Parts| parts.4.iter().map(|l| l.to_bits()).collect::<Vec<u32>>();
        let are_equal = (a.0, a.1, a.2, &a.3, bits(&a)) == (b.0, b.1, b.2, &b.3, bits(&b));
        prop_assert_eq!(entry(&a).digest == entry(&b).digest, are_equal);
        // Changes one bit, one token id or one index.
        let mut changed = a.clone();
        changed.4[0] = f32::from_bits(changed.4[0].to_bits() ^ (1 << bit));
        prop_assert!(entry(&changed).digest != entry(&a).digest);
        let mut changed = a.clone();
        changed.3[0] ^= 1 << bit;
        prop_assert!(entry(&changed).digest != entry(&a).digest);
        for place in 0..4 {
            let mut changed = a.clone();
            match place {
                0 => changed.0 += 1,
                1 => changed.1[0] += 1,
                2 => changed.1[1] += 1,
                _ => changed.2 += 1,
            }
            prop_assert!(entry(&changed).digest != entry(&a).digest);
        }
    }
}
