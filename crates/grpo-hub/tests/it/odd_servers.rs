//! Mirrors, proxies and repositories that are not as one would like.

use std::ops::ControlFlow;

use grpo_hub::{DataName, FileRequest, Hub, HubError, Snapshot, Token};

use crate::client::{model, settings, tree};
use crate::fake::{COMMIT, Received, Reply, Repo, Server, git_hash, noise};

fn plain() -> Repo {
    let weights = noise(300_000);
    Repo::new("models/a/b", &[("config.json", b"{}", false), ("model.safetensors", &weights, true)])
}

/// Starts a server that changes its replies with weights.
fn changing(change: impl Fn(&Received, Reply) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |_, request| {
        let reply = plain().reply(request);
        match request.path.ends_with(".safetensors") {
            true => change(request, reply),
            false => reply,
        }
    })
}

/// Downloads the model. Returns the message of the error, in which `URL` stands for the server, and
/// checks that nothing but what is complete stays in the cache.
#[track_caller]
fn error(server: &Server) -> String {
    let folder = tempfile::tempdir().unwrap();
    let error = model(&settings(server, folder.path()), "a/b").unwrap_err();
    let config = git_hash(b"{}");
    let expect = [
        format!("models--a--b/blobs/{config}"),
        format!("models--a--b/snapshots/{COMMIT}/config.json -> ../../blobs/{config}"),
    ];
    assert_eq!(tree(folder.path()), expect);
    error.to_string().replace(&server.url, "URL")
}

#[test]
fn other_etags_do_not_matter() {
    // Artifactory sends the SHA-1 of the content, which is not that of git's blob.
    let server = Server::start(|_, request| {
        let reply = plain().reply(request);
        let others = reply.headers.into_iter().filter(|(name, _)| !name.ends_with("tag"));
        let reply = Reply { headers: others.collect(), ..reply };
        reply.with("ETag", format!("\"{}\"", "a".repeat(40)))
    });
    let folder = tempfile::tempdir().unwrap();
    model(&settings(&server, folder.path()), "a/b").unwrap();
    // The listing describes the files, so each needs one request.
    assert_eq!(server.log().len(), 3);
}

#[test]
fn files_without_a_listed_hash_have_that_of_their_etag() {
    let server = Server::start(|_, request| {
        let reply = plain().reply(request);
        match request.path.starts_with("/api/") {
            true => {
                let files = r#"[{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}]"#;
                let body = format!(r#"{{"sha": "{COMMIT}", "siblings": {files}}}"#);
                Reply { body: body.into_bytes(), ..reply }
            }
            false => reply,
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let found = model(&settings(&server, folder.path()), "a/b").unwrap();
    assert_eq!(found.downloaded, 300_002);
    assert_eq!(server.log().iter().filter(|line| line.starts_with("HEAD ")).count(), 2);
    // Other tools expect sizes in `trees`.
    assert!(!folder.path().join("models--a--b/trees").exists());
}

#[test]
fn compressed_replies_are_refused() {
    let server = changing(|_, reply| reply.with("Content-Encoding", "gzip"));
    let expect = format!(
        "URL/a/b/resolve/{COMMIT}/model.safetensors: it sends compressed content, which was not asked for; check HF_ENDPOINT, and any proxy in front of it"
    );
    assert_eq!(error(&server), expect);
    let same = changing(|_, reply| reply.with("Content-Encoding", "identity"));
    let folder = tempfile::tempdir().unwrap();
    model(&settings(&same, folder.path()), "a/b").unwrap();
}

#[test]
fn a_server_that_can_neither_continue_nor_finish_is_given_up() {
    let server = changing(|request, reply| match request.from() {
        0 => Reply { cut: Some(180_000), ..reply },
        _ => Reply::status(416),
    });
    let error = error(&server);
    assert!(
        error.contains(": it does not send the rest of the file; check HF_ENDPOINT"),
        "{error}"
    );
    assert!(server.log().len() < 20, "{}", server.log().len());
}

#[test]
fn other_sizes_than_the_listed_one() {
    let larger = changing(|_, mut reply| {
        reply.body.extend_from_slice(&[7; 1000]);
        reply
    });
    let expect = format!(
        "URL/a/b/resolve/{COMMIT}/model.safetensors: it sends more than the 300000 bytes of `model.safetensors`; check HF_ENDPOINT, and any proxy in front of it"
    );
    assert_eq!(error(&larger), expect);
    let smaller = changing(|request, mut reply| {
        reply.body.truncate(200_000_usize.saturating_sub(request.from()));
        reply
    });
    let folder = tempfile::tempdir().unwrap();
    let error = model(&settings(&smaller, folder.path()), "a/b").unwrap_err().to_string();
    let expect = "ended after 200000 of 300000 bytes: the connection was closed before the end of the file; run again to resume it there";
    assert!(error.ends_with(expect), "{error}");
}

#[test]
fn another_server_does_not_speak_for_the_hub() {
    for status in [401, 403, 404] {
        let cdn = Server::start(move |_, _| Reply::code(status, "GatedRepo"));
        let url = cdn.url.clone();
        let server = Server::start(move |_, request| {
            let mut repo = plain();
            repo.cdn = Some(url.clone());
            repo.reply(request)
        });
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(&server, folder.path());
        settings.token = Some(Token::new("hf_x", "HF_TOKEN").unwrap());
        let error = model(&settings, "a/b").unwrap_err().to_string();
        let expect = format!(
            "{}/blob: status {status}; check HF_ENDPOINT, and any proxy in front of it",
            cdn.url
        );
        assert_eq!(error, expect);
    }
}

#[test]
fn a_listed_file_that_is_gone() {
    let server = changing(|_, _| {
        Reply { body: b"<html>".to_vec(), ..Reply::status(404) }
            .with("X-Error-Message", "Entry not found")
    });
    let expect = format!(
        "URL/a/b/resolve/{COMMIT}/model.safetensors: status 404 (\"Entry not found\"); check HF_ENDPOINT, and any proxy in front of it"
    );
    assert_eq!(error(&server), expect);
}

#[test]
fn a_renamed_repository_is_found() {
    let server = Server::start(|_, request| match !request.path.contains("from=") {
        true => {
            let path = request.path.replace("/old/", "/a/");
            let mark = if path.contains('?') { '&' } else { '?' };
            Reply::status(307).with("Location", format!("{path}{mark}from=https://a.example/old/b"))
        }
        false => {
            let path = request.path.split(['?', '&']).filter(|part| !part.starts_with("from="));
            let path = path.collect::<Vec<_>>().join("?");
            plain().reply(&Received { path, ..request.clone() })
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let found = model(&settings(&server, folder.path()), "old/b").unwrap();
    assert!(found.folder.starts_with(folder.path().join("models--old--b")));
}

/// Asks for files of the data set `a/b`, whose files have these paths.
fn data(server: &Server, pattern: &str) -> Result<Snapshot, HubError> {
    let folder = tempfile::tempdir().unwrap();
    let name = DataName::parse(&format!("hf://datasets/a/b/{pattern}")).unwrap().unwrap();
    let needed: &[&[&str]] = &[&[&name.pattern]];
    let request = FileRequest { repo: &name.repo, needed, optional: &[], newest: false };
    let hub = Hub::new(settings(server, folder.path())).unwrap();
    let found = hub.files(&request, &mut |_| ControlFlow::Continue(()));
    let outside = folder.path().parent().unwrap().join("x.jsonl");
    assert!(!outside.exists());
    found
}

#[test]
fn unusual_paths_in_a_repository() {
    let server = Server::start(|_, request| {
        let path = request.path.replace("%3A", ":");
        let files: [(&str, &[u8], bool); 4] = [
            ("a.jsonl", b"1", false),
            ("2024-01-01T10:00.jsonl", b"2", false),
            ("../../../../x.jsonl", b"3", false),
            ("/etc/x.jsonl", b"4", false),
        ];
        Repo::new("datasets/a/b", &files).reply(&Received { path, ..request.clone() })
    });
    assert_eq!(data(&server, "a.jsonl").unwrap().files, ["a.jsonl"]);
    assert_eq!(data(&server, "2024*").unwrap().files, ["2024-01-01T10:00.jsonl"]);
    for (pattern, path) in
        [("../../../../x.jsonl", "../../../../x.jsonl"), ("**", "../../../../x.jsonl")]
    {
        let expect = format!(
            "URL: the reply lists a file with the path \"{path}\", which cannot be stored; check HF_ENDPOINT, and any proxy in front of it"
        );
        let error = data(&server, pattern).unwrap_err().to_string();
        assert_eq!(error.replace(&server.url, "URL"), expect);
    }
}

#[test]
fn large_repositories_are_listed_by_pages() {
    let pages = |repeats: bool| {
        Server::start(move |_, request| {
            let tree = format!("/api/datasets/a/b/tree/{COMMIT}?recursive=true&expand=false");
            let file = |path: &str| {
                let git = git_hash(path.as_bytes());
                format!(r#"{{"type": "file", "path": "{path}", "size": 10, "oid": "{git}"}}"#)
            };
            let page = |body: String| Reply { body: body.into_bytes(), ..Reply::status(200) };
            match request.path.strip_prefix(&tree) {
                Some("") => page(r#"[{"type": "directory", "path": "x", "oid": "1"}]"#.to_owned())
                    .with("Link", format!("<{tree}&cursor=1>; rel=\"next\"")),
                Some("&cursor=1") if !repeats => page(format!("[{}]", file("last.jsonl"))),
                Some(_) => page("[]".to_owned()).with("Link", format!("<{tree}>; rel=\"next\"")),
                None if request.path.starts_with("/api/") => {
                    let file = |i| format!(r#"{{"rfilename": "{i}"}}"#);
                    let files: Vec<String> = (0..50_000).map(file).collect();
                    let files = files.join(",");
                    page(format!(r#"{{"sha": "{COMMIT}", "siblings": [{files}]}}"#))
                }
                None => page("last.jsonl".to_owned()),
            }
        })
    };
    assert_eq!(data(&pages(false), "last.jsonl").unwrap().files, ["last.jsonl"]);
    let error = data(&pages(true), "last.jsonl").unwrap_err().to_string();
    assert!(error.contains("the pages of the listing repeat themselves; check"), "{error}");
}
