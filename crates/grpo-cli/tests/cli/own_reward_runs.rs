//! Runs with every kind of external reward, their metrics, and kills during a call. Requires
//! `python3` in `PATH`.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};

use crate::own_rewards::{assert_no_process, place};
use crate::resume::{result, wait_for};
use crate::support::Place;
use crate::texts::objects;

/// Scores an HTTP request: the number of `C` in each completion.
fn answer(stream: &mut TcpStream) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let body = loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
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
    place.succeed(&["train", "--resume", "run"]);
    place.succeed(&["audit", "run"]);
    assert_no_process(place);
    assert_eq!(objects(&place.read("run/metrics.jsonl")).len(), 6);
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
