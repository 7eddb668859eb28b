//! `grpo selftest`.

use std::fs;
use std::path::Path;

use snapbox::str;

use crate::support::Place;

/// Reads a built-in fixture.
fn built_in(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-selftest/fixtures");
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn everything_that_is_built_in_passes() {
    let place = Place::new();
    for arguments in [&["selftest"][..], &["selftest", "--device", "cpu"]] {
        let ended = place.succeed(arguments);
        assert_eq!(ended.stderr, "");
        for words in
            [" suite ", "TRL, built in", " f64 ", " f32 ", "difference quotients", " pass "]
        {
            assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
        }
        let last = ended.stdout.lines().last().unwrap();
        assert!(last.contains(" cases, all within tolerance, in "), "{last}");
    }
    let json = place.succeed(&["selftest", "--json", "--quiet"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["passed"], true);
    assert!(json["suites"].as_array().unwrap().len() > 5, "{json}");
    assert!(json["suites"][0]["cases"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(place.files(), []);
}

#[test]
fn a_golden_folder() {
    let place = Place::new();
    fs::create_dir(place.path("golden")).unwrap();
    place.write("golden/losses.json", built_in("losses.json"));
    let ended = place.succeed(&["selftest", "--golden", "golden"]);
    assert!(ended.stdout.contains("TRL, golden/losses.json"), "{}", ended.stdout);
    assert!(ended.stdout.contains("TRL, built in"), "{}", ended.stdout);

    // Change the loss in the third case.
    let golden = built_in("losses.json");
    let cases: Vec<&str> = golden.lines().collect();
    let number = cases[3].split_once("\"loss\":").unwrap().1.split_once(',').unwrap().0;
    let planted = golden.replace(&format!("\"loss\":{number},"), "\"loss\":0.75,");
    assert_ne!(planted, golden);
    place.write("golden/losses.json", planted);
    let ended = place.run(&["selftest", "--golden", "golden"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("1 MISSED"), "{}", ended.stdout);
    let expected = "expected 0.75 (within ";
    let misses: Vec<&str> =
        ended.stdout.lines().filter(|line| line.starts_with("  case 2 (grpo token ")).collect();
    // Compared with loops in f64 and in f32.
    assert_eq!(misses.len(), 3, "{}", ended.stdout);
    assert!(misses.iter().all(|miss| miss.contains("): loss is ") && miss.contains(expected)));
    assert!(ended.stderr.starts_with("error: 3 of "), "{}", ended.stderr);
    assert!(ended.stderr.ends_with(" cases are out of tolerance\n"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_used() {
    let place = Place::new();
    place.refuse(
        &["selftest", "--golden", "absent"],
        str!["`absent` is not a folder; expected one with advantages.json, losses.json or model folders with an expected.json"],
    );
    fs::create_dir(place.path("golden")).unwrap();
    place.refuse(
        &["selftest", "--golden", "golden"],
        str!["`golden` contains neither advantages.json nor losses.json nor a model folder with an expected.json"],
    );
    place.write("golden/advantages.json", &built_in("advantages.json")[..1000]);
    place.refuse(
        &["selftest", "--golden", "golden"],
        str!["`golden/advantages.json` is not valid JSON: unexpected end of input at line 3 column 27"],
    );
    place.write(
        "golden/advantages.json",
        built_in("advantages.json").replace("normalize_then_sum", "normalise"),
    );
    let ended = place.run(&["selftest", "--golden", "golden"]);
    assert_eq!(ended.code, Some(1));
    let expected = "key `multi_objective_aggregation`: unknown variant `normalise`, expected `sum_then_normalize` or `normalize_then_sum`\n";
    assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
}
