//! What is downloaded, resumed and checked.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use grpo_hub::{DataName, FileRequest, Hub, HubError, Progress, Token};

use crate::client::{model, settings, tree};
use crate::fake::{COMMIT, Reply, Repo, Server, content, git_hash, noise, sha256};

fn repo() -> Repo {
    let weights = noise(300_000);
    Repo::new(
        "models/a/b",
        &[
            ("config.json", b"{}", false),
            ("model.safetensors", &weights, true),
            ("sub/a b.txt", b"text", false),
            ("onnx/model.onnx", b"not needed", true),
        ],
    )
}

/// Replaces the space, which is encoded in URLs.
fn plain() -> Repo {
    let weights = noise(300_000);
    Repo::new("models/a/b", &[("config.json", b"{}", false), ("model.safetensors", &weights, true)])
}

#[test]
fn needed_files_are_downloaded_once_into_the_layout_of_the_hubs_tools() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("hub");
    let server = Server::start(|_, request| {
        let mut request = request.clone();
        request.path = request.path.replace("%20", " ");
        repo().reply(&request)
    });
    let settings = settings(&server, &cache);
    let snapshot = model(&settings, "a/b").unwrap();
    assert_eq!(snapshot.commit, COMMIT);
    assert_eq!(snapshot.folder, cache.join("models--a--b/snapshots").join(COMMIT));
    assert_eq!(snapshot.files, ["config.json", "model.safetensors", "sub/a b.txt"]);
    assert_eq!(snapshot.downloaded, 300_006);
    let (config, text) = (git_hash(b"{}"), git_hash(b"text"));
    let weights = sha256(&noise(300_000));
    let mut expect = vec![
        format!("models--a--b/blobs/{config}"),
        format!("models--a--b/blobs/{text}"),
        format!("models--a--b/blobs/{weights}"),
        "models--a--b/refs/main".to_owned(),
        format!("models--a--b/snapshots/{COMMIT}/config.json -> ../../blobs/{config}"),
        format!("models--a--b/snapshots/{COMMIT}/model.safetensors -> ../../blobs/{weights}"),
        format!("models--a--b/snapshots/{COMMIT}/sub/a b.txt -> ../../../blobs/{text}"),
        format!("models--a--b/trees/{COMMIT}.json"),
    ];
    expect.sort();
    assert_eq!(tree(&cache), expect);
    assert_eq!(std::fs::read(cache.join("models--a--b/refs/main")).unwrap(), COMMIT.as_bytes());
    let read = std::fs::read(snapshot.folder.join("model.safetensors")).unwrap();
    assert_eq!(read, noise(300_000));

    let sent = server.log().len();
    for name in ["a/b", &format!("a/b@{COMMIT}"), "a/b@main"] {
        let again = model(&settings, name).unwrap();
        assert_eq!(
            (again.folder, again.files, again.downloaded),
            (snapshot.folder.clone(), snapshot.files.clone(), 0)
        );
    }
    assert_eq!(server.log().len(), sent);
    // Another revision of the same commit: only its commit is asked for.
    model(&settings, "a/b@v1").unwrap();
    model(&settings, "hf://a/b@refs/pr/1").unwrap();
    let expect = ["v1", "refs%2Fpr%2F1"]
        .map(|revision| format!("GET /api/models/a/b/revision/{revision}?blobs=true"));
    assert_eq!(server.log()[sent..], expect);
    let reference = cache.join("models--a--b/refs/refs/pr/1");
    assert_eq!(std::fs::read(reference).unwrap(), COMMIT.as_bytes());
}

#[test]
fn without_links_the_snapshot_has_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| plain().reply(request));
    let mut settings = settings(&server, folder.path());
    settings.has_links = false;
    let snapshot = model(&settings, "a/b").unwrap();
    assert!(snapshot.folder.join("config.json").symlink_metadata().unwrap().is_file());
    settings.offline = true;
    assert_eq!(model(&settings, "a/b").unwrap().files, snapshot.files);
}

#[test]
fn files_of_data_sets_are_found_by_patterns() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| {
        let files: [(&str, &[u8], bool); 3] = [
            ("main/train-0.jsonl", b"1", false),
            ("main/train-1.jsonl", b"2", true),
            ("main/test-0.jsonl", b"3", true),
        ];
        Repo::new("datasets/a/b", &files).reply(request)
    });
    let name = DataName::parse("hf://datasets/a/b/main/train-*.jsonl").unwrap().unwrap();
    let check = |pattern: &str| {
        let request =
            FileRequest { repo: &name.repo, needed: &[&[pattern]], optional: &[], newest: false };
        let hub = Hub::new(settings(&server, folder.path())).unwrap();
        hub.files(&request, &mut |_| ControlFlow::Continue(()))
    };
    let found = check(&name.pattern).unwrap();
    assert_eq!(found.files, ["main/train-0.jsonl", "main/train-1.jsonl"]);
    assert!(found.folder.starts_with(folder.path().join("datasets--a--b")));
    assert_eq!(
        check("train.jsonl").unwrap_err().to_string(),
        "the data set `hf://datasets/a/b` has no file `train.jsonl`; it has `main/test-0.jsonl`, `main/train-0.jsonl`, `main/train-1.jsonl`"
    );
}

/// The hub's copy in Parquet has a revision of its own. Another tool may have taken one of its files.
#[test]
fn a_pattern_of_a_data_set_needs_a_list_of_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| {
        let files: [(&str, &[u8], bool); 2] = [
            ("default/train/0000.parquet", b"a", false),
            ("default/train/0001.parquet", b"b", true),
        ];
        Repo::new("datasets/a/b", &files).reply(request)
    });
    let name = "hf://datasets/a/b@refs%2Fconvert%2Fparquet/default/train/*.parquet";
    let name = DataName::parse(name).unwrap().unwrap();
    let find = |offline: bool| {
        let mut settings = settings(&server, folder.path());
        settings.offline = offline;
        let pattern: &[&str] = &[&name.pattern];
        let request =
            FileRequest { repo: &name.repo, needed: &[pattern], optional: &[], newest: false };
        Hub::new(settings).unwrap().files(&request, &mut |_| ControlFlow::Continue(()))
    };
    let both = ["default/train/0000.parquet", "default/train/0001.parquet"];
    let found = find(false).unwrap();
    assert_eq!((found.files.as_slice(), found.downloaded), (&both.map(str::to_owned)[..], 2));
    let repo = folder.path().join("datasets--a--b");
    assert!(repo.join("refs/refs/convert/parquet").is_file());
    assert_eq!(find(true).unwrap().files, both);
    std::fs::remove_dir_all(repo.join("trees")).unwrap();
    std::fs::remove_file(found.folder.join(both[1])).unwrap();
    let said = find(true).unwrap_err().to_string();
    let expect = "(it does not list which files match `default/train/*.parquet`), and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids downloads";
    assert!(said.contains(expect), "{said}");
    assert_eq!(find(false).unwrap().files, both);
}

#[test]
fn the_token_goes_to_the_hub_only() {
    let folder = tempfile::tempdir().unwrap();
    let cdn = Server::start(|_, request| content(request, &noise(300_000)));
    let url = cdn.url.clone();
    let server = Server::start(move |_, request| {
        let mut repo = plain();
        repo.cdn = Some(url.clone());
        // Small files are redirected on the hub itself.
        match request.path.strip_prefix("/kept") {
            Some(path) => {
                repo.reply(&crate::fake::Received { path: path.to_owned(), ..request.clone() })
            }
            None if request.path.ends_with("config.json") => Reply::status(307)
                .with("Location", format!("/kept{}", request.path))
                .with("X-Repo-Commit", COMMIT),
            None => repo.reply(request),
        }
    });
    let mut settings = settings(&server, folder.path());
    settings.token = Some(Token::new("hf_secret", "the test").unwrap());
    model(&settings, "a/b").unwrap();
    assert_eq!(server.received().len(), 4);
    for request in server.received() {
        assert_eq!(request.header("authorization"), Some("Bearer hf_secret"), "{request:?}");
    }
    assert_eq!(cdn.log(), ["GET /blob?key=secret"]);
    for request in cdn.received() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}

/// Cuts the first reply with weights after 60 %, and the second one as `second` says.
fn cutting(second: impl Fn(Reply) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |earlier, request| {
        let reply = plain().reply(request);
        match request.path.ends_with(".safetensors") && request.method == "GET" {
            true if earlier == 0 => Reply { cut: Some(180_000), ..reply },
            true if earlier == 1 => second(reply),
            _ => reply,
        }
    })
}

#[test]
fn a_lost_connection_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let server = cutting(|reply| reply);
    let snapshot = model(&settings(&server, folder.path()), "a/b").unwrap();
    assert_eq!(std::fs::read(snapshot.folder.join("model.safetensors")).unwrap(), noise(300_000));
    assert_eq!(snapshot.downloaded, 300_002);
    let path = format!("/a/b/resolve/{COMMIT}/model.safetensors");
    let expect = [format!("GET {path}"), format!("GET {path} from 180000")];
    assert_eq!(server.log()[server.log().len() - 2..], expect);
}

#[test]
fn an_interrupted_download_is_resumed_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let server = cutting(|reply| reply);
    let mut settings = settings(&server, folder.path());
    settings.retries = 0;
    let host = server.url.strip_prefix("http://").unwrap();
    assert_eq!(
        model(&settings, "a/b").unwrap_err().to_string(),
        format!(
            "the download of `model.safetensors` from {host} ended after 180000 of 300000 bytes: the connection was closed before the end of the reply; run again to resume it there"
        )
    );
    let blobs = folder.path().join("models--a--b/blobs");
    let part = blobs.join(format!("{}.incomplete", sha256(&noise(300_000))));
    assert_eq!(std::fs::metadata(&part).unwrap().len(), 180_000);
    assert!(!folder.path().join("models--a--b/refs").exists());
    let snapshot = model(&settings, "a/b").unwrap();
    assert_eq!(snapshot.downloaded, 120_000);
    assert!(!part.exists());
    assert!(server.log().last().unwrap().ends_with("from 180000"));
}

#[test]
fn servers_without_ranges_send_the_whole_file_again() {
    let whole = |_| Reply { body: noise(300_000), ..Reply::status(200) };
    let refused = |_| Reply::status(416);
    let elsewhere = |reply: Reply| {
        Reply { headers: Vec::new(), ..reply }.with("Content-Range", "bytes 5-299999/300000")
    };
    for server in [cutting(whole), cutting(refused), cutting(elsewhere)] {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = model(&settings(&server, folder.path()), "a/b").unwrap();
        let read = std::fs::read(snapshot.folder.join("model.safetensors")).unwrap();
        assert!(read == noise(300_000));
    }
}

#[test]
fn a_silent_server_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|earlier, request| {
        let reply = plain().reply(request);
        match request.path.ends_with(".safetensors") && request.method == "GET" && earlier == 0 {
            true => Reply { cut: Some(100_000), stall: Duration::from_secs(20), ..reply },
            false => reply,
        }
    });
    let mut settings = settings(&server, folder.path());
    settings.idle_limit = Duration::from_millis(300);
    let start = std::time::Instant::now();
    model(&settings, "a/b").unwrap();
    assert!(start.elapsed() < Duration::from_secs(15));
    assert!(server.log().last().unwrap().ends_with("from 100000"));
}

#[test]
fn contents_with_another_hash_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| {
        let mut reply = plain().reply(request);
        if request.path.ends_with(".safetensors") && request.method == "GET" {
            reply.body[1000] ^= 1;
        }
        reply
    });
    let mut wrong = noise(300_000);
    wrong[1000] ^= 1;
    let host = server.url.strip_prefix("http://").unwrap();
    assert_eq!(
        model(&settings(&server, folder.path()), "a/b").unwrap_err().to_string(),
        format!(
            "`model.safetensors` from {host} has the hash {} instead of {}, so it was deleted; run again, or check the proxy or mirror in HF_ENDPOINT",
            sha256(&wrong),
            sha256(&noise(300_000))
        )
    );
    // The file that was right stays, and no revision leads to it.
    let config = git_hash(b"{}");
    let expect = [
        format!("models--a--b/blobs/{config}"),
        format!("models--a--b/snapshots/{COMMIT}/config.json -> ../../blobs/{config}"),
    ];
    assert_eq!(tree(folder.path()), expect);
}

#[test]
fn damaged_parts_of_an_earlier_run_are_downloaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = folder.path().join("models--a--b/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    for size in [1000, 300_000, 300_001] {
        let server = Server::start(|_, request| plain().reply(request));
        let part = blobs.join(format!("{}.incomplete", sha256(&noise(300_000))));
        std::fs::write(part, vec![7; size]).unwrap();
        let snapshot = model(&settings(&server, folder.path()), "a/b").unwrap();
        let weights = snapshot.folder.join("model.safetensors");
        assert!(std::fs::read(&weights).unwrap() == noise(300_000), "{size}");
        std::fs::remove_file(blobs.join(sha256(&noise(300_000)))).unwrap();
    }
}

#[test]
fn files_that_the_disk_cannot_hold_are_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| {
        let reply = plain().reply(request);
        let body = String::from_utf8_lossy(&reply.body).replace("300000", "4000000000000000000");
        match request.path.starts_with("/api") {
            true => Reply { body: body.into_bytes(), ..reply },
            false => reply,
        }
    });
    let settings = settings(&server, folder.path());
    let error = model(&settings, "a/b").unwrap_err();
    assert!(matches!(error, HubError::DiskFull { .. }));
    let expect = "and the download needs 4000000000.0 GB; free some space, or set HF_HUB_CACHE to a folder on another disk";
    assert!(error.to_string().ends_with(expect), "{error}");
    assert_eq!(server.log().len(), 1);
    assert!(tree(folder.path()).is_empty());
    // What another commit has already needs no space.
    let blobs = folder.path().join("models--a--b/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(sha256(&noise(300_000))), "weights").unwrap();
    assert_eq!(model(&settings, "a/b").unwrap().downloaded, 2);
}

#[test]
fn what_an_earlier_run_has_left_needs_no_space() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| plain().reply(request));
    let blobs = folder.path().join("models--a--b/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let part = blobs.join(format!("{}.incomplete", sha256(&noise(300_000))));
    std::fs::write(part, &noise(300_000)[..200_000]).unwrap();
    let repo = grpo_hub::RepoName::model("a/b").unwrap().unwrap();
    let needed: &[&[&str]] = &[&["model.safetensors"]];
    let request = FileRequest { repo: &repo, needed, optional: &[], newest: false };
    let mut missing = None;
    let hub = Hub::new(settings(&server, folder.path())).unwrap();
    let found = hub.files(&request, &mut |progress| {
        if let Progress::Missing { size, .. } = progress {
            missing = *size;
        }
        ControlFlow::Continue(())
    });
    assert_eq!((found.unwrap().downloaded, missing), (100_000, Some(100_000)));
}

#[test]
fn a_file_is_downloaded_by_one_caller_only() {
    for has_links in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(|_, request| {
            std::thread::sleep(Duration::from_millis(200));
            plain().reply(request)
        });
        let mut settings = settings(&server, folder.path());
        settings.has_links = has_links;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| model(&settings, "a/b").unwrap());
            }
        });
        let path = format!("GET /a/b/resolve/{COMMIT}/model.safetensors");
        assert_eq!(server.log().iter().filter(|line| **line == path).count(), 1);
    }
}

#[test]
fn a_caller_sees_the_progress_and_can_stop() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| plain().reply(request));
    let repo = grpo_hub::RepoName::model("a/b").unwrap().unwrap();
    let request = FileRequest {
        repo: &repo,
        needed: &[&["model.safetensors"]],
        optional: &[],
        newest: false,
    };
    let hub = Hub::new(settings(&server, folder.path())).unwrap();
    let seen = AtomicUsize::new(0);
    let stopped = hub.files(&request, &mut |progress| match progress {
        Progress::Downloading { done, size: Some(300_000), .. } if *done > 0 => {
            ControlFlow::Break(())
        }
        Progress::Missing { files: 1, size: Some(300_000) } => {
            seen.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(
        stopped.unwrap_err().to_string(),
        "the download of `model.safetensors` was stopped; run again to resume it"
    );
    assert_eq!(seen.into_inner(), 1);
    let rest = hub.files(&request, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(rest.downloaded < 300_000);
}

#[test]
fn the_newest_commit_is_asked_for_on_request() {
    const OLD: &str = "fedcba9876543210fedcba9876543210fedcba98";
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, request| plain().reply(request));
    let old = folder.path().join("models--a--b/snapshots").join(OLD);
    std::fs::create_dir_all(&old).unwrap();
    std::fs::create_dir_all(folder.path().join("models--a--b/refs")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(old.join(name), "old").unwrap();
    }
    let reference = folder.path().join("models--a--b/refs/main");
    std::fs::write(&reference, OLD).unwrap();
    let settings = settings(&server, folder.path());
    assert_eq!(model(&settings, "a/b").unwrap().commit, OLD);
    assert!(server.log().is_empty());
    let repo = grpo_hub::RepoName::model("a/b").unwrap().unwrap();
    let request =
        FileRequest { repo: &repo, needed: &[&["config.json"]], optional: &[], newest: true };
    let found =
        Hub::new(settings).unwrap().files(&request, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.commit, COMMIT);
    assert_eq!(std::fs::read_to_string(reference).unwrap(), COMMIT);
}
