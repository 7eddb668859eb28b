//! `grpo fill` with small, randomly initialized models.

use serde_json::Value;
use snapbox::{Data, IntoData, str};

use crate::support::{Ended, Place, small_model};
use crate::wrong_inputs::with_numbers;

/// Vocabulary of the small models: `a` to `d` and the line break.
const CHARACTERS: &str = r#"{"characters": "\nabcd", "mask": 5, "pad": 6, "cls": 7}"#;
/// Dimensions of the small models.
const SIZES: &str = r#""block_size": 12, "n_layer": 1, "n_head": 2, "n_embd": 16"#;

impl Place {
    /// Creates the model folder `name` with the given family and vocabulary.
    fn model_of_characters(
        &self,
        name: &str,
        family: &str,
        more: &str,
        characters: &str,
        vocabulary: usize,
    ) {
        let source = format!("{name}-source");
        let config =
            format!(r#"{{"model_type": "{family}", "vocab_size": {vocabulary}, {SIZES}{more}}}"#);
        self.config_folder(&source, &config);
        self.write(&format!("{source}/characters.json"), characters);
        self.succeed(&["init", &format!("{source}/config.json"), "-o", name]);
    }

    /// Creates an infiller with a critic, and two judges.
    fn for_filling() -> Self {
        let place = Self::new();
        place.model_of_characters("model", "infiller", r#", "critic": true"#, CHARACTERS, 8);
        for judge in ["judge", "second-judge"] {
            place.model_of_characters(judge, "sequence_scorer", "", CHARACTERS, 8);
        }
        place
    }

    #[track_caller]
    fn fill(&self, more: &[&str]) -> Ended {
        self.succeed(&[&["fill", "model"], more].concat())
    }

    /// Runs `grpo fill --json` and parses its output.
    #[track_caller]
    fn filled(&self, more: &[&str]) -> Vec<Value> {
        let said = self.fill(&[more, &["--json"]].concat()).stdout;
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn refuse_fill(&self, more: &[&str], expected: impl IntoData) {
        self.refuse(&[&["fill", "model"], more].concat(), expected);
    }
}

fn texts(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["filled"].as_str().unwrap()).collect()
}

#[test]
fn every_blank_is_filled_and_the_best_comes_first() {
    let place = Place::for_filling();
    let judges = ["--judge", "judge", "--second-judge", "second-judge"];
    for iterations in ["0", "1", "5"] {
        let arguments = [
            &["--text", "a_b_", "--text", "__", "-n", "6", "--iterations", iterations],
            &judges[..],
        ]
        .concat();
        let lines = place.filled(&arguments);
        assert_eq!(lines.len(), 12);
        for (line, blanked) in lines.iter().zip([["a␣b␣"; 6], ["␣␣"; 6]].concat()) {
            assert_eq!(line["blanked"], blanked);
            let filled: Vec<char> = line["filled"].as_str().unwrap().chars().collect();
            assert_eq!(filled.len(), blanked.chars().count());
            for (found, was) in filled.iter().zip(blanked.chars()) {
                assert!("\nabcd".contains(*found) && (was == '␣' || was == *found), "{line}");
            }
            assert!(line["second_judge_reward"].as_f64().unwrap() <= 1.0);
            assert!(line.get("recovery").is_none() && line.get("text").is_none());
        }
        // The results for each text are sorted by reward.
        for (lines, other) in lines.chunks(6).zip(["self", "none"]) {
            let judged: Vec<f64> =
                lines.iter().map(|line| line["judge_reward"].as_f64().unwrap()).collect();
            assert!(judged.is_sorted_by(|a, b| a >= b), "{judged:?}");
            let ordered = place.filled(&[&arguments[..], &["--quality", other]].concat());
            let key = if other == "self" { "mean_logprob" } else { "sample" };
            let keys: Vec<f64> =
                ordered[..6].iter().map(|line| line[key].as_f64().unwrap()).collect();
            let sign = if other == "self" { -1.0 } else { 1.0 };
            assert!(keys.is_sorted_by(|a, b| sign * a <= sign * b), "{keys:?}");
        }
    }
}

#[test]
fn completions_depend_only_on_the_seed() {
    let place = Place::for_filling();
    let arguments =
        ["--text", "a___", "--text", "_b_d_", "--iterations", "4", "--remask", "critic"];
    let lines = place.filled(&arguments);
    let again = place.filled(&[&arguments[..], &["--threads", "1"]].concat());
    assert_eq!(again, lines);
    assert_eq!(place.filled(&arguments[..2])[0]["blanked"], "a␣␣␣");
    let alone = [&arguments[..2], &arguments[4..]].concat();
    assert_eq!(texts(&place.filled(&alone)), texts(&lines[..4]));
    assert_ne!(place.filled(&[&arguments[..], &["--seed", "1"]].concat()), lines);
    // Using the model's own critic explicitly gives the same result, unlike using probabilities.
    let by_folder = [&arguments[..7], &["model"]].concat();
    assert_eq!(place.filled(&by_folder), lines);
    let by_probability = [&arguments[..7], &["probability"]].concat();
    assert_ne!(place.filled(&by_probability), lines);
}

#[test]
fn what_is_known_to_belong_there_is_compared() {
    let place = Place::for_filling();
    place.write("texts.jsonl", "{\"text\": \"abc\", \"blanked\": \"a␣_\", \"n\": 1}\n\n{\"blanked\": \"d_\"}\n{\"text\": \"_d\"}\n");
    let lines = place.filled(&["--file", "texts.jsonl", "-n", "9"]);
    assert_eq!(lines.len(), 27);
    for line in &lines[..9] {
        let filled: Vec<char> = line["filled"].as_str().unwrap().chars().collect();
        let right = f64::from(u8::from(filled[1] == 'b')) + f64::from(u8::from(filled[2] == 'c'));
        assert_eq!(line["recovery"].as_f64(), Some(right / 2.0));
        assert_eq!(line["text"], "abc");
    }
    assert!(lines[..9].iter().any(|line| line["recovery"] != 0.0));
    assert!(lines[9..].iter().all(|line| line.get("recovery").is_none()));

    // Three of ten characters are blanked, at positions that do not depend on the other lines.
    place.write("lines.txt", "abcdabcdab\r\n\nddddd");
    let lines = place.filled(&["--file", "lines.txt", "--random", "0.3", "-n", "1"]);
    let blanks = |line: &Value| line["blanked"].as_str().unwrap().matches('␣').count();
    assert_eq!(lines.iter().map(blanks).collect::<Vec<_>>(), [3, 2]);
    assert_eq!((&lines[0]["text"], &lines[1]["text"]), (&"abcdabcdab".into(), &"ddddd".into()));
    let other = place.filled(&["--file", "lines.txt", "--random", "0.3", "-n", "1", "--seed", "2"]);
    assert_ne!(other[0]["blanked"], lines[0]["blanked"]);
    let alone = place.filled(&["--text", "abcdabcdab", "--random", "0.3", "-n", "1"]);
    assert_eq!(alone[0], lines[0]);
    // At least one character is blanked.
    assert_eq!(blanks(&place.filled(&["--text", "ab", "--random", "0.01", "-n", "1"])[0]), 1);
    assert_eq!(blanks(&place.filled(&["--text", "ab", "--random", "1", "-n", "1"])[0]), 2);
}

#[test]
fn passages_that_are_held_out() {
    let place = Place::for_filling();
    // Only the last tenth of the lines contains a `d`.
    let lines: Vec<String> = (0..40)
        .map(|i: u32| {
            format!("{i:06b}").replace('0', "a").replace('1', if i < 36 { "b" } else { "d" })
        })
        .collect();
    place.write("text.txt", lines.join("\n"));
    let arguments = [
        "--held-out",
        "text.txt",
        "--unit",
        "line",
        "--random",
        "0.5",
        "--passages",
        "7",
        "-n",
        "1",
    ];
    let filled = place.filled(&arguments);
    assert_eq!(filled.len(), 7);
    for line in &filled {
        assert!(line["text"].as_str().unwrap().contains('d'), "{line}");
        assert!(lines.iter().any(|known| line["text"] == **known), "{line}");
    }
    assert_eq!(place.filled(&arguments), filled);

    // As in training, lines that are too long are dropped before the split. A different fraction
    // gives a different split.
    let of_all = place.filled(&[&arguments[..], &["--validation-fraction", "0.9"]].concat());
    let has_d = |line: &Value| line["text"].as_str().unwrap().contains('d');
    assert!(!of_all.iter().all(has_d), "{of_all:?}");
    let longer: String = (0..4).map(|_| "\ndddddddd").collect();
    place.write("text.txt", lines.join("\n") + &longer);
    let of_short = place.filled(&[&arguments[..], &["--length", "6"]].concat());
    let length = |line: &Value| line["text"].as_str().unwrap().len();
    assert!(of_short.iter().all(|line| length(line) == 6 && has_d(line)), "{of_short:?}");
    assert!(place.filled(&arguments).iter().any(|line| length(line) == 8));
    place.refuse_fill(
        &[&arguments[..], &["--length", "13"]].concat(),
        str!["--length 13 is out of range; expected 1 to 12, the model's context"],
    );
}

/// Without a terminal, only plain text is printed.
#[test]
fn what_people_read() {
    let place = Place::for_filling();
    let arguments = ["--text", "abcd", "--random", "0.5", "-n", "2", "--judge", "judge"];
    let lines = place.filled(&arguments);
    let words: Vec<String> = lines
        .iter()
        .zip(1..)
        .map(|(line, rank)| {
            format!(
                "\n{rank}. log-probability {:.2} ({:.3} a blank), judge's reward {:.4}, {} of 2 blanks recovered\n{}\n",
                line["logprob"].as_f64().unwrap(),
                line["mean_logprob"].as_f64().unwrap(),
                line["judge_reward"].as_f64().unwrap(),
                2.0 * line["recovery"].as_f64().unwrap(),
                line["filled"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = format!(
        "--text: 2 blanks; a judge's reward is 1 − its score: 1 is natural, 0 corrupted\n{}\n{}\ntruth\nabcd\n",
        lines[0]["blanked"].as_str().unwrap(),
        words.concat()
    );
    assert_eq!(place.fill(&arguments).stdout, expected);
    assert!(
        place
            .fill(&["--text", "a_"])
            .stdout
            .starts_with("--text: 1 blank\na␣\n\n1. log-probability -1.")
    );
}

#[test]
fn texts_that_cannot_be_filled() {
    let place = Place::for_filling();
    let check = |more: &[&str], expected: Data| place.refuse_fill(more, expected);
    check(
        &[],
        str![
            "nothing to fill: provide a text with --text TEXT, or a file of texts with --file FILE"
        ]
        .into(),
    );
    check(
        &["--text", "a_", "--text", "abc"],
        str![
            "--text 2: the text has no blank; write '_' for each missing character, or use --random RATIO"
        ].into(),
    );
    check(
        &["--text", "a_xb"],
        str![[
            r#"--text: 'x' (character 3 of "a␣xb") is not one of the 5 characters of the model; replace it, or train a model on text that has it"#
        ]].into(),
    );
    check(
        &["--text", "abcdabcdabcd_"],
        str!["--text: the text has 13 characters, but the model's context is 12; shorten it"]
            .into(),
    );
    check(
        &["--text", "abba", "--blank", "b"],
        str![
            "--text: 'b' is a character of the model and cannot mark a blank; use another character for blanks, for example --blank '_'"
        ].into(),
    );
    // The character is only a problem if it is used as a blank.
    assert_eq!(place.filled(&["--text", "a␣", "--blank", "b"])[0]["blanked"], "a␣");
    for bad in ["0", "1.5", "NaN", "-1"] {
        check(
            &["--text", "a", &format!("--random={bad}")],
            format!(
                "--random {bad} is out of range; expected a fraction of the text, above 0 and at most 1"
            )
            .into(),
        );
    }
    check(
        &["--text", "", "--random", "0.5"],
        str!["--text: the text is empty, so there is nothing to blank"].into(),
    );
    check(
        &["--held-out", "texts.txt", "--random", "0.5", "--passages", "100000", "-n", "100"],
        str!["--passages 100000 with -n 100 is 10000000 completions; expected at most 1000000"]
            .into(),
    );
    check(&["--text", "a_", "-n", "0"], str!["-n 0 is out of range; expected 1 to 100000"].into());
}

#[test]
fn refuses_files_of_texts_that_cannot_be_filled() {
    let place = Place::for_filling();
    let check = |more: &[&str], expected: Data| place.refuse_fill(more, expected);
    place.write("lines.txt", "a_\nabc\n");
    check(
        &["--file", "lines.txt"],
        str![
            "lines.txt:2: the text has no blank; write '_' for each missing character, or use --random RATIO"
        ].into(),
    );
    place.write("none.txt", "\n\n");
    check(&["--file", "none.txt"], str!["none.txt has no texts"].into());
    place.write("latin.txt", b"a_\xe9");
    check(&["--file", "latin.txt"], str!["latin.txt is not UTF-8 text"].into());
    check(&["--file", "absent"], str!["cannot read absent: no such file or folder"].into());
    place.write("other.jsonl", "{\"blanked\": \"a_\", \"text\": \"ba\"}\n");
    check(
        &["--file", "other.jsonl"],
        str!["other.jsonl:1: `blanked` is not `text` with some characters blanked"].into(),
    );
    check(
        &["--file", "other.jsonl", "--random", "0.5"],
        str![
            "other.jsonl:1: --random requires texts without blanks, but this line has `blanked`; remove one of them"
        ].into(),
    );
    place.write("keys.jsonl", "{\"prompt\": \"a_\"}\n");
    check(
        &["--file", "keys.jsonl"],
        str![
            "keys.jsonl:1: a line requires `blanked` (text with blanks) or `text` (text with blanks, or text for --random to blank)"
        ].into(),
    );
}

#[test]
fn models_that_cannot_fill_or_judge() {
    let place = Place::for_filling();
    let check = |more: &[&str], expected: Data| {
        place.refuse_fill(&[&["--text", "a_"], more].concat(), expected);
    };
    place.refuse(
        &["fill", small_model().to_str().unwrap(), "--text", "a_"],
        format!(
            "{} is not an infiller: its model belongs to the family molgpt; `grpo pretrain` with a [masked_lm] section creates an infiller",
            small_model().display()
        ),
    );
    place.refuse(
        &["fill", "judge", "--text", "a_"],
        str!["judge is not an infiller: its model belongs to the family sequence_scorer; `grpo pretrain` with a [masked_lm] section creates an infiller"],
    );
    place.refuse(
        &["fill", "absent", "--text", "a_"],
        str!["model folder absent does not exist; a model folder contains config.json, characters.json and model.safetensors; check the path"],
    );
    check(
        &["--judge", "model"],
        str![
            "model is not a judge: its model family is infiller; expected sequence_scorer, as written by `grpo train-judge`"
        ].into(),
    );
    let other = r#"{"characters": "\nabcx", "mask": 5, "pad": 6, "cls": 7}"#;
    place.model_of_characters("other-judge", "sequence_scorer", "", other, 8);
    check(
        &["--judge", "judge", "--second-judge", "other-judge"],
        str![
            "the judge other-judge does not know 'd', which the model can produce; use a judge trained for this model"
        ].into(),
    );
    let more = r#"{"characters": "\nabcdxy", "mask": 7, "pad": 8, "cls": 9}"#;
    place.model_of_characters("larger-judge", "sequence_scorer", "", more, 10);
    // The judge has the same characters as the infiller, but different ids.
    assert!(place.filled(&["--text", "a_", "--judge", "larger-judge"])[0]["judge_reward"].is_f64());
}

#[test]
fn refuses_options_that_need_a_judge_iterations_or_held_out_texts() {
    let place = Place::for_filling();
    let other = r#"{"characters": "\nabcx", "mask": 5, "pad": 6, "cls": 7}"#;
    let check = |more: &[&str], expected: Data| {
        place.refuse_fill(&[&["--text", "a_"], more].concat(), expected);
    };
    check(
        &["--quality", "judge"],
        str!["--quality judge requires a judge; add --judge FOLDER"].into(),
    );
    for more in ["--remask=critic", "--remask-rule=ratio", "--randomness=0.5"] {
        let name = more.split('=').next().unwrap();
        let expected = format!("{name} has no effect with a single pass; add --iterations 15");
        check(&[more], expected.into());
    }
    // Options for --held-out have no effect without it.
    for more in ["--unit=line", "--length=3", "--validation-fraction=0.2", "--passages=3"] {
        let name = more.split('=').next().unwrap();
        let expected = format!("{name} requires --held-out FILE; add it, or remove the option");
        check(&[more], expected.into());
    }
    place.model_of_characters("plain", "infiller", "", CHARACTERS, 8);
    check(
        &["--iterations", "2", "--remask", "plain"],
        str![
            "--remask plain: the model has no critic (`critic` in its config.json), so it cannot tell which characters are wrong"
        ].into(),
    );
    place.model_of_characters("other", "infiller", r#", "critic": true"#, other, 8);
    check(
        &["--iterations", "2", "--remask", "other"],
        str![
            "--remask: other and the model have different vocabularies; use one trained on the same text"
        ].into(),
    );
    check(
        &["--iterations", "3", "--remask-ratios", "0.5"],
        str!["1 remasking ratios do not match 3 iterations; expected one fewer"].into(),
    );
    check(
        &["--top-p", "0"],
        str!["top_p = 0 is out of range; expected a number above 0 and at most 1 (1 keeps all tokens)"]
            .into(),
    );
}

#[test]
fn filled_texts_are_evaluated() {
    let place = Place::for_filling();
    place.write("texts.txt", "abcdabcd\nddccbbaa\n");
    let arguments = ["--file", "texts.txt", "--random", "0.5", "--judge", "judge", "--json"];
    place.write("filled.jsonl", place.fill(&arguments).stdout);
    let ended = place.succeed(&["eval", "filled.jsonl"]);
    for metric in ["recovery", "calibration_error", "judge/mean", "character_entropy"] {
        assert!(ended.stdout.contains(metric), "{}", ended.stdout);
    }
}

/// The same warning as that of `grpo sample`.
#[test]
fn warns_of_untrained_weights() {
    let place = Place::for_filling();
    std::fs::remove_file(place.path("model/manifest.json")).unwrap();
    let fill = ["fill", "model", "--text", "ab_d", "--judge", "judge"];
    assert!(!place.succeed(&fill).stderr.contains("warning"));
    for (number, words) in [(0.0, "are all 0"), (1e20, "reach 1e20")] {
        with_numbers(&place, number);
        let ended = place.run(&fill);
        let expected = format!("warning: the weights of model {words}");
        assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    }
}
