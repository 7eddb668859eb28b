//! Caches as Python's `huggingface_hub` leaves them.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use grpo_hub::{FileRequest, Hub, HubError, HubSettings, RepoName};

use crate::client::{model, settings};
use crate::fake::{COMMIT, Reply, Server};

/// A cache with the model `a/b`.
struct Cache {
    folder: tempfile::TempDir,
    settings: HubSettings,
}

impl Cache {
    /// Writes what `snapshot_download` of huggingface_hub 2.4 writes.
    fn python() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(|_, request| panic!("{request:?}"));
        let mut settings = settings(&server, folder.path());
        settings.retries = 0;
        let cache = Self { folder, settings };
        cache.write("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
        cache.write(".locks/models--a--b/1111.lock", "");
        cache.write("models--a--b/refs/main", COMMIT);
        for name in ["config.json", "model.safetensors"] {
            cache.write(&format!("models--a--b/blobs/{name}-hash"), name);
            cache.link(&cache.pointer(name), &format!("../../blobs/{name}-hash"));
        }
        cache
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pointer(&self, name: &str) -> PathBuf {
        self.path(&format!("models--a--b/snapshots/{COMMIT}/{name}"))
    }

    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn link(&self, name: &Path, target: &str) {
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        let _ = fs::remove_file(name);
        std::os::unix::fs::symlink(target, name).unwrap();
    }

    fn files(&self) -> Result<Vec<String>, HubError> {
        model(&self.settings, "a/b").map(|snapshot| {
            assert_eq!(snapshot.folder, self.pointer("").parent().unwrap().join(COMMIT));
            snapshot.files
        })
    }

    /// Returns the message, in which `CACHE` stands for the folder.
    fn error(&self) -> String {
        let error = self.files().unwrap_err().to_string();
        error.replace(self.folder.path().to_str().unwrap(), "CACHE")
    }
}

#[test]
fn complete_caches_are_used_without_a_request() {
    let cache = Cache::python();
    let both = ["config.json", "model.safetensors"];
    assert_eq!(cache.files().unwrap(), both);
    // Where links are missing, the snapshot has files.
    fs::remove_file(cache.pointer("config.json")).unwrap();
    fs::write(cache.pointer("config.json"), "{}").unwrap();
    assert_eq!(cache.files().unwrap(), both);
    // Contents that several repositories share.
    let hash = "ab".repeat(32);
    cache.write(&format!("blobs/ab/{hash}"), "weights");
    let blob = cache.path("models--a--b/blobs/model.safetensors-hash");
    cache.link(&blob, &format!("../../blobs/ab/{hash}"));
    assert_eq!(cache.files().unwrap(), both);
    // Optional files in folders.
    cache.write("models--a--b/blobs/text", "x");
    cache.link(&cache.pointer("sub/x.txt"), "../../../blobs/text");
    assert_eq!(cache.files().unwrap(), ["config.json", "model.safetensors", "sub/x.txt"]);
}

#[test]
fn incomplete_caches_are_noticed() {
    let check = |change: &dyn Fn(&Cache), expect: &str| {
        let mut cache = Cache::python();
        change(&cache);
        cache.settings.offline = true;
        let error = cache.error();
        let start = format!("model `a/b` is not complete in the cache `CACHE` ({expect})");
        assert!(error.starts_with(&start), "{error}");
    };
    check(
        &|cache| fs::remove_file(cache.path("models--a--b/refs/main")).unwrap(),
        "it has no revision `main` of it",
    );
    check(&|cache| fs::remove_file(cache.pointer("config.json")).unwrap(), "no file `config.json`");
    let blob = "models--a--b/blobs/model.safetensors-hash";
    check(&|cache| fs::remove_file(cache.path(blob)).unwrap(), "no file `model*.safetensors`");
    let rename = |cache: &Cache| {
        let parts = ["model.safetensors", "model-00001-of-00002.safetensors"];
        fs::rename(cache.pointer(parts[0]), cache.pointer(parts[1])).unwrap();
    };
    check(&rename, "only 1 of the 2 parts of `model.safetensors`");
    let tree = |cache: &Cache| {
        let entry = |name: &str| format!(r#""{name}": {{"size": 1, "blob_id": "x"}}"#);
        let files = ["config.json", "model.safetensors", "tokenizer.json"].map(entry).join(", ");
        let tree = format!(r#"{{"format_version": 1, "files": {{{files}}}}}"#);
        cache.write(&format!("models--a--b/trees/{COMMIT}.json"), &tree);
    };
    check(&tree, "no file `tokenizer.json`");
}

#[test]
fn texts_for_people_may_be_missing() {
    // As after `snapshot_download` with patterns, which lists all files.
    let mut cache = Cache::python();
    let entry = |name: &str| format!(r#""{name}": {{"size": 1, "blob_id": "x"}}"#);
    let files = ["config.json", "model.safetensors", "README.md", "LICENSE.txt"].map(entry);
    let tree = format!(r#"{{"format_version": 1, "files": {{{}}}}}"#, files.join(", "));
    cache.write(&format!("models--a--b/trees/{COMMIT}.json"), &tree);
    cache.settings.offline = true;
    let repo = RepoName::model("a/b").unwrap().unwrap();
    let files = |needed: &[&[&str]]| {
        let optional = &["README.md", "LICENSE*"];
        let request = FileRequest { repo: &repo, needed, optional, newest: false };
        let hub = Hub::new(cache.settings.clone()).unwrap();
        hub.files(&request, &mut |_| ControlFlow::Continue(())).map(|snapshot| snapshot.files)
    };
    assert_eq!(files(&[&["config.json"]]).unwrap(), ["config.json"]);
    let error = files(&[&["README.md"]]).unwrap_err().to_string();
    assert!(error.contains("(no file `README.md`)"), "{error}");
}

#[test]
fn listings_that_cannot_be_read_count_as_missing() {
    let cache = Cache::python();
    let tree = format!("models--a--b/trees/{COMMIT}.json");
    cache.write(&tree, "");
    let file = fs::OpenOptions::new().write(true).open(cache.path(&tree)).unwrap();
    file.set_len(65 << 20).unwrap();
    assert_eq!(cache.files().unwrap().len(), 2);
}

#[test]
fn links_that_lead_elsewhere_are_refused() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    let check = |target: &str| {
        let cache = Cache::python();
        cache.write("models--c--d/blobs/x", "of another repository");
        cache.write("models--a--b/blobs/folder/x", "not a blob");
        cache.link(&cache.pointer("config.json"), target);
        let start = format!(
            "`CACHE/models--a--b/snapshots/{COMMIT}/config.json` is a link that does not lead to a blob of its repository; remove it"
        );
        assert!(cache.error().starts_with(&start), "{}", cache.error());
    };
    check(secret.path().to_str().unwrap());
    check("/etc/passwd");
    check("../../../models--c--d/blobs/x");
    check("../../blobs/folder/x");
    check("../../blobs");
    check("../../refs/main");
    check(&format!("{}etc/passwd", "../".repeat(40)));

    let cache = Cache::python();
    let blob = cache.path("models--a--b/blobs/config.json-hash");
    cache.link(&blob, "/etc/passwd");
    assert_eq!(
        cache.error(),
        "`CACHE/models--a--b/blobs/config.json-hash` is a link that does not lead to a shared blob; remove it, and download the files again"
    );
    fs::remove_file(&blob).unwrap();
    fs::create_dir(&blob).unwrap();
    assert!(cache.error().contains("is not a file; remove it"), "{}", cache.error());
}

#[test]
fn references_without_a_commit_are_refused() {
    let cache = Cache::python();
    cache.write("models--a--b/refs/main", "../../x");
    assert_eq!(
        cache.error(),
        "`CACHE/models--a--b/refs/main` does not contain a commit; remove it, and download the files again"
    );
}

#[test]
fn a_missing_blob_is_downloaded_again() {
    let cache = Cache::python();
    let repo = || {
        crate::fake::Repo::new(
            "models/a/b",
            &[("config.json", b"{}", false), ("model.safetensors", b"new", true)],
        )
    };
    let server = Server::start(move |_, request| repo().reply(request));
    fs::remove_file(cache.path("models--a--b/blobs/model.safetensors-hash")).unwrap();
    let settings = settings(&server, cache.folder.path());
    let snapshot = model(&settings, "a/b").unwrap();
    assert_eq!(snapshot.downloaded, 3);
    assert_eq!(fs::read_to_string(snapshot.folder.join("model.safetensors")).unwrap(), "new");
    let downloads: Vec<String> =
        server.log().into_iter().filter(|line| line.contains("config.json")).collect();
    assert!(downloads.is_empty(), "{downloads:?}");
}

#[test]
fn files_of_a_killed_process_do_not_keep_others_from_working() {
    let cache = Cache::python();
    let server = Server::start(|_, request| {
        let files: [(&str, &[u8], bool); 2] =
            [("config.json", b"{}", false), ("model.safetensors", b"new", true)];
        crate::fake::Repo::new("models/a/b", &files).reply(request)
    });
    // A process in another container can have the same number.
    cache.write(&format!("models--a--b/refs/v1.{}.tmp", std::process::id()), "01");
    cache.write("models--a--b/.0.tmp", "01");
    model(&settings(&server, cache.folder.path()), "a/b@v1").unwrap();
    assert_eq!(fs::read_to_string(cache.path("models--a--b/refs/v1")).unwrap(), COMMIT);
    assert!(!cache.path("models--a--b/.1.tmp").exists());
}

#[test]
fn caches_that_cannot_be_written_can_be_read() {
    // A folder of the cache that is a file stands for one without permission, which root would have.
    let cache = Cache::python();
    fs::remove_dir_all(cache.path(".locks")).unwrap();
    cache.write(".locks", "");
    assert_eq!(cache.files().unwrap().len(), 2);
    let server = Server::start(|_, _| Reply::status(500));
    let mut settings = settings(&server, &cache.path(".locks"));
    settings.retries = 0;
    let error = model(&settings, "a/b").unwrap_err().to_string();
    assert!(error.starts_with("cannot open `"), "{error}");
}
