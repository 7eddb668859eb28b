//! `grpo judge` with a recorded server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;

/// Starts a server that answers each question with `answer`. Returns its URL and the number of its
/// requests.
fn server(answer: fn(&str) -> String) -> (String, Arc<AtomicUsize>) {
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
    json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).to_string()
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
    let expected = "pairs        3: 1 won, 1 tied, 1 lost; 0 answers unparsable, 0 missing\n";
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
    // Five requests: both questions about the third pair are the same.
    assert_eq!(requests.load(Ordering::Relaxed), 5);
    assert!(ended.stdout.contains("50 + 10 tokens, cost 0.0150"), "{}", ended.stdout);
    let found: Value = serde_json::from_str(&place.read("j.json")).unwrap();
    assert_eq!(found["summary"]["win_rate"], 0.5);
    assert_eq!(found["pairs"].as_array().map(Vec::len), Some(3));
    // A second run needs no requests, and agrees with itself.
    let again = [&judge[..], &["--agreement-with", "j.json"]].concat();
    let ended = place.succeed(&again);
    assert_eq!(requests.load(Ordering::Relaxed), 5);
    assert!(ended.stdout.contains("agreement 1.000, kappa 1.000 over 3 pairs"), "{}", ended.stdout);
    place.write("c.jsonl", "{\"prompt\": \"other\", \"completion\": \"x\"}\n");
    place.refuse(
        &[&["judge", "a.jsonl", "c.jsonl"], &endpoint[..]].concat(),
        str![[r#"the prompt "tweet 0" is in a.jsonl, but not in c.jsonl; judge answers to the same prompts"#]],
    );
}

#[test]
fn answers_are_rated_and_nonsense_is_counted() {
    let place = place();
    let (url, _) = server(|question| {
        said(if question.contains("a good reply") { "SCORE: 9" } else { "Who knows?" })
    });
    let ended = place.succeed(&["judge", "a.jsonl", "--endpoint", &url, "--model", "m"]);
    let expected = "score        9.000 over 1 of 3 texts; 2 answers unparsable, 0 missing\n";
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);

    let (url, _) = server(|_| "<html>nothing to see</html>".to_owned());
    let ended = place.run(&["judge", "a.jsonl", "--endpoint", &url, "--model", "m"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("<html>nothing to see</html>"), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1);
}
