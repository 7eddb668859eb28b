//! Metadata from `tokenizer.json`.

use std::collections::HashMap;

use serde_json::Value;

use crate::error::{Result, unfit, unsupported};
use crate::metadata::Metadata;
use crate::pre_tokenizer::PreTokenizer;
use crate::sentence_piece;
use crate::tokenizer_in::kind;

/// Adds the keys of a tokenizer to `metadata`, for a model with `vocabulary` logits.
pub(crate) fn describe(
    tokenizer: &Value,
    vocabulary: usize,
    metadata: &mut Metadata,
) -> Result<()> {
    let model = &tokenizer["model"];
    if model["type"] != "BPE" {
        return unsupported(format!(
            "the tokenizer is of type {}, which is not supported; supported is BPE",
            model["type"]
        ));
    }
    let mut tokens = Tokens::new(vocabulary);
    for (token, id) in model["vocab"].as_object().into_iter().flatten() {
        tokens.set(token, id, kind::NORMAL)?;
    }
    let is_sentence_piece = model["byte_fallback"] == true;
    if is_sentence_piece {
        tokens.mark(|token| is_byte(token).then_some(kind::BYTE));
        let unknown = model["unk_token"].as_str();
        tokens.mark(|token| (Some(token) == unknown).then_some(kind::UNKNOWN));
    }
    for added in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        let Some(content) = added["content"].as_str() else {
            return unfit("tokenizer.json: an added token has no content");
        };
        if tokens.kind(content) == Some(kind::UNKNOWN) {
            continue;
        }
        let kind = if added["special"] == true { kind::CONTROL } else { kind::USER_DEFINED };
        tokens.set(content, &added["id"], kind)?;
    }
    if let Some(unknown) = tokens.kinds.iter().position(|kind| *kind == kind::UNKNOWN) {
        metadata.set("tokenizer.ggml.unknown_token_id", unknown as u32);
    }
    let merges = merges(model)?;
    let added = added(&tokenizer["post_processor"]);
    for (name, token) in ["bos", "eos"].into_iter().zip(added) {
        metadata.set(format!("tokenizer.ggml.add_{name}_token"), token.is_some());
        // llama.cpp adds the token with this id, whatever the model's configuration calls it.
        match token.map(|token| tokens.ids.get(token)) {
            Some(Some(id)) => metadata.set(format!("tokenizer.ggml.{name}_token_id"), *id as u32),
            Some(None) => {
                return unfit(
                    "tokenizer.json: the post_processor adds a token that does not exist",
                );
            }
            None => {}
        }
    }
    let (texts, kinds) = tokens.finish();
    if is_sentence_piece {
        metadata.set("tokenizer.ggml.model", "llama");
        metadata.set("tokenizer.ggml.pre", "default");
        metadata.set("tokenizer.ggml.scores", sentence_piece::scores(&texts, &merges));
        metadata.set("tokenizer.ggml.add_space_prefix", adds_prefix(tokenizer)?);
    } else {
        let merges: Vec<String> =
            merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
        metadata.set("tokenizer.ggml.model", "gpt2");
        metadata.set("tokenizer.ggml.pre", PreTokenizer::from_json(tokenizer)?.name);
        metadata.set("tokenizer.ggml.merges", merges);
    }
    metadata.set("tokenizer.ggml.tokens", texts);
    metadata.set("tokenizer.ggml.token_type", kinds);
    Ok(())
}

/// Texts and kinds by id.
struct Tokens {
    texts: Vec<Option<String>>,
    kinds: Vec<i32>,
    ids: HashMap<String, usize>,
}

impl Tokens {
    fn new(count: usize) -> Self {
        Self { texts: vec![None; count], kinds: vec![kind::UNUSED; count], ids: HashMap::new() }
    }

    fn set(&mut self, token: &str, id: &Value, kind: i32) -> Result<()> {
        let count = self.texts.len();
        let Some(id) = id.as_u64().map(|id| id as usize).filter(|id| *id < count) else {
            return unfit(format!(
                "tokenizer.json: the token `{}` has the id {id}, but the model has only {count} tokens",
                token.escape_debug()
            ));
        };
        match &self.texts[id] {
            Some(other) if other != token => unfit(format!(
                "tokenizer.json: the tokens `{}` and `{}` both have the id {id}",
                other.escape_debug(),
                token.escape_debug()
            )),
            _ => {
                self.texts[id] = Some(token.to_owned());
                self.kinds[id] = kind;
                self.ids.insert(token.to_owned(), id);
                Ok(())
            }
        }
    }

    fn kind(&self, token: &str) -> Option<i32> {
        self.ids.get(token).map(|id| self.kinds[*id])
    }

    /// Changes the kind of those tokens for which `kind` has one.
    fn mark(&mut self, kind: impl Fn(&str) -> Option<i32>) {
        for (text, old) in self.texts.iter().zip(&mut self.kinds) {
            *old = text.as_deref().and_then(&kind).unwrap_or(*old);
        }
    }

    /// Returns texts and kinds. Ids without a token get a text that llama.cpp's converter gives them.
    fn finish(self) -> (Vec<String>, Vec<i32>) {
        let text =
            |(id, text): (usize, Option<String>)| text.unwrap_or_else(|| format!("[PAD{id}]"));
        (self.texts.into_iter().enumerate().map(text).collect(), self.kinds)
    }
}

/// Returns whether a token of SentencePiece stands for a byte, e.g. `<0x0A>`.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}

/// Returns the merges, which old files have as one text and newer ones as a pair.
fn merges(model: &Value) -> Result<Vec<(&str, &str)>> {
    let mut found = Vec::new();
    for merge in model["merges"].as_array().into_iter().flatten() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            other => other[0].as_str().zip(other[1].as_str()),
        };
        match pair {
            Some(pair) if !pair.0.is_empty() => found.push(pair),
            _ => return unfit(format!("tokenizer.json: {merge} is not a merge of two tokens")),
        }
    }
    Ok(found)
}

/// Returns the special tokens that a text begins and ends with.
fn added(post_processor: &Value) -> [Option<&str>; 2] {
    let single = std::slice::from_ref(post_processor);
    let steps = post_processor["processors"].as_array().map_or(single, Vec::as_slice);
    let templates = || steps.iter().filter_map(|step| step["single"].as_array());
    [
        templates().find_map(|parts| special_token(parts.first()?)),
        templates().find_map(|parts| special_token(parts.last()?)),
    ]
}

fn special_token(part: &Value) -> Option<&str> {
    part["SpecialToken"]["id"].as_str()
}

/// Returns whether a space is added before a text.
fn adds_prefix(tokenizer: &Value) -> Result<bool> {
    let pre_tokenizer = &tokenizer["pre_tokenizer"];
    if pre_tokenizer["type"] == "Metaspace" {
        return Ok(pre_tokenizer["prepend_scheme"] != "never");
    }
    let normalizer = &tokenizer["normalizer"];
    let single = std::slice::from_ref(normalizer);
    let steps = normalizer["normalizers"].as_array().map_or(single, Vec::as_slice);
    let replaces = steps.iter().any(|step| step["type"] == "Replace" && step["content"] == "▁");
    if pre_tokenizer.is_null() && replaces {
        return Ok(steps.iter().any(|step| step["type"] == "Prepend"));
    }
    unsupported(
        "tokenizer.json does not write spaces as SentencePiece does, so it has no counterpart in GGUF",
    )
}
