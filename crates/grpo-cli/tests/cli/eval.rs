//! `grpo eval` and `grpo compare`.

use serde_json::Value;
use snapbox::str;

use crate::support::Place;

const LINES: &str = r#"{"prompt": "What is red?", "completion": "A rose is red.", "reference": "The rose is red.", "reward": 0.5}
{"prompt": "What is red?", "completion": "Blood and roses are red.", "reward": 0.75}
{"prompt": "What is old?", "completion": "A very old oak tree.", "reference": "An oak.", "reward": 0.25}
{"prompt": "What is old?", "completion": "Old.", "reward": 0.0}
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("g.jsonl", LINES);
    place
}

fn json(place: &Place, name: &str) -> Value {
    serde_json::from_str(&place.read(name)).unwrap()
}

#[test]
fn texts_are_measured() {
    let place = place();
    let ended = place.succeed(&["eval", "g.jsonl", "-k", "1,2", "-o", "m.json"]);
    assert!(ended.stdout.contains("pass_at_2"), "{}", ended.stdout);
    let found = json(&place, "m.json");
    let metric = |name: &str| found["metrics"][name].as_f64().unwrap();
    // "Old." is too short, so one of four completions does not pass.
    assert_eq!((metric("pass_at_1"), metric("pass_at_2")), (0.75, 1.0));
    assert_eq!((metric("prompts"), metric("completions")), (2.0, 4.0));
    assert_eq!(metric("score/mean"), 0.375);
    assert!((metric("der_at_2") - 1.0 / 1.5).abs() < 1e-12);
    // Of the first prompt, ROUGE-L is 2 · ¾ · ¾ / (¾ + ¾) and 2 · (2/5) · (2/4) / (2/5 + 2/4).
    let rouge = (0.75 + 2.0 * 0.4 * 0.5 / 0.9) / 2.0;
    let of_first = found["per_prompt"]["rouge_l"][0].as_f64().unwrap();
    assert!((of_first - rouge).abs() < 1e-12, "{of_first} {rouge}");
    assert_eq!(found["intervals"]["pass_at_1"], serde_json::json!([0.5, 1.0]));
    // The same file gives the same metrics.
    place.succeed(&["eval", "g.jsonl", "-k", "1,2", "-o", "n.json", "--threads", "1"]);
    assert_eq!(place.read("m.json"), place.read("n.json"));
    place.refuse(
        &["eval", "g.jsonl", "-o", "m.json"],
        str!["m.json already exists; choose another file, or replace it with --force"],
    );
}

#[test]
fn gates_decide_the_exit_code() {
    let place = place();
    let gate = ["eval", "g.jsonl", "--gate", "pass_at_1 > 0.7", "--gate", "score/mean < 0.3"];
    let ended = place.run(&[&gate[..], &["-o", "gate.json"]].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with(
            "gate failed  score/mean = 0.375 (bound < 0.3)\nerror: the evaluation did not pass its gates\n"
        ),
        "{}",
        ended.stderr
    );
    let ended = place.succeed(&["eval", "g.jsonl", "g.jsonl", "--gate", "pass_at_1 > 0.7"]);
    let line = "gate passed  g.jsonl: pass_at_1 = 0.75 (bound > 0.7)\n";
    assert!(ended.stderr.ends_with(line), "{}", ended.stderr);
    let found = json(&place, "gate.json");
    assert_eq!(found["passed"], false);
    assert_eq!(found["gates"][0]["passed"], true);
    let ended = place.succeed(&gate[..4]);
    assert!(
        ended.stderr.ends_with("gate passed  pass_at_1 = 0.75 (bound > 0.7)\n"),
        "{}",
        ended.stderr
    );
    place.refuse(
        &["eval", "g.jsonl", "--gate", "pas_at_1 > 0.7"],
        str!["--gate: g.jsonl has no metric `pas_at_1`; did you mean `pass_at_1`?"],
    );
    place.refuse(
        &["eval", "g.jsonl", "--gate", "fame > 1"],
        str!["--gate: g.jsonl has no metric `fame`; known: [..]"],
    );
    place.refuse(
        &["eval", "g.jsonl", "--gate", "fame"],
        str!["--gate 'fame' is not a bound; write a metric, < or > (not <= or >=) and a number, e.g. 'rouge_l > 0.3'"],
    );
}

#[test]
fn molecules_are_measured() {
    let place = Place::new();
    // A header is not a molecule, and names are not parts of SMILES.
    place.write("a.smi", "SMILES name\nCCO ethanol\nc1ccccc1CC(=O)NC\tamide\nC1CC\nCCO\n");
    place.write("r.csv", "SMILES,Score\nCCN,0.5\nCCCO,0.25\n");
    place.succeed(&[
        "eval",
        "a.smi",
        "--references",
        "r.csv",
        "--training",
        "r.csv",
        "-o",
        "m.json",
    ]);
    let found = json(&place, "m.json");
    let metric = |name: &str| found["metrics"][name].as_f64().unwrap();
    assert_eq!((metric("validity"), metric("valid")), (0.75, 3.0));
    assert!((metric("uniqueness") - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(metric("novelty"), 1.0);
    assert!((0.0..=1.0).contains(&metric("test/snn")));
    place.write("n.csv", "smiles,name\nCCO,ethanol\nCCN,\n");
    let of_table =
        ["eval", "n.csv", "--training", "n.csv", "--references", "n.csv", "-o", "n.json"];
    place.succeed(&of_table);
    let found = json(&place, "n.json");
    let metric = |name: &str| found["metrics"][name].as_f64().unwrap();
    assert_eq!((metric("validity"), metric("novelty")), (1.0, 0.0));
    place.write("qed.toml", "[reward]\ntype = \"molecule\"\nqed = 1.0\n");
    place.succeed(&["eval", "n.csv", "--reward", "qed.toml", "-o", "r.json"]);
    assert_eq!(json(&place, "r.json")["metrics"]["rewards/valid/mean"], 1.0);
    // Results of REINVENT have scores, and a column that says that they are molecules.
    place.succeed(&["eval", "r.csv", "-o", "s.json"]);
    assert_eq!(json(&place, "s.json")["metrics"]["score/mean"], 0.375);
}

#[test]
fn methods_are_compared() {
    let place = place();
    let other = LINES.replace("A rose is red.", "Paint.").replace("0.5}", "0.125}");
    place.write("h.jsonl", &other);
    let arguments = ["compare", "base=g.jsonl", "new=h.jsonl,g.jsonl", "-k", "1,2"];
    let outputs = ["-o", "t.md", "-o", "t.tex", "-o", "t.json"];
    let ended = place.succeed(&[&arguments[..], &outputs].concat());
    assert!(ended.stdout.contains("Pareto front of rouge_l and distinct_2: "), "{}", ended.stdout);
    let table = place.read("t.md");
    assert!(table.starts_with("| metric | base | new |\n|---|---:|---:|\n"), "{table}");
    // The second method has two seeds: ¾ and ½ of the completions pass.
    assert!(table.contains("| pass_at_1 | 0.7500 | 0.6250 ± 0.1768 ≈ |"), "{table}");
    assert!(
        place.read("t.tex").contains("pass\\_at\\_1 & $0.7500$ & $0.6250 \\pm 0.1768^{\\approx}$")
    );
    assert_eq!(json(&place, "t.json")["methods"][1]["seeds"], 2);
    let less: String = LINES.lines().take(2).map(|line| format!("{line}\n")).collect();
    place.write("less.jsonl", &less);
    place.refuse(
        &["compare", "g.jsonl", "less.jsonl"],
        str![[r#"the prompt "What is old?" is in g.jsonl, but not in less.jsonl; compare generations of the same prompts"#]],
    );
    place.refuse(
        &["compare", "g.jsonl", "less.jsonl", "-o", "t.pdf"],
        str!["-o t.pdf: the output is a table, JSON or a page; use a name that ends in .md, .tex, .json or .html"],
    );
    place.refuse(
        &["compare", "g.jsonl", "g.jsonl"],
        str!["two methods are named g; write NAME=FILE to name them"],
    );
}

/// Six methods on twelve prompts. Each method's scores are a constant above those of the first one, so
/// all differences have the same sign, and the signed-rank test has the smallest p-value that twelve
/// pairs allow, 2/2^12, before its correction.
#[test]
fn six_methods_have_tests_effect_sizes_and_intervals() {
    let place = Place::new();
    let mut arguments = vec!["compare".to_owned()];
    for method in 0..6 {
        let line = |prompt: u32| {
            let score = f64::from(prompt) * 0.03125 + f64::from(method) * 0.0625;
            format!(
                "{{\"prompt\": \"{prompt}?\", \"completion\": \"a {prompt}\", \"reward\": {score}}}\n"
            )
        };
        place.write(&format!("m{method}.jsonl"), (0..12).map(line).collect::<String>());
        arguments.push(format!("m{method}.jsonl"));
    }
    arguments.extend(["-o", "six.json"].map(str::to_owned));
    place.succeed(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let found = json(&place, "six.json");
    let methods = found["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 6);
    assert!(methods[0]["tests"].as_array().unwrap().is_empty(), "{found}");
    for (index, method) in methods.iter().enumerate().skip(1) {
        let tests = method["tests"].as_array().unwrap();
        let of_score = |test: &&Value| test["metric"] == "score/mean";
        let test = tests.iter().find(of_score).unwrap_or_else(|| panic!("{method}"));
        let number = |key: &str| test[key].as_f64().unwrap();
        let difference = 0.0625 * index as f64;
        assert_eq!(test["test"], "wilcoxon_signed_rank");
        assert!((number("difference") - difference).abs() < 1e-12, "{test}");
        // All differences are equal, so each resample has the same mean.
        let interval = test["interval"].as_array().unwrap().iter().map(|end| end.as_f64().unwrap());
        assert!(interval.into_iter().all(|end| (end - difference).abs() < 1e-9), "{test}");
        assert!((2.0 / 4096.0..0.05).contains(&number("p_value")), "{test}");
        assert!(number("cliffs_delta") > 0.0, "{test}");
        assert_eq!(test["is_better"], true, "{test}");
    }
}

#[test]
fn molecules_are_compared_without_prompts() {
    let place = Place::new();
    place.write("a.smi", "CCO\nCCN\nc1ccccc1\n");
    place.write("b.csv", "prompt,smiles\n0,CCC\n1,c1ccccc1CC\n1,CCCCO\n");
    let ended = place.succeed(&["compare", "a.smi", "b.csv", "-o", "c.json"]);
    assert!(ended.stdout.contains("qed/mean"), "{}", ended.stdout);
    let found = json(&place, "c.json");
    assert_eq!(found["methods"][1]["tests"][0]["test"], "mann_whitney");
    // What was not tested looks different from what does not differ.
    let row = |name: &str| ended.stdout.lines().find(|line| line.contains(name)).unwrap();
    assert!(row("qed/mean").contains('≈') && !row("validity").contains('≈'), "{}", ended.stdout);
    assert!(ended.stdout.contains("≈ no significant difference: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("Metrics without a mark were not tested."), "{}", ended.stdout);
    place.write("one.smi", "CCO\n");
    place.write("two.smi", "CCN\n");
    let ended = place.succeed(&["compare", "one.smi", "two.smi"]);
    assert!(ended.stdout.contains("No difference was tested, "), "{}", ended.stdout);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = place();
    place.refuse(
        &["eval", "g.jsonl", "-k", "3"],
        str!["g.jsonl: Pass@3 requires 3 samples, but prompt 0 has 2; generate more samples per prompt or use a smaller k"],
    );
    place.write("no.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    place.refuse(
        &["eval", "no.jsonl", "--pass", "exact"],
        str!["no.jsonl: --pass exact requires a reference for each prompt; add a `reference` to each record, or --references FILE"],
    );
    place.refuse(
        &["eval", "g.jsonl", "--references", "no.jsonl"],
        str!["g.jsonl: --references: no.jsonl:1: the record has no reference (expected reference, references, answer, target; found prompt, completion)"],
    );
    place.write("g.tsv", "a\tb\n");
    place.refuse(
        &["eval", "g.tsv"],
        str!["g.tsv: unknown format; expected a name that ends in .jsonl, .json, .csv, .smi, .txt (all of them also with .gz) or .parquet; rename it to end in `.csv`, which may have tabs between its cells"],
    );
    place.refuse(&["eval", "absent"], str!["cannot read absent: no such file or folder"]);
    place.write("other.jsonl", "{\"prompt\": \"a\", \"reference\": \"b\"}\n");
    place.refuse(
        &["eval", "g.jsonl", "--references", "other.jsonl"],
        str![[r#"g.jsonl: --references other.jsonl: no reference for the prompt "What is red?"; prompts must match exactly in both files"#]],
    );
    place.refuse(
        &["eval", "g.jsonl", "--suite", "music"],
        str!["--suite music: unknown suite; expected one of: text (Pass@k, diversity, vocabulary, lengths, overlap with references); molecules (validity, diversity, filters, distances to a test set); infill (recovery of blanks, calibration, entropy, judges)"],
    );
    place.refuse(
        &["eval", "g.jsonl", "--prompt-column", "promt"],
        str!["g.jsonl:1: the record has no key `promt` for the prompt (--prompt-column); it has prompt, completion, reference, reward"],
    );
    // A single sample has no diversity, and its metrics are missing instead of 0.
    place.succeed(&["eval", "no.jsonl", "-o", "one.json"]);
    assert_eq!(json(&place, "one.json")["metrics"].get("self_bleu"), None);
}

const FILLED: &str = r#"{"blanked": "a␣␣d", "text": "abcd", "filled": "abxd", "logprobs": [-0.1, -0.5], "judge_reward": 0.5, "second_judge_reward": 0.25, "iterations": 1}
{"blanked": "␣bcd", "text": "abcd", "filled": "abcd", "logprobs": [-0.2], "judge_reward": 1.0, "second_judge_reward": 0.75, "iterations": 3}
"#;

#[test]
fn filled_blanks_are_measured() {
    let place = Place::new();
    place.write("f.jsonl", FILLED);
    place.succeed(&["eval", "f.jsonl", "-o", "m.json"]);
    let found = json(&place, "m.json");
    assert_eq!(found["suite"], "infill");
    let probabilities = [-0.1_f64, -0.5, -0.2].map(f64::exp);
    let [first, second, third] = probabilities;
    for (name, expected) in [
        ("blanks", 3.0),
        ("recovery", 0.75),
        ("recovery/run_1", 1.0),
        ("recovery/run_2", 0.5),
        ("recovery/ratio_0.2", 1.0),
        ("recovery/ratio_0.5", 0.5),
        ("exact_match", 0.5),
        ("perplexity", (0.8_f64 / 3.0).exp()),
        ("mean_probability", (first + second + third) / 3.0),
        ("calibration_error", (1.0 - first + second + 1.0 - third) / 3.0),
        ("calibration/observed_0.6", 0.0),
        ("judge/mean", 0.75),
        ("second_judge/mean", 0.5),
        ("judges/spearman", 1.0),
        ("character_entropy", 3.0_f64.ln()),
        ("iterations", 2.0),
    ] {
        let value = found["metrics"][name].as_f64().unwrap_or(f64::NAN);
        assert!((value - expected).abs() < 1e-12, "{name}: {value}, expected {expected}");
    }
    for (from, to, expected) in [
        (
            "abxd",
            "abx",
            str![[
                r#"f.jsonl: the text "a␣␣d" has a filled text that differs from it outside the blanks"#
            ]],
        ),
        (
            "a␣␣d",
            "abbd",
            str![[
                r#"f.jsonl: the text "abbd" has no blank `␣`; the suite `infill` expects records of `grpo fill --json`, with `blanked` and `filled`"#
            ]],
        ),
        (
            "[-0.2]",
            "[]",
            str![[r#"f.jsonl: the text "␣bcd": `logprobs` has 0 values for 1 blanks"#]],
        ),
    ] {
        place.write("f.jsonl", FILLED.replace(from, to));
        place.refuse(&["eval", "f.jsonl"], expected);
    }
}

#[test]
fn log_probabilities_give_the_perplexity() {
    let place = Place::new();
    let lines = r#"{"prompt": "a", "completion": "b c", "logprobs": [-1.0, -2.0], "completion_ids": [1, 1]}
{"prompt": "d", "completion": "e f", "logprobs": [-0.5], "completion_ids": [2, 2]}
"#;
    place.write("p.jsonl", lines);
    place.succeed(&["eval", "p.jsonl", "-o", "m.json"]);
    let found = json(&place, "m.json");
    let metric = |name: &str| found["metrics"][name].as_f64().unwrap();
    assert!((metric("perplexity") - (3.5_f64 / 3.0).exp()).abs() < 1e-12);
    assert!((metric("output_entropy") - 2.0_f64.ln()).abs() < 1e-12);
    place.write("q.jsonl", lines.replace("-1.0", "1.0"));
    place.refuse(
        &["eval", "q.jsonl"],
        str!["q.jsonl: `logprobs` contains a positive number; expected natural logarithms of probabilities"],
    );
}

#[test]
fn an_encoder_scores_texts_against_references() {
    let place = Place::new();
    let lines = r#"{"prompt": "a", "completion": "the dog is sad", "reference": "the dog is sad"}
{"prompt": "b", "completion": "two and two are four", "references": ["the lazy dog", "four"]}
"#;
    place.write("g.jsonl", lines);
    let folder =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../grpo-selftest/fixtures/models/sentence-new");
    place.succeed(&["eval", "g.jsonl", "--bertscore", folder, "-o", "m.json"]);
    let found = json(&place, "m.json");
    let values = |name: &str| -> Vec<f64> {
        let values = found["per_prompt"][format!("bertscore/{name}")].as_array().unwrap();
        values.iter().map(|value| value.as_f64().unwrap()).collect()
    };
    for name in ["precision", "recall", "f1"] {
        let [same, other] = values(name)[..] else { panic!("{found}") };
        assert!((same - 1.0).abs() < 1e-6 && (-1.0..0.999).contains(&other), "{name}: {found}");
    }
    place.write("n.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    place.refuse(
        &["eval", "n.jsonl", "--bertscore", folder],
        str!["n.jsonl: --bertscore requires a reference for each prompt; add a `reference` to each record, or --references FILE"],
    );
    place.refuse(
        &["eval", "g.jsonl", "--bertscore", "absent"],
        str!["g.jsonl: --bertscore: cannot use absent as a sentence encoder: [..]"],
    );
}

/// The table says which values are better, and in which unit.
#[test]
fn metrics_have_a_direction_and_a_unit() {
    let place = place();
    place.write("a.smi", "CCO\nCC |^1:1|\nc1ccccc1CC(=O)NC\nCCO\n");
    let ended = place.succeed(&["eval", "a.smi"]);
    let row = |name: &str| {
        let line = ended
            .stdout
            .lines()
            .find(|line| line.trim_start_matches('│').trim_start().starts_with(name));
        let words: Vec<String> = line.unwrap().split_whitespace().map(str::to_owned).collect();
        words.join(" ")
    };
    assert!(row("metric").contains("a.smi better unit or range"), "{}", ended.stdout);
    assert!(row("sa/mean").contains("↓ lower 1 easy to 10 hard"), "{}", ended.stdout);
    assert!(row("qed/mean").contains("↑ higher 0 to 1"), "{}", ended.stdout);
    assert!(row("weight/mean").contains("g/mol"), "{}", ended.stdout);
    assert!(row("valid ").contains("3 ↑ higher molecules"), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("warning: 1 of 4 strings are not supported and count as invalid; the first is `CC |^1:1|`: not supported: a CXSMILES extension after the SMILES"),
        "{}",
        ended.stderr
    );
    let table = place.succeed(&["eval", "g.jsonl"]).stdout;
    let rows = table.lines().skip_while(|line| !line.contains("pass_at_1")).count();
    assert!(rows > 5, "{table}");
    for line in table.lines().filter(|line| line.contains("_") || line.contains("/mean")) {
        assert!(
            line.contains(" to ")
                || line.contains("texts")
                || line.contains("words")
                || line.contains("characters")
                || line.contains("nats")
                || line.contains("of the score"),
            "{line}"
        );
    }
}

/// Texts that are no molecules are not counted as bad ones without a word.
#[test]
fn files_without_a_valid_molecule_are_named() {
    let place = Place::new();
    place.write("a.smi", "CCO\nCCN\n");
    place.write("b.jsonl", "{\"tweet\": \"tea?\", \"reply\": \"green, please\"}\n");
    place.write("bad.smi", "hello\nC1CC\n");
    let warning = |file: &str, texts: &str| {
        format!(
            "warning: {file} contains no valid molecule among {texts}, so only validity is reported; if it contains other texts, choose their metrics with --suite\n"
        )
    };
    let said = place.succeed(&["compare", "a.smi", "b.jsonl"]).stderr;
    assert!(said.contains(&warning("b.jsonl", "1 text")), "{said}");
    assert!(!said.contains("warning: a.smi"), "{said}");
    let said = place.succeed(&["eval", "bad.smi"]).stderr;
    assert!(said.contains(&warning("bad.smi", "2 texts")), "{said}");
    place.write("training.smi", "CCO\nC1CC\nhello there\n");
    for option in ["--training", "--references"] {
        let said = place.succeed(&["eval", "a.smi", option, "training.smi"]).stderr;
        let warning = format!(
            "warning: {option} training.smi: 2 of 3 strings are invalid and left out; the first is `C1CC`: "
        );
        assert!(said.contains(&warning), "{said}");
    }
}
