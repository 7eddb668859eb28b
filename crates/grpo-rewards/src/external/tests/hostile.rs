//! Tests with misbehaving programs. All of them must be handled as configured, within the time
//! limit and without leaving processes behind.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{build, file, score, totals};
use crate::Outcome;

/// A Python program that writes its process id to `pid` and then misbehaves.
struct Hostile {
    code: &'static str,
    expected: &'static str,
}

const fn hostile(code: &'static str, expected: &'static str) -> Hostile {
    Hostile { code, expected }
}

/// Common code: `say` writes text without a newline, and `good` returns a valid reply to a request.
const BEGIN: &str = "
import json, os, signal, subprocess, sys, time
def pid(): open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')
def say(text): os.write(1, text if isinstance(text, bytes) else text.encode())
def good(line):
    r = json.loads(line)
    return json.dumps({'id': r['id'], 'rewards': [0.5] * len(r['items'])}) + '\\n'
pid()
";

const ALL: &[Hostile] = &[
    hostile("time.sleep(600)", "did not reply within"),
    hostile("sys.stdin.readline(); time.sleep(600)", "did not reply within"),
    hostile("sys.exit(3)", "exited (exit status: 3) without a reply"),
    hostile(
        "sys.stdin.readline(); os.kill(os.getpid(), 9)",
        "exited (signal: 9 (SIGKILL)) without",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 99, \"rewards\": [1, 2]}\\n')",
        "the reply has id 99",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": \"1\", \"rewards\": [1, 2]}\\n')",
        "the reply has id \"1\"",
    ),
    hostile("sys.stdin.readline(); say('{\"rewards\": [1, 2]}\\n')", "missing key `id`"),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1]}\\n')",
        "'rewards' has 1 entries for 2 completions",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1, 2, 3]}\\n')",
        "'rewards' has 3 entries for 2",
    ),
    hostile("sys.stdin.readline(); say('{\"id\": 1}\\n')", "the reply has no 'rewards'"),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [NaN, NaN]}\\n')",
        "of 2): the reward is NaN",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1e400, -Infinity]}\\n')",
        "of 2): the reward is 1e400|of 2): the reward is -Infinity",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [\"0.5\", []]}\\n')",
        "; expected a finite number or null",
    ),
    hostile("sys.stdin.readline(); say('{\"id\": 1, \"rewards\": 1}\\n')", "unexpected reply: "),
    hostile(
        "sys.stdin.readline(); say('[0.5, 0.5]\\n')",
        "the reply is a list; expected an object such as {\"id\": 1, \"rewards\": [0.5, 1.0]}",
    ),
    hostile("sys.stdin.readline(); say('0.5\\n')", "the reply is a number; expected an object"),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1, 2], \"components\": {\"x\": [1, 2], \"x\": [3, 4]}}\\n')",
        "the reply has the duplicate key `x`",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1, 2], \"error\": \"no licence\"}\\n')",
        "no licence",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1, 2], \"components\": {\"x\": [1, 2]}}\\n')",
        "unexpected component 'x' in the reply",
    ),
    hostile(
        "say('loading the model...\\n'); say(good(sys.stdin.readline()))",
        "the reply is not valid JSON",
    ),
    hostile("sys.stdin.readline(); say('\\n')", "the reply is empty"),
    hostile("sys.stdin.readline(); say(b'\\xff\\xfe\\n')", "the reply is not UTF-8"),
    hostile("sys.stdin.readline(); say('[' * 100000 + '\\n')", "the reply is not valid JSON"),
    hostile("sys.stdin.readline()\nwhile True: say(b'x' * 65536)", "wrote more than 16 MiB"),
    hostile("say(good(sys.stdin.readline()).rstrip()); time.sleep(600)", "did not reply within"),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rew'); os._exit(0)",
        "exited (exit status: 0) without a reply after writing",
    ),
    hostile("os.close(1); time.sleep(600)", "closed its standard output"),
    hostile("os.close(0); time.sleep(600)", "did not reply within"),
    hostile(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)",
        "did not reply within",
    ),
    hostile("if os.fork() == 0: pid()\ntime.sleep(600)", "did not reply within"),
    hostile(
        "subprocess.Popen(['sleep', '600'])\nsys.exit(1)",
        "closed its standard output|exited (exit status: 1)|did not reply",
    ),
    hostile("if os.fork() == 0:\n    pid(); time.sleep(600)\nsys.exit(1)", "did not reply within"),
    hostile("os.write(2, b'e' * 3_000_000); sys.exit(1)", "last lines of its standard error:\neee"),
    hostile("while True: os.write(2, b'e' * 65536)", "did not reply within"),
    hostile(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: pid()\n    time.sleep(600)\ntime.sleep(600)",
        "did not reply within",
    ),
    hostile(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        pid(); time.sleep(600)\nos._exit(1)",
        "closed its standard output|did not reply within",
    ),
    hostile("for c in good(sys.stdin.readline()): say(c); time.sleep(1)", "did not reply within"),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [0.5,'); time.sleep(600)",
        "did not reply within",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1e999999999, 1]}\\n'.replace(', 1]', ', -1e99999]'))",
        "of 2): the reward is 1e999999999|of 2): the reward is -1e99999",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [[1], true]}\\n')",
        "; expected a finite number or null",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1, 2], \"rewards\": [3]}\\n')",
        "the reply has the duplicate key `rewards`",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1, \"rewards\": [1, 2], \"errors\": [\"no\"]}\\n')",
        "'errors' has 1 entries for 2",
    ),
    hostile(
        "sys.stdin.readline(); say('{\"id\": 1.0, \"rewards\": [1, 2]}\\n')",
        "the reply has id 1.0",
    ),
    hostile("sys.stdin.readline(); say(os.urandom(65536) + b'\\n')", "the reply is not"),
];

/// Returns the processes listed in a file that are still running.
fn alive(pids: &Path) -> Vec<i32> {
    let all = fs::read_to_string(pids).unwrap_or_default();
    let all = all.lines().filter_map(|line| line.parse().ok());
    all.filter(|pid| kill(Pid::from_raw(*pid), None).is_ok() && !is_zombie(*pid)).collect()
}

/// Returns `true` if a process has exited but has not been reaped by its parent.
fn is_zombie(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

#[track_caller]
fn assert_none_alive(pids: &Path, code: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    while !alive(pids).is_empty() {
        assert!(Instant::now() < end, "{code}: {:?} live still", alive(pids));
        thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn outcomes(hostile: &str, more: &Value, completions: &[&str]) -> Vec<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let script = file(&folder, "hostile.py", &format!("{BEGIN}{hostile}\n"));
    let pids = folder.path().join("pids");
    let mut settings =
        json!({"type": "command", "command": ["python3", script, pids], "time_limit": 60.0});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reward = build(settings);
    let started = Instant::now();
    let outcomes = score(&*reward, completions);
    assert!(started.elapsed() < Duration::from_secs(120), "{hostile}");
    drop(reward);
    assert_none_alive(&pids, hostile);
    outcomes
}

fn check(all: &[Hostile]) {
    for Hostile { code, expected } in all {
        // Programs that exit have enough time to do so, even on a busy machine.
        let limit = if expected.contains("did not reply") { 1.0 } else { 60.0 };
        for outcome in outcomes(code, &json!({"time_limit": limit}), &["CCO", "CCN"]) {
            let reason = outcome.failure().unwrap_or_else(|| panic!("{code}: {outcome:?}"));
            assert!(expected.split('|').any(|one| reason.contains(one)), "{code}: {reason}");
        }
    }
}

/// The tests are split so that they can run in parallel.
#[test]
fn hostile_programs_fail_with_a_sentence_1() {
    check(&ALL[..10]);
}

#[test]
fn hostile_programs_fail_with_a_sentence_2() {
    check(&ALL[10..20]);
}

#[test]
fn hostile_programs_fail_with_a_sentence_3() {
    check(&ALL[20..30]);
}

#[test]
fn hostile_programs_fail_with_a_sentence_4() {
    check(&ALL[30..]);
}

#[test]
fn null_abstains_for_all_completions() {
    let code = "\nfor line in sys.stdin: say(good(line).replace('0.5', 'null'))";
    assert_eq!(
        outcomes(code, &json!({}), &["a", "b"]),
        [Outcome::abstained(), Outcome::abstained()]
    );
}

/// A program that exits at once is started a limited number of times.
#[test]
fn a_program_that_always_exits_is_not_started_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = file(&folder, "exits.py", &format!("{BEGIN}sys.exit(1)\n"));
    let pids = folder.path().join("pids");
    let reward = build(json!({"type": "command", "command": ["python3", script, pids]}));
    let outcomes = score(&*reward, &["C"; 200]);
    assert!(outcomes.iter().all(|outcome| outcome.failure().is_some()));
    let started = fs::read_to_string(&pids).unwrap().lines().count();
    assert!(started <= 40, "{started}");
}

#[test]
fn what_a_failure_does_is_configured() {
    let code = "\nfor line in sys.stdin: say(good(line).replace('0.5', 'NaN', 1))";
    let of =
        |on_failure: &str| outcomes(code, &json!({"on_failure": on_failure}), &["a", "b", "c"]);
    assert_eq!(totals(&of("fail")), [None, Some(0.5), Some(0.5)]);
    assert_eq!(of("abstain")[0], Outcome::abstained());
    assert_eq!(totals(&of("abstain")), [None, Some(0.5), Some(0.5)]);
    assert!(
        of("stop").iter().all(|outcome| outcome.failure().is_some_and(|why| why.contains("NaN")))
    );
}

#[test]
fn a_program_that_dies_of_one_completion_costs_only_this_one() {
    let code =
        "\nfor line in sys.stdin:\n    if 'POISON' in line: os._exit(1)\n    say(good(line))";
    let mut completions = vec!["C"; 40];
    completions[17] = "POISON";
    let got =
        outcomes(code, &json!({"batch_size": 16, "workers": 2, "time_limit": 10.0}), &completions);
    for (index, outcome) in got.iter().enumerate() {
        assert_eq!(outcome.total().is_none(), index == 17, "{index}: {outcome:?}");
    }
}

/// Docking programs hang at single molecules. The others of the request keep their rewards, and the
/// molecule is not sent again and again.
#[test]
fn a_completion_that_hangs_costs_only_itself_and_is_remembered() {
    for (poison, expected, again) in [
        ("time.sleep(600)", "did not reply within 3s", "takes longer than reward.time_limit"),
        ("os._exit(1)", "exited (exit status: 1)", "makes the program exit"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let code = format!(
            "{BEGIN}\nfor line in sys.stdin:\n    texts = [item['completion'] for item in json.loads(line)['items']]\n    open(sys.argv[1] + '.calls', 'a').write(' '.join(texts) + '\\n')\n    if 'POISON' in texts: {poison}\n    say(good(line))"
        );
        let script = file(&folder, "docks.py", &code);
        let pids = folder.path().join("pids");
        let reward = build(json!({
            "type": "command", "command": ["python3", script, pids], "batch_size": 4, "workers": 2,
            "time_limit": 3.0,
        }));
        let mut completions = vec!["C"; 8];
        completions[5] = "POISON";
        let mut reasons = Vec::new();
        for _step in 0..5 {
            let got = score(&*reward, &completions);
            for (index, outcome) in got.iter().enumerate() {
                assert_eq!(outcome.total().is_none(), index == 5, "{poison} {index}: {outcome:?}");
            }
            reasons.push(got[5].failure().unwrap().to_owned());
        }
        assert!(reasons[0].contains(expected), "{reasons:?}");
        assert!(reasons[1].contains(expected), "{reasons:?}");
        let left = format!("completion \"POISON\" is not sent again, because it {again}");
        assert_eq!(reasons[2..], vec![left; 3]);
        let calls = fs::read_to_string(folder.path().join("pids.calls")).unwrap();
        let of_poison: Vec<&str> = calls.lines().filter(|line| line.contains("POISON")).collect();
        // An idle program may have exited in the meantime, so a crash is tried again in a new one.
        assert!(of_poison.len() <= 8, "{of_poison:?}");
        let alone = of_poison.iter().filter(|line| **line == "POISON").count();
        assert!((2..=4).contains(&alone), "{of_poison:?}");
        drop(reward);
        assert_none_alive(&pids, poison);
    }
}

/// A program that ignores the signals of an interrupt.
#[test]
fn a_cancelled_reward_ends_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\nif os.fork() == 0: pid()\ntime.sleep(600)";
    let script = file(&folder, "deaf.py", &format!("{BEGIN}{code}\n"));
    let pids = folder.path().join("pids");
    let reward = build(json!({
        "type": "command", "command": ["python3", script, pids], "batch_size": 1, "workers": 2,
        "time_limit": 600.0,
    }));
    let begun = Instant::now();
    let outcomes = thread::scope(|scope| {
        let scoring = scope.spawn(|| score(&*reward, &["a", "b", "c", "d"]));
        while fs::read_to_string(&pids).unwrap_or_default().lines().count() < 4 {
            thread::sleep(Duration::from_millis(10));
        }
        reward.cancel();
        scoring.join().unwrap()
    });
    for outcome in outcomes {
        assert_eq!(outcome.failure(), Some("the run was interrupted"));
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_none_alive(&pids, code);
}

/// The first reply is valid. The second line is read as the reply to the next request.
#[test]
fn a_program_that_answers_twice_is_found_out_and_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let code = format!("{BEGIN}\nfor line in sys.stdin: say(good(line) + good(line))");
    let script = file(&folder, "twice.py", &code);
    let pids = folder.path().join("pids");
    let reward = build(json!({"type": "command", "command": ["python3", script, pids]}));
    let texts: Vec<Outcome> = (0..3).flat_map(|_| score(&*reward, &["C"])).collect();
    assert_eq!(totals(&texts), [Some(0.5), None, Some(0.5)]);
    let reason = texts[1].failure().unwrap();
    assert!(reason.contains("the reply has id 1, but the request has id 2"), "{reason}");
    drop(reward);
    assert_none_alive(&pids, "answers twice");
}

/// A pipe has a buffer of 64 KiB. Neither side must block while the other one is writing.
#[test]
fn large_requests_and_replies_do_not_block() {
    let code = "\nfor line in sys.stdin:\n    say(' ' * 1000000 + good(line))";
    let long = "C".repeat(300_000);
    let got = outcomes(code, &json!({"time_limit": 30.0}), &[&long, &long]);
    assert_eq!(totals(&got), [Some(0.5), Some(0.5)]);
}
