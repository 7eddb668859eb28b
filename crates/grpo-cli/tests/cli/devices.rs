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
        str!["--device cuda:1: not built in; build with `cargo xtask build --features cuda`"],
    );
    for name in ["tpu", "cpu:1", "wgpu:x"] {
        let ended = place.run(&["--device", name, "devices"]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("--device <NAME>"), "{}", ended.stderr);
    }
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
}
