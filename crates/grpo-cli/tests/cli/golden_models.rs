//! `grpo selftest --golden` with model folders.

use std::fs;

use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;
use crate::texts::{config, numbers};

/// Creates `golden/gpt2`, a model with an `expected.json` of its own outputs.
fn place() -> (Place, Value) {
    let place = Place::new();
    fs::create_dir(place.path("golden")).unwrap();
    place.model_of_ids("golden/gpt2", "gpt2", 12);
    fs::remove_dir_all(place.path("golden/gpt2-source")).unwrap();
    let (prompt, completion) = ([1, 2], [3, 4, 5]);
    let record = json!({"prompt_ids": prompt, "completion_ids": completion}).to_string() + "\n";
    let at = |temperature: &str| {
        let line = place.logprob("golden/gpt2", &record, &["--temperature", temperature]).remove(0);
        (numbers(&line, "logprobs"), numbers(&line, "entropies"))
    };
    let ((warm, warm_entropies), (cool, cool_entropies)) = (at("1"), at("0.8"));
    // Log-probabilities determine logits only up to a constant, so `last_logits` is left empty.
    let expected = json!({"sequences": [{
        "prompt": prompt,
        "completion": completion,
        "last_logits": [],
        "logprobs_t1.0": warm,
        "entropy_t1.0": warm_entropies,
        "logprobs_t0.8": cool,
        "entropy_t0.8": cool_entropies,
        "greedy": greedy(&place, &prompt, 3),
    }]});
    (place, expected)
}

/// Returns the most likely continuation of a prompt, computed with `grpo logprob`.
fn greedy(place: &Place, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut ids = prompt.to_vec();
    for _ in 0..count {
        let line = |id: u32| json!({"prompt_ids": ids, "completion_ids": [id]}).to_string() + "\n";
        let records: String = (0..12).map(line).collect();
        let scores = crate::texts::logprobs(&place.logprob("golden/gpt2", &records, &[]));
        let best = (0..12).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        ids.push(best as u32);
    }
    ids.split_off(prompt.len())
}

impl Place {
    fn expect(&self, expected: &Value) {
        self.write("golden/gpt2/expected.json", expected.to_string());
    }
}

/// Returns the failed checks for golden models.
fn misses(place: &Place) -> Vec<String> {
    let ended = place.run(&["selftest", "--golden", "golden"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stdout.contains("transformers, gpt2"), "{}", ended.stdout);
    assert!(ended.stderr.ends_with(" cases are out of tolerance\n"), "{}", ended.stderr);
    ended.stdout.lines().filter(|line| line.starts_with("  case ")).map(str::to_owned).collect()
}

#[test]
fn a_model_and_its_numbers() {
    let (place, mut expected) = place();
    // Only one field is not available from other commands. The error message contains its value.
    place.expect(&expected);
    let found = misses(&place);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("last_logits[0] is "), "{found:?}");
    // Determine one logit after the other.
    let mut logits = Vec::new();
    for i in 0..12 {
        let found = misses(&place);
        let rest = found[0].split_once(&format!("last_logits[{i}] is ")).unwrap().1;
        logits.push(rest.split_once(',').unwrap().0.parse::<f64>().unwrap());
        expected["sequences"][0]["last_logits"] = json!(logits);
        place.expect(&expected);
    }
    let ended = place.succeed(&["selftest", "--golden", "golden"]);
    assert!(ended.stdout.contains("transformers, gpt2"), "{}", ended.stdout);
    assert!(ended.stdout.contains("TRL, built in"), "{}", ended.stdout);

    // A small error in each kind of value.
    for (key, at, name) in [
        ("last_logits", 3, "last_logits[3]"),
        ("logprobs_t1.0", 1, "logprobs at temperature 1[1]"),
        ("entropy_t1.0", 0, "entropies at temperature 1[0]"),
        ("logprobs_t0.8", 2, "logprobs at temperature 0.8[2]"),
        ("entropy_t0.8", 2, "entropies at temperature 0.8[2]"),
    ] {
        let mut wrong = expected.clone();
        let number = &mut wrong["sequences"][0][key][at];
        *number = json!(number.as_f64().unwrap() + 1e-3);
        place.expect(&wrong);
        let found = misses(&place);
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert!(found[0].contains(&format!("{name} is ")), "{key}: {found:?}");
    }
    let mut wrong = expected.clone();
    let id = &mut wrong["sequences"][0]["greedy"][1];
    *id = json!((id.as_u64().unwrap() + 1) % 12);
    place.expect(&wrong);
    let found = misses(&place);
    assert!(found.len() == 1 && found[0].contains("greedy[1] is "), "{found:?}");
}

#[test]
fn expectations_that_cannot_be_used() {
    let (place, expected) = place();
    let check = |change: &dyn Fn(&mut Value), message: &str| {
        let mut changed = expected.clone();
        change(&mut changed);
        place.expect(&changed);
        place.refuse(
            &["selftest", "--golden", "golden"],
            format!("`golden/gpt2/expected.json`{message}"),
        );
    };
    let set = |key: &'static str, value: Value| {
        move |all: &mut Value| all["sequences"][0][key] = value.clone()
    };
    check(
        &set("completion", json!([])),
        ", key `sequences[0].completion`: 0 ids, expected at least 1",
    );
    check(&set("prompt", json!([])), ", key `sequences[0].prompt`: 0 ids, expected at least 1");
    check(
        &set("prompt", json!([1, 12])),
        ", key `sequences[0].prompt`: token id 12 is outside the vocabulary of 12 tokens",
    );
    check(
        &set("completion", json!(vec![1; 47])),
        ", key `sequences[0].completion`: 49 tokens including the preceding ones exceed the model's context of 48",
    );
    check(
        &set("greedy", json!(vec![1; 47])),
        ", key `sequences[0].greedy`: 49 tokens including the preceding ones exceed the model's context of 48",
    );
    check(
        &set("logprobs_t1.0", json!("none")),
        ", key `[0].logprobs_t1.0`: invalid type: string \"none\", expected a sequence",
    );
    let nothing = " contains no steps, no base and no recognized sequences";
    check(&|all| all["sequences"] = json!([]), nothing);
    check(&|all| *all = json!(3), nothing);
    let text = expected.to_string();
    place.write("golden/gpt2/expected.json", &text[..40]);
    let ended = place.run(&["selftest", "--golden", "golden"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with(
            "error: `golden/gpt2/expected.json` is not valid JSON: unexpected end of input"
        ),
        "{}",
        ended.stderr
    );
    // A folder with expected values but no model.
    place.expect(&expected);
    fs::remove_file(place.path("golden/gpt2/config.json")).unwrap();
    place.refuse(
        &["selftest", "--golden", "golden"],
        str!["cannot read golden/gpt2/config.json: no such file or folder"],
    );
}

#[test]
fn an_encoder_and_an_adapter() {
    let (place, _) = place();
    place.config_folder("source", &config("bert", 12));
    place.succeed(&["init", "source/config.json", "-o", "golden/bert"]);
    let check = |name: &str, expected: Value, message: &str| {
        place.write(&format!("golden/{name}/expected.json"), expected.to_string());
        place.refuse(&["selftest", "--golden", "golden"], message);
        fs::remove_file(place.path(&format!("golden/{name}/expected.json"))).unwrap();
    };
    let sentence =
        |ids: Value| json!({"sequences": [{"input_ids": ids, "mean_pooled": [], "unit": []}]});
    check(
        "bert",
        sentence(json!([])),
        "`golden/bert/expected.json`, key `sequences[0].input_ids`: 0 ids, expected at least 1",
    );
    check(
        "bert",
        sentence(json!([1, 12])),
        "`golden/bert/expected.json`, key `sequences[0].input_ids`: token id 12 is outside the vocabulary of 12 tokens",
    );
    check(
        "bert",
        sentence(json!(vec![1; 49])),
        "`golden/bert/expected.json`, key `sequences[0].input_ids`: 49 tokens including the preceding ones exceed the model's context of 48",
    );
    check(
        "gpt2",
        sentence(json!([1])),
        "a sentence encoder requires bidirectional attention, as in BERT",
    );
    let adapter = |base: &str, ids: Value| json!({"base": base, "input_ids": ids, "logits": []});
    check(
        "bert",
        adapter("gpt2", json!([])),
        "`golden/bert/expected.json`, key `input_ids`: 0 ids, expected at least 1",
    );
    check(
        "bert",
        adapter("absent", json!([1])),
        "cannot read golden/absent/config.json: no such file or folder",
    );
    check(
        "bert",
        adapter("gpt2", json!([1])),
        "cannot read golden/bert/adapter_config.json: no such file or folder",
    );
    // Missing values are reported.
    place.write("golden/bert/expected.json", sentence(json!([1, 2])).to_string());
    let ended = place.run(&["selftest", "--golden", "golden"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("mean_pooled[0] is ") && ended.stdout.contains("expected none"),
        "{}",
        ended.stdout
    );
}

#[test]
fn optimizer_steps() {
    let (place, _) = place();
    fs::create_dir(place.path("golden/train")).unwrap();
    for name in ["before", "after"] {
        place.model_of_ids(name, "gpt2", 12);
        fs::rename(place.path(name), place.path(&format!("golden/train/{name}"))).unwrap();
    }
    let expected = json!({
        "config": {"loss_type": "grpo", "beta": 0.0, "num_generations": 2, "temperature": 1.0, "rewards": [0.0, 1.0]},
        "optimizer": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
        "max_grad_norm": 1.0,
        "prompts": [[1], [1]],
        "completions": [[2, 3], [4]],
        "advantages": [-0.7070, 0.7070],
        "old_logprobs": [[-2.0, -2.0], [-2.0]],
        "steps": [{"loss": 0.5, "grad_norm": 0.0}],
    });
    let check = |pointer: &str, value: Value, message: &str| {
        let mut changed = expected.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        place.write("golden/train/expected.json", changed.to_string());
        place.refuse(
            &["selftest", "--golden", "golden"],
            format!("`golden/train/expected.json`, key {message}"),
        );
    };
    check(
        "/config/loss_type",
        json!("ppo"),
        "`config.loss_type`: ppo; expected grpo, dapo or dr_grpo",
    );
    check(
        "/config/num_generations",
        json!(3),
        "`config.num_generations`: 2 completions cannot be divided into groups of 3",
    );
    check("/prompts/0", json!([]), "`prompts`: an empty list of ids");
    check(
        "/prompts/1",
        json!([12]),
        "`prompts[1]`: token id 12 is outside the vocabulary of 12 tokens",
    );
    check(
        "/completions/0",
        json!([2, 99]),
        "`completions[0]`: token id 99 is outside the vocabulary of 12 tokens",
    );
    check(
        "/prompts/0",
        json!(vec![1; 47]),
        "`completions[0]`: 49 tokens including the preceding ones exceed the model's context of 48",
    );
    check("/old_logprobs/0", json!([-2.0]), "`old_logprobs`: row 0: expected 2 log-probabilities");
    check("/advantages", json!([0.0]), "`advantages`: 1 values, expected one per completion (2)");
    // Wrong values are reported: the loss differs, and so do the final weights.
    place.write("golden/train/expected.json", expected.to_string());
    let ended = place.run(&["selftest", "--golden", "golden"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for words in ["TRL and torch, train", "(step 1): loss is ", "distance from its expected value"]
    {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    // Models of different sizes.
    place.model_of_ids("other", "gpt2", 13);
    fs::remove_dir_all(place.path("golden/train/after")).unwrap();
    fs::rename(place.path("other"), place.path("golden/train/after")).unwrap();
    place.refuse(
        &["selftest", "--golden", "golden"],
        str!["`golden/train/expected.json`, key `steps`: the models in before and after have different sizes"],
    );
}
