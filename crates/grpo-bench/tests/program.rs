//! Tests for the output and exit status of the `grpo-bench` program.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn grpo_bench(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_grpo-bench"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
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
    let output = grpo_bench(&["--case", "matmul-small", "--serve", "--threads", "2"], "run\nrun\n");
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output);
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["case"], &lines[0]["threads"]), (&"matmul-small".into(), &2.into()));
    for answer in &lines[1..] {
        let number = |key: &str| answer[key].as_f64().unwrap();
        assert!(number("seconds") >= 0.5 && number("work") > 0.0, "{answer}");
        assert_eq!(number("work"), number("flops"));
        assert!(!cfg!(target_os = "linux") || number("peak_bytes") > 0.0, "{answer}");
    }
}

#[test]
fn cases_are_listed() {
    let output = grpo_bench(&["--list"], "");
    let lines = lines(&output);
    let step = lines.iter().find(|case| case["name"] == "step-small").unwrap();
    let expect =
        r#"{"name":"step-small","unit":"steps","peer":true,"limit":"matmul-small","quick":true}"#;
    assert_eq!(step.to_string(), expect);
}

#[test]
fn reports_bad_input() {
    let check = |arguments: &[&str], input: &str, expect: &str| {
        let output = grpo_bench(arguments, input);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), expect);
    };
    check(&["--case", "matmul"], "", "error: there is no case `matmul`; --list shows all\n");
    check(
        &["--case", "matmul-small", "--serve"],
        "walk\n",
        "error: expected `run` on standard input, got `walk`\n",
    );
}
