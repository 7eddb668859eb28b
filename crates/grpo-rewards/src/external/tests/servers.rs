//! Tests with HTTP servers, including invalid ones.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{build, score, totals};

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
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
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
    assert!(request.starts_with("POST /score?x=1 HTTP/1.0\r\nHost: 127.0.0.1:"), "{request}");
    drop(requests);
}

#[test]
fn what_servers_get_wrong() {
    for (answer, expected) in [
        (http("500 Internal Server Error", "oh no"), "it returned status 500: \"oh no\""),
        (http("302 Found", ""), "it returned status 302"),
        (http("200 OK", "not JSON"), "the reply is not valid JSON"),
        (http("200 OK", r#"{"id": 7, "rewards": [1]}"#), "the reply has id 7"),
        (b"hello\r\n".to_vec(), "invalid HTTP response: \"hello\\r\\n\""),
        (Vec::new(), "invalid HTTP response"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}".to_vec(),
            "the response was truncated after 2 bytes",
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
    assert!(reason.contains("refused"), "{reason}");
    // The client retries until the time limit is reached.
    assert!((0.3..5.0).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
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
            let _request = stream.read(&mut [0; 4096]).unwrap();
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
    for front in ["", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\ncontent-length: 99999\r\n\r\n"]
    {
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
        assert!(reason.contains("no reply within 300ms"), "{front}: {reason}");
        server.join().unwrap();
    }
}
