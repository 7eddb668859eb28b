//! Inputs that somebody made to stop, fill or fool the program.

use crate::support::Place;

/// Makes a named pipe that nobody writes to.
#[cfg(unix)]
fn pipe(place: &Place, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(place.path(name)).status().unwrap();
    assert!(made.success());
}

#[test]
#[cfg(unix)]
fn named_pipes_are_refused_and_not_waited_for() {
    let place = Place::for_training();
    place.copy_model();
    let refused = |arguments: &[&str], file: &str| {
        let ended = place.run(arguments);
        let expect = "it is a named pipe, device or socket, not a regular file";
        assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expect), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(file), "{arguments:?}: {}", ended.stderr);
    };
    pipe(&place, "pipe.toml");
    refused(&["train", "pipe.toml"], "pipe.toml");
    place.write("over.toml", "extends = \"pipe.toml\"\n");
    refused(&["train", "over.toml"], "pipe.toml");
    pipe(&place, "pipe.smi");
    refused(&["describe", "pipe.smi"], "pipe.smi");
    refused(&["sample", "--model", "model", "--not-in", "pipe.smi"], "pipe.smi");
    pipe(&place, "pipe.jsonl");
    refused(&["logprob", "--model", "model", "--input", "pipe.jsonl"], "pipe.jsonl");
    refused(
        &["train-tokenizer", "--input", "pipe.jsonl", "--vocabulary", "300", "-o", "new"],
        "pipe.jsonl",
    );
    pipe(&place, "pipe.parquet");
    refused(&["logprob", "--model", "model", "--input", "pipe.parquet"], "pipe.parquet");
    for file in ["config.json", "vocabulary.json", "model.safetensors"] {
        let path = place.path("model").join(file);
        std::fs::rename(&path, place.path("kept")).unwrap();
        pipe(&place, &format!("model/{file}"));
        refused(&["sample", "--model", "model"], file);
        std::fs::rename(place.path("kept"), path).unwrap();
    }
    std::fs::remove_file(place.path("model/config.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path("model/config.json")).unwrap();
    refused(&["sample", "--model", "model"], "config.json");
}

#[test]
fn keys_and_files_on_files_have_an_end() {
    let place = Place::for_training();
    let key = vec!["a"; 20_000].join(".");
    let ended = place.run(&["train", "train.toml", "--set", &format!("{key}=1")]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("a key of 20000 parts; expected at most 32"), "{}", ended.stderr);
    for number in 0..40 {
        place.write(&format!("{number}.toml"), format!("extends = \"{}.toml\"\n", number + 1));
    }
    let ended = place.run(&["train", "0.toml"]);
    assert!(ended.stderr.contains("more than 32 files extend one another"), "{}", ended.stderr);
}
