//! Tables of molecules: what their cells mean, and which commands read and write them.

use serde_json::Value;

use crate::scoring::REWARD;
use crate::support::{Place, small_model};

fn place() -> Place {
    let place = Place::new();
    place.write("reward.toml", REWARD);
    place
}

/// Returns metrics of `grpo eval`.
fn metrics(place: &Place, arguments: &[&str]) -> Value {
    let json = place.succeed(&[&["eval"], arguments, &["--json"]].concat()).stdout;
    serde_json::from_str::<Value>(&json).unwrap()
}

/// A blank may have cut a molecule, so no command takes its beginning.
#[test]
fn text_after_a_smiles_is_not_a_name() {
    for cell in [
        "CC O",
        "CCO ethanol",
        "c1ccccc1\tbenzene",
        "CC\u{a0}O",
        "CC  O",
        "CCO 96 %",
        "C C |x|",
        "CC a|b",
    ] {
        let place = place();
        place.write("a.csv", format!("id,smiles\n1,\"{cell}\"\n2,CCN\n"));
        let described = place.succeed(&["describe", "a.csv"]);
        let row = described.stdout.lines().nth(1).unwrap().to_owned();
        assert!(row.starts_with(&format!("{cell},0,,")), "{row}");
        assert!(described.stderr.contains("invalid         1\n"), "{}", described.stderr);
        let scored = place.succeed(&["score", "reward.toml", "a.csv"]).stdout;
        assert!(scored.contains(&format!("\n{cell},0.000000,0.000000,")), "{scored}");
        let pmo = place.succeed(&["bench-pmo", "--score", "a.csv", "--tasks", "qed"]);
        assert!(pmo.stdout.contains(&format!("\n{cell},0.000000\n")), "{}", pmo.stdout);
        let said = format!(
            "invalid             1, which score 0; the first is `{}`: ",
            cell.escape_debug()
        );
        assert!(pmo.stderr.contains(&said), "{}", pmo.stderr);
        assert_eq!(metrics(&place, &["a.csv"])["metrics"]["validity"], 0.5, "{cell}");
        let reason = "text after the SMILES; remove it, or write names into a column of their own";
        for said in [&row, &scored, &pmo.stderr] {
            assert!(said.contains(reason), "{said}");
        }
        let warned = place.succeed(&["eval", "a.csv"]).stderr;
        let said = "warning: 1 of 2 cells have text after the SMILES and count as invalid; ";
        assert!(warned.contains(said), "{warned}");
        // A completion is not a cell.
        let shown = place.succeed(&["score", "reward.toml", "--completion", cell]).stdout;
        assert!(shown.contains("text after the SMILES\n"), "{shown}");
    }
    // Neither is it when the model is trained, nor for the molecules to be avoided.
    let place = Place::for_pretraining();
    let molecules = place.read("molecules.smi");
    let smiles: Vec<&str> = molecules.lines().filter_map(|l| l.split(' ').next()).collect();
    place.write("m.csv", format!("smiles\n{}\nCC O\n", smiles.join("\n")));
    let trained = ["pretrain", "pretrain.toml", "--set", "data.file=m.csv"];
    let said = place.succeed(&[&trained[..], &["--set", "pretrain.epochs=1"]].concat()).stdout;
    let left_out = format!("left out: line {}: CC O is invalid", smiles.len() + 2);
    assert!(said.contains("1 invalid or not supported") && said.contains(&left_out), "{said}");
    let novel = "[reward]\ntype = \"components\"\n[[reward.components]]\nproperty = \"novelty\"\nfile = \"n.csv\"\n";
    place.write("novel.toml", novel);
    let text = "has text after the SMILES; remove it, or write names into a column of their own";
    let extension =
        "has a CXSMILES extension, which is not supported; remove the row, or the extension";
    for (cell, fault) in [
        ("CC O", text),
        ("CC foo|bar", text),
        ("C C |x|", text),
        ("CC |^1:1|", extension),
        ("CC |x", extension),
    ] {
        place.write("n.csv", format!("smiles\n{cell}\nCCN\n"));
        let ended = place.run(&["score", "novel.toml", "--completion", "CC"]);
        assert_eq!(ended.code, Some(1));
        let said = format!("line 2: '{cell}' {fault}\n");
        assert!(ended.stderr.ends_with(&said), "{}", ended.stderr);
    }
}

/// The table of one command is the input of the next.
#[test]
fn described_molecules_are_read_by_other_commands() {
    let place = Place::for_pretraining();
    place.write("reward.toml", REWARD);
    place.write("a.smi", "CCO ethanol\nC(\nc1ccccc1O phenol\n\nCC |^1:1|\n");
    place.succeed(&["describe", "a.smi", "-o", "b.csv"]);
    let again = place.succeed(&["describe", "b.csv"]).stdout;
    let cells = |table: &str| -> Vec<String> {
        table.lines().map(|row| row.split(',').take(14).collect::<Vec<_>>().join(",")).collect()
    };
    assert_eq!(cells(&again), cells(&place.read("b.csv")));
    let scored = place.succeed(&["score", "reward.toml", "b.csv"]).stdout;
    assert!(scored.lines().nth(1).unwrap().ends_with(",ethanol"), "{scored}");
    let measured = metrics(&place, &["b.csv"]);
    assert_eq!(measured["suite"], "molecules");
    assert_eq!(measured["metrics"]["valid"], 2.0);
    place.succeed(&["describe", "molecules.smi", "-o", "m.csv"]);
    let trained = ["pretrain", "pretrain.toml", "--set", "data.file=m.csv"];
    place.succeed(&[&trained[..], &["--check"]].concat());
    place.succeed(&[&trained[..], &["--set", "pretrain.epochs=1"]].concat());
    // The column has the same option everywhere.
    place.write("c.csv", "structure\nCCO\nc1ccccc1O\nCCN\n");
    let by_column = |command: &[&str]| {
        let ended = place.succeed(&[command, &["--column", "structure"]].concat());
        assert!(ended.stdout.contains("CCO,") || ended.stdout.contains("validity"));
    };
    by_column(&["describe", "c.csv"]);
    by_column(&["score", "reward.toml", "c.csv"]);
    by_column(&["bench-pmo", "--score", "c.csv", "--tasks", "qed"]);
    by_column(&["eval", "c.csv"]);
}

/// The contents decide if neither the name of the file nor that of the column does.
#[test]
fn texts_that_are_smiles_are_measured_as_molecules() {
    let place = place();
    let suite = |name: &str, contents: &str, more: &[&str]| {
        place.write(name, contents);
        metrics(&place, &[&[name], more].concat())["suite"].as_str().unwrap().to_owned()
    };
    let molecules = ["CCO", "c1ccccc1", "CC(=O)O", "C("];
    for column in ["structure", "ligand", "Mol"] {
        let rows = format!("id,{column}\n1,{}\n", molecules[..3].join("\n2,"));
        assert_eq!(suite("a.csv", &rows, &["--column", column]), "molecules", "{column}");
    }
    for column in ["Smiles", "canonical_smiles", "molecule", "SMILES"] {
        assert_eq!(suite("b.csv", &format!("{column}\nC(\nC(\n"), &[]), "molecules", "{column}");
    }
    assert_eq!(suite("a.txt", &molecules[..3].join("\n"), &[]), "molecules");
    assert_eq!(suite("a.txt", &molecules[..3].join("\n"), &["--suite", "text"]), "text");
    let said = place.succeed(&["eval", "a.txt"]).stderr;
    assert!(said.contains("molecules, which fits the contents; choose another with --suite"));
    // Choices, words and sentences.
    for texts in ["A\nB\nC\nC\n", "B\nC\n", "yes\nno\n", "CO\nNO\n", "C C\nCCO is ethanol\n"] {
        assert_eq!(suite("t.txt", texts, &[]), "text", "{texts}");
    }
    let lines = "{\"prompt\": \"p\", \"completion\": \"CCO\"}\n";
    assert_eq!(suite("p.jsonl", lines, &[]), "text");
}

/// A reward that works for no molecule is an error, whatever the invalid ones score.
#[test]
fn a_reward_that_fails_for_all_valid_molecules_is_an_error() {
    let place = Place::new();
    place.write("python.toml", "[reward]\ntype = \"python\"\nfile = \"fails.py\"\n");
    let components = "[reward]\ntype = \"components\"\n[[reward.components]]\nproperty = \"external\"\nreward = { type = \"python\", file = \"fails.py\" }\n";
    place.write("external.toml", components);
    let filter = "[[reward.components]]\nproperty = \"mw\"\ngoal = \"low\"\nfilter = true\ntransform = { type = \"left_step\", low = 100.0 }\n";
    place.write("filter.toml", format!("{components}{filter}"));
    let raises = ("raise RuntimeError('no licence')", "no licence");
    let abstains = ("return [0.0 if c == 'C1CC' else None for c in completions]", "abstained");
    let cases = [
        ("external.toml", raises),
        ("filter.toml", raises),
        ("external.toml", abstains),
        ("filter.toml", abstains),
        ("python.toml", abstains),
    ];
    for (file, (body, reason)) in cases {
        place.write("fails.py", format!("def reward(completions, **_):\n    {body}\n"));
        place.write("a.smi", "CCO\nC1CC\nCCN\nCC |^1:1|\nCCCCCCCCCCCC\n");
        for command in [
            &["score", file, "a.smi"][..],
            &["score", file, "a.smi", "-o", "out.csv"],
            &["score", file, "--completion", "C1CC", "--completion", "CCO"],
            &["eval", "a.smi", "--reward", file],
        ] {
            // Only a file, or a reward of molecules, says that completions are molecules.
            if file == "python.toml" && command.contains(&"--completion") {
                continue;
            }
            let ended = place.run(command);
            assert_eq!(ended.code, Some(1), "{command:?}: {}", ended.stderr);
            let last = ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
            assert!(last.contains("the reward gave no score for any of the "), "{last}");
            assert!(last.contains("first reason: ") && last.contains(reason), "{last}");
            assert!(!place.path("out.csv").exists());
        }
        // If all molecules are invalid, the reward has not failed.
        place.write("a.smi", "C1CC\nC(\n");
        place.succeed(&["score", file, "a.smi"]);
    }
}

/// No command computes anything for a file that it would write in another format than its name says.
#[test]
fn outputs_with_the_name_of_another_format_are_refused() {
    let place = place();
    place.write("a.smi", "CCO\nCCN\n");
    place.write("a.jsonl", "{\"prompt\": \"p\", \"completion\": \"red\"}\n");
    place.write("b.jsonl", "{\"prompt\": \"p\", \"completion\": \"blue\"}\n");
    let before = place.files();
    for (command, written) in [
        ("describe a.smi -o", ".csv"),
        ("score reward.toml a.smi -o", ".csv"),
        ("score reward.toml a.smi --plot", ".svg"),
        ("eval a.smi -o", ".json"),
        ("bench-pmo --score a.smi -o", ".csv"),
        ("make-molecules -o", ".csv"),
        ("compare a.jsonl b.jsonl -o", ".md, .tex, .json or .html"),
        ("judge a.jsonl --endpoint http://127.0.0.1:1 --model none -o", ".json"),
        ("logprob --model none --input a.jsonl -o", ".jsonl or .json"),
        ("logprob --model none --input a.jsonl --full", ".parquet"),
        ("clean-data --input a.jsonl -o", ".jsonl or .json"),
        ("import-trl a.jsonl -o", ".toml"),
        ("sample --model none -o", ".jsonl, .json, .smi, .csv or .txt"),
        ("adapter-layers none -o", ".json"),
        ("attention CCO -o", ".svg or .json"),
        ("dynamics none -o", ".json or .html"),
    ] {
        for name in ["x.xlsx", "x.tsv", "x.XLSX.gz", "x.csv.zip", "x.pdf"] {
            let words: Vec<&str> = command.split(' ').chain([name]).collect();
            let ended = place.run(&words);
            assert_eq!(ended.code, Some(1), "{command} {name}: {}", ended.stderr);
            let said = format!("use a name that ends in {written}");
            let is_said = ended.stderr.lines().last().unwrap().contains(&said);
            assert!(is_said, "{command} {name}: {}", ended.stderr);
            assert_eq!(place.files(), before, "{command} {name}");
        }
    }
    for name in ["x.csv", "x.out", "x", "x.csv.gz"] {
        place.succeed(&["describe", "a.smi", "-o", name]);
    }
}

#[test]
fn arguments_that_were_exchanged_or_have_no_use_are_explained() {
    let place = place();
    place.write("a.smi", "CCO\n");
    place.write("run", "a file");
    let model = small_model().to_str().unwrap();
    for (command, said) in [
        (
            "score a.smi reward.toml",
            "expected a configuration as the first argument, found a.smi; write `grpo score reward.toml a.smi`",
        ),
        (
            "score a.smi",
            "expected a configuration as the first argument, found a.smi; write `grpo score CONFIG.toml a.smi`",
        ),
        ("describe -", "`-`: standard input is not read, "),
        ("eval -", "`-`: standard input is not read, "),
        ("score reward.toml -", "`-`: standard input is not read, "),
        ("bench-pmo --score -", "`-`: standard input is not read, "),
        (
            &format!("sample --model {model} --prompt hi"),
            "--prompt hi: `h` (character 1 of `hi`) is not in the vocabulary of this molecule model; use a SMILES or its beginning, such as `c1ccccc1`, or no prompt",
        ),
        // The model is not read.
        (
            "sample --model none --not-in a.smi -o a.smi",
            "a.smi is the input; use another file for -o",
        ),
        ("sample --model none --conditions a.smi -o a.smi --force", "a.smi is the input; "),
    ] {
        let command: Vec<&str> = command.split(' ').collect();
        let before = place.files();
        let ended = place.run(&command);
        assert_eq!(ended.code, Some(1), "{command:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("error: {said}")), "{command:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
        assert_eq!(place.files(), before, "{command:?}");
    }
    let place = Place::for_training();
    place.write("file.smi", "CCO\n");
    for more in [&[][..], &["--force"], &["--check"]] {
        let ended = place.run(&[&["train", "train.toml", "--run", "file.smi"], more].concat());
        assert_eq!(ended.code, Some(1), "{more:?}");
        let said =
            "error: `file.smi` exists, but is not a run; use another folder with `--run FOLDER`\n";
        assert_eq!(ended.stderr, said, "{more:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_does_not_begin_a_table() {
    let place = place();
    place.write("a.csv", "smiles,x\nCCO,1\nCCN\n");
    place.write("b.smi", b"CCO\n\xff\n");
    for command in [
        &["describe", "a.csv"][..],
        &["describe", "b.smi"],
        &["score", "reward.toml", "a.csv"],
        &["score", "reward.toml", "b.smi"],
        &["bench-pmo", "--score", "a.csv"],
    ] {
        let ended = place.run(command);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{command:?}");
    }
}

#[test]
fn an_unknown_property_is_named_before_its_goal() {
    let place = Place::new();
    for (property, near) in [
        ("lopg", "did you mean 'logp'?"),
        ("QeD", "did you mean 'qed'?"),
        ("zzzzzz", "expected one of "),
    ] {
        let text = format!(
            "[reward]\ntype = \"components\"\n[[reward.components]]\nproperty = \"{property}\"\n"
        );
        place.write("r.toml", text);
        let ended = place.run(&["score", "r.toml", "--completion", "CCO"]);
        let said = format!("unknown property '{property}'; {near}");
        assert!(ended.code == Some(1) && ended.stderr.contains(&said), "{}", ended.stderr);
    }
}

/// Excel writes the separator into a first line, and numbers with a comma in many countries.
#[test]
fn tables_of_spreadsheets_are_read_or_explained() {
    let place = place();
    place.write("sep.csv", "sep=;\r\nsmiles;score\r\nCCO;0.5\r\nC C;1\r\n");
    let described = place.succeed(&["describe", "sep.csv"]).stdout;
    assert!(described.contains("\nCCO,1,CCO,"), "{described}");
    assert_eq!(metrics(&place, &["sep.csv"])["metrics"]["samples"], 2.0);
    let scored = place.succeed(&["score", "reward.toml", "sep.csv"]).stdout;
    assert!(scored.contains("\nCCO,"), "{scored}");
    // The numbers of lines are those of the file.
    place.write("short.csv", "sep=;\nsmiles;score\nCCO\n");
    let refused = place.run(&["describe", "short.csv"]).stderr;
    assert!(refused.starts_with("error: line 3 of `short.csv` has 1 field"), "{refused}");
    place.write("short.csv", "\n\nsep=;\nsmiles;score\nCCO\n");
    let refused = place.run(&["describe", "short.csv"]).stderr;
    assert!(refused.starts_with("error: line 5 of `short.csv` has 1 field"), "{refused}");
    place.write("pipe.csv", "sep=|\nsmiles|score\nCCO|1\n");
    for command in [&["describe", "pipe.csv"][..], &["eval", "pipe.csv"]] {
        let refused = place.run(command).stderr;
        assert!(refused.contains("names the separator `|`; expected a comma"), "{refused}");
    }

    place.write("empty.csv", "");
    for command in [&["describe", "empty.csv"][..], &["score", "reward.toml", "empty.csv"]] {
        place.run(command).assert_refused(
            "`empty.csv` is empty; expected a line with the names of the columns, and a row per molecule",
        );
    }
    place.write("a.tsv", "smiles\tscore\nCCO\t1\n");
    let remedy = "; rename it to end in `.csv`, which may have tabs between its cells\n";
    for command in
        [&["describe", "a.tsv"][..], &["eval", "a.tsv"], &["score", "reward.toml", "a.tsv"]]
    {
        let ended = place.run(command);
        assert_eq!(ended.code, Some(1), "{command:?}");
        assert!(ended.stderr.ends_with(remedy), "{}", ended.stderr);
    }
    place.write("comma.csv", "smiles;score\nCCO;1,5\n");
    place.run(&["eval", "comma.csv"]).assert_refused(
        "comma.csv:2: `score` is 1,5; expected a number with a decimal point instead of a comma",
    );
    place.write("word.csv", "smiles;score\nCCO;high\n");
    place
        .run(&["eval", "word.csv"])
        .assert_refused("word.csv:2: `score` is high; expected a number");
}
