//! The program as a new user meets it: not installed, with copied, emptied and oddly named files.

use std::ffi::OsStr;
use std::fs;

use crate::support::{Ended, Place, train_toml};

/// Runs the program as `cargo xtask train` starts it.
fn from_checkout(place: &Place, arguments: &[&str]) -> Ended {
    let mut command = place.command(arguments);
    command.env("GRPO_PROGRAM", "target/release/grpo").env("GRPO_TRAIN", "cargo xtask train");
    Ended::of_command(&mut command)
}

/// A checkout has no installed `grpo`.
#[test]
fn printed_commands_need_no_installation() {
    let place = Place::for_training();
    for (arguments, expected) in [
        (
            &["train", "train.toml"][..],
            "next         target/release/grpo sample --model run/model\n",
        ),
        (&["train", "--resume", "run"], "; `target/release/grpo report run` shows the run\n"),
        (&["train", "--resume", "run"], "train longer target/release/grpo train run/config.toml "),
        (&["train", "train.toml", "--run", "none", "--set", "model=run/none"], ""),
    ] {
        let ended = from_checkout(&place, arguments);
        let said = ended.stdout + &ended.stderr;
        assert!(said.contains(expected), "{arguments:?}: {said}");
        for start in ["`grpo ", " grpo "] {
            let commands = said.split(start).skip(1).map(|rest| rest.split(['`', '\n']).next());
            let whole = commands.flatten().filter(|command| command.contains(' '));
            assert_eq!(whole.collect::<Vec<_>>(), [""; 0], "{arguments:?}");
        }
    }
    // Without these variables, nothing changes.
    let again = place.succeed(&["train", "--resume", "run"]);
    assert!(again.stdout.contains("; `grpo report run` shows the run\n"), "{}", again.stdout);
}

/// Every reader of recorded completions checks their step.
#[test]
fn completions_of_another_step_are_refused_everywhere() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml"]);
    let copy = "run/completions/step-4.parquet";
    fs::copy(place.path("run/completions/step-3.parquet"), place.path(copy)).unwrap();
    for arguments in [
        &["dynamics", "run"][..],
        &["eval", "run"],
        &["eval", copy],
        &["eval", "./run/../run/completions/step-4.parquet"],
        &["score", "train.toml", "run"],
        &["score", "train.toml", copy],
        &["report", "run"],
    ] {
        let ended = place.run(arguments);
        let expected = "run/completions/step-4.parquet` is damaged: `step` is 3, which differs from the file name in row 1; restore it from a copy, or train again\n";
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.code, Some(1), "{arguments:?}");
    }
    fs::rename(place.path(copy), place.path("copy.parquet")).unwrap();
    place.succeed(&["eval", "copy.parquet"]);
    place.succeed(&["dynamics", "run"]);
}

/// Emptied files of a finished run are named as damaged, with one way to go on.
#[test]
fn emptied_files_of_a_run_are_damaged() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml"]);
    let metrics = place.read("run/metrics.jsonl");
    let two = metrics.lines().take(2).map(|line| format!("{line}\n")).collect::<String>();
    for (text, found) in [(String::new(), "it has no steps"), (two, "its last step is 2")] {
        place.write("run/metrics.jsonl", &text);
        let expected = format!(
            "error: `run/metrics.jsonl` is damaged: {found}, but events.jsonl records that the run finished after step 3; restore it from a copy, or start a new run (the trained weights are not affected)\n"
        );
        assert_eq!(place.run(&["train", "--resume", "run"]).stderr, expected);
        if text.is_empty() {
            assert_eq!(place.run(&["report", "run"]).stderr, expected);
        }
    }
    place.write("run/metrics.jsonl", &metrics);
    place.succeed(&["train", "--resume", "run"]);

    let config = place.read("run/config.toml");
    for text in ["", "[reward]\n", "seed = ", "[pretrain]\n"] {
        place.write("run/config.toml", text);
        for arguments in [
            &["train", "--resume", "run"][..],
            &["explain", "run", "--step", "1"],
            &["replay", "run", "--step", "1"],
        ] {
            let ended = place.run(arguments);
            let expected = "`run/config.toml` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it\n";
            assert!(ended.stderr.ends_with(expected), "{arguments:?}: {}", ended.stderr);
        }
    }
    place.write("run/config.toml", config);
    place.succeed(&["explain", "run", "--step", "1"]);
}

/// A name that begins with a hyphen is not taken for an option in printed commands.
#[test]
#[cfg(unix)]
fn odd_names_of_runs() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::for_training();
    let ended = place.succeed(&["train", "train.toml", "--run=-x"]);
    assert!(ended.stdout.contains(" grpo report ./-x\n"), "{}", ended.stdout);
    place.succeed(&["report", "./-x"]);
    let again = place.succeed(&["train", "--resume=-x"]);
    assert!(again.stdout.contains("`grpo report ./-x`"), "{}", again.stdout);

    let name = OsStr::from_bytes(b"runs/\xff");
    for check in [&[][..], &["--check"]] {
        let mut command = place.command(&["train", "train.toml", "--run"]);
        let ended = Ended::of_command(command.arg(name).args(check));
        let expected = " cannot be a run folder: it is not UTF-8 text, which config.toml needs; use a path such as runs/first\n";
        assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
    }
    let ended = Ended::of_command(place.command(&["init-project"]).arg(name));
    let expected = "is not UTF-8 text, so commands cannot be printed for it; choose another name\n";
    assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
    assert!(!place.path("runs").exists());
}

/// No disk space helps where a path leads through a file.
#[test]
#[cfg(unix)]
fn the_reason_why_nothing_can_be_written_is_the_right_one() {
    let place = Place::for_training();
    place.write("file", "");
    for run in ["/dev/null/x", "file/x", "file/x/y"] {
        let expected =
            format!("cannot write `{run}`: part of the path is not a folder; choose another path");
        place.refuse(&["train", "train.toml", "--run", run], expected);
    }
    fs::create_dir(place.path("folder")).unwrap();
    for (file, fault) in [
        ("folder", "cannot be read (it is a folder, not a regular file)"),
        ("/dev/null", "cannot be read (it is a named pipe, device or socket, not a regular file)"),
        ("file/x", "cannot be read (part of the path is not a folder)"),
        ("none.py", "does not exist"),
    ] {
        let python = format!("[reward]\ntype = \"python\"\nfile = \"{file}\"\nfunction = \"f\"\n");
        let molecule = "[reward]\ntype = \"molecule\"\nqed = 0.7\nsa = 0.3\n";
        place.write("python.toml", train_toml().replace(molecule, &python));
        let ended = place.run(&["train", "python.toml"]);
        let expected = format!("reward.file: file {file} {fault}; expected a Python file");
        assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    }
}
