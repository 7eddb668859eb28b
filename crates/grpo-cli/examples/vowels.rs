//! A custom task that requires no changes to other crates: words with many vowels.
//!
//! The task defines a codec (letters), a `[data]` format (`.words`, one word per line), a
//! `[reward]` type (`vowels`) and the measures for the before/after table. The program provides
//! everything else. `pretrain` creates a model that spells the words of a file, `train` teaches it
//! to prefer words with more vowels, and `sample`, `report` and `audit` work for both.
//!
//! ```text
//! cargo run --release --example vowels -- pretrain spell.toml
//! cargo run --release --example vowels -- train vowels.toml
//! ```
#![allow(clippy::disallowed_methods, reason = "an example opens its own files")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::schema::Keys;
use grpo_data::{
    Codec, CodecKind, ConfigFault, DataError, Example, Examples, Prompt, SpecialIds, TextCodec,
    read_text, split_draw,
};
use grpo_rewards::{Outcome, PartName, Reward, RewardInput, RewardKind, RewardSpec, Scored};
use grpo_task::data::{DataFormat, DataReader, NewCodec, ReadExamples, ReadFrom, ReadPrompts};
use grpo_task::task::{Measures, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

fn main() -> ExitCode {
    grpo_program::main(&[&Words], None)
}

/// A task that generates words.
struct Words;

impl Task for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn rewards(&self) -> Vec<RewardKind> {
        vec![RewardKind::from_settings::<VowelReward>("vowels")]
    }

    fn codecs(&self) -> Vec<CodecKind> {
        vec![CodecKind { file: LETTERS_FILE, read: |path| Ok(Arc::new(Letters::read(path)?)) }]
    }

    fn data_formats(&self) -> Vec<DataFormat> {
        vec![DataFormat {
            holds: "words",
            endings: &["words"],
            keys: &[],
            schema: Keys::none(),
            has_prompts: true,
            is_selected: is_of_words,
            parse: |_| Ok(Arc::new(WordFile)),
        }]
    }

    fn measures(&self, codec: &Codec) -> Option<Measures> {
        codec.own::<Letters>()?;
        Some(Measures {
            samples: "words",
            diversity: &[],
            measure: |words, _| {
                let mean = |of: fn(&str) -> f64| {
                    words.iter().map(|word| of(word)).sum::<f64>() / words.len() as f64
                };
                vec![
                    ("share of vowels", mean(share_of_vowels)),
                    ("letters", mean(|word| word.chars().count() as f64)),
                ]
            },
        })
    }
}

/// Fraction of vowels in a word. Words that are too short score 0.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VowelReward {
    /// Minimum number of letters.
    #[serde(default = "three")]
    min_letters: usize,
}

fn three() -> usize {
    3
}

impl RewardSpec for VowelReward {
    fn check(&self) -> Result<(), ConfigFault> {
        match self.min_letters {
            0 => {
                let sentence = "reward.min_letters = 0 rewards empty words; use 1 or more";
                Err(ConfigFault::from_sentence("min_letters", sentence))
            }
            _ => Ok(()),
        }
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        Ok(Arc::new(self.clone()))
    }
}

impl Reward for VowelReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let score = |sample: &RewardInput| {
            let long_enough = sample.text.chars().count() >= self.min_letters;
            let share = if long_enough { share_of_vowels(&sample.text) } else { 0.0 };
            Outcome::Scored(Scored::new(vec![(1.0, share)], vec![("vowels".into(), share)]))
        };
        samples.iter().map(score).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["vowels".into()]
    }
}

fn share_of_vowels(word: &str) -> f64 {
    let vowels = word.chars().filter(|letter| "aeiou".contains(*letter)).count();
    vowels as f64 / word.chars().count().max(1) as f64
}

/// The letters of a model. Id 0 marks the beginning and end of a word, and the letters follow.
#[derive(Debug)]
struct Letters(Vec<char>);

const LETTERS_FILE: &str = "letters.json";
const MARK: u32 = 0;

impl Letters {
    fn of_words(words: &str) -> Self {
        let mut letters: Vec<char> = words.chars().filter(|c| !c.is_whitespace()).collect();
        letters.sort_unstable();
        letters.dedup();
        Self(letters)
    }

    fn read(path: &Path) -> Result<Self, DataError> {
        let letters: String = serde_json::from_str(&read_text(path)?)
            .map_err(|error| DataError::Invalid(format!("{}: {error}", path.display())))?;
        Ok(Self(letters.chars().collect()))
    }
}

impl TextCodec for Letters {
    fn file(&self) -> &'static str {
        LETTERS_FILE
    }

    fn to_json(&self) -> String {
        Value::String(self.0.iter().collect()).to_string()
    }

    fn token_count(&self) -> usize {
        self.0.len() + 1
    }

    fn special(&self) -> SpecialIds {
        SpecialIds { bos: Some(MARK), eos: vec![MARK], learned_end: Some(MARK), pad: None }
    }

    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError> {
        Ok([vec![MARK], self.encode_completion(text)?].concat())
    }

    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let id = |letter: char| {
            let position = self.0.iter().position(|known| *known == letter);
            let unknown = || format!("{letter:?} of {text:?} is not a letter of the model").into();
            position.map(|position| position as u32 + 1).ok_or_else(|| DataError::Task(unknown()))
        };
        text.chars().map(id).collect()
    }

    fn decode(&self, ids: &[u32]) -> String {
        let letters = ids.iter().filter(|id| **id != MARK);
        letters.map(|id| self.0[*id as usize - 1]).collect()
    }
}

/// A `.words` file. Each line is a word to learn, or the beginning of words to sample.
#[derive(Debug)]
struct WordFile;

fn is_of_words(data: &Table) -> bool {
    data.get("file").and_then(Value::as_str).is_some_and(|file| file.ends_with(".words"))
}

impl DataReader for WordFile {
    fn nouns(&self) -> [&'static str; 2] {
        ["word", "words"]
    }

    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts> {
        let mut read = ReadPrompts {
            prompts: Vec::new(),
            places: Vec::new(),
            report: String::new(),
            files: vec![from.file.to_owned()],
        };
        for (word, line) in read_text(from.file)?.lines().zip(1..) {
            let ids = from.codec.prompt(
                &grpo_data::PromptSource::Text(word.to_owned()),
                &grpo_data::ChatOptions::for_answer(None),
            )?;
            if ids.len() <= from.longest {
                read.places.push(format!("{}:{line}", from.file.display()));
                read.prompts.push(Prompt::of_ids(read.prompts.len() as u32, ids));
            }
        }
        anyhow::ensure!(!read.prompts.is_empty(), "{} has no words", from.file.display());
        read.report = format!("{} beginnings", read.prompts.len());
        Ok(read)
    }

    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples> {
        let mut examples = Examples::default();
        for word in read_text(from.file)?.lines() {
            let word_source = grpo_data::CompletionSource::Text(word.to_owned());
            let ids = [vec![MARK], from.codec.completion(&word_source)?, vec![MARK]].concat();
            // The split of a word depends only on the word and the seed.
            let draw = f64::from(split_draw(seed, word.as_bytes())[0]) / 2f64.powi(32);
            let side = match draw < validation_fraction {
                true => &mut examples.validation,
                false => &mut examples.train,
            };
            if ids.len() <= from.longest {
                side.push(Example::of_all(ids));
            }
        }
        let Examples { train, validation, .. } = &examples;
        let report = format!("{} for training, {} for validation", train.len(), validation.len());
        let files = vec![("words", from.file.to_owned())];
        Ok(ReadExamples { examples, augmentation: None, report: vec![report], files })
    }

    fn new_codec(&self) -> Option<NewCodec<'_>> {
        Some(Box::new(|file| Ok(Codec::from_text_codec(Letters::of_words(&read_text(file)?)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPELL: &str = r#"
seed = 1
[data]
validation_fraction = 0.1
[model]
n_layer = 1
n_head = 2
n_embd = 16
block_size = 16
[pretrain]
epochs = 2
batch_size = 8
[pretrain.optimizer]
learning_rate = 1e-2
"#;

    const GAIN: &str = r#"
seed = 1
[train]
steps = 30
prompts_per_step = 4
group_size = 8
[sampling]
max_new_tokens = 8
[reward]
type = "vowels"
[optimizer]
learning_rate = 1e-2
[eval]
samples = 20
"#;

    /// Trains a model on a file of words, then increases the number of vowels.
    #[test]
    fn words_gain_vowels() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let letters = ['b', 'd', 'k', 'l', 'm', 'n', 'r', 's', 'a', 'e', 'i', 'o', 'u'];
        let word = |i: usize| -> String {
            (0..3 + i % 4).map(|k| letters[(7 * i + 5 * k + i * k) % letters.len()]).collect()
        };
        std::fs::write(path("all.words"), (0..120).map(word).collect::<Vec<_>>().join("\n"))
            .unwrap();
        std::fs::write(path("some.words"), "b\nk\nl\nm\nn\nr\ns\nd").unwrap();
        let write = |name: &str, settings: &str, run: &str, model: &str, words: &str| {
            let head = format!("run = {:?}\n{model}\n", path(run));
            let data = format!("[data]\nfile = {:?}", path(words));
            let settings = match settings.contains("[data]") {
                true => settings.replace("[data]", &data),
                false => format!("{settings}\n{data}\n"),
            };
            std::fs::write(path(name), head + &settings).unwrap();
        };
        write("spell.toml", SPELL, "spelling", "", "all.words");
        let model = format!("model = {:?}", path("spelling/model"));
        write("gain.toml", GAIN, "gaining", &model, "some.words");
        for (command, file) in [("pretrain", "spell.toml"), ("train", "gain.toml")] {
            grpo_program::run(&[&Words], ["vowels", command, &path(file)]).unwrap();
        }
        let metrics = std::fs::read_to_string(path("gaining/metrics.jsonl")).unwrap();
        let reward = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["reward"].as_f64().unwrap()
        };
        let rewards: Vec<f64> = metrics.lines().map(reward).collect();
        let mean = |some: &[f64]| some.iter().sum::<f64>() / some.len() as f64;
        let (first, last) = (mean(&rewards[..5]), mean(&rewards[25..]));
        assert!(last > first + 0.1, "{first} to {last}");

        let unknown = std::fs::read_to_string(path("gain.toml")).unwrap();
        std::fs::write(path("other.toml"), unknown.replace("\"vowels\"", "\"vowel\"")).unwrap();
        let refused = grpo_program::run(&[&Words], ["vowels", "train", &path("other.toml")]);
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.ends_with(
                "expected one of answer, command, composite, http, pattern, python, vowels"
            ),
            "{refused}"
        );
    }
}
