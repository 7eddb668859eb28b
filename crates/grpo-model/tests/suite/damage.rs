//! Damaged and malicious files. Loading one returns either a model or an error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use grpo_data::{CounterRng, Purpose};
use grpo_model::{
    AdapterConfig, AdapterFolder, Dropout, LanguageModel, ModelFolder, TokenBatch, Transformer,
    write_adapter,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::adapters::{lora, shaken_adapter};
use crate::configs::{bert, config, formats, gpt2, llama, other, qwen3, with};
use crate::support::{Weights, safetensors_bytes, shaken, weights, write_model};

/// Generates random bytes and JSON values.
struct Dice {
    rng: CounterRng,
    drawn: u32,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.drawn += 1;
        self.rng.below([self.drawn, 0, 0, 7], n.max(1) as u64) as usize
    }

    fn value(&mut self) -> Value {
        let huge = [0, 1, 2, 3, 7, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 1 << 62, u64::MAX];
        match self.below(9) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(huge[self.below(huge.len())]),
            3 => json!(-1),
            4 => json!([1e-300, 0.5, 1e300, -2.5, 1e-45][self.below(5)]),
            5 => json!(
                [
                    "",
                    "gelu",
                    "linear",
                    "yarn",
                    "llama3",
                    "all-linear",
                    "(",
                    ".*",
                    "q_proj",
                    "(a{999}){999}"
                ][self.below(10)]
            ),
            6 => json!([]),
            7 => json!([self.below(5), "q_proj"]),
            _ => json!({"q_proj": self.below(5), "factor": 2, "rope_type": "yarn"}),
        }
    }

    /// Changes a random value within `json`.
    fn change(&mut self, json: &mut Value) {
        match json {
            Value::Object(map) if !map.is_empty() && self.below(8) > 0 => {
                let key = map.keys().nth(self.below(map.len())).unwrap().clone();
                match self.below(12) {
                    0 => drop(map.shift_remove(&key)),
                    1 => drop(map.insert("q_proj".to_owned(), json!(1))),
                    _ => self.change(map.get_mut(&key).unwrap()),
                }
            }
            Value::Array(values) if !values.is_empty() && self.below(4) > 0 => {
                let place = self.below(values.len());
                self.change(&mut values[place]);
            }
            other => *other = self.value(),
        }
    }

    fn change_bytes(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            // Modify the header more often than the tensor data.
            let within = if self.below(3) > 0 { bytes.len().min(3000) } else { bytes.len() };
            let place = self.below(within);
            match self.below(6) {
                0 => bytes.truncate(place),
                1 => drop(bytes.splice(place..place, [b'0'; 3])),
                2 if place < bytes.len() => drop(bytes.drain(place..(place + 9).min(bytes.len()))),
                3 if place < bytes.len() => {
                    bytes[place] = b"0129\"{}[],:\xff\x00\x7f"[self.below(14)]
                }
                4 if place < 8 && place < bytes.len() => bytes[place] = 0xff,
                _ if place < bytes.len() => bytes[place] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }

    /// Modifies a safetensors file. Changes either random bytes, or the header while keeping it
    /// valid JSON.
    fn change_tensors(&mut self, bytes: &mut Vec<u8>) {
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        if self.below(2) == 0 {
            return self.change_bytes(bytes);
        }
        let mut json: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
        self.change(&mut json);
        let text = json.to_string();
        let size = (text.len() as u64).to_le_bytes();
        *bytes = [&size, text.as_bytes(), &bytes[header..]].concat();
    }
}

/// A model directory with an adapter. The weights are in a single file or in two shards.
struct Subject {
    folder: TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
    base: Transformer,
}

impl Subject {
    fn new(json: &Value, sharded: bool) -> Self {
        let config = config(json);
        let base = shaken(&config, 1, &Device::flex());
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        write_model(at, &config, &base);
        if sharded {
            std::fs::remove_file(at.join("model.safetensors")).unwrap();
            let mut map = serde_json::Map::new();
            let (first, second): (Vec<_>, Vec<_>) =
                weights(&base).into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
            for (name, part) in [("1.safetensors", first), ("2.safetensors", second)] {
                let part: Weights = part.into_iter().map(|(_, tensor)| tensor).collect();
                map.extend(part.keys().map(|tensor| (tensor.clone(), name.into())));
                std::fs::write(at.join(name), safetensors_bytes(&part)).unwrap();
            }
            let index = json!({ "weight_map": map }).to_string();
            std::fs::write(at.join("model.safetensors.index.json"), index).unwrap();
        }
        let adapter = shaken_adapter(&base, 0.1, &Device::flex());
        write_adapter(&adapter, &AdapterConfig::new(&lora(0.1), &base, "base"), at, &base).unwrap();
        let mut files: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(at)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        Self { folder, files, base }
    }

    /// Modifies one file and loads the model. Returns whether it was rejected.
    fn try_one(&self, dice: &mut Dice) -> bool {
        let (path, whole) = &self.files[dice.below(self.files.len())];
        let mut bytes = whole.clone();
        let is_json = path.extension().is_some_and(|end| end == "json");
        if is_json && dice.below(4) > 0 {
            let mut json = serde_json::from_slice(&bytes).unwrap();
            (0..=dice.below(3)).for_each(|_| dice.change(&mut json));
            bytes = json.to_string().into_bytes();
        } else if is_json {
            dice.change_bytes(&mut bytes);
        } else {
            dice.change_tensors(&mut bytes);
        }
        std::fs::write(path, &bytes).unwrap();
        let of_adapter = path.file_name().unwrap().to_string_lossy().starts_with("adapter_");
        let result = catch_unwind(AssertUnwindSafe(|| match of_adapter {
            true => load_adapter(self.folder.path(), &self.base),
            false => load_model(self.folder.path()),
        }));
        let Ok(result) = result else {
            let kept = std::env::temp_dir().join("grpo-damage");
            std::fs::create_dir_all(&kept).unwrap();
            std::fs::write(kept.join(path.file_name().unwrap()), &bytes).unwrap();
            panic!("{} made it panic; it is kept in {}", path.display(), kept.display());
        };
        std::fs::write(path, whole).unwrap();
        match result {
            Ok(()) => false,
            Err(message) => {
                let name = path.file_name().unwrap().to_string_lossy();
                assert!(
                    !message.is_empty() && message.contains(&*self.folder.path().to_string_lossy()),
                    "{name}: {message}"
                );
                true
            }
        }
    }
}

/// Loads a model and runs it.
fn load_model(folder: &Path) -> Result<(), String> {
    let model = ModelFolder::load(folder, &formats(), &Device::flex())
        .map_err(|error| error.to_string())?
        .model;
    if model.context_length() >= 2 && model.vocabulary_size() >= 2 {
        model.hidden(&TokenBatch::from_iter([[1, 0].as_slice()]), &mut Dropout::off());
    }
    Ok(())
}

fn load_adapter(folder: &Path, base: &Transformer) -> Result<(), String> {
    let loaded =
        AdapterFolder::load(folder, base, &Device::flex()).map_err(|error| error.to_string())?;
    base.merged(&loaded.adapter);
    Ok(())
}

/// The environment variable `GRPO_DAMAGE` sets the number of changes to try. The default is 400.
#[test]
fn no_change_of_a_file_makes_it_panic() {
    let tries: u32 = std::env::var("GRPO_DAMAGE").map_or(400, |n| n.parse().unwrap());
    let yarn = json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.7}});
    let llama3 = json!({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}});
    let subjects = [
        Subject::new(&with(llama(), yarn), false),
        Subject::new(&with(qwen3(), llama3), true),
        Subject::new(&gpt2(), false),
        Subject::new(&bert(), false),
        Subject::new(&other(), true),
    ];
    let seed = std::env::var("GRPO_DAMAGE_SEED").map_or(1, |n| n.parse().unwrap());
    let mut dice = Dice { rng: CounterRng::new(seed, Purpose::DATA_ORDER), drawn: 0 };
    let refused = (0..tries).filter(|i| subjects[*i as usize % 5].try_one(&mut dice)).count();
    assert!(
        refused > tries as usize / 3,
        "{refused} of {tries} were refused: the test shows little"
    );
}
