//! Names of the Hugging Face hub in commands and configurations, with a hub of the test.

use std::process::Command;

use crate::fake_hub::{COMMIT, Reply, Repo, Server};
use crate::support::{Ended, Place, small_model, train_toml};

/// Starts a hub with the small model as `org/small`, and with prompts.
fn hub() -> Server {
    let read = |name: &str| std::fs::read(small_model().join(name)).unwrap();
    let files =
        ["config.json", "vocabulary.json", "model.safetensors"].map(|name| (name, read(name)));
    Server::start(move |_, request| {
        let files =
            files.each_ref().map(|(name, body)| (*name, body.as_slice(), body.len() > 10_000));
        Repo::new("models/org/small", &files).reply(request)
    })
}

/// Returns a command that uses the hub and a cache in the folder of the test.
fn command(place: &Place, server: &Server, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.env("HF_ENDPOINT", &server.url).env("HF_HOME", place.path("hf"));
    for variable in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"] {
        command.env_remove(variable);
    }
    command
}

#[track_caller]
fn succeed(place: &Place, server: &Server, arguments: &[&str]) -> Ended {
    let ended = Ended::of_command(&mut command(place, server, arguments));
    assert_eq!(ended.code, Some(0), "grpo {arguments:?}: {}", ended.stderr);
    ended
}

#[test]
fn a_model_is_downloaded_once_and_its_commit_is_recorded() {
    let (place, server) = (Place::new(), hub());
    let folder = format!("hf/hub/models--org--small/snapshots/{COMMIT}");
    let folder = place.path(&folder);
    let downloaded = succeed(&place, &server, &["download", "org/small"]);
    assert_eq!(downloaded.stdout, format!("{}\n", folder.display()));
    assert!(downloaded.stderr.contains(&format!("downloaded   org/small at commit {COMMIT}")));
    let sent = server.log().len();

    // `vocabulary.json` is one of the optional `*.json` files.
    let by_name = succeed(&place, &server, &["sample", "--model", "org/small", "-n", "5", "-q"]);
    let by_path = folder.display().to_string();
    let by_path = succeed(&place, &server, &["sample", "--model", &by_path, "-n", "5", "-q"]);
    assert_eq!(by_name.stdout, by_path.stdout);

    let model = format!("model = \"{}\"", small_model().display());
    place.write("train.toml", train_toml().replace(&model, "model = \"org/small\""));
    let checked = succeed(&place, &server, &["train", "train.toml", "--check"]);
    let note = "note         org/small is looked for in the cache of the hub, and downloaded, when the run starts\n";
    assert!(checked.stdout.contains(note), "{}", checked.stdout);
    succeed(&place, &server, &["train", "train.toml", "-q"]);
    assert!(place.read("run/config.toml").contains(&folder.display().to_string()));
    assert!(place.read("run/run.json").contains(COMMIT));
    succeed(&place, &server, &["audit", "run"]);
    let replay = ["replay", "run", "--step", "1", "--prompt", "0", "--sample", "0"];
    succeed(&place, &server, &replay);
    assert_eq!(server.log().len(), sent);

    // Without the cache, the same commit is downloaded again.
    std::fs::remove_dir_all(place.path("hf")).unwrap();
    succeed(&place, &server, &replay);
    let revision = format!("GET /api/models/org/small/revision/{COMMIT}?blobs=true");
    assert!(server.log()[sent..].contains(&revision), "{:?}", server.log());
}

#[test]
fn names_that_cannot_be_used_are_explained() {
    let (place, server) = (Place::new(), hub());
    let check = |server: &Server, arguments: &[&str], expect: &str| {
        let ended = Ended::of_command(&mut command(&place, server, arguments));
        assert_ne!(ended.code, Some(0));
        assert!(ended.stderr.replace(&server.url, "URL").contains(expect), "{}", ended.stderr);
        assert!(!place.path("hf").exists());
    };
    let absent = "`org/absent` is neither a folder here nor a model on URL; check the name, or set HF_TOKEN if it is private";
    check(&server, &["sample", "--model", "org/absent"], absent);
    check(&server, &["download", "org/absent"], absent);
    place.write("x.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"reference\": \"c\"}\n");
    check(&server, &["eval", "x.jsonl", "--bertscore", "org/absent"], absent);
    let sft = "run = \"r\"\nseed = 1\nstart = \"org/absent\"\ndata.file = \"x.jsonl\"\n[pretrain]\nepochs = 1\nbatch_size = 4\noptimizer.learning_rate = 1e-3\n";
    place.write("sft.toml", sft);
    check(&server, &["pretrain", "sft.toml"], &format!("start = \"org/absent\": {absent}"));
    let eval = "eval.embedder = { type = \"sentence_transformers\", folder = \"org/absent\" }\n";
    place.write("sft.toml", sft.replace("org/absent", "./m") + eval);
    let expect = format!("pretrain.eval.embedder.folder = \"org/absent\": {absent}");
    check(&server, &["pretrain", "sft.toml"], &expect);
    let gone = "the model `org/small` has no revision `gone` on URL; check the branch, tag or commit, or name it without `@`";
    check(&server, &["download", "org/small@gone"], gone);
    let path = "`models/x` is a path or not a name of the hub; expected org/name, or hf://org/name if a folder `org` exists here";
    check(&server, &["download", "models/x"], path);
    let gated = Server::start(|_, _| Reply::code(401, "GatedRepo"));
    let expect =
        "the model `org/small` is gated; accept its conditions on URL/org/small, then set HF_TOKEN";
    check(&gated, &["sample", "--model", "org/small"], expect);

    let mut offline = command(&place, &server, &["sample", "--model", "org/small"]);
    let ended = Ended::of_command(offline.env("HF_HUB_OFFLINE", "1"));
    let expect = "`org/small` is not a folder here, and as a name of the hub it cannot be used: model `org/small` is not complete in the cache";
    assert!(ended.stderr.contains(expect), "{}", ended.stderr);
}
