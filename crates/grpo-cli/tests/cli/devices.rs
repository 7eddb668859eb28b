//! `grpo devices` and `--device`. The tests run without a GPU, so they use the CPU.

use serde_json::Value;
use snapbox::str;

use crate::resume;
use crate::support::Place;

#[test]
fn devices_are_listed() {
    let place = Place::new();
    let table = place.succeed(&["devices"]).stdout;
    let row = |name: &str| table.lines().find(|line| line.trim_start().starts_with(name));
    let cpu = row("cpu").unwrap();
    assert!(cpu.contains("yes") && cpu.contains("f64 f32"), "{cpu}");
    for (name, cargo) in [("cuda", "--features cuda`"), ("wgpu", "--features wgpu`")] {
        let row = row(name).unwrap();
        assert!(row.contains(" no ") && row.contains(cargo), "{row}");
    }
    let json = place.succeed(&["devices", "--json"]).stdout;
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(last["device"], "cpu");
    assert_eq!((&last["works"], &last["is_default"]), (&true.into(), &true.into()));
}

#[test]
fn other_devices_are_refused() {
    let place = Place::new();
    place.refuse(
        &["selftest", "--device", "cuda:1"],
        str!["--device cuda:1: not built in; build with `cargo xtask build --features cuda`"],
    );
    for name in ["tpu", "cpu:1", "wgpu:x"] {
        let ended = place.run(&["--device", name, "devices"]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("--device <NAME>"), "{}", ended.stderr);
    }
}

/// Returns a run of four steps whose `run.json` says that a GPU has computed them.
fn run_of_a_gpu() -> Place {
    let place = resume::place(4);
    place.succeed(&["train", "train.toml"]);
    let mut info: Value = serde_json::from_str(&place.read("run/run.json")).unwrap();
    assert_eq!((&info["device"], info.get("gpu")), (&"cpu".into(), None));
    info["device"] = "cuda:1".into();
    info["gpu"] = "NVIDIA H100".into();
    place.write("run/run.json", info.to_string());
    place
}

const ELSEWHERE: &str = "on cuda:1 (NVIDIA H100), but this process computes on cpu, so results can differ by rounding; use --device cuda:1 to rule this out";

#[test]
fn resuming_on_another_device_is_recorded() {
    let place = run_of_a_gpu();
    for lost in ["run/checkpoints/step-4", "run/model"] {
        std::fs::remove_dir_all(place.path(lost)).unwrap();
    }
    let ended = place.succeed(&["train", "--resume", "run", "--device", "cpu"]);
    let warning = format!("device       the run was computed {ELSEWHERE}\n");
    assert!(ended.stderr.contains(&warning), "{}", ended.stderr);
    let events = place.read("run/events.jsonl");
    let event = events.lines().find(|line| line.contains("\"resumed\"")).unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!((&event["step"], &event["device"]), (&3.into(), &"cpu".into()));
    place.succeed(&["report", "run"]);
    let page = place.read("run/report.html");
    assert!(page.contains("The run resumed from this step on cpu."), "{page}");
    assert!(page.contains("cuda:1 (NVIDIA H100); cpu from step 4 on; "), "{page}");
    // Step 4 was now computed on the CPU.
    let ended = place.succeed(&["replay", "run", "--step", "4", "--prompt", "0", "--sample", "0"]);
    assert!(!ended.stderr.contains("cuda:1"), "{}", ended.stderr);
    let ended = place.succeed(&["train", "--resume", "run", "--verify"]);
    assert!(!ended.stderr.contains("cuda:1"), "{}", ended.stderr);
    // The next resume uses the CPU, too.
    std::fs::remove_dir_all(place.path("run/model")).unwrap();
    let ended = place.succeed(&["train", "--resume", "run"]);
    assert!(!ended.stderr.contains("cuda:1"), "{}", ended.stderr);
    std::fs::remove_dir_all(place.path("run/checkpoints")).unwrap();
    place.refuse(
        &["replay", "run", "--step", "4", "--prompt", "0", "--sample", "0"],
        str!["the policy of step 4 was not saved, and steps 1 to 3 cannot be trained again on one device: cuda:1 (NVIDIA H100); cpu from step 4 on; steps that can be replayed: 1, 2, 3"],
    );
}

#[test]
fn a_run_stays_on_its_device() {
    let place = run_of_a_gpu();
    std::fs::remove_dir_all(place.path("run/model")).unwrap();
    let files = place.files();
    let not_here = "which is used unless --device names another device (of the same type, for equal results): device cuda:1 cannot be used: not built in; build with `cargo xtask build --features cuda`; `grpo devices` lists the devices that work, and `--device cpu` computes on the CPU";
    for (what, command) in [
        ("the run", &["train", "--resume", "run"][..]),
        ("step 4", &["train", "--resume", "run", "--verify"]),
        ("the step", &["replay", "run", "--step", "4", "--prompt", "0", "--sample", "0"]),
    ] {
        let message = format!("{what} was computed on cuda:1 (NVIDIA H100), {not_here}");
        let ended = place.run(command);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains(&message), "{}", ended.stderr);
    }
    assert_eq!(place.files(), files);
}

#[test]
fn steps_of_two_devices_are_not_repeated_on_one() {
    let place = run_of_a_gpu();
    for lost in ["run/checkpoints/step-4", "run/model"] {
        std::fs::remove_dir_all(place.path(lost)).unwrap();
    }
    place.succeed(&["train", "--resume", "run", "--device", "cpu"]);
    // Step 4 was computed on the CPU, the steps before it elsewhere.
    std::fs::remove_dir_all(place.path("run/checkpoints/step-3")).unwrap();
    for device in [&[][..], &["--device", "cpu"]] {
        let verify = [&["train", "--resume", "run", "--verify"], device].concat();
        let ended = place.run(&verify);
        assert!(
            ended.stderr.contains("on cannot be repeated on one device: cuda:1 (NVIDIA H100); cpu from step 4 on; resume without --verify"),
            "{}",
            ended.stderr
        );
    }

    // Resumed on the CPU, but killed before its next step.
    let place = run_of_a_gpu();
    let event = "{\"step\":4,\"at\":\"\",\"event\":\"resumed\",\"device\":\"cpu\"}\n";
    place.write("run/events.jsonl", place.read("run/events.jsonl") + event);
    let ended = place.run(&["train", "--resume", "run", "--verify"]);
    assert!(
        ended.stderr.contains("step 4 was computed on cuda:1 (NVIDIA H100), but the run was then resumed on cpu; choose one of them with --device, or resume without --verify"),
        "{}",
        ended.stderr
    );
}

#[test]
fn differences_name_both_devices() {
    let place = run_of_a_gpu();
    let replay =
        ["replay", "run", "--step", "4", "--prompt", "0", "--sample", "0", "--device", "cpu"];
    let ended = place.succeed(&replay);
    assert!(
        ended.stderr.contains(&format!("device       the step was computed {ELSEWHERE}\n")),
        "{}",
        ended.stderr
    );
    let metrics = place.read("run/metrics.jsonl").replace("\"reward_std\":0.", "\"reward_std\":1.");
    place.write("run/metrics.jsonl", metrics);
    let ended = place.run(&["train", "--resume", "run", "--verify", "--device", "cpu"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&format!("it was computed {ELSEWHERE}\n")), "{}", ended.stderr);
}

#[test]
fn a_check_needs_a_new_folder() {
    let place = Place::new();
    std::fs::create_dir(place.path("check")).unwrap();
    place.write("check/notes.txt", "mine");
    place.refuse(
        &["gpu-check", "check"],
        str!["check is not empty; choose a new folder, then copy the files that you want from it"],
    );
    place.refuse(
        &["gpu-check", "new", "--python", "no/python"],
        str!["--python [..]/no/python: no such file or folder"],
    );
    assert!(!place.path("new").exists());
}
