//! `tokenizer.json` and `tokenizer_config.json` from metadata.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::error::{Result, damaged, unsupported};
use crate::metadata::Metadata;
use crate::pre_tokenizer::PreTokenizer;
use crate::sentence_piece;

/// Kinds of tokens in `tokenizer.ggml.token_type`.
pub(crate) mod kind {
    pub(crate) const NORMAL: i32 = 1;
    pub(crate) const UNKNOWN: i32 = 2;
    pub(crate) const CONTROL: i32 = 3;
    pub(crate) const USER_DEFINED: i32 = 4;
    pub(crate) const UNUSED: i32 = 5;
    pub(crate) const BYTE: i32 = 6;
}

/// The two files of a tokenizer.
#[derive(Debug)]
pub(crate) struct TokenizerFiles {
    pub(crate) tokenizer: Value,
    pub(crate) config: Value,
}

/// The vocabulary: texts and kinds of tokens by id.
struct Vocabulary<'a> {
    tokens: Vec<&'a str>,
    kinds: Vec<i32>,
}

/// Returns the tokenizer that the metadata describes.
pub(crate) fn tokenizer(metadata: &Metadata) -> Result<TokenizerFiles> {
    let Some(model) = metadata.text("tokenizer.ggml.model")? else {
        return damaged(
            "the metadata key `tokenizer.ggml.model` is missing, so it has no tokenizer",
        );
    };
    let vocabulary = Vocabulary::read(metadata)?;
    match model {
        "gpt2" => byte_level(metadata, &vocabulary),
        "llama" => sentence_piece(metadata, &vocabulary),
        other => unsupported(format!(
            "its tokenizer is of type `{}`, which is not supported; supported are gpt2 and llama",
            other.escape_debug()
        )),
    }
}

impl<'a> Vocabulary<'a> {
    fn read(metadata: &'a Metadata) -> Result<Self> {
        let Some(tokens) = metadata.texts("tokenizer.ggml.tokens")? else {
            return damaged("the metadata key `tokenizer.ggml.tokens` is missing");
        };
        let kinds = match metadata.array("tokenizer.ggml.token_type")? {
            None => vec![kind::NORMAL; tokens.len()],
            Some(kinds) => {
                let read = |kind: &crate::MetadataValue| kind.as_u64().map(|kind| kind as i32);
                kinds.iter().map(read).collect::<Option<_>>().unwrap_or_default()
            }
        };
        if kinds.len() != tokens.len() {
            return damaged(format!(
                "the metadata key `tokenizer.ggml.token_type` does not have one whole number for each of the {} tokens",
                tokens.len()
            ));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = tokens.iter().find(|token| !seen.insert(**token)) {
            return damaged(format!("the token `{}` occurs twice", twice.escape_debug()));
        }
        Ok(Self { tokens, kinds })
    }

    /// Returns the token with the id that a key has.
    fn special(&self, metadata: &Metadata, name: &str) -> Result<Option<(u64, &'a str)>> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(id) = metadata.size(&key)? else { return Ok(None) };
        match self.tokens.get(id as usize) {
            Some(token) => Ok(Some((id, token))),
            None => damaged(format!(
                "the metadata key `{key}` is {id}, but there are only {} tokens",
                self.tokens.len()
            )),
        }
    }

    /// Returns ids by their text. Ids for which a converter invented the text have none.
    fn ids(&self) -> Map<String, Value> {
        let all = self.tokens.iter().zip(&self.kinds).enumerate();
        let is_padding = |id: usize, token: &str, kind: i32| {
            kind == kind::UNUSED && token == format!("[PAD{id}]")
        };
        all.filter(|(id, (token, kind))| !is_padding(*id, token, **kind))
            .map(|(id, (token, _))| ((*token).to_owned(), id.into()))
            .collect()
    }

    /// Returns the tokens that are found in texts before anything else.
    fn added(&self) -> Vec<Value> {
        let all = self.tokens.iter().zip(&self.kinds).enumerate();
        // tokenizers refuses an empty one.
        let added = all.filter(|(_, (token, kind))| {
            matches!(**kind, kind::CONTROL | kind::USER_DEFINED) && !token.is_empty()
        });
        let entry = |(id, (token, kind)): (usize, (&&str, &i32))| {
            json!({
                "id": id,
                "content": token,
                "single_word": false,
                "lstrip": false,
                "rstrip": false,
                "normalized": false,
                "special": *kind == kind::CONTROL,
            })
        };
        added.map(entry).collect()
    }

    /// Returns the files, given the parts that depend on the type of tokenizer.
    fn files(&self, metadata: &Metadata, parts: Parts) -> Result<TokenizerFiles> {
        let flag = |name: &str| metadata.flag(&format!("tokenizer.ggml.{name}"));
        let adds_bos = flag("add_bos_token")?.unwrap_or(parts.adds_bos);
        let adds_eos = flag("add_eos_token")?.unwrap_or(false);
        let mut config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": false,
            "add_bos_token": adds_bos,
            "add_eos_token": adds_eos,
        });
        let mut wrapped = [None, None];
        for (name, key) in [
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        ] {
            let Some((id, token)) = self.special(metadata, key)? else { continue };
            config[name] = token.into();
            match key {
                "bos" if adds_bos => wrapped[0] = Some((id, token)),
                "eos" if adds_eos => wrapped[1] = Some((id, token)),
                _ => {}
            }
        }
        let tokenizer = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added(),
            "normalizer": parts.normalizer,
            "pre_tokenizer": parts.pre_tokenizer,
            "post_processor": template(wrapped),
            "decoder": parts.decoder,
            "model": parts.model,
        });
        Ok(TokenizerFiles { tokenizer, config })
    }
}

/// What depends on the type of tokenizer.
struct Parts {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    model: Value,
    adds_bos: bool,
}

/// Returns the `post_processor` that adds a begin and an end token.
fn template(wrapped: [Option<(u64, &str)>; 2]) -> Value {
    if wrapped == [None, None] {
        return Value::Null;
    }
    let special = |token: &str, sequence: u32| json!({ "SpecialToken": { "id": token, "type_id": sequence } });
    let around = |name: &str, sequence: u32| {
        let text = json!({ "Sequence": { "id": name, "type_id": sequence } });
        let [before, after] = wrapped.map(|token| token.map(|(_, token)| special(token, sequence)));
        before.into_iter().chain([text]).chain(after).collect::<Vec<Value>>()
    };
    let tokens = wrapped.iter().flatten().map(|(id, token)| {
        ((*token).to_owned(), json!({ "id": token, "ids": [id], "tokens": [token] }))
    });
    let (single, pair) = (around("A", 0), [around("A", 0), around("B", 1)].concat());
    json!({
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": tokens.collect::<Map<String, Value>>(),
    })
}

fn byte_level(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<TokenizerFiles> {
    let pre = PreTokenizer::from_name(metadata.text("tokenizer.ggml.pre")?)?;
    let Some(merges) = metadata.texts("tokenizer.ggml.merges")? else {
        return damaged("the metadata key `tokenizer.ggml.merges` is missing");
    };
    let ids = vocabulary.ids();
    let mut pairs = Vec::with_capacity(merges.len());
    for merge in merges {
        // A token may begin with the space, so it is sought behind the first character.
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let pair = merge[first..]
            .split_once(' ')
            .map(|(_, right)| (&merge[..merge.len() - right.len() - 1], right));
        let known = |(left, right): &(&str, &str)| {
            let merged = format!("{left}{right}");
            [*left, *right, &merged].iter().all(|token| ids.contains_key(*token))
        };
        match pair.filter(known) {
            Some((left, right)) => pairs.push(json!([left, right])),
            None => {
                return damaged(format!(
                    "the merge `{}` in `tokenizer.ggml.merges` is not a merge of two tokens into one",
                    merge.escape_debug()
                ));
            }
        }
    }
    let (normalizer, pre_tokenizer) = pre.components();
    let parts = Parts {
        normalizer,
        pre_tokenizer,
        decoder: json!({
            "type": "ByteLevel",
            "add_prefix_space": true,
            "trim_offsets": true,
            "use_regex": true,
        }),
        model: json!({
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": pre.ignores_merges,
            "vocab": ids,
            "merges": pairs,
        }),
        adds_bos: pre.adds_bos,
    };
    vocabulary.files(metadata, parts)
}

/// A SentencePiece vocabulary as a BPE tokenizer, as transformers converts it: merges follow from the
/// scores, unknown characters become bytes.
fn sentence_piece(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<TokenizerFiles> {
    let numbers = metadata.array("tokenizer.ggml.scores")?.unwrap_or_default();
    let scores: Option<Vec<f32>> =
        numbers.iter().map(|score| score.as_f64().map(|score| score as f32)).collect();
    let Some(scores) = scores.filter(|scores| {
        scores.len() == vocabulary.tokens.len() && scores.iter().all(|score| score.is_finite())
    }) else {
        return damaged(format!(
            "the metadata key `tokenizer.ggml.scores` does not have one finite number for each of the {} tokens",
            vocabulary.tokens.len()
        ));
    };
    let tokens = &vocabulary.tokens;
    let is_merged = |id: usize| vocabulary.kinds[id] == kind::NORMAL;
    let merges: Vec<Value> = sentence_piece::merges(tokens, &scores, is_merged)
        .into_iter()
        .map(|(left, right)| json!([tokens[left], tokens[right]]))
        .collect();
    let has_prefix = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let unknown = match vocabulary.special(metadata, "unknown")? {
        Some((_, token)) => Some(token),
        None => {
            vocabulary.kinds.iter().position(|kind| *kind == kind::UNKNOWN).map(|id| tokens[id])
        }
    };
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if has_prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let parts = Parts {
        normalizer: Value::Null,
        pre_tokenizer: json!({
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": if has_prefix { "first" } else { "never" },
            "split": false,
        }),
        decoder: json!({ "type": "Sequence", "decoders": decoders }),
        model: json!({
            "type": "BPE",
            "dropout": null,
            "unk_token": unknown,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": true,
            "ignore_merges": false,
            "vocab": vocabulary.ids(),
            "merges": merges,
        }),
        adds_bos: true,
    };
    vocabulary.files(metadata, parts)
}
