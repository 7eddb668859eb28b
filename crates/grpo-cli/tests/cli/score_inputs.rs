//! What `grpo score` and `grpo eval --reward` say about completions that they cannot score.

use serde_json::Value;

use crate::support::Place;

const ANSWER: &str = "[reward]\ntype = \"answer\"\n";

fn place() -> Place {
    let place = Place::new();
    place.write("reward.toml", ANSWER);
    place
}

#[test]
fn missing_completions_are_asked_for() {
    place().refuse(
        &["score", "reward.toml"],
        "missing completions; add a FILE (JSON lines, Parquet, CSV, .smi, .txt or a run folder), or --completion TEXT",
    );
}

/// The message says how to give a field to what is scored.
#[test]
fn a_missing_field_names_its_remedy() {
    let place = place();
    place.write("a.txt", "4\nfour\n");
    place.write("a.jsonl", "{\"completion\": \"4\"}\n");
    let missing = "the prompt's record is missing field 'answer'";
    let of_lines = "use JSON lines with this key, because lines of text have no keys";
    for (command, said) in [
        ("score reward.toml --completion 4", "; set it with --field KEY=VALUE"),
        (
            "score reward.toml a.jsonl",
            "; set it for all completions with --field KEY=VALUE, or add the key to the records of a.jsonl",
        ),
        (
            "score reward.toml a.txt",
            &format!("; set it for all completions with --field KEY=VALUE, or {of_lines}"),
        ),
        ("eval a.jsonl --reward reward.toml", "; add the key to the records of a.jsonl"),
        ("eval a.txt --reward reward.toml", &format!("; {of_lines}")),
    ] {
        let ended = place.run(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code, Some(1), "{command}");
        let expected = format!("first reason: {missing}{said}\n");
        assert!(ended.stderr.ends_with(&expected), "{command}: {}", ended.stderr);
    }
    // What the message says works, also for a file whose records have another answer.
    place.write("b.jsonl", "{\"completion\": \"4\", \"answer\": 5}\n");
    for input in [&["a.txt"][..], &["a.jsonl"], &["b.jsonl"], &["--completion", "4"]] {
        let command = [&["score", "reward.toml", "--field", "answer=4"][..], input].concat();
        let ended = place.succeed(&command);
        let first = if input.len() > 1 { " score     1.0000 " } else { "\n4,1.000000," };
        assert!(ended.stdout.contains(first), "{input:?}: {}", ended.stdout);
    }
}

/// The mean is that of the completions with a score, and the number of the others is a metric.
#[test]
fn completions_without_a_score_are_counted() {
    let place = place();
    let line = |completion: &str, rest: &str| {
        format!("{{\"prompt\": \"p{completion}\", \"completion\": \"{completion}\"{rest}}}\n")
    };
    let lines = [line("4", ", \"answer\": 4"), line("5", ", \"answer\": 4"), line("6", "")];
    place.write("a.jsonl", lines.concat());
    let ended = place.succeed(&["score", "reward.toml", "a.jsonl"]);
    assert!(ended.stderr.ends_with("mean score     0.5000 of those with a score\n"));
    let scored = [line("4", ", \"score\": 1"), line("5", ", \"score\": 0"), line("6", "")];
    place.write("scored.jsonl", scored.concat());
    let of_reward = ["eval", "a.jsonl", "--reward", "reward.toml"];
    let of_file = ["eval", "scored.jsonl"];
    for command in [
        &of_reward[..],
        &of_file,
        &[&of_reward[..], &["--suite", "molecules"]].concat(),
        &[&of_file[..], &["--suite", "molecules"]].concat(),
    ] {
        let text = place.succeed(&[command, &["--json"]].concat()).stdout;
        let metrics = &serde_json::from_str::<Value>(&text).unwrap()["metrics"];
        assert_eq!(metrics["score/mean"], 0.5, "{command:?}: {text}");
        assert_eq!(metrics["score/unscored"], 1.0, "{command:?}: {text}");
        let table = place.succeed(command).stdout;
        let row = |name: &str, value: &str| {
            table.lines().any(|line| line.split_whitespace().take(2).eq([name, value]))
        };
        assert!(row("score/mean", "0.5000") && row("score/unscored", "1"), "{table}");
    }
}

/// Tables of any completions fit into 80 columns.
#[test]
fn scores_of_long_and_of_many_completions_fit_into_a_terminal() {
    let place = place();
    let long = "word ".repeat(60);
    let many = ["4"; 40];
    // These take two columns each.
    let [chinese, emoji] = ["漢".repeat(60), "😀".repeat(45)];
    let wide = ["漢字漢字漢字漢字漢"; 4];
    for texts in [
        &[long.as_str()][..],
        &[long.as_str(), "4"],
        &many,
        &wide,
        &[chinese.as_str()],
        &[chinese.as_str(), emoji.as_str(), "4"],
    ] {
        let mut command = vec!["score", "reward.toml", "--field", "answer=4"];
        texts.iter().for_each(|text| command.extend(["--completion", text]));
        let table = place.succeed(&command).stdout;
        for line in table.lines() {
            let width = |c: char| if c > '\u{2e80}' { 2 } else { 1 };
            assert!(line.chars().map(width).sum::<usize>() <= 80, "{line}");
        }
        let scores = table.lines().filter(|line| line.trim_start().starts_with("score "));
        let count = scores.flat_map(|line| line.split_whitespace().skip(1)).count();
        assert_eq!(count, texts.len(), "{table}");
    }
}

/// The same number has the same decimals in the tables of all commands.
#[test]
fn commands_show_rewards_and_metrics_with_the_same_decimals() {
    let place = place();
    place.write("a.jsonl", "{\"completion\": \"4\", \"answer\": 4, \"score\": 1}\n");
    place.write("b.jsonl", "{\"completion\": \"4\", \"score\": 1}\n");
    let shows = |command: &[&str], name: &str, value: &str| {
        let ended = place.succeed(command);
        let all = ended.stdout + &ended.stderr;
        let is_row = |line: &str| line.trim_start().starts_with(name) && line.contains(value);
        assert!(all.lines().any(is_row), "{command:?}: {all}");
    };
    shows(
        &["score", "reward.toml", "--field", "answer=4", "--completion", "4"],
        "score",
        " 1.0000 ",
    );
    shows(&["score", "reward.toml", "a.jsonl"], "mean score", " 1.0000");
    shows(&["eval", "b.jsonl"], "score/mean", " 1.0000 ");
    shows(&["eval", "a.jsonl", "--reward", "reward.toml"], "score/mean", " 1.0000 ");
    shows(&["compare", "a=a.jsonl", "b=b.jsonl"], "score/mean", " 1.0000  1.0000 ");
    shows(&["eval", "b.jsonl"], "completions", " 1 ");
    place.write("m.smi", "CCO\n");
    shows(&["eval", "m.smi"], "validity", " 1.0000 ");
    shows(&["eval", "m.smi"], "valid ", " 1 ");
    // The metric decides, not its value, and a mean over seeds is not a count.
    place.write("c.jsonl", "{\"completion\": \"4 5\", \"score\": 1}\n".repeat(2));
    for (metric, of_files, of_seeds) in [
        ("words/mean", " 1.0000 2.0000 words per text", " 1.0000 1.5000 ± 0.7071"),
        ("words/max", " 1 2 words", " 1.0000 1.5000 ± 0.7071"),
        ("characters/max", " 1 3 characters", " 1.0000 2.0000 ± 1.4142"),
        ("completions", " 1 2 texts", " 1.0000 1.5000 ± 0.7071"),
    ] {
        for (command, expected) in [
            (&["eval", "b.jsonl", "c.jsonl"][..], of_files),
            (&["compare", "b.jsonl", "seeds=b.jsonl,c.jsonl"], of_seeds),
        ] {
            let table = place.succeed(command).stdout;
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let row = |line: &str| words(line) == format!("{metric}{expected}");
            assert!(table.lines().any(row), "{command:?} {metric}: {table}");
        }
    }
}

/// A file without texts, such as a header alone, is refused by all commands that measure or score it.
#[test]
fn files_without_texts_are_refused() {
    let place = place();
    place.write("qed.toml", "[reward]\ntype = \"molecule\"\nqed = 1.0\n");
    place.write("good.smi", "CCO\n");
    place.write("good.jsonl", "{\"completion\": \"4\", \"answer\": 4}\n");
    for (name, contents) in [("h.smi", "SMILES\n"), ("b.smi", "smiles name\n")] {
        place.write(name, contents);
        for command in [
            &["eval", name][..],
            &["eval", name, "--reward", "qed.toml"],
            &["eval", "good.smi", name, "-o", "new.json"],
            &["compare", "good.smi", name],
            &["compare", name, "good.smi", "-o", "new.md"],
            &["score", "qed.toml", name],
        ] {
            place.refuse(command, format!("{name} contains no molecules"));
        }
    }
    place.write("e.jsonl", "\n");
    for command in [
        &["eval", "e.jsonl"][..],
        &["eval", "e.jsonl", "--reward", "reward.toml"],
        &["compare", "good.jsonl", "e.jsonl"],
    ] {
        place.refuse(command, "e.jsonl contains no texts");
    }
    assert!(!place.path("new.json").exists() && !place.path("new.md").exists());
}

/// The column shows the prompt that the reward read.
#[test]
fn a_prompt_given_as_a_field_is_in_the_table() {
    let place = place();
    place.write(
        "a.jsonl",
        "{\"prompt\": \"old\", \"completion\": \"4\", \"answer\": 4}\n{\"prompt\": \"p\", \"completion\": \"5\", \"answer\": 4}\n",
    );
    place.write("a.txt", "4\n");
    for (file, rest, prompts) in [
        ("a.jsonl", &["--field", "prompt=new"][..], &["new", "new"][..]),
        ("a.jsonl", &[], &["old", "p"]),
        ("a.txt", &["--field", "prompt=new", "--field", "answer=4"], &["new"]),
    ] {
        let ended = place.succeed(&[&["score", "reward.toml", file][..], rest].concat());
        let rows = ended.stdout.lines().skip(1);
        let found = rows.map(|row| row.rsplit_once(',').unwrap().1);
        assert_eq!(found.collect::<Vec<_>>(), prompts, "{file} {rest:?}: {}", ended.stdout);
    }
}

/// A cell is one line, with the type and the message of the exception.
#[test]
fn tracebacks_stay_out_of_tables() {
    let code = "
def reward(completion):
    if completion == 'a':
        raise ValueError('no licence')
    if completion == 'b':
        try:
            group = ExceptionGroup
        except NameError:
            raise ValueError('several faults (2 sub-exceptions): ValueError: x; KeyError: 1')
        raise group('several faults', [ValueError('x'), KeyError(1)])
    return 1.0
";
    let place = Place::new();
    place.write("my.py", code);
    place.write("my.toml", "[reward]\ntype = \"python\"\nfile = \"my.py\"\n");
    place.write("a.txt", "a\nb\nc\n");
    let ended = place.succeed(&["score", "my.toml", "a.txt"]);
    let rows: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(rows.len(), 4, "{}", ended.stdout);
    assert!(rows[1].contains("raised an exception: ValueError: no licence"), "{}", rows[1]);
    let group = "several faults (2 sub-exceptions): ValueError: x; KeyError: 1";
    assert!(rows[2].contains(group), "{}", rows[2]);
    let first = ended.stderr.lines().find(|line| line.starts_with("no score")).unwrap();
    assert!(first.ends_with("ValueError: no licence"), "{first}");
    let texts = ["--completion", "b", "--completion", "c"];
    let shown = place.succeed(&[&["score", "my.toml"][..], &texts].concat()).stdout;
    assert!(shown.lines().any(|line| line.contains("reason 1") && line.contains(group)), "{shown}");
    assert!(!shown.contains("Traceback"), "{shown}");
    // The reason is a sentence of its own, and what to do about it another.
    place.write("my.py", "import no_such_module\n");
    let refused = place.run(&["score", "my.toml", "a.txt"]).stderr;
    assert!(refused.contains("No module named 'no_such_module'. The interpreter is "), "{refused}");
}

/// `--field` says how many records it changes.
#[test]
fn a_field_that_replaces_other_values_is_counted() {
    let place = place();
    let lines = "{\"completion\": \"4\", \"answer\": \"5\"}\n{\"completion\": \"4\", \"answer\": 4}\n{\"completion\": \"4\"}\n";
    place.write("a.jsonl", lines);
    let score = ["score", "reward.toml", "a.jsonl", "--field", "answer=4"];
    let said = place.succeed(&score).stderr;
    let note = "replaced     1 record had another value of answer, which --field replaced\n";
    assert!(said.contains(note), "{said}");
    let other = ["score", "reward.toml", "a.jsonl", "--field", "note=x", "--field", "answer=4"];
    let said = place.succeed(&other).stderr;
    assert!(said.contains(note), "no record has a `note`: {said}");
    let other = ["score", "reward.toml", "a.jsonl", "--field", "answer=5"];
    let said = place.succeed(&other).stderr;
    assert!(said.contains("replaced     1 record had another value of answer, "), "{said}");
    let other = ["score", "reward.toml", "a.jsonl", "--field", "answer=6"];
    let said = place.succeed(&other).stderr;
    assert!(said.contains("replaced     2 records had another value of answer, "), "{said}");
    place.write("a.jsonl", "{\"completion\": \"4\"}\n");
    assert!(!place.succeed(&score).stderr.contains("replaced"));
}

/// A data file or a run folder where a configuration is expected.
#[test]
fn data_and_folders_are_no_configurations() {
    let place = place();
    place.write("my.smi", "CCO\n");
    place.write("my.csv", "smiles\nCCO\n");
    place.write("my.parquet", [0xff, 0xfe, 0x00]);
    std::fs::create_dir_all(place.path("run")).unwrap();
    std::fs::create_dir_all(place.path("folder")).unwrap();
    place.write("run/run.json", "{}");
    place.write("run/config.toml", ANSWER);
    for command in ["train", "pretrain"] {
        for file in ["my.smi", "my.csv", "my.parquet"] {
            place.run(&[command, file]).assert_refused(format!(
                "{file} holds data; expected a configuration file such as configs/molecules/grpo.toml, which names the data"
            ));
        }
        place.run(&[command, "folder"]).assert_refused(
            "folder is a folder; expected a configuration file such as configs/molecules/grpo.toml",
        );
    }
    for command in [&["train", "run"][..], &["score", "run", "my.smi"]] {
        place.run(command).assert_refused(
            "run is a run folder; expected a configuration file, such as its run/config.toml",
        );
    }
}
