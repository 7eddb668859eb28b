//! How byte-level tokenizers split a text before they merge bytes: llama.cpp's names for it, and the
//! components of `tokenizer.json`.

use serde_json::{Value, json};

use crate::error::{Result, unsupported};

/// A way to split texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreTokenizer {
    /// llama.cpp's name, for writing.
    pub(crate) name: &'static str,
    /// Other names of the same.
    others: &'static [&'static str],
    split: Split,
    /// Whether texts are normalised to NFC first.
    nfc: bool,
    /// Whether a whole word that is a token needs no merges.
    pub(crate) ignores_merges: bool,
    /// Whether a text begins with the begin token, unless the metadata says otherwise.
    pub(crate) adds_bos: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// The pattern of GPT-2, which tokenizers has built in.
    Gpt2,
    /// Single digits, then the pattern of GPT-2.
    DigitsThenGpt2,
    Pattern(&'static str),
}

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The known ways. The first that fits is written.
const KNOWN: [PreTokenizer; 5] = [
    PreTokenizer {
        name: "gpt-2",
        // A file without a name is read like these, as transformers does.
        others: &["default", "gpt2", "phi-2", "mpt", "olmo", "jais", "exaone4"],
        split: Split::Gpt2,
        nfc: false,
        ignores_merges: false,
        adds_bos: false,
    },
    PreTokenizer {
        name: "smollm",
        others: &["starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        split: Split::DigitsThenGpt2,
        nfc: false,
        ignores_merges: false,
        adds_bos: false,
    },
    PreTokenizer {
        name: "qwen2",
        others: &["deepseek-r1-qwen", "megrez", "kormo"],
        split: Split::Pattern(QWEN2),
        nfc: true,
        ignores_merges: false,
        adds_bos: false,
    },
    PreTokenizer {
        name: "llama-bpe",
        others: &["llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        split: Split::Pattern(LLAMA3),
        nfc: false,
        ignores_merges: true,
        adds_bos: true,
    },
    PreTokenizer {
        name: "tekken",
        others: &[],
        split: Split::Pattern(TEKKEN),
        nfc: false,
        ignores_merges: true,
        adds_bos: true,
    },
];

impl PreTokenizer {
    /// Returns the way with llama.cpp's name. A file without one splits as GPT-2.
    pub(crate) fn from_name(name: Option<&str>) -> Result<Self> {
        let name = name.unwrap_or("default");
        let known =
            KNOWN.into_iter().find(|known| known.name == name || known.others.contains(&name));
        match known {
            Some(known) => Ok(known),
            None => unsupported(format!(
                "the metadata key `tokenizer.ggml.pre` is `{}`, which is not supported; supported are {}",
                name.escape_debug(),
                KNOWN.map(|known| known.name).join(", ")
            )),
        }
    }

    /// Returns the way that a `tokenizer.json` has.
    pub(crate) fn from_json(tokenizer: &Value) -> Result<Self> {
        let found = split(&tokenizer["pre_tokenizer"]);
        match KNOWN.into_iter().find(|known| Some(known.split) == found) {
            Some(known) => Ok(known),
            None => unsupported(
                "the pre_tokenizer of tokenizer.json has no name in llama.cpp that is known here; supported are those of GPT-2, SmolLM, Qwen 2 and 3, Llama 3 and Mistral's Tekken",
            ),
        }
    }

    /// Returns `normalizer` and `pre_tokenizer` of a `tokenizer.json`.
    pub(crate) fn components(self) -> (Value, Value) {
        let byte_level = |use_regex: bool| {
            json!({
                "type": "ByteLevel",
                "add_prefix_space": false,
                "trim_offsets": true,
                "use_regex": use_regex,
            })
        };
        let sequence = |steps: [Value; 2]| json!({ "type": "Sequence", "pretokenizers": steps });
        let split = match self.split {
            Split::Gpt2 => byte_level(true),
            Split::DigitsThenGpt2 => {
                sequence([json!({ "type": "Digits", "individual_digits": true }), byte_level(true)])
            }
            Split::Pattern(pattern) => sequence([
                json!({
                    "type": "Split",
                    "pattern": { "Regex": pattern },
                    "behavior": "Isolated",
                    "invert": false,
                }),
                byte_level(false),
            ]),
        };
        (if self.nfc { json!({ "type": "NFC" }) } else { Value::Null }, split)
    }
}

/// Returns how a `pre_tokenizer` splits texts, if it is one of the known ways.
fn split(pre_tokenizer: &Value) -> Option<Split> {
    let single = std::slice::from_ref(pre_tokenizer);
    let steps = pre_tokenizer["pretokenizers"].as_array().map_or(single, Vec::as_slice);
    let (last, before) = steps.split_last()?;
    if last["type"] != "ByteLevel" || last["add_prefix_space"] == true {
        return None;
    }
    let uses_pattern = last["use_regex"] != false;
    match before {
        [] if uses_pattern => Some(Split::Gpt2),
        [digits] if uses_pattern && digits["type"] == "Digits" => {
            (digits["individual_digits"] == true).then_some(Split::DigitsThenGpt2)
        }
        [split] if !uses_pattern && split["type"] == "Split" => {
            let pattern = split["pattern"]["Regex"].as_str()?;
            let fits = split["behavior"] == "Isolated" && split["invert"] != true;
            let patterns = [QWEN2, LLAMA3, TEKKEN].into_iter();
            patterns.filter(|_| fits).find(|known| *known == pattern).map(Split::Pattern)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ways_are_written_and_read() {
        for known in KNOWN {
            let (_, pre_tokenizer) = known.components();
            assert_eq!(
                PreTokenizer::from_json(&json!({ "pre_tokenizer": pre_tokenizer })).unwrap(),
                known
            );
            for name in known.others {
                assert_eq!(PreTokenizer::from_name(Some(name)).unwrap(), known);
            }
        }
        assert_eq!(PreTokenizer::from_name(None).unwrap().name, "gpt-2");
        let error = PreTokenizer::from_name(Some("poro-chat")).unwrap_err().to_string();
        assert!(
            error.starts_with("the metadata key `tokenizer.ggml.pre` is `poro-chat`"),
            "{error}"
        );
        let other = json!({ "pre_tokenizer": { "type": "Whitespace" } });
        assert!(PreTokenizer::from_json(&other).is_err());
    }
}
