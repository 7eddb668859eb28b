//! Small, randomly initialized text models created by `grpo init`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::support::Place;

/// Number of tokens of the tokenizer in the fixtures of grpo-data, plus some unused rows as in real
/// models. Texts begin with token 330.
pub(crate) const VOCABULARY: usize = 340;
/// `<|im_end|>`
pub(crate) const END: u32 = 332;
/// Context length of the models in tokens.
pub(crate) const CONTEXT: usize = 48;

/// Returns the `config.json` of a small model. The weights are large, so that distributions are far
/// from uniform.
pub(crate) fn config(family: &str, vocabulary: usize) -> String {
    match family {
        "gpt2" => format!(
            r#"{{"model_type": "gpt2", "vocab_size": {vocabulary}, "n_positions": {CONTEXT}, "n_embd": 16,
            "n_layer": 2, "n_head": 2, "initializer_range": 0.4, "torch_dtype": "float32"}}"#
        ),
        "bert" => format!(
            r#"{{"model_type": "bert", "vocab_size": {vocabulary}, "max_position_embeddings": {CONTEXT},
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}}"#
        ),
        "molgpt" => format!(
            r#"{{"architecture": "molgpt", "vocab_size": {vocabulary}, "block_size": {CONTEXT}, "n_layer": 1,
            "n_head": 2, "n_embd": 16}}"#
        ),
        family => format!(
            r#"{{"model_type": "{family}", "vocab_size": {vocabulary}, "max_position_embeddings": {CONTEXT},
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
            "head_dim": 8, "intermediate_size": 32, "initializer_range": 0.4, "tie_word_embeddings": true}}"#
        ),
    }
}

/// ChatML with the `enable_thinking` option of Qwen3.
pub(crate) const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-data/tests/fixtures").join(name)
}

impl Place {
    /// Creates an input folder for `grpo init` that only contains a config.json.
    pub(crate) fn config_folder(&self, name: &str, config: &str) {
        fs::create_dir(self.path(name)).unwrap();
        self.write(&format!("{name}/config.json"), config);
    }

    /// Creates the model folder `name` without a tokenizer. The last of `vocabulary` ids is the end
    /// token.
    pub(crate) fn model_of_ids(&self, name: &str, family: &str, vocabulary: usize) {
        let end = format!("{{\"eos_token_id\": {}, ", vocabulary - 1);
        let config = config(family, vocabulary).replacen('{', &end, 1);
        let source = format!("{name}-source");
        self.config_folder(&source, &config);
        self.succeed(&["init", &format!("{source}/config.json"), "-o", name]);
    }

    /// Creates the model folder `name` with a tokenizer and a chat template.
    pub(crate) fn model_of_texts(&self, name: &str, family: &str) {
        let source = format!("{name}-source");
        self.config_folder(&source, &config(family, VOCABULARY));
        self.add_tokenizer(&source);
        self.succeed(&["init", &format!("{source}/config.json"), "-o", name]);
    }

    pub(crate) fn add_tokenizer(&self, folder: &str) {
        let to = self.path(&format!("{folder}/tokenizer.json"));
        fs::copy(fixture("tokenizer.json"), to).unwrap();
        let json = serde_json::json!({"eos_token": "<|im_end|>", "chat_template": TEMPLATE});
        self.write(&format!("{folder}/tokenizer_config.json"), json.to_string());
    }

    /// Runs the program and parses its output as JSON lines.
    #[track_caller]
    pub(crate) fn lines(&self, arguments: &[&str]) -> Vec<Map<String, Value>> {
        objects(&self.succeed(arguments).stdout)
    }

    /// Runs `grpo logprob` on `records` and returns its output.
    #[track_caller]
    pub(crate) fn logprob(
        &self,
        model: &str,
        records: &str,
        more: &[&str],
    ) -> Vec<Map<String, Value>> {
        self.write("scored.jsonl", records);
        self.lines(&[&["logprob", "--model", model, "--input", "scored.jsonl"], more].concat())
    }
}

/// Parses JSON lines.
#[track_caller]
pub(crate) fn objects(text: &str) -> Vec<Map<String, Value>> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns a list of numbers.
#[track_caller]
pub(crate) fn numbers(line: &Map<String, Value>, key: &str) -> Vec<f64> {
    let list = line.get(key).unwrap_or_else(|| panic!("no {key} in {line:?}"));
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Returns all log-probabilities in an output, line by line.
#[track_caller]
pub(crate) fn logprobs(lines: &[Map<String, Value>]) -> Vec<f64> {
    assert!(!lines.is_empty());
    lines.iter().flat_map(|line| numbers(line, "logprobs")).collect()
}

/// Returns the maximum absolute difference between two lists of equal length.
#[track_caller]
pub(crate) fn distance(one: &[f64], other: &[f64]) -> f64 {
    assert_eq!(one.len(), other.len());
    assert!(!one.is_empty());
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Returns the sorted names of all entries in a folder.
pub(crate) fn entries(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}
