//! Malicious inputs that try to block, flood or deceive the program.

use crate::support::Place;

/// Creates a named pipe without a writer.
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
    assert!(
        ended.stderr.contains("the key has 20000 parts; expected at most 32"),
        "{}",
        ended.stderr
    );
    for number in 0..40 {
        place.write(&format!("{number}.toml"), format!("extends = \"{}.toml\"\n", number + 1));
    }
    let ended = place.run(&["train", "0.toml"]);
    assert!(
        ended.stderr.contains("the chain of `extends` is longer than 32 files"),
        "{}",
        ended.stderr
    );
}

/// Sets the terminal title with 7-bit and 8-bit control sequences and reverses the writing
/// direction.
const COMMANDS: &str = "\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\r";

/// The escaped form of [`COMMANDS`].
const SHOWN: &str = "\\u001b]0;title\\u0007\\u009b31m\\u202e\\u000d";

#[test]
fn what_a_terminal_acts_on_is_never_printed() {
    let place = Place::for_training();
    place.copy_model();
    let shown = |arguments: &[&str]| {
        let ended = place.run(arguments);
        let all = ended.stdout + &ended.stderr;
        let raw = |c: char| COMMANDS.contains(c) && (c.is_control() || c == '\u{202e}');
        assert!(!all.contains(raw), "{arguments:?}: {all:?}");
        assert!(all.contains(SHOWN.trim_end_matches("\\u000d")), "{arguments:?}: {all:?}");
    };
    shown(&["train", "train.toml", "--set", &format!("{COMMANDS}=1")]);
    shown(&["train", &format!("{COMMANDS}.toml")]);
    // Clap removes some of the characters.
    shown(&["train", "train.toml", &format!("x{SHOWN}{COMMANDS}")]);
    // A carriage return ends a line in CSV files.
    let line = COMMANDS.trim_end();
    place.write("molecules.csv", format!("smiles,name\n{line}x,a\n"));
    shown(&["describe", "molecules.csv"]);
    place.write("columns.csv", format!("{line}x,name\nC,a\n"));
    shown(&["describe", "columns.csv"]);
    place.write(
        "tokens.jsonl",
        serde_json::json!({"prompt": COMMANDS, "completion": "C"}).to_string(),
    );
    shown(&["logprob", "--model", "model", "--input", "tokens.jsonl"]);
    place.write(
        "model/model.safetensors.index.json",
        serde_json::json!({"weight_map": {"a": format!("{COMMANDS}.safetensors")}}).to_string(),
    );
    std::fs::remove_file(place.path("model/model.safetensors")).unwrap();
    shown(&["sample", "--model", "model"]);
}

/// Creates the randomly initialized model `m` with a tokenizer.
fn text_model(place: &Place) {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::create_dir(place.path("source")).unwrap();
    std::fs::copy(
        fixtures.join("grpo-data/tests/fixtures/tokenizer.json"),
        place.path("source/tokenizer.json"),
    )
    .unwrap();
    place.write("source/config.json", r#"{"model_type": "gpt2", "vocab_size": 335, "n_positions": 64, "n_embd": 8, "n_layer": 1, "n_head": 2}"#);
    place.succeed(&["init", "source/config.json", "-o", "m"]);
    std::fs::remove_file(place.path("m/manifest.json")).unwrap();
}

#[test]
fn templates_and_tokenizers_have_limits() {
    let place = Place::new();
    text_model(&place);
    let sample = ["sample", "--model", "m", "--chat", "--prompt", "hello", "--max-new-tokens", "2"];
    let check = |template: &str, expected: &str| {
        place.write("m/chat_template.jinja", template);
        let ended = place.run(&sample);
        let shown: String = template.chars().take(60).collect();
        assert_eq!(ended.code, Some(1), "{shown}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{shown}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{shown}: {}", ended.stderr);
    };
    let memory = "exceeds the memory limit of 16 MiB; use a simpler template";
    let text = "the text would have more than 8388608 bytes";
    check(
        "{% set n = namespace(a='aaaaaaaa') %}{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
        memory,
    );
    check("{{ '%2000000000d' | format(1) }}", text);
    check("{{ ('a' * 1000000).replace('a', 'b' * 100000) }}", text);
    check("{{ range(3) | batch(2000000000, 'x') | list }}", "more than 1000000 items");
    check("{{ ('a\n' * 100000) | indent(100000000) }}", text);
    check("{{ range(99999) | map('string') | map('center', 999) | list }}", memory);
    for template in
        ["{% set ns.a = ns %}{{ ns }}", "{% set ns.a = [ns] %}{{ [ns.a] == ns.a }}{{ ns.a }}"]
    {
        let template = format!("{{% set ns = namespace() %}}{template}");
        check(&template, "nested too deeply");
    }
    let nested = "{% set ns=namespace(s=[1]) %}{% for j in range(50) %}{% for i in range(9000) %}{% set ns.s=[ns.s] %}{% endfor %}{% endfor %}x";
    check(nested, memory);
    let sums = format!(
        "{{% for i in range(99999) %}}{{% if 1{} == 0 %}}{{% endif %}}{{% endfor %}}",
        " + 1".repeat(40)
    );
    check(&sums, "evaluates more than 2000000 expressions");
    check(&nested.replace("[ns.s]", "[[[[[[[[ns.s]]]]]]]]"), memory);
    let deep = |open: &str, close: &str| {
        format!("{{{{ {}x{} }}}}", open.repeat(40_000), close.repeat(40_000))
    };
    for template in [deep("not ", ""), deep("", ".a"), deep("", "|e"), deep("-", "")] {
        place.write("m/chat_template.jinja", &template);
        assert!(place.run(&sample).code.is_some(), "a signal ended {}", &template[..40]);
    }
    let elifs = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(20_000));
    place.write("m/chat_template.jinja", elifs);
    assert!(place.run(&sample).code.is_some());
    check(&"x".repeat(300_000), "has 300000 bytes; expected at most 262144");
    check("{{ raise_exception('\u{1b}]0;title\u{7}') }}", "\\u001b]0;title\\u0007");

    place.write("m/chat_template.jinja", "{{ messages[0].content }}");
    let mut tokenizer: serde_json::Value =
        serde_json::from_str(&place.read("m/tokenizer.json")).unwrap();
    let grow = serde_json::json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(1000)});
    let first = serde_json::json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "a"});
    tokenizer["normalizer"] =
        serde_json::json!({"type": "Sequence", "normalizers": [first, grow, grow, grow]});
    place.write("m/tokenizer.json", tokenizer.to_string());
    let ended = place.run(&sample);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .starts_with("error: the tokenizer `m/tokenizer.json` exceeds the memory limit of 25"),
        "{}",
        ended.stderr
    );
}

#[test]
fn work_without_an_end_is_refused() {
    let place = Place::new();
    place.write("huge.json", r#"{"model_type": "gpt2", "vocab_size": 1000000, "n_positions": 1024, "n_embd": 65536, "n_layer": 1000, "n_head": 64}"#);
    let ended = place.run(&["init", "huge.json", "-o", "m"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("billion parameters and needs"), "{}", ended.stderr);
    place.write("word.jsonl", serde_json::json!({"text": "ab".repeat(50_000)}).to_string());
    let ended =
        place.run(&["train-tokenizer", "--input", "word.jsonl", "--vocabulary", "300", "-o", "t"]);
    assert!(ended.stderr.contains("has a word of 100000 bytes"), "{}", ended.stderr);
    let ended = place.run(&["fill", "m", "--text", "a_", "--iterations", "999999999"]);
    assert!(ended.stderr.contains("--iterations 999999999 is out of range"), "{}", ended.stderr);
}
