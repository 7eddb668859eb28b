//! `grpo judge` with a recorded server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use snapbox::data::Inline;
use snapbox::str;

use crate::support::Place;

/// Starts a server that answers each question with `answer`. Returns its URL and the number of its
/// requests.
fn server(answer: impl Fn(&str) -> String + Copy + Send + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut length = 0;
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap() > 2 {
                    let header = line.to_ascii_lowercase();
                    if let Some(value) = header.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let body: Value = serde_json::from_slice(&body).unwrap();
                let reply = answer(body["messages"][0]["content"].as_str().unwrap());
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{reply}", reply.len()).unwrap();
            });
        }
    });
    (url, requests)
}

fn said(text: &str) -> String {
    let message = json!({"role": "assistant", "content": text});
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 2});
    let choice = json!({"message": message, "finish_reason": "stop"});
    json!({"model": "m-2026", "choices": [choice], "usage": usage}).to_string()
}

/// Prefers the response with "good" in it, and the first one if neither has.
fn fair(question: &str) -> String {
    let first = question.find("a good reply").unwrap_or(usize::MAX);
    let second = question.find("a bad reply").unwrap_or(usize::MAX);
    said(&format!("Because.\nVERDICT: {}", if first <= second { "A" } else { "B" }))
}

fn place() -> Place {
    let place = Place::new();
    let lines = |replies: [&str; 3]| -> String {
        let line = |(index, reply): (usize, &str)| {
            json!({"prompt": format!("tweet {index}"), "completion": reply}).to_string() + "\n"
        };
        replies.into_iter().enumerate().map(line).collect()
    };
    place.write("a.jsonl", lines(["a good reply", "a bad reply", "same"]));
    place.write("b.jsonl", lines(["a bad reply", "a good reply", "same"]));
    place
}

#[test]
fn pairs_are_judged_in_both_orders() {
    let place = place();
    let (url, requests) = server(fair);
    let endpoint = ["--endpoint", &url, "--model", "m", "--cache", "cache.jsonl"];
    let judge = [&["judge", "a.jsonl", "b.jsonl"], &endpoint[..]].concat();
    let ended = place.succeed(&[&judge[..], &["--prices", "100,1000", "-o", "j.json"]].concat());
    // One win, one loss, and a tie, because the judge prefers the first of equal responses.
    let expected =
        "pairs        3: 1 won, 1 tied, 1 lost; 0 answers unparsable, 0 truncated, 0 missing\n";
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
    // Five requests: both questions about the third pair are the same.
    assert_eq!(requests.load(Ordering::Relaxed), 5);
    let expected =
        "requests     5 (0 retried, 1 answers from the cache), 50 + 10 tokens, cost 0.0150\n";
    assert!(ended.stdout.ends_with(expected), "{}", ended.stdout);
    assert!(ended.stdout.contains("sign test p = 1.0000\n"), "{}", ended.stdout);
    let found: Value = serde_json::from_str(&place.read("j.json")).unwrap();
    assert_eq!(found["summary"]["win_rate"], 0.5);
    assert_eq!(found["pairs"].as_array().map(Vec::len), Some(3));
    let settings =
        ["file", "other", "per_prompt", "model", "reported_models", "max_tokens", "seed"];
    let expected = json!(["a.jsonl", "b.jsonl", 1, "m", ["m-2026"], 512, 42]);
    assert_eq!(json!(settings.map(|key| &found[key])), expected);
    let explanations = json!(["Because.\nVERDICT: A", "Because.\nVERDICT: B"]);
    assert_eq!(found["pairs"][0]["explanations"], explanations);
    assert_eq!([&found["pairs"][0]["a"], &found["pairs"][0]["b"]], ["a good reply", "a bad reply"]);
    // A second run needs no requests, and agrees with itself.
    let again = [&judge[..], &["--agreement-with", "j.json"]].concat();
    let ended = place.succeed(&again);
    assert_eq!(requests.load(Ordering::Relaxed), 5);
    assert!(
        ended.stdout.contains("agreement 1.0000, kappa 1.0000 over 3 pairs"),
        "{}",
        ended.stdout
    );
}

/// Several answers per prompt. For one prompt, one of the files has fewer than were asked for.
#[test]
fn several_answers_per_prompt_are_judged() {
    let place = place();
    let text = place.read("a.jsonl");
    place.write("a.jsonl", text.clone() + &text);
    let b = place.read("b.jsonl");
    place.write("b.jsonl", b.clone() + b.lines().next().unwrap() + "\n");
    let (url, _) = server(fair);
    let judge = ["judge", "a.jsonl", "b.jsonl", "--endpoint", &url, "--model", "m"];
    let ended = place.succeed(&[&judge[..], &["--per-prompt", "2"]].concat());
    // The sign test assumes one pair per prompt.
    assert!(ended.stdout.contains("sign test p = –\n"), "{}", ended.stdout);
    let expected = "answers      1 to 2 per prompt; fewer than --per-prompt 2 for 2 of 3 prompts\n";
    assert!(ended.stdout.contains(expected), "{}", ended.stdout);
}

#[test]
fn inputs_are_refused_before_the_first_request() {
    let place = place();
    let (url, requests) = server(fair);
    let refuse = |arguments: &[&str], expected: Inline| {
        let endpoint = ["--endpoint", &url, "--model", "m"];
        place.refuse(&[&["judge"], arguments, &endpoint].concat(), expected);
    };
    place.write("c.jsonl", "{\"prompt\": \"other\", \"completion\": \"x\"}\n");
    refuse(
        &["a.jsonl", "c.jsonl"],
        str![[
            r#"the prompt "other" is in c.jsonl, but not in a.jsonl; judge answers to the same prompts"#
        ]],
    );
    let first = place.read("a.jsonl").lines().next().unwrap().to_owned() + "\n";
    place.write("first.jsonl", first);
    refuse(
        &["a.jsonl", "first.jsonl"],
        str![[
            r#"the prompt "tweet 1" is in a.jsonl, but not in first.jsonl; judge answers to the same prompts"#
        ]],
    );
    refuse(
        &["first.jsonl", "a.jsonl"],
        str![[
            r#"the prompt "tweet 1" is in a.jsonl, but not in first.jsonl; judge answers to the same prompts"#
        ]],
    );
    place.write("texts.txt", "one\ntwo\n");
    refuse(
        &["texts.txt"],
        str![
            "texts.txt: grpo judge needs a prompt for each answer; add the prompts, or name their key with --prompt-column"
        ],
    );
    place.write("criteria.txt", " \n");
    refuse(
        &["a.jsonl", "--criteria", "criteria.txt"],
        str!["--criteria criteria.txt is empty; write what makes an answer good"],
    );
    refuse(
        &["a.jsonl", "b.jsonl", "--cache", "./b.jsonl"],
        str!["./b.jsonl is the input; use another file for --cache"],
    );
    place.write("array.json", "[1]");
    refuse(
        &["a.jsonl", "b.jsonl", "--agreement-with", "array.json"],
        str!["array.json has no judged pairs; use a file that `grpo judge -o` wrote"],
    );
    place.run(&["judge", "a.jsonl", "b.jsonl", "--endpoint", &url, "--model", "m", "-o", "j.json"]);
    let sent = requests.load(Ordering::Relaxed);
    let changed = place.read("b.jsonl").replace("a good reply", "a better reply");
    place.write("d.jsonl", changed);
    refuse(
        &["a.jsonl", "d.jsonl", "--agreement-with", "j.json"],
        str![[
            r#"--agreement-with j.json: the text `b` of pair 1 of the other judge is "a good reply"; expected the same pairs in the same order for both judges"#
        ]],
    );
    assert_eq!(requests.load(Ordering::Relaxed), sent);
}

#[test]
fn settings_are_refused_before_the_first_request() {
    let place = place();
    place.write("notes.txt", "notes\n");
    let (url, requests) = server(fair);
    let refuse = |arguments: &[&str], expected: Inline| {
        let endpoint = ["--endpoint", &url, "--model", "m"];
        place.refuse(&[&["judge"], arguments, &endpoint].concat(), expected);
    };
    refuse(
        &["a.jsonl", "--extra", "{\"stream\": true}"],
        str![
            "--extra is an object with the key `stream`; expected keys other than `model`, `messages`, `stream` and `n`"
        ],
    );
    refuse(&["a.jsonl", "--retries", "101"], str!["--retries is 101; expected 0 to 100"]);
    refuse(
        &["a.jsonl", "--longest-pause=-1"],
        str!["--longest-pause is -1; expected seconds between 0 and 86400"],
    );
    refuse(
        &["a.jsonl", "--ca-file", "notes.txt"],
        str!["--ca-file is notes.txt (no certificate); expected a PEM file with certificates"],
    );
    let ended =
        place.run(&["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "--extra", "7"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let expected = "error: --extra 7: expected a JSON object, e.g. '{\"seed\": 7}'";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    let long = format!("{{\"a\":{}", "[".repeat(5000));
    let ended =
        place.run(&["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "--extra", &long]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.len() < 300, "{}", ended.stderr);
    for port in ["99999", "65536", "0", "-1", "", "80x"] {
        let url = format!("http://127.0.0.1:{port}");
        place.refuse(
            &["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "-o", "j.json"],
            format!("--endpoint is \"{url}\" (the port `{port}` is not a number from 1 to 65535); expected a base URL such as http://localhost:8000 or https://api.openai.com/v1, without user, query and `/chat/completions`"),
        );
    }
    refuse(
        &["a.jsonl", "--cache", "/dev/full"],
        str![
            "/dev/full: it is a named pipe, device or socket, not a file; choose another file for the cache"
        ],
    );
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

/// Results that cannot be written would lose the costs of all requests.
#[test]
fn an_output_that_cannot_be_written_is_refused_before_the_first_request() {
    let place = place();
    let (url, requests) = server(fair);
    place.write("old.json", "{}");
    std::fs::create_dir(place.path("folder")).unwrap();
    let long = "j".repeat(300);
    for (output, expected) in [
        ("no/such/j.json", "the folder no/such does not exist; create it first"),
        ("folder", "folder is a folder, not a file"),
        ("new/", "new/ is the path of a folder; expected that of a file, such as new"),
        ("new/.", "new/. is the path of a folder; expected that of a file, such as new"),
        (&long, "cannot write jjj"),
        ("/proc/x.json", "cannot write /proc/x.json"),
        ("/dev/full", "cannot write /dev/full: no space left on the disk"),
        ("a.jsonl", "a.jsonl is the input; use another file for -o"),
    ] {
        let judge = ["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "--force"];
        let before = place.files();
        let ended = place.run(&[&judge[..], &["-o", output]].concat());
        assert_eq!(ended.code, Some(1), "{output}");
        assert!(ended.stderr.contains(expected), "{output}: {}", ended.stderr);
        assert_eq!(place.files(), before, "{output}");
    }
    place.refuse(
        &["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "-o", "old.json"],
        str!["old.json already exists; choose another file, or replace it with --force"],
    );
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

#[test]
fn a_judge_without_a_usable_answer_fails() {
    let place = place();
    let (url, _) = server(|_| said("Who knows?"));
    let judge = ["--endpoint", &url, "--model", "m"];
    let check = |files: &[&str], more: &[&str], expected: &str| {
        let ended = place.run(&[&["judge"], files, &judge, more].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let error = ended.stderr.lines().last().unwrap_or_default();
        assert_eq!(error, format!("error: {expected}"));
        assert!(ended.stdout.contains("\nrequests     "), "{}", ended.stdout);
    };
    let advice = "0 truncated, 0 missing; use another --model, or raise --max-tokens";
    let texts = format!("none of the 3 texts has a usable answer: 3 unparsable, {advice}");
    check(&["a.jsonl"], &[], &texts);
    check(&["a.jsonl"], &["-o", "j.json"], &format!("{texts}; the judge's answers are in j.json"));
    let kept: Value = serde_json::from_str(&place.read("j.json")).unwrap();
    assert_eq!(kept["texts"].as_array().map(Vec::len), Some(3));
    let pairs =
        format!("none of the 3 pairs has usable answers in both orders: 6 unparsable, {advice}");
    check(&["a.jsonl", "b.jsonl"], &[], &pairs);

    // Two judges of which only one has an opinion; the answers of the other are kept.
    let (url, _) = server(|_| said("SCORE: 5"));
    let rate = ["judge", "a.jsonl", "--endpoint", &url, "--model", "m"];
    let compare = [&rate[..], &["--agreement-with", "j.json", "-o", "two.json"]].concat();
    let ended = place.run(&compare);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("; the judge's answers are in two.json\n"), "{}", ended.stderr);
    let kept: Value = serde_json::from_str(&place.read("two.json")).unwrap();
    assert_eq!(kept["texts"][2]["score"]["given"], 5);
}

/// Messages name the options of the command, and a redirect its target.
#[test]
fn failures_of_servers_name_options() {
    let place = place();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let replies = [
        ("HTTP/1.1 401 Unauthorized\r\n", "set --api-key-env to the environment variable"),
        ("HTTP/1.1 429 Too Many Requests\r\n", "lower --parallel, or check the quota"),
        ("HTTP/1.1 400 Bad Request\r\n", "check the model, --max-tokens and --extra, and the"),
        (
            "HTTP/1.1 301 Moved\r\nlocation: https://u:pw@b/v1/chat/completions\r\n",
            "https://***@b/v1",
        ),
        ("hello\r\n", "the reply is damaged: it does not start with HTTP/1.0 or HTTP/1.1"),
    ];
    thread::spawn(move || {
        for (stream, (reply, _)) in listener.incoming().zip(replies) {
            let mut stream = stream.unwrap();
            let _request = stream.read(&mut [0; 1 << 16]).unwrap();
            write!(stream, "{reply}content-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    place.write("one.jsonl", place.read("a.jsonl").lines().next().unwrap());
    for (_, expected) in replies {
        let judge = ["judge", "one.jsonl", "--endpoint", &url, "--model", "m", "--retries", "0"];
        let ended = place.run(&judge);
        assert_eq!(ended.code, Some(1), "{expected}");
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
        for word in
            ["`max_tokens`", "`extra`", "`parallel`", "`api_key_env`", "start the server", ":pw@"]
        {
            assert!(!ended.stderr.contains(word), "{expected}: {}", ended.stderr);
        }
    }
}

#[test]
fn answers_are_rated_and_nonsense_is_counted() {
    let place = place();
    let (url, _) = server(|question| {
        said(if question.contains("a good reply") { "SCORE: 9" } else { "Who knows?" })
    });
    let ended = place.succeed(&["judge", "a.jsonl", "--endpoint", &url, "--model", "m"]);
    let expected =
        "score        9.0000 over 1 of 3 texts; 2 answers unparsable, 0 truncated, 0 missing\n";
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);

    // Two judges rate the same answers.
    let rated = |name: &str, scores: [u8; 3]| {
        let (url, _) = server(move |question| {
            let texts = ["a good reply", "same"];
            let found = texts.iter().position(|text| question.contains(text)).unwrap_or(2);
            said(&format!("SCORE: {}", scores[found]))
        });
        let judge = ["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "-o", name];
        let other = ["--agreement-with", "one.json"];
        place.succeed(&[&judge[..], if name == "one.json" { &[] } else { &other }].concat())
    };
    rated("one.json", [9, 5, 2]);
    let line = "other judge  Spearman 1.0000 (p = 0.0000) over 3 texts: high agreement";
    let agreeing = rated("two.json", [8, 7, 1]);
    assert!(agreeing.stdout.contains(line), "{}", agreeing.stdout);
    let result: Value = serde_json::from_str(&place.read("two.json")).unwrap();
    assert_eq!(result["agreement"]["band"], "high", "{result}");
    let opposite = rated("three.json", [1, 5, 9]);
    assert!(opposite.stdout.contains("Spearman -1.0000 "), "{}", opposite.stdout);
    assert!(opposite.stdout.contains("low agreement"), "{}", opposite.stdout);

    // A server that counts no tokens, and answers of which one ends at the token limit.
    let (url, _) = server(|question| {
        let text = if question.contains("a good reply") { "SCORE: 9" } else { "I think" };
        let reason = if question.contains("same") { "length" } else { "stop" };
        let message = json!({"content": text});
        json!({"choices": [{"message": message, "finish_reason": reason}]}).to_string()
    });
    let judge = ["judge", "a.jsonl", "--endpoint", &url, "--model", "m", "--prices", "1,2"];
    let ended = place.succeed(&judge);
    let expected = "1 of 3 texts; 1 answers unparsable, 1 truncated, 0 missing\n";
    assert!(ended.stdout.contains(expected), "{}", ended.stdout);
    let expected = "at least 0 + 0 tokens, cost at least 0.0000\n";
    assert!(ended.stdout.ends_with(expected), "{}", ended.stdout);

    let (url, _) = server(|_| "<html>nothing to see</html>".to_owned());
    let ended = place.run(&["judge", "a.jsonl", "--endpoint", &url, "--model", "m"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("<html>nothing to see</html>"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1);
}
