//! The reward type `http` with servers, including invalid ones.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_rewards::{Outcome, Reward, RewardConfig, RewardInput, RewardRegistry};
use grpo_servers::HTTP_REWARD;
use serde_json::{Value, json};

fn parsed(section: Value) -> Result<RewardConfig, ConfigFault> {
    let section = serde_json::from_value(section).unwrap();
    RewardRegistry::default().with([HTTP_REWARD]).parse(section)
}

/// Creates a reward from its settings.
fn build(settings: Value) -> Arc<dyn Reward> {
    parsed(settings).unwrap().build(&Device::flex()).unwrap()
}

fn score(reward: &dyn Reward, completions: &[&str]) -> Vec<Outcome> {
    let samples: Vec<RewardInput> = completions.iter().map(|text| (*text).into()).collect();
    reward.score(&samples)
}

fn totals(outcomes: &[Outcome]) -> Vec<Option<f64>> {
    outcomes.iter().map(Outcome::total).collect()
}

#[test]
fn urls_that_are_refused() {
    for (settings, expected) in [
        (json!({"url": "localhost:8000"}), "is not a supported URL"),
        (json!({"url": "http://me:secret@host/a"}), "\"http://***@host/a\" is not"),
        (json!({"url": "http://[::1"}), "is not a supported URL"),
        (json!({"url": ["http://a", "b"]}), "\"b\" is not a supported URL"),
        (json!({"url": []}), "is an empty list"),
        (
            json!({"url": "http://127.0.0.1:99999/score"}),
            "reward.url = \"http://127.0.0.1:99999/score\" is not a supported URL: the port `99999` is not a number from 1 to 65535; expected one such as http://localhost:8000/score",
        ),
        (json!({"url": ["http://a:1", "http://[::1]:0"]}), "the port `0` is not"),
        (json!({"url": "http://a:?x"}), "the port `` is not"),
        (json!({"url": "http://a:-1"}), "the port `-1` is not"),
        (json!({"url": "http://a:80x/"}), "the port `80x` is not"),
        (
            json!({"url": "https://localhost/", "ca_file": "/dev/null"}),
            "`reward.ca_file` is /dev/null (",
        ),
    ] {
        let mut settings = settings;
        settings["type"] = json!("http");
        let built = parsed(settings).and_then(|config| config.build(&Device::flex()));
        let reason = built.map(drop).unwrap_err().to_string();
        assert!(reason.contains(expected), "{reason}");
    }
}

/// The connection is encrypted, so nothing of the request can be read here.
#[test]
fn a_server_without_tls_does_not_get_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/score", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = [0; 4096];
        let count = stream.read(&mut received).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
        received[..count].to_vec()
    });
    let reward = build(json!({"type": "http", "url": url}));
    let reason = score(&*reward, &["a secret"])[0].failure().unwrap().to_owned();
    let expected = format!(
        "the reward server {url}: the server does not answer with TLS; check the URL: it may have to start with http:// instead of https://"
    );
    assert_eq!(reason, expected);
    let received = server.join().unwrap();
    assert!(!String::from_utf8_lossy(&received).contains("secret"), "{received:?}");
}

/// Starts a server that passes each request body to `answer` and sends the result. The received
/// requests can be read from the channel.
fn server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/score?x=1", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let (mut request, mut byte) = (Vec::new(), [0; 4096]);
            let is_whole = |request: &[u8]| {
                let text = String::from_utf8_lossy(request);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                let head = head.to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                length.is_none_or(|length| body.len() >= length.parse().unwrap())
            };
            while !is_whole(&request) {
                let count = stream.read(&mut byte).unwrap();
                request.extend(&byte[..count]);
            }
            let request = String::from_utf8(request).unwrap();
            let body = request.split_once("\r\n\r\n").unwrap().1.to_owned();
            let _gone = stream.write_all(&answer(&body));
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    (url, requests)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[test]
fn a_server_scores() {
    let (url, requests) = server(|body| {
        let request: serde_json::Value = serde_json::from_str(body).unwrap();
        let count = request["items"].as_array().unwrap().len();
        let reply = json!({"id": request["id"], "rewards": vec![0.25; count], "components": {"dock": vec![-1; count]}});
        http("200 OK", &reply.to_string())
    });
    let reward =
        build(json!({"type": "http", "url": url, "components": ["dock"], "batch_size": 2}));
    let outcomes = score(&*reward, &["a", "b", "c"]);
    assert_eq!(totals(&outcomes), [Some(0.25); 3]);
    assert_eq!(outcomes[2].part("dock"), Some(-1.0));
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST /score?x=1 HTTP/1.1\r\n"), "{request}");
    let head = request.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase();
    for line in ["host: 127.0.0.1:", "content-type: application/json", "connection: close"] {
        assert!(head.contains(&format!("\r\n{line}")), "{line}: {request}");
    }
    drop(requests);
}

#[test]
fn what_servers_get_wrong() {
    for (answer, expected) in [
        (http("500 Internal Server Error", "oh no"), "it returned status 500: \"oh no\""),
        (http("302 Found", ""), "it returned status 302"),
        (http("200 OK", "not JSON"), "the reply is not valid JSON"),
        (http("200 OK", r#"{"id": 7, "rewards": [1]}"#), "the reply has id 7"),
        (
            b"hello\r\n".to_vec(),
            "invalid HTTP response: it does not start with HTTP/1.0 or HTTP/1.1",
        ),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://u:p@b:1/x?key=1\r\ncontent-length: 0\r\n\r\n"
                .to_vec(),
            "it returned status 302: \"\"; set reward.url to http://***@b:1/x, to which it redirects",
        ),
        (Vec::new(), "the connection was closed before the end of the response"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}".to_vec(),
            "the connection was closed before the end of the response; 2 bytes of its body had arrived (its headers have Content-Length: 99)",
        ),
        (vec![b'x'; 20 << 20], "invalid HTTP response"),
        (
            [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'x'; 1 << 20]].concat(),
            "invalid HTTP response",
        ),
        (http("200 OK", r#"{"id": 1, "rewards": [NaN]}"#), "the reward is NaN"),
        (http("200 OK", ""), "the reply is empty"),
        (
            [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 20 << 20]].concat(),
            "larger than 16 MiB",
        ),
    ] {
        let (url, _requests) = server(move |_| answer.clone());
        let reward = build(json!({"type": "http", "url": url}));
        let outcome = score(&*reward, &["a"]).remove(0);
        let reason = outcome.failure().unwrap();
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

#[test]
fn a_server_that_is_late_or_not_there() {
    let (url, _requests) = server(|_| {
        thread::sleep(Duration::from_secs(5));
        Vec::new()
    });
    let reward = build(json!({"type": "http", "url": url, "time_limit": 0.3}));
    let reason = score(&*reward, &["a"])[0].failure().unwrap().to_owned();
    assert!(reason.contains("no reply within 300ms"), "{reason}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reward = build(json!({"type": "http", "url": format!("http://{free}"), "time_limit": 1.0}));
    let started = Instant::now();
    let reason = score(&*reward, &["a"])[0].failure().unwrap().to_owned();
    let expected = format!(
        "the reward server http://{free}: the connection was refused; start the server, or correct reward.url"
    );
    assert_eq!(reason, expected);
    // The client retries until the time limit is reached.
    assert!((0.3..5.0).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
}

/// Starts a server that sends `answer` to its first request and keeps the connection open until the
/// channel is closed.
fn keeps_open(answer: String) -> (String, Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (done, wait) = channel();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}\n") {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            request.extend(&buffer[..count]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        let _closed = wait.recv();
    });
    (url, done, server)
}

/// Replies in all ways that HTTP allows to say where a body ends, over a connection that the server
/// keeps open, so that waiting for its end would take too long.
#[test]
fn the_end_of_a_body_is_where_its_headers_say() {
    const BODY: &str = r#"{"id": 1, "rewards": [0.5]}"#;
    let length = BODY.len();
    let with = |head: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}");
    let sized = |length: &str, body: &str| with(&format!("Content-Length: {length}\r\n"), body);
    let chunked = |body: &str| with("Transfer-Encoding: chunked\r\n", body);
    let (front, back) = BODY.split_at(10);
    let chunks = format!("a\r\n{front}\r\n{:x};x=y\r\n{back}\r\n0\r\n\r\n", back.len());
    let good = [
        sized(&length.to_string(), BODY),
        sized(&length.to_string(), &format!("{BODY}more that nobody asked for")),
        sized(&format!("00{length}"), BODY),
        with(&format!("Content-Length: {length}\r\ncontent-length: {length}\r\n"), BODY),
        chunked(&chunks),
        format!("HTTP/1.1 100 Continue\r\n\r\n{}", sized(&length.to_string(), BODY)),
        format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n{BODY}"),
        with(&format!("Content-Encoding: identity\r\nContent-Length: {length}\r\n"), BODY),
        format!("HTTP/1.0 201 Created\r\nContent-Length: {length}\r\n\r\n{BODY}"),
    ];
    let gzip =
        |coding: &str| with(&format!("{coding}: gzip\r\nContent-Length: {length}\r\n"), BODY);
    let bad = [
        (
            sized("0", BODY),
            "the reply is empty; its output was: \"\" (its headers have Content-Length: 0)",
        ),
        (sized("5", BODY), "(its headers have Content-Length: 5)"),
        (sized("27, 28", BODY), "Content-Length"),
        (
            with("Content-Length: 27\r\nContent-Length: 5\r\n", BODY),
            "several values of Content-Length",
        ),
        (
            sized("99", BODY),
            "27 bytes of its body had arrived (its headers have Content-Length: 99)",
        ),
        (chunked("zz\r\nnothing"), "invalid HTTP response"),
        (
            chunked(&chunks[..20]),
            "bytes of its body had arrived (its headers have Transfer-Encoding: chunked)",
        ),
        (
            gzip("Content-Encoding"),
            "the reply has `Content-Encoding: gzip`, which is not supported",
        ),
        (
            gzip("Transfer-Encoding"),
            "the reply has `Transfer-Encoding: gzip`, which is not supported",
        ),
        (
            format!("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
            "`Transfer-Encoding: chunked`, which HTTP/1.0 does not have",
        ),
        (sized("12", "{\"id\": 1, \"a"), "is not valid JSON"),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), "the reply is empty"),
    ];
    let lengths = ["-5", "abc", "+27", "0x1b", "", "99999999999999999999999"];
    let no_number = "invalid HTTP response: Content-Length is not a number";
    let bad = bad.into_iter().chain(lengths.map(|length| (sized(length, BODY), no_number)));
    let cases = good.into_iter().map(|answer| (answer, None));
    for (answer, expected) in cases.chain(bad.map(|(answer, words)| (answer, Some(words)))) {
        let (url, done, server) = keeps_open(answer.clone());
        // A body that is complete does not take the time limit.
        let limit =
            if expected.is_some_and(|words| words.contains("arrived")) { 0.5 } else { 60.0 };
        let reward = build(json!({"type": "http", "url": url, "time_limit": limit}));
        let begun = Instant::now();
        let outcome = score(&*reward, &["a"]).remove(0);
        assert!(begun.elapsed() < Duration::from_secs(30), "{answer}");
        drop(done);
        server.join().unwrap();
        match expected {
            None => assert_eq!(outcome.total(), Some(0.5), "{answer}: {outcome:?}"),
            Some(words) => {
                let reason = outcome.failure().unwrap_or_else(|| panic!("{answer}: {outcome:?}"));
                assert!(reason.contains(words), "{answer}: {reason}");
            }
        }
    }
}

/// Requests go to all servers in turn. One that cannot be reached is left out and named.
#[test]
fn several_servers_take_turns() {
    let scores = |reward: f64| {
        server(move |body| {
            let request: serde_json::Value = serde_json::from_str(body).unwrap();
            let count = request["items"].as_array().unwrap().len();
            let reply = json!({"id": request["id"], "rewards": vec![reward; count]});
            http("200 OK", &reply.to_string())
        })
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (first, second) = (scores(0.25), scores(0.5));
    let urls = [first.0, format!("http://{free}"), second.0];
    let reward = build(json!({"type": "http", "url": urls, "batch_size": 1}));
    let outcomes = totals(&score(&*reward, &["a", "b", "c", "d", "e", "f"]));
    let expected = [0.25, 0.5, 0.5, 0.25, 0.5, 0.5].map(Some);
    assert_eq!(outcomes, expected);
    let folder = tempfile::tempdir().unwrap();
    reward.keep_output_in(folder.path());
    let log = std::fs::read_to_string(folder.path().join("reward.log")).unwrap();
    let named = format!("the reward server http://{free} cannot be reached and is left out");
    assert_eq!(log.matches(&named).count(), 1, "{log}");

    // A server that has received a request is not replaced.
    let (failing, _requests) = server(|_| http("500 Internal Server Error", ""));
    let urls = [failing, scores(1.0).0];
    let reward = build(json!({"type": "http", "url": urls, "batch_size": 1}));
    let outcomes = score(&*reward, &["a", "b"]);
    assert!(outcomes[0].failure().unwrap().contains("status 500"), "{outcomes:?}");
    assert_eq!(totals(&outcomes)[1], Some(1.0));

    // Servers that were left out are tried again when all others have failed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = listener.local_addr().unwrap();
    drop(listener);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [format!("http://{away}"), format!("http://{}", gone.local_addr().unwrap())];
    drop(gone);
    let reward = build(json!({"type": "http", "url": urls, "time_limit": 0.2}));
    assert!(score(&*reward, &["a"])[0].failure().is_some());
    let back = TcpListener::bind(away).unwrap();
    thread::spawn(move || {
        for stream in back.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}\n") {
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer).unwrap();
                request.extend(&buffer[..count]);
            }
            stream.write_all(&http("200 OK", r#"{"id": 2, "rewards": [0.75]}"#)).unwrap();
        }
    });
    assert_eq!(totals(&score(&*reward, &["b"])), [Some(0.75)]);

    // Without any server that can be reached, the last one is tried until the time limit.
    let urls = [(); 2].map(|()| {
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
    });
    let reward = build(json!({"type": "http", "url": urls, "time_limit": 1.0}));
    for _again in 0..2 {
        let outcomes = score(&*reward, &["a"]);
        assert!(outcomes[0].failure().unwrap().contains("refused"), "{outcomes:?}");
    }
}

/// Sends a byte every few milliseconds, without end.
#[test]
fn a_server_that_drips_is_late() {
    for (front, expected) in [
        ("", "invalid HTTP response"),
        ("HTTP/1.0 200 OK\r\nx:", "no reply within 300ms"),
        ("HTTP/1.0 200 OK\r\n\r\n", "no reply within 300ms"),
        ("HTTP/1.0 200 OK\r\ncontent-length: 99999\r\n\r\n", "no reply within 300ms"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(front.as_bytes()).unwrap();
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let reward = build(json!({"type": "http", "url": url, "time_limit": 0.3}));
        let reason = score(&*reward, &["a"])[0].failure().unwrap().to_owned();
        assert!(reason.contains(expected), "{front}: {reason}");
        server.join().unwrap();
    }
}
