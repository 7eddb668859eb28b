//! Runs with every kind of external reward, their metrics, and kills during a call. Requires
//! `python3` in `PATH`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::own_rewards::{assert_no_process, place};
use crate::resume::{result, wait_for};
use crate::support::{Ended, Place, signal};
use crate::texts::objects;

/// Scores an HTTP request: the number of `C` in each completion.
fn answer(stream: &mut TcpStream) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let body = loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                break body.to_owned();
            }
        }
        let count = stream.read(&mut buffer).unwrap();
        request.extend(&buffer[..count]);
    };
    let request: Value = serde_json::from_str(&body).unwrap();
    let score = |item: &Value| item["completion"].as_str().unwrap().matches('C').count();
    let rewards: Vec<usize> = request["items"].as_array().unwrap().iter().map(score).collect();
    let reply = json!({"id": request["id"], "rewards": rewards});
    write!(stream, "HTTP/1.0 200 OK\r\n\r\n{reply}").unwrap();
}

const PROGRAM: &str = "import json, sys
for line in sys.stdin:
    request = json.loads(line)
    rewards = [item['completion'].count('C') for item in request['items']]
    print(json.dumps({'id': request['id'], 'rewards': rewards}), flush=True)
";

const REINVENT: &str = "import json, sys
smilies = [smiles.strip() for smiles in sys.stdin]
print(json.dumps({'version': 1, 'payload': {'carbons': [s.count('C') for s in smilies]}}))
";

#[test]
fn every_kind_of_reward_gives_the_same_run_of_20_steps() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/score", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(|stream| answer(&mut stream.unwrap())));
    let place = place("type = \"python\"\nfile = \"my_reward.py\"\n");
    place.write("my_reward.py", "def reward(completion): return completion.count('C')");
    place.write("score.py", PROGRAM);
    place.write("reinvent.py", REINVENT);
    let rewards = [
        "reward={type=\"python\",file=\"my_reward.py\"}".to_owned(),
        "reward={type=\"command\",command=[\"python3\",\"score.py\"],batch_size=3,workers=2}".to_owned(),
        "reward={type=\"command\",command=[\"python3\",\"reinvent.py\"],format=\"reinvent\",property=\"carbons\"}".to_owned(),
        format!("reward={{type=\"http\",url=\"{url}\"}}"),
    ];
    let mut results = Vec::new();
    for (index, reward) in rewards.iter().enumerate() {
        let run = format!("run-{index}");
        let sets = ["--set", "train.steps=20", "--set", "eval.samples=0", "--set", reward];
        let train = ["train", "train.toml", "--run", &run];
        place.succeed(&[&train[..], &sets[..]].concat());
        place.succeed(&["audit", &run]);
        results.push(result(&place.path(&run)));
    }
    assert_eq!(results[0].metrics.len(), 20);
    for (index, other) in results.iter().enumerate().skip(1) {
        assert_eq!(other.metrics, results[0].metrics, "{}", rewards[index]);
        assert!(*other == results[0], "{}: other bytes", rewards[index]);
    }
}

/// Waits in a call at step 4 while a file exists.
const WAITS: &str = "
import os, random, time
here = os.path.dirname(os.path.abspath(__file__))
open(os.path.join(here, 'pids'), 'a').write(f'{os.getpid()}\\n')

def reward(completions, trainer_state, **kwargs):
    if trainer_state.global_step == 4 and os.path.exists(os.path.join(here, 'wait')):
        open(os.path.join(here, 'reached'), 'w').close()
        time.sleep(600)
    return [completion.count('C') + NOISE for completion in completions]
";

/// Starts a run, kills it during the reward of step 4, and resumes it.
fn kill_in_a_call(place: &Place) {
    place.write("wait", "");
    let mut child = place
        .command(&["train", "train.toml", "--set", "train.steps=6"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&place.path("reached"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_no_process(place);
    fs::remove_file(place.path("wait")).unwrap();
    place.succeed(&["train", "--resume", "run", "--run-reward"]);
    place.succeed(&["audit", "run"]);
    assert_no_process(place);
    assert_eq!(objects(&place.read("run/metrics.jsonl")).len(), 6);
}

/// What a run that ends because of its reward prints leads to the end: the same reward resumes, and a
/// fixed one continues in a new run.
#[test]
fn the_printed_remedies_of_a_failed_reward_work() {
    let place = place("type = \"python\"\nfile = \"my_reward.py\"\n");
    let code = "import os
def reward(completions, trainer_state, **kwargs):
    if trainer_state.global_step == 2 and not os.path.exists('works'):
        raise ValueError('bad luck')
    return [completion.count('C') / 9 for completion in completions]
";
    place.write("my_reward.py", code);
    let ended = place.run(&["train", "train.toml", "--set", "eval.samples=0"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let resume =
        "resume       grpo train --resume run --run-reward   # with the same reward files\n";
    assert!(ended.stdout.contains(resume), "{}", ended.stdout);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let error = lines.iter().position(|line| line.starts_with("error: ")).unwrap();
    assert!(
        lines[error].ends_with("reward raised an exception: ValueError: bad luck"),
        "{lines:?}"
    );
    assert_eq!(lines[error + 1], "    Traceback (most recent call last):");
    assert!(lines[error + 2].starts_with("      File \""), "{lines:?}");
    assert_eq!(*lines.last().unwrap(), "    ValueError: bad luck");

    place.write("my_reward.py", code.replace("bad luck", "worse luck"));
    let refused = place.run(&["train", "--resume", "run", "--run-reward"]);
    assert_eq!(refused.code, Some(1));
    let command = "grpo train run/config.toml --set model=run/model --run NEW";
    let remedy = format!(
        "restore the original file, or continue training in a new run, which starts from the policy of this one: `{command}`\n"
    );
    assert!(refused.stderr.ends_with(&remedy), "{}", refused.stderr);
    place.write("my_reward.py", "def reward(completion): return completion.count('C') / 9");
    place.succeed(&command.split(' ').skip(1).collect::<Vec<_>>());
    place.succeed(&["audit", "NEW"]);

    // The program itself is as before.
    place.write("my_reward.py", code);
    place.write("works", "");
    place.succeed(&["train", "--resume", "run", "--run-reward"]);
    place.succeed(&["audit", "run"]);

    // A run that continues an adapter.
    let train = ["train", "train.toml", "--set", "eval.samples=0"];
    place.succeed(&[&train[..], &["--set", "lora={rank=2,alpha=4}", "--run", "first"]].concat());
    fs::remove_file(place.path("works")).unwrap();
    let adapter = ["--set", "adapter=first/adapter", "--run", "second"];
    assert_eq!(place.run(&[&train[..], &adapter].concat()).code, Some(1));
    place.write("my_reward.py", code.replace("bad luck", "worse luck"));
    let refused = place.run(&["train", "--resume", "second", "--run-reward"]);
    let command = "grpo train second/config.toml --set adapter=second/adapter --run THIRD";
    let remedy = format!(": `{}`\n", command.replace("THIRD", "NEW"));
    assert!(refused.stderr.ends_with(&remedy), "{}", refused.stderr);
    place.write("works", "");
    place.succeed(&command.split(' ').skip(1).collect::<Vec<_>>());
}

#[test]
fn a_run_that_is_killed_during_a_call_resumes() {
    let python = "type = \"python\"\nfile = \"my_reward.py\"\n";
    let place = place(python);
    place.write("my_reward.py", WAITS.replace("NOISE", "0"));
    place.succeed(&["train", "train.toml", "--set", "train.steps=6", "--run", "whole"]);
    kill_in_a_call(&place);
    assert!(result(&place.path("run")) == result(&place.path("whole")), "other results");
}

#[test]
fn a_run_with_a_random_reward_that_is_killed_during_a_call_passes_the_audit() {
    let python = "type = \"python\"\nfile = \"my_reward.py\"\ndeterministic = false\n";
    let place = place(python);
    place.write("my_reward.py", WAITS.replace("NOISE", "random.random()"));
    kill_in_a_call(&place);
}

#[test]
fn molecules_are_scored_once_and_their_validity_is_known() {
    let code = "
import os
def reward(completions, log_extra, trainer_state, **kwargs):
    # The trial batch before the first step has no step.
    if trainer_state.global_step is not None:
        with open(os.path.join(os.path.dirname(__file__), 'scored'), 'a') as file:
            file.writelines(completion + '\\n' for completion in completions)
    log_extra('carbons', [completion.count('C') for completion in completions])
    return [1 + completion.count('C') for completion in completions]
";
    let place = place("type = \"python\"\nfile = \"my_reward.py\"\n");
    place.write("my_reward.py", code);
    let guard = "guards=[{watch=\"rewards/valid/mean\",below=0.0,action=\"warn\"}]";
    place.succeed(&["train", "train.toml", "--set", "eval.samples=0", "--set", guard]);
    let scored = place.read("scored");
    let scored: Vec<&str> = scored.lines().collect();
    for (index, smiles) in scored.iter().enumerate() {
        assert!(!scored[..index].contains(smiles), "{smiles} was scored twice");
    }
    let records = place.completions("run");
    let (mut hits, mut asked) = (0.0, 0);
    for line in objects(&place.read("run/metrics.jsonl")) {
        let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line:?}"));
        let of_step = records.iter().filter(|record| Some(record.step) == line["step"].as_u64());
        let valid: Vec<f64> = of_step.map(|record| record.parts["valid"]).collect();
        let mean = valid.iter().sum::<f64>() / valid.len() as f64;
        assert!((number("rewards/valid/mean") - mean).abs() < 1e-12);
        hits += number("reward_cache/hits");
        if line.contains_key("time/reward_item/p50") {
            asked += 1;
            let [p50, p99, max] =
                ["p50", "p99", "max"].map(|n| number(&format!("time/reward_item/{n}")));
            assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{line:?}");
            assert!(number("time/reward_item/slowest_prompt") < 2.0);
            assert!(number("time/reward_item/slowest_sample") < 4.0);
        }
    }
    let valid = records.iter().filter(|record| record.parts["valid"] == 1.0);
    assert!(asked > 0, "no completion was valid");
    assert_eq!(valid.clone().count() as f64, hits + scored.len() as f64);
    for record in &records {
        let is_valid = record.parts["valid"] == 1.0;
        assert_eq!(record.info.is_some(), is_valid, "{record:?}");
        assert_eq!(record.reward == Some(0.0), !is_valid, "{record:?}");
    }
    let one = valid.clone().next().unwrap();
    let (step, prompt) = (one.step.to_string(), one.prompt.to_string());
    let explained = place.succeed(&["explain", "run", "--step", &step, "--prompt", &prompt]).stdout;
    let info = format!("info of sample {}: {}", one.sample, one.info.as_ref().unwrap());
    assert!(explained.contains(&info), "{info}: {explained}");
}

/// Removes spaces that only align columns.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A run in which no completion of a step has a reward learns nothing from it, says so, and is no success.
#[test]
fn steps_without_any_reward_are_named() {
    let none =
        "def reward(completions, trainer_state, **kwargs):\n    return [None] * len(completions)\n";
    let place = place("type = \"python\"\nfile = \"my_reward.py\"\ninvalid = \"send\"\n");
    place.write("my_reward.py", none);
    let guard = "guards=[{watch=\"frac_reward_zero_std\",above=0.9,steps=3,action=\"warn\"}]";
    let sets = ["--set", "train.steps=6", "--set", "eval.samples=0", "--plain", "--set", guard];
    let sets = [&sets[..], &["--set", "preflight.samples=0"]].concat();
    let ended = place.run(&[&["train", "train.toml"][..], &sets].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    for expected in [
        "error: training run run learned nothing: no completion of any step received a reward (invalid or filtered completions are not counted); first reason: the reward abstained; check [reward]\n",
        "warning      step 1: none of the 8 completions has a reward, so nothing was learned from them\n",
        "no reward (8 abstained)",
        "guard        step 3: frac_reward_zero_std was 1, above 0.9, 3 steps in a row",
        "in 6 of 6 steps, rewards were equal within every group or missing, so nothing was learned\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("NaN"), "{said}");
    for line in objects(&place.read("run/metrics.jsonl")) {
        assert_eq!(line["frac_reward_zero_std"], 1.0);
        assert_eq!(line["rewards/abstained"], 8.0);
        assert_eq!(line["reward"], Value::Null);
    }
    let report = place.succeed(&["report", "run"]).stdout;
    assert!(words(&report).contains("failed Signal is consistent"), "{report}");
}

/// A resumed run that never scored anything is no success either.
#[test]
fn a_resumed_run_without_any_reward_learned_nothing() {
    let code = "
import os
def reward(completions, trainer_state, **kwargs):
    up = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'up')
    if trainer_state.global_step == 3 and not os.path.exists(up):
        raise ValueError('the server is down')
    return [None] * len(completions)
";
    let settings = "type = \"python\"\nfile = \"my_reward.py\"\ninvalid = \"send\"\n";
    let place = place(&format!("{settings}cache = false\n"));
    place.write("my_reward.py", code);
    let sets = ["--set", "eval.samples=0", "--set", "preflight.samples=0", "--plain"];
    let ended = place.run(&[&["train", "train.toml"][..], &sets].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("the server is down"), "{}", ended.stderr);
    place.write("up", "");
    let ended = place.run(&["train", "--resume", "run", "--run-reward", "--plain"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let expected = "error: training run run learned nothing: no completion of any step received a reward (invalid or filtered completions are not counted); first reason: the reward abstained; check [reward]\n";
    assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
}

/// `train.max_failed_rewards = 1` allows that all rewards fail, and the trial says so.
#[test]
fn a_run_may_allow_that_all_rewards_fail() {
    let place = place("type = \"python\"\nfile = \"my_reward.py\"\ninvalid = \"send\"\n");
    place.write("my_reward.py", "def reward(completion): raise ValueError('boom')\n");
    let sets = ["--set", "train.max_failed_rewards=1", "--set", "eval.samples=0", "--plain"];
    let ended = place.succeed(&[&["train", "train.toml"][..], &sets].concat());
    let said = format!("{}{}", ended.stdout, ended.stderr);
    for expected in [
        " distinct: no rewards; ",
        "warning: the reward failed for 8 of 8 trial completions; first reason: ",
        "warning: none of the 8 trial completions received a reward, so the policy cannot learn; check [reward] and the prompts\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// Failures that are left out are as visible as others.
#[test]
fn the_first_reason_of_failures_that_abstain_is_printed() {
    let code = "def reward(completions, trainer_state, **kwargs):\n    if trainer_state.global_step == 2:\n        raise ValueError('boom')\n    return [completion.count('C') for completion in completions]\n";
    let place = place(
        "type = \"python\"\nfile = \"my_reward.py\"\ninvalid = \"send\"\ncache = false\non_failure = \"abstain\"\n",
    );
    place.write("my_reward.py", code);
    let ended = place.succeed(&["train", "train.toml", "--set", "eval.samples=0", "--plain"]);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let warning = "warning      step 2: the reward failed for 8 of 8 completions, which are left out (on_failure = \"abstain\"); first reason: completion ";
    assert!(said.contains(warning), "{said}");
    assert!(
        said.contains("ValueError: boom") && said.contains("no reward (8 abstained)"),
        "{said}"
    );
    let shares = objects(&place.read("run/metrics.jsonl"));
    let shares: Vec<f64> =
        shares.iter().map(|line| line["frac_reward_zero_std"].as_f64().unwrap()).collect();
    assert!(shares[0] < 1.0 && shares[1] == 1.0, "{shares:?}");
}

/// The error of a run with failures names the keys that decide.
#[test]
fn an_end_by_failures_names_the_keys_that_decide() {
    let code = "def reward(completions, trainer_state, **kwargs):\n    scores = [1.0] * len(completions)\n    if trainer_state.global_step == 2:\n        scores[:2] = [float('nan')] * 2\n    return scores\n";
    let place =
        place("type = \"python\"\nfile = \"my_reward.py\"\ninvalid = \"send\"\ncache = false\n");
    place.write("my_reward.py", code);
    let train = ["train", "train.toml", "--set", "eval.samples=0"];
    let ended = place.run(&train);
    assert_eq!(ended.code, Some(1));
    let expected = "the reward failed for 2 of 8 completions of step 2, more than train.max_failed_rewards = 0.1 allows; raise it, or set on_failure = \"abstain\" in the section of an external reward";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    place.succeed(&[&train[..], &["--run", "b", "--set", "reward.on_failure=abstain"]].concat());
    place.succeed(&[&train[..], &["--run", "c", "--set", "train.max_failed_rewards=0.3"]].concat());
}

/// A run folder may be somebody else's, with a reward that does anything.
#[test]
fn a_run_folder_runs_nothing_unasked() {
    let code = "open('ran', 'w').close()\ndef reward(completion): return completion.count('C')\n";
    let place = place("type = \"python\"\nfile = \"my_reward.py\"\n");
    place.write("my_reward.py", code);
    place.write("score.py", PROGRAM);
    let short = ["--set", "train.steps=4", "--set", "eval.samples=0", "--set", "save.every=2"];
    let composite = "reward={type=\"composite\",parts=[{name=\"a\",weight=1,reward={type=\"python\",file=\"my_reward.py\"}}]}";
    for (run, more, runs) in [
        ("own", &[][..], "runs my_reward.py with `python3`"),
        ("part", &["--set", composite], "runs my_reward.py with `python3`"),
        (
            "program",
            &["--set", "reward={type=\"command\",command=[\"python3\",\"score.py\"]}"],
            "runs the program `python3 score.py`",
        ),
    ] {
        place.succeed(&[&["train", "train.toml", "--run", run][..], &short, more].concat());
        fs::remove_file(place.path("ran")).ok();
        // The last step was not saved, so the run is not finished.
        fs::remove_dir_all(place.path(run).join("checkpoints/step-4")).unwrap();
        fs::remove_dir_all(place.path(run).join("model")).unwrap();
        let replay = ["replay", run, "--step", "3", "--prompt", "0", "--sample", "1"];
        for command in [
            &["train", "--resume", run, "--plain"][..],
            &["train", "--resume", run, "--plain", "--verify"],
            &replay,
        ] {
            let ended = place.run(command);
            assert_eq!(ended.code, Some(1), "{command:?}");
            let expected = format!(
                "error: the reward of {run} {runs}, as its config.toml says; if you trust this run folder, use `grpo {} --run-reward`\n",
                command.join(" ")
            );
            assert_eq!(ended.stderr, expected);
        }
        for command in [&["report", run][..], &["dynamics", run], &["explain", run, "--step", "3"]]
        {
            place.run(command);
        }
        place.run(&["audit", run]);
        assert!(!place.path("ran").exists(), "{run}");
        place.succeed(&[&replay[..], &["--run-reward"]].concat());
        assert_eq!(place.path("ran").exists(), run != "program");
        place.succeed(&["train", "--resume", run, "--run-reward"]);
        // A finished run is only named.
        place.succeed(&["train", "--resume", run]);
    }
    place.run(&["train", "train.toml", "--run-reward"]).assert_refused(snapbox::str![
        "--run-reward requires --resume RUN; a new run always runs the reward of its configuration"
    ]);
}

/// The reward ignores the signals that end programs, and so does the process that it starts.
#[test]
#[cfg(target_os = "linux")]
fn a_reward_that_hangs_does_not_delay_an_interrupt() {
    let code = "
import os, signal, time
here = os.path.dirname(os.path.abspath(__file__))

def reward(completions, trainer_state, **kwargs):
    if trainer_state.global_step == 2:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.fork()
        open(os.path.join(here, 'pids'), 'a').write(f'{os.getpid()}\\n')
        open(os.path.join(here, 'reached'), 'w').close()
        time.sleep(600)
    return [completion.count('C') for completion in completions]
";
    let evaluation = code.replace("global_step == 2", "global_step is None");
    for (name, code, more, saved) in [
        ("-INT", code, &["--set", "eval.samples=0"][..], true),
        ("-TERM", code, &["--set", "eval.samples=0"], true),
        ("-INT", &evaluation, &["--set", "preflight.samples=0"], false),
        ("-TERM", &evaluation, &["--set", "eval.samples=0"], false),
    ] {
        let place = place("type = \"python\"\nfile = \"my_reward.py\"\n");
        place.write("my_reward.py", code);
        let train = ["train", "train.toml", "--run", "runs/x", "--set", "reward.time_limit=600"];
        let limit = ["--set", "train.reward_time_limit=600"];
        let child = place.spawn(&[&train[..], &limit, more].concat());
        wait_for(&place.path("reached"));
        let begun = Instant::now();
        signal(&child, name);
        let ended = Ended::wait_for(child);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert_no_process(&place);
        let left = fs::read_dir(place.path("runs"));
        let left: Vec<_> =
            left.into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "x"), "{left:?}");
        if saved {
            let said = "interrupted  after step 1 of 3; resume with `grpo train --resume runs/x --run-reward`\n";
            assert!(ended.stdout.ends_with(said), "{}", ended.stdout);
            place.write("my_reward.py", "def reward(completion): return completion.count('C')");
            let refused = place.run(&["train", "--resume", "runs/x", "--run-reward"]);
            assert!(refused.stderr.contains("is not the file that the run was started with"));
        }
    }
}

/// A reward that scores no valid molecule is not judged by the invalid ones, which have a reward of 0, and
/// validity is that of all molecules.
#[test]
fn a_reward_that_scores_no_valid_molecule_ends_the_run() {
    let abstains = "def reward(completions, **_):\n    return [None] * len(completions)\n";
    let fails = "def reward(completions, **_):\n    raise ValueError('no licence')\n";
    for (code, settings, refused, reason) in [
        (abstains, "", "the reward abstained for all ", "the reward abstained"),
        (fails, "on_failure = \"abstain\"\n", "the reward failed for all ", "no licence"),
    ] {
        let place = place(&format!("type = \"python\"\nfile = \"my_reward.py\"\n{settings}"));
        place.write("my_reward.py", code);
        // The trial has enough molecules for some that are valid and some that are not.
        let train = ["train", "train.toml", "--plain", "--set", "train.group_size=32"];
        let ended = place.run(&train);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let error = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(error.contains(refused), "{error}");
        assert!(error.contains(" valid trial completions ("), "{error}");
        assert!(error.contains(" invalid or filtered completions are not counted)"), "{error}");
        assert!(!place.path("run").exists());

        let guard = "guards=[{watch=\"rewards/valid/mean\",below=0.01,action=\"stop\"}]";
        let late = ["--set", "preflight.samples=0", "--set", guard, "--run", "late"];
        let ended = place.run(&[&["train", "train.toml", "--plain"][..], &late].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let expected = "training run late learned nothing: no completion of any step received";
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{}", ended.stderr);
        assert!(!ended.stdout.contains("best molecules"), "{}", ended.stdout);
        let records = place.completions("late");
        for line in objects(&place.read("late/metrics.jsonl")) {
            let of_step = records.iter().filter(|of| Some(of.step) == line["step"].as_u64());
            let valid: Vec<f64> = of_step.map(|record| record.parts["valid"]).collect();
            let mean = valid.iter().sum::<f64>() / valid.len() as f64;
            assert_eq!(valid.len(), 8);
            assert!((line["rewards/valid/mean"].as_f64().unwrap() - mean).abs() < 1e-12);
        }
        assert!(records.iter().any(|record| record.parts["valid"] == 1.0));
        let comparison: Value = serde_json::from_str(&place.read("late/comparison.json")).unwrap();
        let parts = comparison["parts"].as_array().unwrap();
        let valid = parts.iter().find(|part| part["name"] == "valid").unwrap();
        assert!(valid["before"].as_f64().unwrap() > 0.0, "{valid}");
        assert_eq!(comparison["best"].as_array().unwrap().len(), 0, "{comparison}");
        let best = place.succeed(&["best", "late"]);
        let note =
            "note: no valid molecule of late has a reward yet, so there is nothing to list\n";
        assert!(best.stderr.ends_with(note), "{}", best.stderr);
        place.run(&["best", "late", "--min", "QED=0.5"]).assert_refused(snapbox::str![
            "unknown property `QED`; did you mean `qed`? Otherwise, expected[..]"
        ]);
        place.succeed(&["audit", "late"]);
    }
}
