//! `grpo devices` and `--device`. The tests run without a GPU, so they use the CPU.

use snapbox::str;

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
        str!["--device cuda:1: not built in; build with `cargo xtask train --features cuda`"],
    );
    for name in ["tpu", "cpu:1", "wgpu:x"] {
        let ended = place.run(&["--device", name, "devices"]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("--device <NAME>"), "{}", ended.stderr);
    }
}

#[test]
fn the_cpu_computes_what_the_cpu_computes() {
    let place = Place::new();
    let ended = place.succeed(&["gpu-check", "check"]);
    assert!(ended.stdout.contains("selftest     passed"), "{}", ended.stdout);
    assert_eq!(ended.stdout.matches(": agrees (within ").count(), 9, "{}", ended.stdout);
    let report = std::fs::read_to_string(place.path("check/gpu-check.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["passed"], &report["device"]), (&true.into(), &"cpu".into()));
    for of in report["differences"].as_array().unwrap() {
        assert_eq!(of["cpu"], of["device"], "{of}");
        assert!(of["cpu"].as_f64().unwrap() > 0.0, "{of}");
    }
    for [cpu, device] in report["runs"].as_array().unwrap().as_chunks::<2>().0 {
        assert_eq!(cpu["rewards"].as_array().unwrap().len(), 10, "{cpu}");
        assert_eq!(cpu["rewards"], device["rewards"], "{cpu}");
        assert!(device["tokens_per_second"].as_f64().unwrap() > 0.0, "{device}");
    }
    place.refuse(
        &["gpu-check", "check"],
        str!["check is not empty; choose a new folder, then copy the files that you want from it"],
    );
}
