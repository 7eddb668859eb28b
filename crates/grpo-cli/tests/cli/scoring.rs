//! Scoring functions of molecules: `grpo score`, runs with components, and `grpo best`.

use std::collections::BTreeMap;

use grpo_run::RunFolder;
use snapbox::str;

use crate::support::Place;

pub(crate) const REWARD: &str = r#"
[reward]
type = "components"

[[reward.components]]
property = "qed"

[[reward.components]]
property = "logp"
goal = "range"
low = 1.0
high = 3.0

[[reward.components]]
property = "custom_alerts"
smarts = ["[N+](=O)[O-]"]
filter = true
"#;

#[test]
fn scores_and_plots_the_molecules_of_a_file() {
    let place = Place::new();
    place.write("reward.toml", REWARD);
    place.write("a.smi", "CC(=O)Oc1ccccc1C(=O)O aspirin\nC(\nO=[N+]([O-])c1ccccc1\n");
    let ended = place.succeed(&["score", "reward.toml", "a.smi", "--plot", "plot.svg"]);
    let rows: Vec<Vec<&str>> = ended.stdout.lines().map(|row| row.split(',').collect()).collect();
    let header =
        "smiles,score,valid,qed,qed.raw,logp,logp.raw,custom_alerts,custom_alerts.raw,reason,name";
    assert_eq!(rows[0].join(","), header);
    // RDKit computes a QED of 0.550122 and a logP of 1.3101.
    let logp = 1.0 / (1.0 + 10f64.powf(-2.5 * 0.3101));
    let score: f64 = rows[1][1].parse().unwrap();
    assert!((score - (0.550_122 + logp) / 2.0).abs() < 2e-6, "{score}");
    assert_eq!((rows[1][2], rows[1][4], rows[1][10]), ("1.000000", "0.550122", "aspirin"));
    assert_eq!((rows[2][1], rows[2][2]), ("0.000000", "0.000000"));
    assert!(rows[2][9].starts_with("syntax error"), "{:?}", rows[2]);
    assert_eq!((rows[3][1], rows[3][7], rows[3][8]), ("0.000000", "0.000000", "1.000000"));
    let plot = place.read("plot.svg");
    assert!(plot.contains("logp (double_sigmoid)") && plot.ends_with("</svg>\n"), "{plot}");
}

#[test]
fn wrong_input_is_refused_with_one_sentence() {
    let place = Place::new();
    place.write("a.smi", "CCO\n");
    let refused = |reward: &str, expected: snapbox::data::Inline| {
        place.write("reward.toml", format!("[reward]\ntype = \"components\"\n{reward}"));
        place.refuse(&["score", "reward.toml", "a.smi"], expected);
    };
    refused(
        "[[reward.components]]\nproperty = \"substructure\"\nsmarts = [\"CC\", \"C(\"]\n",
        str![
            "reward.toml:5: 'C(' is not a valid SMARTS pattern: syntax error at position 3: expected an atom"
        ],
    );
    refused(
        "[[reward.components]]\nproperty = \"mw\"\n",
        str![[
            r#"reward.toml:3: reward.components[0].goal: component 'mw' has no goal; set goal to "high", "low" or "range""#
        ]],
    );
    refused(
        "[[reward.components]]\nproperty = \"qed\"\nweight = 0\n",
        str![
            "reward.toml: all weights of reward.components are 0; give at least one component that is not a filter a positive weight"
        ],
    );
    refused(
        "[[reward.components]]\nproperty = \"mw\"\ntransform = { type = \"step\", low = 5, high = 1 }\n",
        str![
            "reward.toml:5: reward.components[0].transform: component 'mw': transform step has low = 5 above high = 1; swap them"
        ],
    );
    place.write("reward.toml", "[reward]\ntype = \"pattern\"\npattern = \"N\"\n");
    place.refuse(
        &["score", "reward.toml", "a.smi", "--plot", "plot.svg"],
        str!["reward type `pattern` has no transforms to plot; remove --plot"],
    );
    assert!(!place.path("plot.svg").exists());
    place.refuse(
        &["score", "reward.toml", "a.smi", "-o", "same", "--plot", "./same"],
        str!["--output and --plot are both same; use different files"],
    );
    assert!(!place.path("same").exists());
    place.refuse(&["best", "."], str!["`.` is not a run folder (no `run.json`); check the path"]);
}

/// External rewards are only asked for valid molecules, as in training.
#[test]
fn scores_of_a_python_function() {
    let place = Place::new();
    place.write(
        "own.py",
        "def reward(completion):\n    return None if completion == 'N' else 0.5\n",
    );
    place.write("reward.toml", "[reward]\ntype = \"python\"\nfile = \"own.py\"\n");
    place.write("a.smi", "CCO\nC(\nN\n\n");
    let ended = place.succeed(&["score", "reward.toml", "a.smi"]);
    let summary = "scored              3\nempty               1\nno score            1; first reason: the reward abstained\nmean score     0.1667 of those with a score\n";
    assert!(ended.stderr.ends_with(summary), "{}", ended.stderr);
    let rows: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(rows[0], "smiles,score,valid,reason,name");
    assert_eq!(rows[1], "CCO,0.500000,1.000000,,");
    assert!(rows[2].starts_with("C(,0.000000,0.000000,syntax error"), "{}", rows[2]);
    assert_eq!(rows[3], "N,,1.000000,the reward abstained,");
    // Completions of other files are molecules too, and lines of text have no columns.
    place.write("qed.toml", "[reward]\ntype = \"molecule\"\nqed = 1.0\n");
    place.write("c.jsonl", "{\"completion\": \"CCO\"}\n{\"completion\": \"C(\"}\n");
    let of_objects = place.succeed(&["score", "qed.toml", "c.jsonl"]).stdout;
    assert!(of_objects.contains("C(,0.000000,0.000000,,,syntax error"), "{of_objects}");
    place.refuse(
        &["score", "qed.toml", "a.smi", "--column", "x"],
        "a.smi: a file of SMILES has no columns; remove --column",
    );
    place.refuse(
        &["eval", "a.smi", "--score-column", "x"],
        "a.smi: lines of text have no keys or columns; remove --score-column",
    );
    // A table without any score is not a success.
    place.write("n.smi", "N\n");
    let ended = place.run(&["score", "reward.toml", "n.smi"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let message = "none of the molecules has a score; first reason: the reward abstained";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);

    place.write(
        "own.py",
        "def valid(completion):\n    return 1\n\ndef other(completion):\n    return 1\n",
    );
    place.write(
        "reward.toml",
        "[reward]\ntype = \"python\"\nfile = \"own.py\"\nfunction = [\"valid\", \"other\"]\n",
    );
    place.refuse(
        &["score", "reward.toml", "a.smi"],
        str![
            "reward.toml: the reward component name 'valid' is reserved for the validity of completions; choose another name"
        ],
    );
}

/// The table of a run contains exactly the best distinct molecules of all steps.
#[test]
fn a_run_keeps_its_best_molecules() {
    let place = Place::for_training();
    let toml = place.read("train.toml");
    let others: String = toml
        .split("\n[")
        .filter(|section| !section.starts_with("reward]"))
        .collect::<Vec<_>>()
        .join("\n[");
    place.write("train.toml", others + REWARD);
    place.succeed(&[
        "train",
        "train.toml",
        "--set",
        "save.completions_every=1",
        "--set",
        "save.best=5",
        "--set",
        "train.prompts_per_step=8",
    ]);
    let run = RunFolder::open(&place.path("run")).unwrap();
    let table = run.read_best().unwrap().unwrap();
    let mut all: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for step in run.completion_steps().unwrap() {
        for record in run.completions_of(step).unwrap() {
            if let Ok(molecule) = grpo_chem::Molecule::parse(&record.text) {
                let found = (record.reward.unwrap(), u32::try_from(step).unwrap());
                all.entry(molecule.into_canonical()).or_insert(found);
            }
        }
    }
    let mut rewards: Vec<f64> = all.values().map(|(reward, _)| *reward).collect();
    rewards.sort_by(|a, b| b.total_cmp(a));
    rewards.truncate(5);
    // Tables have six decimals.
    let written = |value: f64| format!("{value:.6}").parse::<f64>().unwrap();
    let kept: Vec<f64> = table.samples.iter().map(|sample| sample.reward).collect();
    assert_eq!(kept, rewards.iter().map(|reward| written(*reward)).collect::<Vec<_>>());
    for sample in &table.samples {
        let (reward, step) = all[&sample.text];
        assert_eq!((written(reward), step), (sample.reward, sample.step), "{sample:?}");
        assert_eq!(sample.parts["valid"], 1.0);
    }
    assert_eq!(place.read("run/best.sdf").matches("$$$$").count(), table.samples.len());
    let least = kept[1].to_string();
    let limit = format!("reward={least}");
    let ended = place.succeed(&["best", "run", "--min", &limit, "--max", "mw=1e4"]);
    let count = kept.iter().filter(|reward| **reward >= kept[1]).count();
    assert_eq!(ended.stdout.lines().count(), 1 + count, "{}", ended.stdout);
    place.refuse(
        &["best", "run", "--min", "qed=2", "--max", "reward=1", "-o", "none.csv"],
        str!["none of the 5 molecules passes: the highest qed is 0.[..] (--min qed=2), the lowest reward is 0.[..] (--max reward=1); change the limits"],
    );
    place.refuse(
        &["best", "run", "--sdf", "a.svg"],
        str!["--sdf a.svg: the output is an SDF file; use a name that ends in .sdf"],
    );
    assert_eq!(place.run(&["best", "run", "-n", "0"]).code, Some(2));
    let wrong = place.run(&["best", "run", "--min", "colour=1"]);
    assert!(wrong.stderr.contains("unknown property `colour`"), "{}", wrong.stderr);
    place.succeed(&["best", "run", "-n", "3", "--grid", "grid.svg", "--sdf", "three.sdf"]);
    assert_eq!(place.read("three.sdf").matches("$$$$").count(), 3.min(table.samples.len()));
    assert!(place.read("grid.svg").starts_with("<svg"));
}

const SIZE: &str = r#"
[reward]
type = "components"

[[reward.components]]
property = "graph_length"
goal = "high"

[[reward.components]]
property = "heavy_atoms"
goal = "high"

[[reward.components]]
property = "qed"

[[reward.components]]
property = "novelty"
smiles = ["OCCCC=O"]
"#;

/// Neither a second fragment nor an isotope changes the score, and neither makes a molecule new.
#[test]
fn a_molecule_scores_the_same_with_salts_and_labels() {
    let place = Place::new();
    place.write("reward.toml", SIZE);
    let spellings = [
        "O=CCCCO",
        "[2H]C(=O)CCCO",
        "O=CCCCO.Cl",
        "[Na+].OCCCC=O.O",
        "O=CCCC[18OH]",
        "[CH2:1](CCC=O)O",
        "CCCC.O=CCCCO.CCCCC",
    ];
    place.write("a.smi", spellings.join("\n"));
    let table = place.succeed(&["score", "reward.toml", "a.smi"]).stdout;
    let rows: Vec<&str> = table.lines().skip(1).map(|row| row.split_once(',').unwrap().1).collect();
    assert_eq!(rows.len(), spellings.len());
    assert!(rows.iter().all(|row| *row == rows[0]), "{table}");
    assert!(rows[0].ends_with(",0.000000,0.000000,,"), "not new: {table}");
    assert!(rows[0].contains(",5.000000,"), "the graph length of a single fragment: {table}");
}

/// The program is slow, so it only sees what the filters leave, and never a molecule twice.
#[test]
fn filters_precede_expensive_rewards() {
    let place = Place::for_training();
    place.write(
        "slow.py",
        "def reward(completion):\n    open('calls.txt', 'a').write(completion + '\\n')\n    return len(completion) / 10\n",
    );
    place.write(
        "strict.py",
        "def reward(completion):\n    open('strict.txt', 'a').write(completion + '\\n')\n    return 'N' not in completion\n",
    );
    // The expensive reward comes first in the file.
    let reward = |filter: &str| {
        format!(
            "[reward]\ntype = \"components\"\n[[reward.components]]\nname = \"slow\"\nproperty = \"external\"\nreward = {{ type = \"python\", file = \"slow.py\" }}\n[[reward.components]]\nname = \"twice\"\nproperty = \"expression\"\nexpression = \"2 * slow\"\ngoal = \"high\"\n[[reward.components]]\nproperty = \"mw\"\ntransform = {{ type = \"left_step\", low = 100 }}\nfilter = true\n{filter}"
        )
    };
    place.write("reward.toml", reward(""));
    place.write("a.smi", "CCO\nCCCCCCCCCCCCCCCC\nc1ccccc1c1ccccc1\nC(\n");
    let table = place.succeed(&["score", "reward.toml", "a.smi"]).stdout;
    assert_eq!(place.read("calls.txt"), "CCO\n");
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows[0], "smiles,score,valid,slow,slow.raw,twice,twice.raw,mw,mw.raw,reason,name");
    assert!(rows[1].starts_with("CCO,0.450000,1.000000,0.300000,0.300000,0.600000,"), "{table}");
    for row in &rows[2..4] {
        assert!(row.contains(",0.000000,1.000000,,,,,0.000000,"), "{row}");
    }

    // An external filter is asked before other external rewards.
    let strict = "[[reward.components]]\nname = \"strict\"\nproperty = \"external\"\nreward = { type = \"python\", file = \"strict.py\" }\nfilter = true\n";
    place.write("reward.toml", reward(strict));
    place.write("a.smi", "CCN\nCCC\nCCCCCCCCCCCCCCCC\n");
    std::fs::remove_file(place.path("calls.txt")).unwrap();
    place.succeed(&["score", "reward.toml", "a.smi"]);
    assert_eq!(
        (place.read("strict.txt"), place.read("calls.txt")),
        ("CCN\nCCC\n".into(), "CCC\n".into())
    );
    std::fs::remove_file(place.path("calls.txt")).unwrap();

    // A run counts only the molecules that reach the program.
    let components = "reward={ type = \"components\", components = [{ name = \"slow\", property = \"external\", reward = { type = \"python\", file = \"slow.py\" } }, { property = \"heavy_atoms\", transform = { type = \"left_step\", low = 4 }, filter = true }] }";
    place.succeed(&[
        "train",
        "train.toml",
        "--set",
        components,
        "--set",
        "train.max_reward_calls=5",
        "--set",
        "train.steps=30",
        "--set",
        "eval.samples=0",
        "--set",
        "preflight.samples=0",
    ]);
    let calls = place.read("calls.txt");
    let mut molecules: Vec<&str> = calls.lines().collect();
    assert_eq!(molecules.len(), 5, "{calls}");
    molecules.sort_unstable();
    molecules.dedup();
    assert_eq!(molecules.len(), 5, "{calls}");
    for smiles in molecules {
        let atoms = smiles.chars().filter(|c| c.is_alphabetic()).count();
        assert!(atoms <= 4, "{calls}");
    }
}
