//! Tests of scoring functions.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_rewards::{Outcome, Reward, RewardConfig, RewardInput, RewardKind, RewardRegistry};
use serde_json::{Value, json};

use super::ComponentsConfig;

const ASPIRIN: &str = "CC(=O)Oc1ccccc1C(=O)O";

fn parse(section: Value) -> Result<RewardConfig, ConfigFault> {
    let kinds =
        [RewardKind::composed::<ComponentsConfig, crate::components::Section>("components")];
    let registry = RewardRegistry::default().with(kinds);
    registry.parse(serde_json::from_value(section).unwrap())
}

fn section(components: Value) -> Value {
    json!({"type": "components", "components": components})
}

fn build(section: Value) -> Arc<dyn Reward> {
    parse(section).unwrap().build(&Device::flex()).unwrap()
}

fn one(section: Value, smiles: &str) -> Outcome {
    build(section).score(&[RewardInput::from(smiles)]).remove(0)
}

#[track_caller]
fn close(got: Option<f64>, expect: f64) {
    let got = got.expect("a value");
    assert!((got - expect).abs() < 1e-5, "{got}, expected {expect}");
}

/// RDKit computes a QED of 0.550122, an SA score of 1.580040 and a logP of 1.3101.
#[test]
fn aspirin_by_hand() {
    let components = json!([
        {"property": "qed", "weight": 3.0},
        {"property": "sa"},
        {"property": "logp", "goal": "range", "low": 1.0, "high": 3.0, "weight": 4.0},
    ]);
    let outcome = one(section(components), ASPIRIN);
    let logp = 1.0 / (1.0 + 10f64.powf(-2.5 * 0.3101));
    close(outcome.part("qed"), 0.550_122);
    close(outcome.part("sa"), (10.0 - 1.580_040) / 9.0);
    close(outcome.part("sa.raw"), 1.580_040);
    close(outcome.part("logp"), logp);
    let expect = (3.0 * 0.550_122 + (10.0 - 1.580_040) / 9.0 + 4.0 * logp) / 8.0;
    close(outcome.total(), expect);
}

#[test]
fn lists_can_be_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("known.smi"), format!("OCC ethanol\nC(\n{ASPIRIN}\n")).unwrap();
    std::fs::write(path("actives.smi"), "CCO\nc1ccccc1\n").unwrap();
    std::fs::write(path("groups.smarts"), "# acids\nC(=O)[OH] acid\n\n[NX3]\n").unwrap();
    let components = json!([
        {"property": "novelty", "file": path("known.smi"), "smiles": ["C"]},
        {"property": "similarity", "file": path("actives.smi"), "smiles": ["CCCC"]},
        {"property": "scaffold", "file": path("actives.smi")},
        {"property": "custom_alerts", "file": path("groups.smarts")},
    ]);
    let reward = build(section(components));
    let raw = |smiles: &str| {
        let outcome = reward.score(&[RewardInput::from(smiles)]).remove(0);
        ["novelty", "similarity", "scaffold", "custom_alerts"]
            .map(|name| outcome.part(&format!("{name}.raw")).unwrap())
    };
    assert_eq!(raw("CCO"), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(raw("C")[0], 0.0);
    assert_eq!(raw("CCCC")[..2], [1.0, 1.0]);
    assert_eq!(raw("NCc1ccccc1C(=O)O")[2..], [1.0, 2.0]);

    // Checking the settings reads no files.
    let missing = section(json!([{"property": "novelty", "file": path("missing.smi")}]));
    assert_eq!(
        parse(missing).unwrap().build(&Device::flex()).err().unwrap().to_string(),
        format!("component 'novelty': `{}` does not exist; check the path", path("missing.smi"))
    );
    std::fs::write(path("empty.smi"), "\n").unwrap();
    for (component, expect) in [
        (
            json!({"property": "similarity", "file": path("known.smi")}),
            format!(
                "component 'similarity': {}, line 2: 'C(' is not a valid molecule: ",
                path("known.smi")
            ),
        ),
        (
            json!({"property": "substructure", "file": path("known.smi")}),
            format!(
                "component 'substructure': {}, line 2: 'C(' is not a valid SMARTS pattern: ",
                path("known.smi")
            ),
        ),
        (
            json!({"property": "novelty", "file": path("empty.smi")}),
            format!(
                "component 'novelty': {} has no entries; write one entry per line",
                path("empty.smi")
            ),
        ),
    ] {
        let fault = parse(section(json!([component]))).unwrap().build(&Device::flex());
        let fault = fault.err().unwrap().to_string();
        assert!(fault.starts_with(&expect), "{fault}");
    }
}

#[test]
fn properties_of_structure() {
    let components = json!([
        {"property": "similarity", "smiles": [ASPIRIN, "CCO"]},
        {"name": "acids", "property": "substructure_count", "smarts": ["C(=O)[OH]"], "goal": "high"},
        {"property": "substructure", "smarts": ["[#7]", "c1ccccc1"]},
        {"property": "custom_alerts", "smarts": ["[#7]", "C(=O)O"]},
        {"property": "custom_alerts", "name": "default_alerts"},
        {"property": "scaffold", "smiles": ["c1ccccc1CC"]},
        {"property": "formula", "formula": "C9H8O4"},
        {"property": "heavy_atoms", "goal": "high", "low": 0.0, "high": 26.0},
        {"property": "expression", "expression": "heavy_atoms / 13 - acids", "goal": "low"},
    ]);
    let outcome = one(section(components), ASPIRIN);
    for (part, expect) in [
        ("similarity.raw", 1.0),
        ("acids.raw", 1.0),
        ("acids", 1.0 / 3.0),
        ("substructure", 1.0),
        ("custom_alerts.raw", 1.0),
        ("custom_alerts", 0.0),
        // RDKit counts two structural alerts of QED.
        ("default_alerts.raw", 2.0),
        ("scaffold", 1.0),
        ("formula", 1.0),
        ("heavy_atoms", 0.5),
        ("expression.raw", 0.0),
        ("expression", 1.0),
    ] {
        close(outcome.part(part), expect);
    }
}

/// RDKit's Tanimoto similarities of paracetamol and aspirin.
#[test]
fn similarities_are_of_the_chosen_fingerprint() {
    for (settings, expect) in [
        (json!({}), 0.274_509_803_9),
        (json!({"fingerprint": "counts", "radius": 2}), 0.274_509_803_9),
        (json!({"fingerprint": "counts", "radius": 3}), 0.222_222_222_2),
        (json!({"fingerprint": "bits"}), 0.222_222_222_2),
        (json!({"fingerprint": "bits", "radius": 3}), 0.166_666_666_7),
    ] {
        let mut component = json!({"property": "similarity", "smiles": [ASPIRIN]});
        component.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        close(
            one(section(json!([component])), "CC(=O)Nc1ccc(O)cc1").part("similarity.raw"),
            expect,
        );
    }
}

#[test]
fn a_filter_that_is_not_passed_makes_the_score_zero() {
    let components = json!([
        {"property": "qed"},
        {"property": "substructure", "smarts": ["[#7]"], "filter": true},
    ]);
    for (smiles, passes) in [(ASPIRIN, false), ("CC(=O)Nc1ccc(O)cc1", true)] {
        let outcome = one(section(components.clone()), smiles);
        assert_eq!(outcome.total().unwrap() > 0.0, passes, "{smiles}");
        assert!(outcome.part("qed").unwrap() > 0.5, "{smiles}");
    }
}

#[test]
fn invalid_molecules_have_a_score_of_zero() {
    for aggregation in ["arithmetic_mean", "geometric_mean", "minimum"] {
        let mut section = section(json!([{"property": "qed"}, {"property": "sa"}]));
        section["aggregation"] = aggregation.into();
        let reward = build(section);
        let outcomes = reward.score(&["C(".into(), ASPIRIN.into(), "CCO ethanol".into()]);
        assert_eq!((outcomes[0].total(), outcomes[0].part("valid")), (Some(0.0), Some(0.0)));
        assert!(outcomes[1].total().unwrap() > 0.5);
        assert_eq!(outcomes[2].total(), Some(0.0));
        for outcome in &outcomes {
            let Outcome::Scored(scored) = outcome else { panic!("{outcome:?}") };
            assert_eq!(scored.terms.len(), reward.term_names().len(), "{aggregation}");
        }
    }
}

/// External rewards are only asked for valid molecules, and their outcomes belong to the right
/// ones.
#[test]
fn an_external_reward_is_a_component() {
    let components = json!([
        {"property": "external", "reward": {"type": "pattern", "pattern": "N"}},
        {"property": "expression", "name": "twice", "expression": "2 * external", "goal": "high"},
    ]);
    let reward = build(section(components));
    let outcomes = reward.score(&["C(".into(), "CCN".into(), "CCO".into(), "CNC".into()]);
    let totals: Vec<Option<f64>> = outcomes.iter().map(Outcome::total).collect();
    assert_eq!(totals, [0.0, 1.0, 0.0, 1.0].map(Some));
    assert_eq!(outcomes[1].part("twice.raw"), Some(2.0));
}

#[test]
fn parts_are_those_that_outcomes_have() {
    let reward = build(section(json!([{"property": "qed"}, {"property": "sa", "filter": true}])));
    let Outcome::Scored(scored) = reward.score(&[ASPIRIN.into()]).remove(0) else {
        panic!("aspirin is a molecule")
    };
    let names: Vec<_> = scored.parts.into_iter().map(|(name, _)| name).collect();
    assert_eq!(reward.parts(), names);
    assert_eq!(reward.term_names(), ["qed"]);
}

/// The recorded configuration contains all defaults and has the same meaning.
#[test]
fn a_recorded_section_is_complete() {
    let given = section(json!([
        {"property": "sa", "weight": 0.5},
        {"property": "mw", "goal": "range", "low": 200.0, "high": 500.0, "filter": true},
        {"property": "external", "reward": {"type": "pattern", "pattern": "N"}},
    ]));
    let config = parse(given).unwrap();
    let table = config.table();
    let sa = table["components"][0].as_table().unwrap();
    assert_eq!(sa["goal"].as_str(), Some("low"));
    assert_eq!(sa["transform"]["type"].as_str(), Some("reverse_linear"));
    assert_eq!(sa["transform"]["high"].as_float(), Some(10.0));
    let again = parse(serde_json::to_value(table).unwrap()).unwrap();
    assert_eq!(again.table(), table);
}

#[test]
fn bad_settings_are_refused_with_one_sentence() {
    let step = |low: f64, high: f64| json!({"type": "step", "low": low, "high": high});
    for (component, words) in [
        (json!({"property": "lopg", "goal": "high"}), "unknown property 'lopg'"),
        (json!({"property": "mw"}), "component 'mw' has no goal; set goal to"),
        (json!({"property": "mw", "goal": "range"}), "set its bounds `low` and `high`"),
        (
            json!({"property": "mw", "goal": "range", "low": 5.0, "high": 1.0}),
            "component 'mw': goal = \"range\" has low = 5 above high = 1; swap them",
        ),
        (json!({"property": "mw", "transform": step(5.0, 1.0)}), "swap them"),
        (
            json!({"property": "sa", "goal": "low", "transform": {"type": "right_step", "high": 3.0}}),
            "goal = \"low\", but transform right_step rewards high values; change one of them",
        ),
        (json!({"property": "qed", "weight": -1.0}), "weight = -1 is out of range"),
        (json!({"property": "qed", "filter": true, "weight": 1.0}), "weight has no effect"),
        (json!({"property": "qed", "smarts": ["C"]}), "smarts has no effect for property 'qed'"),
        (
            json!({"property": "mw", "low": 1.0, "transform": step(1.0, 2.0)}),
            "low has no effect for a component with `transform`",
        ),
        (json!({"property": "similarity"}), "'similarity' requires the key `smiles`"),
        (json!({"property": "similarity", "smiles": []}), "the list `smiles`"),
        (json!({"property": "similarity", "smiles": ["C("]}), "'C(' is not a valid molecule"),
        (json!({"property": "similarity", "smiles": ["C"], "radius": 4}), "radius = 4"),
        (json!({"property": "substructure", "smarts": ["[C"]}), "not a valid SMARTS pattern"),
        (json!({"property": "formula", "formula": "water"}), "not a molecular formula"),
        (
            json!({"property": "expression", "expression": "mw", "goal": "high"}),
            "unknown name `mw`",
        ),
        (json!({"property": "external", "reward": {"type": "x"}}), "unknown reward type `x`"),
        (json!({"property": "qed", "weight": 0.0}), "all weights of reward.components are 0"),
        (json!({"property": "qed", "filter": true}), "all weights of reward.components are 0"),
        (json!({"property": "qed", "name": "QED"}), "invalid part name 'QED'"),
        (json!({"property": "qed", "name": "raw"}), "reserved"),
        (json!({"property": "qed", "colour": 1}), "unknown key `colour`"),
    ] {
        let build = |config: RewardConfig| config.build(&Device::flex()).map(drop);
        let fault = parse(section(json!([component]))).and_then(build).unwrap_err().to_string();
        assert!(fault.contains(words), "{component}: {fault}");
        assert!(!fault.contains('\n'), "{fault}");
    }
    let none = parse(section(json!([]))).unwrap().build(&Device::flex()).err().unwrap();
    assert_eq!(
        none.to_string(),
        "reward.components is empty; add at least one, for example { property = \"qed\" }"
    );
    let twice = json!([{"property": "qed"}, {"property": "qed"}]);
    let fault = parse(section(twice)).unwrap().build(&Device::flex()).err().unwrap();
    assert!(fault.to_string().contains("two parts named 'qed'"), "{fault}");
}
