//! The client against a server with recorded replies.

use std::fs;
use std::time::{Duration, Instant};

use crate::server::{Reply, Server, chat};
use grpo_servers::{
    Cache, ChatAnswer, ChatSettings, Client, EndpointConfig, EndpointError, Prices, Progress, Usage,
};
use serde_json::json;
use snapbox::{IntoData, assert_data_eq, str};

/// Retries without pauses.
fn config(server: &Server) -> EndpointConfig {
    EndpointConfig { pause: 0.0, time_limit: 10.0, ..EndpointConfig::new(&server.url) }
}

/// Sends texts with a new client.
fn send(
    config: EndpointConfig,
    cache: Option<Cache>,
    texts: &[&str],
) -> (Result<Vec<Result<ChatAnswer, EndpointError>>, EndpointError>, Usage) {
    let mut client = Client::new(config).unwrap();
    if let Some(cache) = cache {
        client = client.with_cache(cache);
    }
    let settings = ChatSettings::new("judge");
    let requests: Vec<_> = texts.iter().map(|text| settings.ask(*text)).collect();
    let answers = client.send_all(&requests, |_| {});
    (answers, client.usage())
}

/// Sends one text and returns its answer.
fn ask(config: EndpointConfig) -> (Result<String, EndpointError>, Usage) {
    let (answers, usage) = send(config, None, &["Hi"]);
    (answers.map(|mut answers| answers.remove(0).unwrap().text), usage)
}

/// Returns the message for one text, with SERVER for the address of the server.
fn message(server: &Server, config: EndpointConfig) -> String {
    ask(config).0.unwrap_err().to_string().replace(&server.url, "SERVER")
}

fn counts(usage: Usage) -> (u64, u64, u64) {
    (usage.requests, usage.retries, usage.cache_hits)
}

#[test]
fn an_answer_and_its_costs() {
    let server = Server::script(vec![Reply::text("VERDICT: A")]);
    let config =
        EndpointConfig { api_key_env: Some("CARGO_PKG_NAME".to_owned()), ..config(&server) };
    let (answer, usage) = ask(config);
    assert_eq!(answer.unwrap(), "VERDICT: A");
    assert_eq!(counts(usage), (1, 0, 0));
    let cost = usage.cost(&Prices { prompt: 1.0, completion: 5.0 });
    assert!((cost - 25e-6).abs() < 1e-15, "{cost}");
    let request = &server.received()[0];
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.headers["authorization"], "Bearer grpo-servers");
    assert_eq!(request.headers["content-type"], "application/json");
    let messages = json!([{"role": "user", "content": "Hi"}]);
    assert_eq!(
        request.body,
        json!({"model": "judge", "messages": messages, "temperature": 0.0, "max_tokens": 512})
    );
}

#[test]
fn faults_that_pass_are_retried() {
    let limited = Reply::Http(429, "Retry-After: 0\r\n", "slow down".to_owned());
    for fault in [limited, Reply::status(500), Reply::status(503), Reply::Truncated, Reply::Closed]
    {
        let server = Server::script(vec![fault.clone(), fault.clone(), Reply::text("good")]);
        let (answer, usage) = ask(config(&server));
        assert_eq!(answer.as_deref(), Ok("good"), "{fault:?}");
        assert_eq!(counts(usage), (3, 2, 0));
        assert!(!server.received()[0].headers.contains_key("authorization"));
    }
}

#[test]
fn a_server_decides_the_pause() {
    let later = Reply::Http(429, "Retry-After: 1\r\n", String::new());
    let server = Server::script(vec![later, Reply::text("good")]);
    let start = Instant::now();
    assert_eq!(ask(config(&server)).0.as_deref(), Ok("good"));
    assert!(start.elapsed() >= Duration::from_secs(1));

    let tomorrow = Reply::Http(429, "Retry-After: 86000\r\n", "quota".to_owned());
    let server = Server::script(vec![tomorrow]);
    assert_data_eq!(
        message(&server, config(&server)),
        str![[
            r#"SERVER/v1/chat/completions: status 429 (1 attempt): "quota"; the server asks for a pause of 86000 s: run again after it, or raise `longest_pause`"#
        ]]
    );
    assert_eq!(server.received().len(), 1);
}

#[test]
fn faults_that_stay_have_a_message() {
    let body = |body: &str| Reply::Http(200, "", body.to_owned());
    let found: Vec<String> = [
        Reply::status(500),
        Reply::Truncated,
        Reply::Closed,
        Reply::Http(401, "", "{\"error\": \"invalid key grpo-servers\"}".to_owned()),
        Reply::status(404),
        Reply::status(501),
        Reply::Http(301, "Location: http://localhost:1/\r\n", String::new()),
        Reply::Http(400, "", "x".repeat(300)),
        body("<html>Welcome</html>"),
        body("{\"error\": \"overloaded\"}"),
        body("{\"choices\": []}"),
        body("{\"choices\": [{\"message\": {\"content\": \"\"}}]}"),
        body("[1, 2"),
        body(""),
    ]
    .into_iter()
    .map(|reply| {
        let server = Server::script(vec![reply]);
        let api_key_env = Some("CARGO_PKG_NAME".to_owned());
        message(&server, EndpointConfig { api_key_env, retries: 1, ..config(&server) })
    })
    .collect();
    assert_data_eq!(found.join("\n").into_data().raw(), str![[r#"
SERVER/v1/chat/completions: status 500 (2 attempts): "status 500"; check the server's log, or raise `retries`
SERVER/v1/chat/completions: the connection was closed before the end of the reply (2 attempts); check the server's log and any proxy in front of it
SERVER/v1/chat/completions: the connection was closed before the end of the reply (2 attempts); check the server's log and any proxy in front of it
SERVER/v1/chat/completions: status 401 (1 attempt): "{\"error\": \"invalid key [API key]\"}"; check the API key in CARGO_PKG_NAME
SERVER/v1/chat/completions: status 404 (1 attempt): "status 404"; check the URL and the name of the model
SERVER/v1/chat/completions: status 501 (1 attempt): "status 501"; check the URL and the name of the model
SERVER/v1/chat/completions: status 301 (1 attempt): ""; use the URL to which it redirects: http://localhost:1
SERVER/v1/chat/completions: status 400 (1 attempt): "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"; check the model, `max_tokens` and `extra`, and the length of the prompt
SERVER/v1/chat/completions: the reply is not JSON: "<html>Welcome</html>"; check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply has no `choices`: "{\"error\": \"overloaded\"}"; check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply has no `choices`: "{\"choices\": []}"; check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply has an empty `choices[0].message.content`: "{\"choices\": [{\"message\": {\"content\": \"\"}}]}"; check the model and its chat template, or raise `max_tokens`
SERVER/v1/chat/completions: the reply is not JSON: "[1, 2"; check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply is not JSON: ""; check that the URL is that of an OpenAI-compatible API
"#]].raw());
}

/// Damaged replies are not requested again.
#[test]
fn damaged_replies_and_redirects_in_plain_words() {
    let head = |head: &str| Reply::Raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n"));
    let redirect = |location: &str| {
        let head = format!("location: {location}\r\ncontent-length: 0");
        Reply::Raw(format!("HTTP/1.1 308 Permanent Redirect\r\n{head}\r\n\r\n"))
    };
    let found: Vec<String> = [
        Reply::Raw("SSH-2.0-OpenSSH_9.6\r\n".to_owned()),
        Reply::Raw("HTTP/1.1 abc\r\n\r\n".to_owned()),
        head(&format!("x: {}\r\n", "y".repeat(1 << 17))),
        head(&"x: y\r\n".repeat(500)),
        head("a b: c\r\n"),
        head("content-length: many\r\n"),
        head("transfer-encoding: chunked\r\n\r\nzz\r\n"),
        redirect("https://user:pass@b.example/v2/chat/completions?key=secret"),
        redirect("/login"),
        redirect("//grpo-servers@c.example/grpo-servers/chat/completions"),
        Reply::Http(302, "", String::new()),
    ]
    .into_iter()
    .map(|reply| {
        let server = Server::script(vec![reply]);
        let api_key_env = Some("CARGO_PKG_NAME".to_owned());
        message(&server, EndpointConfig { api_key_env, ..config(&server) })
    })
    .collect();
    assert_data_eq!(found.join("\n").into_data().raw(), str![[r#"
SERVER/v1/chat/completions: the reply is damaged: it does not start with HTTP/1.0 or HTTP/1.1 (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply is damaged: its status is not a number of three digits (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the headers of the reply are larger than 64 KiB (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply is damaged: it has too many headers (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply is damaged: a header has an invalid name (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply is damaged: Content-Length is not a number (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: the reply is damaged: the length of a chunk is wrong (1 attempt); check that the URL is that of an OpenAI-compatible API
SERVER/v1/chat/completions: status 308 (1 attempt): ""; use the URL to which it redirects: https://***@b.example/v2
SERVER/v1/chat/completions: status 308 (1 attempt): ""; use the URL to which it redirects: SERVER/login
SERVER/v1/chat/completions: status 308 (1 attempt): ""; use the URL to which it redirects: http://***@c.example/[API key]
SERVER/v1/chat/completions: status 302 (1 attempt): ""; check the URL: it redirects without saying where to
"#]].raw());
}

/// No request goes to the standard port instead.
#[test]
fn a_port_that_does_not_exist_is_refused_before_the_first_request() {
    for port in ["99999", "65536", "0", "-1", "", "80x", "+80"] {
        let error = Client::new(EndpointConfig::new(format!("http://127.0.0.1:{port}")));
        let error = error.unwrap_err().to_string();
        let expected = format!("(the port `{port}` is not a number from 1 to 65535); expected a");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_slow_server_and_none_at_all() {
    let slow = Reply::Slow(Duration::from_secs(2), chat("late"));
    let server = Server::script(vec![slow.clone(), Reply::text("good")]);
    let limit = |server: &Server| EndpointConfig { time_limit: 0.6, ..config(server) };
    let (answer, usage) = ask(limit(&server));
    assert_eq!((answer.as_deref(), counts(usage)), (Ok("good"), (2, 1, 0)));
    let server = Server::script(vec![slow]);
    let found = message(&server, EndpointConfig { retries: 1, ..limit(&server) });
    assert_data_eq!(
        found,
        str![
            "SERVER/v1/chat/completions: no complete reply within 0.6 s (2 attempts); raise `time_limit` or lower `parallel`"
        ]
    );

    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = EndpointConfig::new(format!("http://{port}"));
    let found = ask(EndpointConfig { pause: 0.0, ..absent }).0.unwrap_err().to_string();
    assert_data_eq!(
        found.replace(&port.to_string(), "ADDRESS"),
        str![
            "http://ADDRESS/v1/chat/completions: the connection was refused (5 attempts); start the server, or correct its URL"
        ]
    );
}

/// The first requests are the slowest ones.
#[test]
fn answers_are_in_the_order_of_the_requests() {
    let texts: Vec<String> = (0..24).map(|index| index.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for parallel in [1, 3, 24] {
        let server = Server::start(|_, request| {
            let number: u64 = request.text().parse().unwrap();
            Reply::Slow(Duration::from_millis((24 - number) / 4), chat(request.text()))
        });
        let (answers, usage) = send(EndpointConfig { parallel, ..config(&server) }, None, &texts);
        let answers = answers.unwrap();
        let found: Vec<&str> =
            answers.iter().map(|answer| answer.as_ref().unwrap().text.as_str()).collect();
        assert_eq!(found, texts);
        assert_eq!((usage.requests, usage.prompt_tokens, usage.completion_tokens), (24, 240, 72));
    }
}

#[test]
fn requests_at_the_same_time_are_limited() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (in_server, most_in_server) = (now.clone(), most.clone());
    let server = Server::start(move |_, _| {
        most_in_server.fetch_max(1 + in_server.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        in_server.fetch_sub(1, Ordering::SeqCst);
        Reply::text("good")
    });
    let (answers, _) = send(EndpointConfig { parallel: 3, ..config(&server) }, None, &["x"; 12]);
    assert_eq!(answers.unwrap().len(), 12);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[test]
fn a_second_run_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.jsonl");
    let open = || Some(Cache::open(&path).unwrap());
    let server = Server::start(|_, request| Reply::text(request.text()));
    let texts = ["a", "b", "a", "c"];
    let check = |texts: &[&str], expect: (u64, u64, u64)| {
        let (answers, usage) = send(config(&server), open(), texts);
        let answers = answers.unwrap();
        let found: Vec<&str> =
            answers.iter().map(|answer| answer.as_ref().unwrap().text.as_str()).collect();
        assert_eq!((found.as_slice(), counts(usage)), (texts, expect));
    };
    check(&texts, (3, 0, 1));
    check(&texts, (0, 0, 4));
    check(&["d", "c"], (1, 0, 1));
    // Without a cache, equal requests are sent each time.
    assert_eq!(counts(send(config(&server), None, &texts).1), (4, 0, 0));
    // Another setting is another request, another server too.
    let mut client = Client::new(config(&server)).unwrap().with_cache(open().unwrap());
    let settings = ChatSettings { max_tokens: 9, ..ChatSettings::new("judge") };
    client.send_all(&[settings.ask("a")], |_| {}).unwrap();
    assert_eq!(counts(client.usage()), (1, 0, 0));
    drop(client);
    let other = Server::start(|_, request| Reply::text(request.text()));
    assert_eq!(counts(send(config(&other), open(), &["a"]).1), (1, 0, 0));
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 6);
}

#[test]
fn replies_before_a_fault_are_kept_and_the_key_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.jsonl");
    let server = Server::start(|index, request| match index {
        0 | 1 => Reply::text(request.text()),
        _ => Reply::status(401),
    });
    let config = EndpointConfig {
        parallel: 1,
        api_key_env: Some("CARGO_PKG_NAME".to_owned()),
        ..config(&server)
    };
    let texts = ["a", "b", "c", "d", "e"];
    let (answers, usage) = send(config.clone(), Some(Cache::open(&path).unwrap()), &texts);
    assert!(answers.unwrap_err().to_string().contains("check the API key in CARGO_PKG_NAME"));
    assert_eq!(counts(usage), (3, 0, 0));
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(!text.contains(env!("CARGO_PKG_NAME")), "{text}");
    // What was answered is not sent again.
    let (answers, usage) = send(config, Some(Cache::open(&path).unwrap()), &texts[..2]);
    assert_eq!((answers.unwrap().len(), counts(usage)), (2, (0, 0, 2)));
}

#[test]
fn refused_requests_do_not_end_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&folder.path().join("cache.jsonl")).unwrap();
    let server = Server::start(|_, request| match request.text() {
        "long" => Reply::Http(400, "", "maximum context length".to_owned()),
        "mute" => Reply::text(""),
        text => Reply::text(text),
    });
    let texts = ["long", "a", "mute", "long"];
    let (answers, usage) = send(config(&server), Some(cache), &texts);
    let answers = answers.unwrap();
    assert_eq!(answers[1].as_ref().unwrap().text, "a");
    for (index, expect) in [(0, "maximum context length"), (2, "empty"), (3, "maximum context")] {
        let error = answers[index].as_ref().unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    assert_eq!(counts(usage), (3, 0, 0));
}

/// Status 500, a timeout or a closed connection for a single prompt.
#[test]
fn a_prompt_that_always_fails_does_not_end_a_batch() {
    let slow = Reply::Slow(Duration::from_millis(900), chat("late"));
    for fault in [Reply::status(500), slow, Reply::Closed] {
        let folder = tempfile::tempdir().unwrap();
        let open = || Some(Cache::open(&folder.path().join("cache.jsonl")).unwrap());
        let of_bad = fault.clone();
        let server = Server::start(move |_, request| match request.text() {
            "bad" => of_bad.clone(),
            text => Reply::text(text),
        });
        let config = EndpointConfig { parallel: 1, retries: 1, time_limit: 0.3, ..config(&server) };
        // The second run has only this prompt to send.
        for expect in [(4, 1, 0), (2, 1, 2)] {
            let (answers, usage) = send(config.clone(), open(), &["a", "bad", "b"]);
            let answers = answers.unwrap();
            assert!(answers[1].as_ref().unwrap_err().to_string().contains("(2 attempts)"));
            assert_eq!(answers[2].as_ref().unwrap().text, "b");
            assert_eq!(counts(usage), expect, "{fault:?}");
        }
        // Without any reply, the server may be at fault.
        let (answers, usage) = send(config, None, &["bad", "a", "b"]);
        assert!(answers.unwrap_err().to_string().contains("(2 attempts)"));
        assert_eq!(counts(usage), (2, 1, 0));
    }
}

/// Other requests would fail too.
#[test]
fn limits_and_wrong_settings_end_a_batch() {
    let limit = |after| Reply::Http(503, after, String::new());
    for fault in [
        Reply::status(401),
        Reply::status(403),
        Reply::status(404),
        Reply::status(429),
        Reply::status(501),
        limit("Retry-After: 86000\r\n"),
    ] {
        let of_bad = fault.clone();
        let server = Server::start(move |_, request| match request.text() {
            "bad" => of_bad.clone(),
            text => Reply::text(text),
        });
        let config = EndpointConfig { parallel: 1, retries: 0, ..config(&server) };
        let (answers, usage) = send(config, None, &["a", "bad", "b"]);
        assert!(answers.unwrap_err().to_string().contains("(1 attempt)"), "{fault:?}");
        assert_eq!(counts(usage), (2, 0, 0));
    }
}

#[test]
fn progress_counts_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&folder.path().join("cache.jsonl")).unwrap();
    let server = Server::start(|_, request| Reply::text(request.text()));
    let mut client = Client::new(config(&server)).unwrap().with_cache(cache);
    let settings = ChatSettings::new("judge");
    client.send_all(&[settings.ask("a")], |_| {}).unwrap();
    let mut seen: Vec<Progress> = Vec::new();
    let requests = ["a", "b", "b", "c"].map(|text| settings.ask(text));
    client.send_all(&requests, |progress| seen.push(progress)).unwrap();
    let done: Vec<(usize, usize)> = seen.iter().map(|seen| (seen.done, seen.total)).collect();
    assert_eq!(done, [(1, 4), (2, 4), (3, 4), (4, 4)]);
    assert_eq!(counts(seen[3].usage), (3, 0, 2));
    let none: [grpo_servers::ChatRequest; 0] = [];
    assert_eq!(client.send_all(&none, |_| {}).unwrap().len(), 0);
}
