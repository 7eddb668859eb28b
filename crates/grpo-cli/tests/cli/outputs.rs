//! Outputs that cannot be written or would overwrite their input.

use std::fs::{self, File, OpenOptions};

use snapbox::str;

use crate::support::{Ended, Place, small_model};

/// Opens a device that is always full. Only available on Linux.
fn full() -> Option<File> {
    OpenOptions::new().write(true).open("/dev/full").ok()
}

#[test]
fn results_that_cannot_be_written_are_a_fault() {
    let place = Place::for_training();
    place.succeed(&["train", "train.toml"]);
    for arguments in [
        &["audit", "run"][..],
        &["audit", "run", "--json"],
        &["explain", "run", "--step", "1", "--json"],
        &["replay", "run", "--step", "1", "--prompt", "0", "--sample", "0"],
        &["selftest"],
        &["--help"],
        &["train", "--help"],
        &["--version"],
        &["train", "train.toml", "--check"],
    ] {
        let Some(full) = full() else { return };
        let ended = Ended::of(place.command(arguments).stdout(full).output().unwrap());
        assert_eq!(ended.code, Some(1), "grpo {arguments:?}");
        let expected = "error: cannot write to standard output (no space left on the disk), so the output is incomplete; ";
        assert!(ended.stderr.starts_with(expected), "grpo {arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "grpo {arguments:?}: {}", ended.stderr);
    }
}

/// If standard error cannot be written, the results and exit codes are unchanged.
#[test]
fn a_standard_error_that_cannot_be_written_costs_no_result() {
    let place = Place::new();
    let model = small_model().to_str().unwrap();
    let sample = ["sample", "--model", model, "-n", "5", "-o"];
    place.succeed(&[&sample[..], &["expected.smi"]].concat());
    let Some(error) = full() else { return };
    let mut command = place.command(&[&sample[..], &["got.smi"]].concat());
    assert_eq!(command.stderr(error).output().unwrap().status.code(), Some(0));
    assert_eq!(place.read("got.smi"), place.read("expected.smi"));
    let mut refused = place.command(&["describe", "missing.smi"]);
    assert_eq!(refused.stderr(full().unwrap()).output().unwrap().status.code(), Some(1));
}

#[test]
fn another_link_to_the_input_is_the_input() {
    let place = Place::new();
    place.write("in.smi", "CCO\n");
    fs::hard_link(place.path("in.smi"), place.path("out.csv")).unwrap();
    place.refuse(
        &["describe", "in.smi", "-o", "out.csv"],
        str!["out.csv is the input; use another file for -o"],
    );
}
