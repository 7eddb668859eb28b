//! Links, named pipes and other objects in the place of files and folders of runs and outputs, and
//! files that are removed or replaced while a run writes them.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::audit::copy;
use crate::resume::{place, wait_for};
use crate::support::{Ended, Place};

/// Kinds of objects that are not regular files. All of them except the last two lead to `elsewhere`.
const KINDS: [&str; 7] =
    ["link to a file", "link to a folder", "dangling link", "device", "pipe", "socket", "folder"];

/// Replaces a file or folder by an object of another kind.
fn put(place: &Place, kind: &str, name: &str) {
    let path = place.path(name);
    let _absent = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    let elsewhere = place.path("elsewhere");
    match kind {
        "link to a file" => symlink(elsewhere.join("precious"), path).unwrap(),
        "link to a folder" => symlink(elsewhere, path).unwrap(),
        "dangling link" => symlink(elsewhere.join("none"), path).unwrap(),
        "device" => symlink("/dev/full", path).unwrap(),
        "pipe" => {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        "socket" => drop(UnixListener::bind(path).unwrap()),
        "folder" => fs::create_dir(path).unwrap(),
        _ => unreachable!("{kind}"),
    }
}

/// A folder outside of the run with names that a run deletes: checkpoints, completions and steps that
/// were rolled back.
fn elsewhere(place: &Place) {
    for name in ["step-1", "step-2", "step-50", "1", ".step-9.tmp-0", ".run.tmp-0"] {
        fs::create_dir_all(place.path("elsewhere").join(name)).unwrap();
        place.write(&format!("elsewhere/{name}/manifest.json"), "{}");
    }
    for name in ["precious", "step-1.parquet", "step-50.parquet", "run.json", ".x.tmp-0"] {
        place.write(&format!("elsewhere/{name}"), "precious");
    }
}

/// All files and folders below `elsewhere` with their contents and times.
fn canary(place: &Place) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![place.path("elsewhere")]);
    while let Some(folder) = folders.pop() {
        found.push((folder.clone(), folder.metadata().unwrap().modified().unwrap(), Vec::new()));
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let time = path.metadata().unwrap().modified().unwrap();
                    found.push((path.clone(), time, fs::read(path).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

/// Runs a command that must not take long.
#[track_caller]
fn soon(place: &Place, arguments: &[&str]) -> Ended {
    let begun = Instant::now();
    let ended = place.run(arguments);
    assert!(begun.elapsed() < Duration::from_secs(60), "{arguments:?} took {:?}", begun.elapsed());
    assert!(ended.code == Some(0) || ended.code == Some(1), "{arguments:?}: {}", ended.stderr);
    ended
}

#[test]
fn resuming_and_reading_a_run_never_leaves_its_folder() {
    let place = place(3);
    elsewhere(&place);
    place.succeed(&["train", "train.toml", "--set", "save.keep_last=9"]);
    // Not finished, so resuming would remove and write files.
    fs::remove_dir_all(place.path("run/model")).unwrap();
    fs::remove_dir_all(place.path("run/checkpoints/step-3")).unwrap();
    fs::create_dir(place.path("run/rolled-back")).unwrap();
    let before = canary(&place);
    let names = [
        ".lock",
        "metrics.jsonl",
        "ledger.jsonl",
        "events.jsonl",
        "run.json",
        "config.toml",
        "reward.log",
        "comparison.json",
        "best.csv",
        "report.html",
        "completions",
        "checkpoints",
        "rolled-back",
        "model",
        "checkpoints/step-2",
        "completions/step-1.parquet",
    ];
    for name in names {
        let is_folder = !name.contains('.') || name.ends_with("step-2");
        for kind in ["link to a file", "link to a folder", "dangling link", "pipe", "folder"] {
            if is_folder && kind == "folder" {
                continue;
            }
            copy(&place.path("run"), &place.path("copy"));
            put(&place, kind, &format!("copy/{name}"));
            let what = format!("{kind} at {name}");
            let ended = soon(&place, &["train", "--resume", "copy"]);
            assert_eq!(ended.code, Some(1), "{what}: {}{}", ended.stdout, ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{what}: {}", ended.stderr);
            let said = match kind {
                "pipe" | "folder" => "remove it, or rename it",
                _ => {
                    "is a symbolic link, and links inside of run and output folders are not followed"
                }
            };
            let is_no_run = name == "run.json" && ended.stderr.contains("is not a run folder");
            assert!(ended.stderr.contains(said) || is_no_run, "{what}: {}", ended.stderr);
            soon(&place, &["report", "copy"]);
            let audited = soon(&place, &["audit", "copy", "--json"]);
            if !["run.json", "config.toml"].contains(&name) {
                let report: Value = serde_json::from_str(&audited.stdout).unwrap();
                assert_eq!(audited.code, Some(1), "{what}: {}", audited.stdout);
                assert!(report["violations"].as_u64() > Some(0), "{what}");
            }
            assert_eq!(canary(&place), before, "{what}");
        }
    }
}

#[test]
fn locks_are_not_opened_through_links_and_keep_their_content() {
    let place = Place::for_training();
    elsewhere(&place);
    place.succeed(&["train", "train.toml", "--set", "train.steps=1"]);
    let before = canary(&place);
    for kind in KINDS {
        copy(&place.path("run"), &place.path("copy"));
        put(&place, kind, "copy/.lock");
        for arguments in [
            &["train", "--resume", "copy"][..],
            &["train", "train.toml", "--run", "copy", "--force"],
            &["trial", "train.toml", "--run", "copy", "--force"],
        ] {
            let ended = soon(&place, arguments);
            assert_eq!(ended.code, Some(1), "{kind}, {arguments:?}");
            assert!(ended.stderr.contains(".lock` is a"), "{kind}: {}", ended.stderr);
        }
        assert_eq!(canary(&place), before, "{kind}");
        assert!(!place.path("copy.old-1").exists());
    }
    place.write("run/.lock", "a note");
    place.succeed(&["train", "--resume", "run"]);
    assert_eq!(place.read("run/.lock"), "a note");
}

#[test]
fn a_run_may_be_a_link_and_a_link_that_leads_nowhere_is_named() {
    let place = Place::for_training();
    fs::create_dir(place.path("disk")).unwrap();
    symlink("disk", place.path("run")).unwrap();
    place.succeed(&["train", "train.toml", "--set", "train.steps=1"]);
    assert!(place.path("disk/model/manifest.json").exists());
    for arguments in
        [["train", "--resume", "run"].as_slice(), &["audit", "run"], &["report", "run"]]
    {
        place.succeed(arguments);
    }
    symlink("missing", place.path("none")).unwrap();
    for run in ["none", "none/below"] {
        let ended = soon(&place, &["train", "train.toml", "--run", run]);
        let said = "`none` is a symbolic link to `missing`, which does not exist";
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains(said), "{run}: {}", ended.stderr);
        assert!(!place.path("missing").exists());
    }
}

#[test]
fn a_split_is_not_written_through_links_or_into_pipes() {
    let place = Place::new();
    elsewhere(&place);
    let pair = |tweet: usize, reply: usize| json!({"tweet_id": tweet, "tweet": format!("tweet {tweet}"), "tweet_likes": 9, "reply": format!("reply {reply}"), "reply_likes": reply, "reply_author": "a"});
    let pairs: Vec<Value> =
        (0..40).flat_map(|tweet| (0..3).map(move |reply| pair(tweet, reply))).collect();
    place.write("pairs.jsonl", crate::pairs::lines(&pairs));
    let before = canary(&place);
    let names = [
        ".lock",
        ".split-unfinished",
        "train_phase1_sft.jsonl",
        "train_phase2_grpo.jsonl",
        "test_held_out.jsonl",
        "phase_split_statistics.json",
        "phase_split_distributions.svg",
    ];
    for name in names {
        for kind in KINDS {
            let _absent = fs::remove_dir_all(place.path("new"));
            fs::create_dir(place.path("new")).unwrap();
            put(&place, kind, &format!("new/{name}"));
            for force in [&["--force"][..], &[]] {
                let split = ["split-data", "--input", "pairs.jsonl", "--output-dir", "new"];
                let ended = soon(&place, &[&split[..], force].concat());
                assert_eq!(ended.code, Some(1), "{kind} at {name}: {}", ended.stdout);
                assert_eq!(ended.stderr.lines().count(), 1, "{kind} at {name}: {}", ended.stderr);
                assert!(ended.stderr.contains(name), "{kind} at {name}: {}", ended.stderr);
            }
            assert_eq!(canary(&place), before, "{kind} at {name}");
            assert_eq!(fs::read_dir(place.path("new")).unwrap().count(), 1, "{kind} at {name}");
        }
    }
}

#[test]
fn pipes_and_sockets_as_outputs_are_refused_at_once() {
    let place = Place::for_training();
    place.copy_model();
    elsewhere(&place);
    place.write("a.smi", "CCO\n");
    place.write("a.jsonl", "{\"prompt\":\"x\",\"completion\":\"y\"}\n");
    place.succeed(&["train", "train.toml", "--set", "train.steps=1"]);
    let before = canary(&place);
    for (kind, said) in [
        ("pipe", "named pipe"),
        ("socket", "socket"),
        ("folder", "folder"),
        ("device", ""),
        ("link to a file", ""),
        ("dangling link", ""),
    ] {
        let commands = [
            vec!["describe", "a.smi", "-o", "out.csv", "--force"],
            vec!["sample", "--model", "model", "-n", "2", "-o", "out.smi", "--force"],
            vec!["make-molecules", "-n", "3", "-o", "out.csv", "--force"],
            vec!["report", "run", "-o", "out.html", "--force"],
            vec![
                "judge",
                "--endpoint",
                "http://127.0.0.1:1",
                "--model",
                "x",
                "a.jsonl",
                "--cache",
                "out.csv",
            ],
        ];
        for arguments in commands {
            for name in ["out.csv", "out.html", "out.smi"] {
                put(&place, kind, name);
            }
            let ended = soon(&place, &arguments);
            if !said.is_empty() {
                assert_eq!(ended.code, Some(1), "{kind}, {arguments:?}: {}", ended.stdout);
                assert!(ended.stderr.contains(said), "{kind}, {arguments:?}: {}", ended.stderr);
            }
            // A cache is a file that the user names, so its link is followed.
            if arguments[0] != "judge" {
                assert_eq!(canary(&place), before, "{kind}, {arguments:?}");
            }
            assert!(!place.path("elsewhere/none").exists(), "{kind}, {arguments:?}");
        }
    }
}

/// What happens to a file while the run writes it.
type Change = fn(&Path);

const CHANGES: [(&str, Change); 5] = [
    ("removed", |path| fs::remove_file(path).unwrap()),
    ("truncated", |path| {
        fs::File::options().write(true).open(path).unwrap().set_len(10).unwrap();
    }),
    ("replaced by a copy", |path| {
        let text = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        fs::write(path, text).unwrap();
    }),
    ("replaced by a link", |path| {
        fs::rename(path, path.with_extension("moved")).unwrap();
        symlink(path.with_extension("moved"), path).unwrap();
    }),
    ("replaced by a pipe", |path| {
        fs::remove_file(path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }),
];

#[test]
fn a_run_whose_files_are_removed_or_replaced_fails() {
    for name in ["metrics.jsonl", "ledger.jsonl", "events.jsonl"] {
        for (what, change) in CHANGES {
            let place = place(400);
            let child = place.spawn(&["train", "train.toml"]);
            wait_for(&place.path("run/checkpoints/step-1"));
            change(&place.path("run").join(name));
            let ended = Ended::wait_for(child);
            assert_eq!(ended.code, Some(1), "{name} {what}: {}", ended.stderr);
            let is_said = ended.stderr.contains("is no longer the file that this run writes")
                || ended.stderr.contains("` is a symbolic link")
                || ended.stderr.contains("` is a named pipe");
            assert!(is_said, "{name} {what}: {}", ended.stderr);
        }
    }
}

#[test]
fn a_run_whose_folder_is_replaced_writes_nothing_into_the_other_one() {
    let place = place(400);
    let child = place.spawn(&["train", "train.toml"]);
    wait_for(&place.path("run/checkpoints/step-1"));
    fs::create_dir(place.path("other")).unwrap();
    fs::rename(place.path("run"), place.path("moved")).unwrap();
    symlink("other", place.path("run")).unwrap();
    let ended = Ended::wait_for(child);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("is no longer the folder"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(place.path("other")).unwrap().count(), 0);
}

#[test]
fn an_audit_of_damaged_files_is_one_object_with_all_properties() {
    let place = place(2);
    place.succeed(&["train", "train.toml"]);
    let whole = place.succeed(&["audit", "run", "--json"]);
    let whole: Value = serde_json::from_str(&whole.stdout).unwrap();
    let count = whole["findings"].as_array().unwrap().len();
    let append = |name: &str, more: &[u8]| {
        let path = place.path("copy").join(name);
        let text = [&fs::read(&path).unwrap()[..], more].concat();
        fs::write(path, text).unwrap();
    };
    for name in ["ledger.jsonl", "events.jsonl", "metrics.jsonl", "completions/step-1.parquet"] {
        for junk in [
            &b"\n"[..],
            b"junk\n",
            b"{\n",
            b"[]\n",
            b"{\"step\":\"x\"}\n",
            b"\xff\xfe\n",
            b"\0\0\n",
        ] {
            copy(&place.path("run"), &place.path("copy"));
            append(name, junk);
            let ended = place.run(&["audit", "copy", "--json"]);
            let report: Value = serde_json::from_str(&ended.stdout)
                .unwrap_or_else(|error| panic!("{name} {junk:?}: {error}: {}", ended.stderr));
            assert_eq!(ended.code, Some(1), "{name} {junk:?}");
            assert!(report["violations"].as_u64() > Some(0), "{name} {junk:?}");
            let findings = report["findings"].as_array().unwrap();
            // A file that is not text is not read at all.
            let least = if junk.is_ascii() { count } else { 5 };
            assert!(findings.len() >= least, "{name} {junk:?}: {findings:?}");
            let resumed = place.run(&["report", "copy"]);
            assert!(resumed.code == Some(0) || resumed.code == Some(1));
        }
    }
    // Sparse files that are larger than the memory of small machines.
    for name in ["ledger.jsonl", "events.jsonl", "metrics.jsonl"] {
        copy(&place.path("run"), &place.path("copy"));
        let file = fs::File::options().write(true).open(place.path("copy").join(name)).unwrap();
        file.set_len(5 << 30).unwrap();
        for arguments in [
            &["audit", "copy", "--json"][..],
            &["report", "copy"],
            &["train", "--resume", "copy"],
            &["train", "--resume", "copy", "--verify"],
        ] {
            let ended = soon(&place, arguments);
            let all = ended.stdout + &ended.stderr;
            let is_read = arguments[0] != "report" || name != "ledger.jsonl";
            assert!(
                all.contains("is larger than 1 GiB") || !is_read,
                "{name} {arguments:?}: {all}"
            );
        }
    }
}

#[test]
fn temporary_folders_of_killed_processes_are_removed_by_the_next_run() {
    let place = Place::for_training();
    elsewhere(&place);
    for number in 0..3 {
        fs::create_dir_all(place.path(&format!(".run.tmp-{number}/checkpoints"))).unwrap();
    }
    symlink("elsewhere", place.path(".run.tmp-3")).unwrap();
    fs::create_dir(place.path(".other.tmp-0")).unwrap();
    let before = canary(&place);
    place.succeed(&["train", "train.toml", "--set", "train.steps=1"]);
    assert!(!place.path(".run.tmp-0").exists());
    assert!(place.path(".run.tmp-3").is_symlink() && place.path(".other.tmp-0").exists());
    assert_eq!(canary(&place), before);
}
