use grpo_data::Codec;
use grpo_model::{ModelConfig, ModelSpec, StoredAs, Transformer};

use super::*;
use crate::InfillerConfig;

fn registry() -> RewardRegistry {
    RewardRegistry::default().with([RewardKind::from_settings::<InfillConfig>("infill")])
}
use grpo_rewards::{RewardConfig, RewardKind, RewardRegistry};

/// Returns a judge with random weights that knows the characters of `text` and reads at most 8.
fn judge_folder(text: &str, seed: u64) -> tempfile::TempDir {
    let characters = Characters::from_texts([text]).unwrap();
    let sizes = InfillerConfig::new(characters.len(), 8, 1, 2, 8);
    let config = sizes.sequence_scorer().unwrap();
    model_folder(config, Codec::from_text_codec(characters), seed)
}

fn model_folder(config: ModelConfig, codec: Codec, seed: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = Transformer::random(&config, seed, &Device::flex()).unwrap();
    ModelSpec { config, codec }.write(folder.path(), &model, StoredAs::F32).unwrap();
    folder
}

fn infill(judge: &Path, second_judge: Option<&Path>, weights: [f64; 2]) -> RewardConfig {
    let mut table = toml::toml! { type = "infill" };
    let path = |path: &Path| path.display().to_string().into();
    table.insert("judge".to_owned(), path(judge));
    table.extend(second_judge.map(|judge| ("second_judge".to_owned(), path(judge))));
    table.insert("judge_weight".to_owned(), weights[0].into());
    table.insert("recovery_weight".to_owned(), weights[1].into());
    registry().parse(table).unwrap()
}

fn reward(folder: &tempfile::TempDir, weights: [f64; 2]) -> std::sync::Arc<dyn Reward> {
    infill(folder.path(), None, weights).build(&Device::flex()).unwrap()
}

fn refusal(config: &RewardConfig) -> String {
    config.build(&Device::flex()).map(drop).unwrap_err().to_string()
}

fn fields(text: &str, blanked: &str) -> Map<String, Value> {
    [(TEXT, text), (BLANKED, blanked)].map(|(k, v)| (k.to_owned(), v.into())).into_iter().collect()
}

fn sample(text: &str, blanked: &str, filled: &str) -> RewardInput {
    RewardInput { text: filled.to_owned(), fields: fields(text, blanked), ..RewardInput::default() }
}

fn part(outcome: &Outcome, name: &str) -> f64 {
    outcome.part(name).unwrap_or_else(|| panic!("{outcome:?}"))
}

#[test]
fn parts_by_hand() {
    let folder = judge_folder("abc", 1);
    let reward = reward(&folder, [1.0, 0.0]);
    for (filled, recovery, entropy) in [
        ("abcabc", 1.0, 3_f64.ln()),
        ("abcaaa", 1.0 / 3.0, 0.0),
        // One character occurs twice, another one once.
        ("abcaac", 2.0 / 3.0, 3_f64.ln() - 2.0 / 3.0 * 2_f64.ln()),
        ("abcbca", 0.0, 3_f64.ln()),
    ] {
        let outcome = &reward.score(&[sample("abcabc", "abc␣␣␣", filled)])[0];
        assert!((part(outcome, "recovery") - recovery).abs() < 1e-12, "{filled}: {outcome:?}");
        assert!((part(outcome, "fill_entropy") - entropy).abs() < 1e-12, "{filled}: {outcome:?}");
        assert!(part(outcome, "fill_entropy").is_sign_positive());
        assert_eq!(outcome.total(), Some(1.0 - part(outcome, "judge")));
    }
}

/// The judge sees the entire text, preceded by CLS and separate from other texts.
#[test]
fn the_judge_is_the_scorer_of_its_folder() {
    let folder = judge_folder("abc", 1);
    let (spec, scorer) = SequenceScorer::load(folder.path(), &Device::flex()).unwrap();
    let characters = spec.codec.own::<Characters>().unwrap();
    let reward = reward(&folder, [1.0, 0.0]);
    let filled = ["abcabc", "abcaaa", "ccbbaa"];
    let samples = filled.map(|filled| sample(filled, &filled.replace('a', "␣"), filled));
    let together = reward.score(&samples);
    for ((filled, sample), outcome) in filled.iter().zip(&samples).zip(&together) {
        let expected = scorer.score(&characters.encode(filled).unwrap());
        assert_eq!(part(outcome, "judge").to_bits(), expected.to_bits());
        assert!((0.0..=1.0).contains(&part(outcome, "judge")));
        assert_eq!(&reward.score(std::slice::from_ref(sample))[0], outcome);
    }
    assert_ne!(part(&together[0], "judge"), part(&together[1], "judge"));
}

/// The model is large enough for operations to be split between threads.
#[test]
fn the_number_of_threads_and_the_texts_beside_it_are_no_part_of_a_reward() {
    let characters = Characters::from_texts(["abc"]).unwrap();
    let sizes = InfillerConfig::new(characters.len(), 200, 2, 4, 96);
    let config = sizes.sequence_scorer().unwrap();
    let folder = model_folder(config, Codec::from_text_codec(characters), 1);
    let reward = reward(&folder, [1.0, 0.0]);
    let texts = (0..9).map(|i| "abcca".repeat(40 - 3 * i));
    let samples: Vec<RewardInput> =
        texts.map(|text| sample(&text, &text.replacen('b', "␣", 7), &text)).collect();
    let alone: Vec<Outcome> =
        samples.iter().flat_map(|sample| reward.score(std::slice::from_ref(sample))).collect();
    assert!(alone.iter().all(|outcome| outcome.total().is_some()));
    for threads in [1, 3, 4] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| reward.score(&samples)), alone, "{threads} threads");
    }
}

#[test]
fn weights_mix_judge_and_recovery() {
    let (first, second) = (judge_folder("abc", 1), judge_folder("cba", 2));
    let config = infill(first.path(), Some(second.path()), [0.75, 0.25]);
    let mixed = config.build(&Device::flex()).unwrap();
    let samples = [sample("abcabc", "abc␣␣␣", "abcaac")];
    let outcome = &mixed.score(&samples)[0];
    let expected = 0.75 * (1.0 - part(outcome, "judge")) + 0.25 * (2.0 / 3.0);
    assert!((outcome.total().unwrap() - expected).abs() < 1e-12);
    assert_eq!(mixed.term_names(), ["judge", "recovery"]);
    let alone = |folder, weights| reward(folder, weights).score(&samples)[0].clone();
    // The second judge is reported, but doesn't affect the total.
    assert_eq!(part(outcome, "judge"), part(&alone(&first, [1.0, 0.0]), "judge"));
    assert_eq!(part(outcome, "second_judge"), part(&alone(&second, [1.0, 0.0]), "judge"));
    assert_ne!(part(outcome, "second_judge"), part(outcome, "judge"));
    let of_recovery = reward(&first, [0.0, 1.0]);
    assert_eq!(of_recovery.term_names(), ["recovery"]);
    assert_eq!(of_recovery.score(&samples)[0].total(), Some(2.0 / 3.0));
    for (reward, outcome) in [(&mixed, outcome), (&of_recovery, &of_recovery.score(&samples)[0])] {
        let Outcome::Scored(scored) = outcome else { panic!("{outcome:?}") };
        assert_eq!(reward.term_names().len(), scored.terms.len());
        assert_eq!(
            reward.parts(),
            scored.parts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        );
    }
}

#[test]
fn what_cannot_be_judged_fails_with_a_sentence() {
    let folder = judge_folder("abc", 1);
    let reward = reward(&folder, [1.0, 0.0]);
    for (text, blanked, filled, expected) in [
        (
            "abc",
            "ab␣",
            "abx",
            "the judge cannot read the text: 'x' (character 3 of \"abx\") is not one of the 3 characters",
        ),
        ("abc", "ab␣", "ab", "the filled text has 2 characters, but the original has 3"),
        ("abc", "ab␣", "ab␣", "character 3 of the filled text is still a blank"),
        (
            "abc",
            "ab␣",
            "bbc",
            "character 1 of the filled text was changed from 'a' to 'b', but it is not a blank",
        ),
        ("abc", "abc", "abc", "the field 'blanked' has no blank (␣)"),
        (
            "abc",
            "bb␣",
            "abc",
            "the fields 'text' and 'blanked' differ at character 1, which is not a blank",
        ),
        (
            "abc",
            "␣",
            "abc",
            "the field 'blanked' has 1 characters, but the field 'text' has 3; expected equal lengths",
        ),
        (
            "abcabcabc",
            "abcabcab␣",
            "abcabcabc",
            "the text has 9 characters, but the judge's context is 8; use shorter passages, or a judge with a larger block_size",
        ),
    ] {
        let outcomes = reward.score(&[sample(text, blanked, filled), sample("ab", "a␣", "aa")]);
        let failure = outcomes[0].failure().unwrap_or_else(|| panic!("{filled} was scored"));
        assert!(failure.starts_with(expected), "{failure}");
        assert!(outcomes[1].total().is_some());
    }
}

#[test]
fn prompts_that_no_filling_of_can_be_judged_are_refused() {
    let (first, second) = (judge_folder("abcx", 1), judge_folder("abc", 2));
    let config = infill(first.path(), Some(second.path()), [1.0, 0.0]);
    let reward = config.build(&Device::flex()).unwrap();
    let check = |fields: Map<String, Value>| reward.check(&fields).err().unwrap_or_default();
    assert_eq!(check(fields("abc", "ab␣")), "");
    assert_eq!(check(Map::new()), "the prompt's record is missing field 'text'");
    let mut only = fields("abc", "ab␣");
    only.insert(BLANKED.to_owned(), 3.into());
    assert_eq!(check(only), "field 'blanked' of the prompt's record is not a string");
    assert_eq!(check(fields("abc", "abc")), "the field 'blanked' has no blank (␣)");
    assert!(check(fields("abcabcabc", "abcabcab␣")).starts_with("the text has 9 characters"));
    // The character is known to the first judge, but not to the second.
    assert!(check(fields("abx", "a␣x")).starts_with("the judge cannot read the text"));
}

#[test]
fn weights_that_are_no_mean_are_refused() {
    let folder = judge_folder("abc", 1);
    for (weights, expected) in [
        (
            [0.5, 0.4],
            "reward.judge_weight and reward.recovery_weight must be at least 0 and sum to 1, but they sum to 0.9",
        ),
        ([1.5, -0.5], "reward.recovery_weight = -0.5 is out of range; expected 0 or more"),
        ([f64::NAN, 0.0], "reward.judge_weight = NaN is out of range; expected 0 or more"),
    ] {
        let config = infill(folder.path(), None, weights);
        assert_eq!(refusal(&config), expected);
        // No file has to be read.
        assert_eq!(config.spec().check().unwrap_err().to_string(), expected);
    }
}

#[test]
fn folders_that_hold_no_judge_are_refused() {
    let missing = infill(Path::new("nowhere/judge"), None, [1.0, 0.0]);
    let expected = "reward.judge: folder nowhere/judge does not exist; a judge folder contains config.json, characters.json and model.safetensors, as written by `grpo train-judge`";
    assert_eq!(refusal(&missing), expected);
    assert_eq!(missing.spec().files().unwrap_err().to_string(), expected);
    missing.spec().check().unwrap();

    let good = judge_folder("abc", 1);
    let characters = Characters::from_texts(["abc"]).unwrap();
    let sizes = InfillerConfig::new(characters.len(), 8, 1, 2, 8);
    let codec = Codec::from_text_codec(characters);
    let infiller = model_folder(sizes.infiller().unwrap(), codec, 1);
    let molgpt = grpo_molecules::MolGptConfig::new(6, 8, 1, 2, 8).to_config().unwrap();
    let molgpt = model_folder(molgpt, Codec::of_ids(Default::default()), 1);
    for (folder, family) in [(&infiller, "infiller"), (&molgpt, "molgpt")] {
        let expected = format!("is not a judge: its model family is {family}; expected");
        let as_first = refusal(&infill(folder.path(), None, [1.0, 0.0]));
        assert!(as_first.starts_with("reward.judge: ") && as_first.contains(&expected));
        let as_second = refusal(&infill(good.path(), Some(folder.path()), [1.0, 0.0]));
        assert!(as_second.starts_with("reward.second_judge: ") && as_second.contains(&expected));
    }
}

#[test]
fn its_files_are_those_of_its_judges() {
    let (first, second) = (judge_folder("abc", 1), judge_folder("abc", 2));
    let files = infill(first.path(), Some(second.path()), [1.0, 0.0]);
    let files = files.spec().files().unwrap();
    let of = |key: &'static str, folder: &Path| {
        ["characters.json", "config.json", "model.safetensors"].map(|name| (key, folder.join(name)))
    };
    assert_eq!(files, [of("judge", first.path()), of("second_judge", second.path())].concat());
}

#[test]
fn a_configuration_needs_a_judge_alone() {
    let read = |json: Value| registry().parse(serde_json::from_value(json).unwrap());
    let config = read(serde_json::json!({"type": "infill", "judge": "runs/judge"})).unwrap();
    assert_eq!(config, infill(Path::new("runs/judge"), None, [1.0, 0.0]));
    assert!(read(serde_json::json!({"type": "infill"})).is_err());
    assert!(read(serde_json::json!({"type": "infill", "judge": "a", "judges": "b"})).is_err());
}

#[test]
fn it_can_be_no_component_of_another_reward() {
    let composite = serde_json::json!({"type": "composite", "parts": [
        {"name": "a", "weight": 1.0, "reward": {"type": "infill", "judge": "x"}},
    ]});
    let config = registry().parse(serde_json::from_value(composite).unwrap()).unwrap();
    let fault = config.spec().check().unwrap_err().to_string();
    assert!(fault.contains("cannot be part"), "{fault}");
}
