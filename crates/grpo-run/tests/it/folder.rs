use crate::{listing, names};
pub(crate) use grpo_run::Existing;
use grpo_run::{DataFile, RunError, RunFolder, RunInfo};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::tempdir;

pub(crate) fn info() -> RunInfo {
    RunInfo {
        config_sha256: String::new(),
        command: vec!["grpo".into(), "train".into()],
        started: "2026-01-31T12:00:00Z".into(),
        versions: BTreeMap::from([("grpo".into(), "0.1.0".into())]),
        git_revision: None,
        seed: u64::MAX,
        device: "cpu".into(),
        gpu: None,
        threads: 2,
        chained: false,
        data: Vec::new(),
    }
}

pub(crate) fn create(
    path: &Path,
    existing: Existing,
) -> Result<(RunFolder, Option<PathBuf>), RunError> {
    RunFolder::create(path, existing, "seed = 1\n", &info())
}

#[test]
fn a_new_run_has_its_configuration_and_its_information() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("runs/one");
    let (run, aside) = create(&path, Existing::Refuse).unwrap();
    assert_eq!(aside, None);
    assert_eq!(run.path(), path);
    assert_eq!(names(&path), ["checkpoints/", "completions/", "config.toml", "run.json"]);
    assert_eq!(run.read_config().unwrap(), "seed = 1\n");
    // Computed with `sha256sum`.
    let config_sha256 =
        "46545c629053298cb8b068758bd6cb0ba83f1533f50a054de71575535afea66b".to_owned();
    let written = run.read_info().unwrap();
    assert_eq!(written, RunInfo { config_sha256, chained: true, ..info() });
    run.check_config(&written).unwrap();
    fs::write(run.config_path(), "seed = 2\n").unwrap();
    let error = run.check_config(&written).unwrap_err().to_string();
    assert!(error.contains("changed after the run started"), "{error}");
    run.check_config(&info()).unwrap();
    assert_eq!(RunFolder::open(&path).unwrap(), run);
}

#[test]
fn an_empty_folder_becomes_a_run() {
    let folder = tempdir().unwrap();
    create(folder.path(), Existing::Refuse).unwrap();
    assert!(folder.path().join("run.json").is_file());
}

#[test]
fn a_run_that_exists_is_refused_as_it_is() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("one");
    create(&path, Existing::Refuse).unwrap();
    fs::write(path.join("metrics.jsonl"), "{}\n").unwrap();
    let before = listing(folder.path());
    let error = create(&path, Existing::Refuse).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "run folder `{}` already exists; use another folder with `--run FOLDER`, or add `--force` to rename the old one",
            path.display()
        )
    );
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn an_old_run_steps_aside_and_keeps_everything() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("one");
    for number in 1..3 {
        create(&path, Existing::Replace).unwrap();
        fs::write(path.join("metrics.jsonl"), format!("{{\"run\":{number}}}\n")).unwrap();
    }
    let (_, aside) = create(&path, Existing::Replace).unwrap();
    assert_eq!(aside.unwrap(), folder.path().join("one.old-2"));
    assert!(!path.join("metrics.jsonl").exists());
    let listing = listing(folder.path());
    assert_eq!(listing["one.old-1/metrics.jsonl"], "{\"run\":1}\n");
    assert_eq!(listing["one.old-2/metrics.jsonl"], "{\"run\":2}\n");
}

#[test]
fn never_renames_a_folder_that_is_not_a_run() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("letters");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "Dear").unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let before = listing(folder.path());
    for (path, existing) in [(&path, Existing::Replace), (&file, Existing::Replace)] {
        let error = create(path, existing).unwrap_err().to_string();
        let expect =
            format!("`{}` is not a run folder (no `run.json`); check the path", path.display());
        assert_eq!(error, expect);
        assert_eq!(RunFolder::open(path).unwrap_err().to_string(), expect);
    }
    assert!(matches!(create(&file, Existing::Refuse), Err(RunError::Occupied { .. })));
    for path in [&path, &file] {
        for existing in [Existing::Refuse, Existing::Replace] {
            let error = RunFolder::check_unused(path, existing).unwrap_err().to_string();
            let expect = format!("`{}` exists, but is not a run; ", path.display());
            assert!(error.starts_with(&expect), "{error}");
        }
    }
    assert!(create(&file.join("one"), Existing::Refuse).is_err());
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn reports_damaged_run_information() {
    let folder = tempdir().unwrap();
    let (run, _) = create(&folder.path().join("one"), Existing::Refuse).unwrap();
    fs::write(run.info_path(), "{").unwrap();
    let error = run.read_info().unwrap_err().to_string();
    assert!(error.contains("run.json` is damaged: unexpected end of input"), "{error}");
}

#[test]
fn a_resumed_run_writes_its_later_steps_again() {
    let folder = tempdir().unwrap();
    let (run, _) = create(&folder.path().join("one"), Existing::Refuse).unwrap();
    let mut metrics = run.metrics_from(0).unwrap();
    for step in 0..4 {
        metrics.append(&json!({"step": step, "reward": 0.5})).unwrap();
    }
    let mut metrics = run.metrics_from(2).unwrap();
    metrics.append(&json!({"step": 2, "reward": 0.75})).unwrap();
    let read = run.read_metrics().unwrap();
    let steps: Vec<_> = read.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [0, 1, 2]);
    assert_eq!(read[2]["reward"], 0.75);
}

#[test]
fn a_checkpoint_is_whole_or_absent() {
    let folder = tempdir().unwrap();
    let (run, _) = create(&folder.path().join("one"), Existing::Refuse).unwrap();
    let write = |step, text: &'static str| {
        let fill = move |folder: &Path| {
            let path = folder.join("model.safetensors");
            fs::write(&path, text).map_err(|source| RunError::Write { path, source })
        };
        run.write_checkpoint(step, fill, |_| Ok(()))
    };
    for step in [20, 3, 100] {
        write(step, "weights").unwrap();
    }
    let checkpoints = run.checkpoints().unwrap();
    let steps: Vec<_> = checkpoints.iter().map(|checkpoint| checkpoint.step).collect();
    assert_eq!(steps, [3, 20, 100]);
    assert!(checkpoints.iter().all(|checkpoint| checkpoint.verify().is_ok()));
    assert_eq!(checkpoints[0].path, run.path().join("checkpoints/step-3"));

    let replaced = write(20, "other").unwrap();
    assert_eq!(replaced, checkpoints[1]);
    let path = replaced.verify().unwrap().path().join("model.safetensors");
    assert_eq!(fs::read_to_string(&path).unwrap(), "other");

    let before = listing(run.path());
    let full = |folder: &Path| {
        let path = folder.join("model.safetensors");
        fs::write(&path, "half").unwrap();
        let source = std::io::ErrorKind::StorageFull.into();
        Err(RunError::Write { path, source })
    };
    for step in [20, 21] {
        let error = run.write_checkpoint(step, full, |_| Ok(())).unwrap_err();
        assert!(matches!(error, RunError::Write { .. }));
        assert_eq!(listing(run.path()), before);
    }

    fs::write(path, "othes").unwrap();
    let altered = replaced.verify().unwrap_err().to_string();
    assert!(altered.contains(" is damaged: its SHA-256 is "), "{altered}");
}

#[test]
fn unfinished_checkpoints_are_passed_over() {
    let folder = tempdir().unwrap();
    let (run, _) = create(&folder.path().join("one"), Existing::Refuse).unwrap();
    for name in [".step-7.tmp-0", "step-", "step-07", "step-+7", "step-x", "best"] {
        fs::create_dir(run.path().join("checkpoints").join(name)).unwrap();
    }
    assert!(run.checkpoints().unwrap().is_empty());
}

#[test]
fn data_files_are_measured() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.smi");
    fs::write(&path, "abc").unwrap();
    let measured = DataFile::measure("molecules", &path).unwrap();
    assert_eq!((measured.role.as_str(), measured.bytes), ("molecules", 3));
    assert!(measured.sha256.starts_with("ba7816bf"));
    assert!(DataFile::measure("molecules", &folder.path().join("none")).is_err());
}

/// File names are usually limited to 255 bytes. Six additional bytes are enough to rename the old
/// run, but the temporary folder of the new one would need seven.
#[cfg(unix)]
#[test]
fn an_old_run_stays_where_the_new_one_cannot_be_created() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x".repeat(249));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("run.json"), "old").unwrap();
    let before = listing(folder.path());
    let error = create(&path, Existing::Replace).unwrap_err();
    assert!(matches!(error, RunError::BadName { .. }), "{error}");
    assert_eq!(listing(folder.path()), before);
}
