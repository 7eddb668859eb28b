//! Checkpoints that are kept, damaged, or left behind by a killed process.

use std::fs;
use std::path::{Path, PathBuf};

use grpo_data::{CounterRng, Purpose};
use grpo_run::{Existing, RunError, RunFolder, VerifiedFolder, sha256_of_manifest};

use crate::folder::info;

/// File sizes similar to those of a small run.
const FILES: [(&str, usize); 5] = [
    ("config.json", 300),
    ("model.safetensors", 20_000),
    ("trainer/state.json", 700),
    ("trainer/optimizer.safetensors", 40_000),
    ("vocabulary.json", 150),
];

fn run(place: &Path) -> RunFolder {
    RunFolder::create(&place.join("run"), Existing::Refuse, "", &info()).unwrap().0
}

/// Returns the contents of a file at a given step.
fn content(step: u64, name: usize, size: usize) -> Vec<u8> {
    let rng = CounterRng::new(step, Purpose::INITIALISATION);
    (0..size).map(|i| (rng.uniform([i as u32, name as u32, 0, 0]) * 256.0) as u8).collect()
}

fn write(run: &RunFolder, step: u64) {
    let fill = |folder: &Path| {
        fs::create_dir(folder.join("trainer")).unwrap();
        for (i, (name, size)) in FILES.into_iter().enumerate() {
            fs::write(folder.join(name), content(step, i, size)).unwrap();
        }
        Ok(())
    };
    let written = run.write_checkpoint::<RunError>(step, fill, |_| Ok(()));
    assert_eq!(written.unwrap().step, step);
}

fn steps(run: &RunFolder) -> Vec<u64> {
    run.checkpoints().unwrap().iter().map(|checkpoint| checkpoint.step).collect()
}

fn assert_whole(folder: &VerifiedFolder, step: u64) {
    for (i, (name, size)) in FILES.into_iter().enumerate() {
        assert!(fs::read(folder.path().join(name)).unwrap() == content(step, i, size), "{name}");
    }
}

/// All files of the newest checkpoint including the manifest. Files are chosen at random, weighted
/// by size.
struct Files(Vec<(PathBuf, Vec<u8>)>);

impl Files {
    fn of(checkpoint: &Path) -> Self {
        let names = FILES.map(|(name, _)| name).into_iter().chain(["manifest.json"]);
        let read = |name: &str| (checkpoint.join(name), fs::read(checkpoint.join(name)).unwrap());
        Self(names.map(read).collect())
    }

    fn pick(&self, rng: &CounterRng, number: u32) -> &(PathBuf, Vec<u8>) {
        &self.0[rng.below([number, 0, 0, 0], self.0.len() as u64) as usize]
    }
}

/// Damages the newer of two checkpoints a thousand times. It must either be skipped with an error
/// in favour of the older one, or load with its original contents, which is possible if only
/// whitespace in the manifest changes.
fn damage(of_kind: impl Fn(&CounterRng, u32, &[u8]) -> Vec<u8>) -> usize {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path());
    write(&run, 1);
    write(&run, 2);
    let files = Files::of(&run.checkpoints().unwrap()[1].path);
    let rng = CounterRng::new(7, Purpose::EVALUATION);
    let mut refused = 0;
    for number in 0..1000 {
        let (path, whole) = files.pick(&rng, number);
        fs::write(path, of_kind(&rng, number, whole)).unwrap();
        let newest = run.newest_checkpoint(None).unwrap();
        let (step, folder) = newest.whole.unwrap();
        assert_whole(&folder, step);
        match step {
            1 => {
                refused += 1;
                assert_eq!(newest.damaged.len(), 1);
                let said = newest.damaged[0].to_string();
                assert!(said.contains("step-2"), "{said}");
            }
            _ => assert!(path.ends_with("manifest.json"), "{} was not missed", path.display()),
        }
        fs::write(path, whole).unwrap();
    }
    assert_eq!(run.newest_checkpoint(None).unwrap().whole.unwrap().0, 2);
    refused
}

#[test]
fn no_truncated_file_is_loaded() {
    let refused = damage(|rng, number, whole| {
        whole[..rng.below([number, 1, 0, 0], whole.len() as u64) as usize].to_vec()
    });
    // The manifest is still valid without the final line break.
    assert!(refused >= 998, "{refused}");
}

#[test]
fn no_file_with_a_flipped_bit_is_loaded() {
    let refused = damage(|rng, number, whole| {
        let mut bytes = whole.to_vec();
        let bit = rng.below([number, 1, 0, 0], 8 * whole.len() as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    assert!(refused >= 985, "{refused}");
}

#[test]
fn files_that_go_or_come_are_found() {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path());
    write(&run, 1);
    write(&run, 2);
    let checkpoint = run.checkpoints().unwrap()[1].path.clone();
    fs::write(checkpoint.join("more"), "").unwrap();
    assert_eq!(run.newest_checkpoint(None).unwrap().whole.unwrap().0, 1);
    fs::remove_file(checkpoint.join("more")).unwrap();
    assert_eq!(run.newest_checkpoint(None).unwrap().whole.unwrap().0, 2);
    fs::remove_file(checkpoint.join("manifest.json")).unwrap();
    let newest = run.newest_checkpoint(None).unwrap();
    assert_eq!(newest.whole.unwrap().0, 1);
    let [fault] = &newest.damaged[..] else { panic!("{:?}", newest.damaged) };
    assert!(fault.to_string().contains(" has no `manifest.json`, "), "{fault}");
}

#[test]
fn the_newest_of_some_steps_is_found() {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path());
    assert!(run.newest_checkpoint(None).unwrap().whole.is_none());
    [3, 20, 100].into_iter().for_each(|step| write(&run, step));
    let newest = |last| run.newest_checkpoint(last).unwrap().whole.map(|(step, _)| step);
    assert_eq!(newest(None), Some(100));
    assert_eq!(
        (newest(Some(99)), newest(Some(20)), newest(Some(19))),
        (Some(20), Some(20), Some(3))
    );
    assert_eq!(newest(Some(2)), None);
}

#[test]
fn old_ones_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path());
    (1..=6).for_each(|step| write(&run, step));
    run.keep_checkpoints(2, &[3]).unwrap();
    assert_eq!(steps(&run), [3, 5, 6]);
    run.keep_checkpoints(5, &[]).unwrap();
    assert_eq!(steps(&run), [3, 5, 6]);
    run.remove_checkpoints_after(4).unwrap();
    assert_eq!(steps(&run), [3]);
    let left = fs::read_dir(run.path().join("checkpoints")).unwrap().count();
    assert_eq!(left, 1, "hidden folders were left");
}

/// A killed process leaves hidden folders. A complete checkpoint with an event is renamed.
/// Incomplete ones, ones without an event, and ones whose final name is taken are deleted.
#[test]
fn clears_leftovers_of_a_killed_run() {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path());
    [1, 2, 3, 4].into_iter().for_each(|step| write(&run, step));
    let folder = run.path().join("checkpoints");
    let manifest = sha256_of_manifest(&folder.join("step-2")).unwrap();
    let event = format!(
        "{{\"step\":2,\"at\":\"\",\"event\":\"checkpoint\",\"best\":false,\"manifest\":\"{manifest}\"}}\n"
    );
    fs::write(run.path().join("events.jsonl"), event).unwrap();
    let hide = |step: u32, number: u32| {
        let hidden = folder.join(format!(".step-{step}.tmp-{number}"));
        fs::rename(folder.join(format!("step-{step}")), &hidden).unwrap();
        hidden
    };
    hide(2, 0);
    let half = hide(3, 4);
    fs::remove_file(half.join("manifest.json")).unwrap();
    // The event was not written.
    hide(4, 0);
    hide(1, 0);
    write(&run, 1);
    fs::create_dir(folder.join("of-the-user")).unwrap();
    run.recover_checkpoints().unwrap();
    assert_eq!(steps(&run), [1, 2]);
    let mut left: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["of-the-user", "step-1", "step-2"]);
    run.checkpoints().unwrap().iter().for_each(|found| {
        assert_whole(&found.verify().unwrap(), found.step);
    });
}

#[test]
fn a_manifest_of_another_version_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path());
    write(&run, 1);
    let path = run.checkpoints().unwrap()[0].path.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"version\": 1", "\"version\": 3")).unwrap();
    let error = run.checkpoints().unwrap()[0].verify().unwrap_err().to_string();
    assert!(error.ends_with("has manifest version 3, but this program supports version 1; use the program that wrote it, or another checkpoint"), "{error}");
}
