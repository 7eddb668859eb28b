//! What a user reads if the hub does not give a file.

use std::time::Duration;

use grpo_hub::Token;

use crate::client::{model, settings};
use crate::fake::{Reply, Repo, Server};

/// Checks the message for a server that sends `reply` for each request. `URL` and `HOST` stand for the
/// server.
fn check(name: &str, token: Option<&str>, reply: Reply, expect: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(move |_, _| reply.clone());
    let mut settings = settings(&server, folder.path());
    settings.token = token.map(|token| Token::new(token, "HF_TOKEN").unwrap());
    let error = model(&settings, name).unwrap_err().to_string();
    assert_eq!(error.replace(&server.url, "URL"), expect);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    server.log().len()
}

#[test]
fn names_that_do_not_exist() {
    let expect = "`a/b` is neither a folder here nor a model on URL; check the name, or set HF_TOKEN if it is private";
    check("a/b", None, Reply::code(404, "RepoNotFound"), expect);
    check("a/b", None, Reply::code(401, "RepoNotFound"), expect);
    check("a/b", None, Reply::status(401), expect);
    assert_eq!(check("a/b", None, Reply::status(404), expect), 2);
    let expect = "`a/b` is neither a folder here nor a model on URL that the token in use can read; check the name";
    check("a/b", Some("hf_x"), Reply::code(404, "RepoNotFound"), expect);
}

#[test]
fn revisions_that_do_not_exist() {
    let expect = "the model `a/b` has no revision `gone` on URL; check the branch, tag or commit, or name it without `@`";
    check("a/b@gone", None, Reply::code(404, "RevisionNotFound"), expect);
    let folder = tempfile::tempdir().unwrap();
    // A server without error codes.
    let server = Server::start(|_, request| match request.path.as_str() {
        "/api/models/a/b" => Reply { body: b"{}".to_vec(), ..Reply::status(200) },
        _ => Reply::status(404),
    });
    let error = model(&settings(&server, folder.path()), "a/b@gone").unwrap_err().to_string();
    assert_eq!(error.replace(&server.url, "URL"), expect);
}

#[test]
fn gated_models() {
    let gated = || Reply::code(403, "GatedRepo");
    let expect = "the model `a/b` is gated; accept its conditions on URL/a/b, then set HF_TOKEN";
    check("a/b", None, Reply::code(401, "GatedRepo"), expect);
    let expect = "the model `a/b` is gated, and the account of the token in use has no access; ask for it on URL/a/b";
    check("a/b", Some("hf_x"), gated(), expect);

    // The hub lists the files of gated models for everybody.
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| match request.path.starts_with("/api/") {
        true => Repo::new(
            "models/a/b",
            &[("config.json", b"{}", false), ("model.safetensors", b"x", true)],
        )
        .listing(),
        false => Reply::code(401, "GatedRepo"),
    });
    let error = model(&settings(&server, folder.path()), "a/b").unwrap_err().to_string();
    assert!(error.starts_with("the model `a/b` is gated; accept"), "{error}");
    assert!(crate::client::tree(folder.path()).is_empty());
}

#[test]
fn tokens_that_are_not_valid() {
    let reply =
        Reply::status(401).with("X-Error-Message", "Invalid credentials in Authorization header");
    let expect = "URL does not accept the token of HF_TOKEN (status 401); replace it by a valid one, or remove it for public models and data sets";
    check("a/b", Some("hf_x"), reply, expect);
}

#[test]
fn limits_on_requests() {
    let expect = "URL/api/models/a/b/revision/main: too many requests (status 429); run again in 300 s, or set HF_TOKEN, with which the limit is higher";
    assert_eq!(check("a/b", None, Reply::status(429).with("Retry-After", 300), expect), 1);
    let expect = "URL/api/models/a/b/revision/main: too many requests (status 429); run again later, or set HF_TOKEN, with which the limit is higher";
    assert_eq!(check("a/b", None, Reply::status(429), expect), 6);

    // As a date, by the clock of the server, and as the hub says it.
    let date = Reply::status(503)
        .with("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .with("Retry-After", "Sun, 06 Nov 1994 08:54:37 GMT");
    let expect = "URL/api/models/a/b/revision/main: status 503; run again later";
    assert_eq!(check("a/b", None, date, expect), 1);
    let limit = |status| Reply::status(status).with("RateLimit", "\"api\";r=0;t=55");
    let expect = "URL/api/models/a/b/revision/main: too many requests (status 429); run again in 55 s, or set HF_TOKEN, with which the limit is higher";
    assert_eq!(check("a/b", None, limit(429), expect), 1);
    let expect = "URL/api/models/a/b/revision/main: status 500; run again later";
    assert_eq!(check("a/b", None, limit(500), expect), 6);

    // A short pause is waited for.
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|earlier, request| match earlier {
        0 => Reply::status(429).with("Retry-After", "0.3"),
        1 => Reply::status(503),
        _ => Repo::new(
            "models/a/b",
            &[("config.json", b"{}", false), ("model.safetensors", b"x", true)],
        )
        .reply(request),
    });
    let start = std::time::Instant::now();
    model(&settings(&server, folder.path()), "a/b").unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300 * 3));
}

#[test]
fn other_replies() {
    let reply = Reply::status(500).with("X-Error-Message", "out of order");
    let expect = "URL/api/models/a/b/revision/main: status 500 (\"out of order\"); run again later";
    assert_eq!(check("a/b", None, reply, expect), 6);
    let reply = Reply::status(403).with("X-Error-Message", "blocked");
    let expect = "URL/api/models/a/b/revision/main: status 403 (\"blocked\"); check that the token in HF_TOKEN may read this repository";
    check("a/b", None, reply, expect);
    let expect = "URL/api/models/a/b/revision/main: the reply does not list a repository (expected value at line 1 column 1); check HF_ENDPOINT, and any proxy in front of it";
    check("a/b", None, Reply { body: b"<html>".to_vec(), ..Reply::status(200) }, expect);
    let expect = "URL/api/models/a/b/revision/main: it redirects to something that is not a web page; check HF_ENDPOINT, and any proxy in front of it";
    check("a/b", None, Reply::status(302).with("Location", "file:///etc/passwd"), expect);
    let expect = "URL/: it redirects too often; check HF_ENDPOINT, and any proxy in front of it";
    check("a/b", None, Reply::status(302).with("Location", "/"), expect);
}

#[test]
fn servers_that_do_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(&Server::start(|_, _| Reply::status(500)), folder.path());
    settings.endpoint = "http://127.0.0.1:9".to_owned();
    assert_eq!(
        model(&settings, "a/b").unwrap_err().to_string(),
        "http://127.0.0.1:9/api/models/a/b/revision/main: the server refuses the connection; check the network, HF_ENDPOINT, and a proxy in HTTPS_PROXY or HTTP_PROXY"
    );
    settings.endpoint = "http://name.invalid".to_owned();
    let error = model(&settings, "a/b").unwrap_err().to_string();
    assert!(error.starts_with("http://name.invalid/api/"), "{error}");
}

#[test]
fn offline_means_that_nothing_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Reply::status(500));
    let mut settings = settings(&server, &folder.path().join("hub"));
    settings.offline = true;
    let error = model(&settings, "a/b").unwrap_err().to_string();
    assert_eq!(
        error.replace(settings.cache.to_str().unwrap(), "CACHE"),
        "model `a/b` is not complete in the cache `CACHE` (the folder does not exist), and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids downloads; unset it, or download on a machine with a network and copy the cache"
    );
    assert!(server.log().is_empty());
    assert!(!settings.cache.exists());
}
