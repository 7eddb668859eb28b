//! `grpo bench`.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{Ended, Place};

fn bench(arguments: &[&str], input: &str) -> Output {
    let place = Place::new();
    let mut command = place.command(&[&["bench"], arguments].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program may already have exited with an error.
    let _broken = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_case_is_served_line_by_line() {
    let output = bench(&["--case", "matmul-small", "--serve", "--threads", "2"], "run\nrun\n");
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output);
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["case"], &lines[0]["threads"]), (&"matmul-small".into(), &2.into()));
    assert_eq!(lines[0]["device"], "cpu");
    for answer in &lines[1..] {
        let number = |key: &str| answer[key].as_f64().unwrap();
        assert!(number("seconds") >= 0.5 && number("work") > 0.0, "{answer}");
        assert_eq!(number("work"), number("flops"));
        assert!(!cfg!(target_os = "linux") || number("peak_bytes") > 0.0, "{answer}");
    }
}

#[test]
fn cases_are_listed() {
    let output = bench(&["--list"], "");
    let lines = lines(&output);
    let step = lines.iter().find(|case| case["name"] == "step-small").unwrap();
    let expect =
        r#"{"name":"step-small","unit":"steps","peer":true,"limit":"matmul-small","quick":true}"#;
    assert_eq!(step.to_string(), expect);
}

#[test]
fn points_of_an_axis_are_listed_together() {
    let output = bench(&["--list-scaling"], "");
    let lines = lines(&output);
    let of = |line: &Value| (line["kind"].to_string(), line["axis"].to_string());
    let mut axes: Vec<_> = lines.iter().map(of).collect();
    axes.dedup();
    assert_eq!(axes.len(), 8, "{axes:?}");
    let expect = r#"{"name":"sampling-6.4M-64x48","axis":"threads","kind":"sampling","model":"6.4M","parameters":6501376,"completions":64,"tokens":48}"#;
    assert_eq!(lines[0].to_string(), expect);
}

#[test]
fn results_are_drawn() {
    let place = Place::new();
    place.write("all.json", "{}");
    place.run(&["bench", "--draw", "all.json"]).assert_refused(
        "all.json is not a results file of `cargo xtask bench --scaling`: missing key `points` at line 1 column 2",
    );
    let point = r#"{"axis":"batch","kind":"training","model":"6.4M","parameters":6386688,"completions":8,"tokens":48,"threads":2,"rate":500.0}"#;
    place.write("all.json", format!(r#"{{"points":[{point}]}}"#));
    place.succeed(&["bench", "--draw", "all.json"]);
    for (axis, dots) in [("threads", 0), ("batch", 1), ("tokens", 0), ("size", 0)] {
        let svg = place.read(&format!("all-{axis}.svg"));
        assert_eq!(svg.matches("<circle").count(), dots, "{axis}: {svg}");
    }
}

#[test]
fn bad_input_is_refused() {
    let check = |arguments: &[&str], input: &str, expect: &'static str| {
        Ended::of(bench(arguments, input)).assert_refused(expect);
    };
    check(
        &["--case", "matmul"],
        "",
        "`matmul` is not a case or point; list them with --list or --list-scaling",
    );
    check(
        &["--case", "matmul-small", "--serve"],
        "walk\n",
        "expected `run` on standard input, got `walk`",
    );
}
