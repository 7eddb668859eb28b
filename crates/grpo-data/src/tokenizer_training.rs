//! Trains tokenizers.

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::{AddedToken, Tokenizer};

use crate::DataError;
use crate::caught::caught;
use crate::error::Shortened;

/// Names of the files of [`train_tokenizer`].
pub const TOKENIZER_FILES: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// Ends a document. This is the token with id 0.
const END_OF_TEXT: &str = "<|endoftext|>";
/// Begins a conversation turn.
const TURN_BEGIN: &str = "<|im_start|>";
/// Ends a conversation turn and a training text.
const TURN_END: &str = "<|im_end|>";

/// Number of ids that are independent of the training text: 256 bytes and three special tokens.
pub const SMALLEST_VOCABULARY: usize = 256 + 3;

/// Maximum vocabulary size. The trainer allocates tables for the requested size in advance.
/// Existing models have at most 260,000 ids.
const LARGEST_VOCABULARY: usize = 1_000_000;

/// The ChatML template that Qwen models use. Each message with its role is enclosed by two special
/// tokens.
const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Maximum length of a word in bytes.
const LONGEST_WORD: usize = 1 << 16;

/// Returns the length in bytes of the longest run of characters of the same class, which is an
/// upper bound for the words of the pre-tokenizer.
fn longest_word(text: &str) -> usize {
    let kind = |c: char| (c.is_alphabetic(), c.is_numeric(), c.is_whitespace());
    let (mut longest, mut length, mut before) = (0, 0, None);
    for character in text.chars() {
        length = if before == Some(kind(character)) { length } else { 0 } + character.len_utf8();
        before = Some(kind(character));
        longest = longest.max(length);
    }
    longest
}

/// Trains a tokenizer and returns its files by name, see [`TOKENIZER_FILES`]. The second one has a chat
/// template.
///
/// The algorithm is byte-pair encoding (Sennrich et al. 2016) on bytes, as in GPT-2. Any text can
/// be encoded, and the most frequent pairs in `texts` are merged until there are `vocabulary` ids.
/// The result does not depend on the order of `texts`.
///
/// # Errors
/// Returns an error if `vocabulary` is smaller than [`SMALLEST_VOCABULARY`] or larger than `texts`
/// allows.
pub fn train_tokenizer<'a>(
    texts: impl Iterator<Item = &'a str> + Send,
    vocabulary: usize,
) -> Result<[(&'static str, String); 2], DataError> {
    let bad = |reason: String| DataError::Invalid(format!("cannot train a tokenizer: {reason}"));
    if vocabulary > LARGEST_VOCABULARY {
        return Err(bad(format!(
            "a vocabulary of {vocabulary} is too large; expected at most {LARGEST_VOCABULARY}"
        )));
    }
    if vocabulary < SMALLEST_VOCABULARY {
        return Err(bad(format!(
            "a vocabulary of {vocabulary} is too small: the bytes and the special tokens alone require {SMALLEST_VOCABULARY}"
        )));
    }
    let texts = texts.collect::<Vec<&str>>();
    if let Some(text) = texts.iter().find(|text| longest_word(text) > LONGEST_WORD) {
        return Err(bad(format!(
            "the text `{}` has a word of {} bytes; expected words of at most {LONGEST_WORD} bytes, so split the word or remove the text",
            Shortened(text),
            longest_word(text)
        )));
    }
    let special = [END_OF_TEXT, TURN_BEGIN, TURN_END].map(|token| AddedToken::from(token, true));
    let trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .show_progress(false)
        .special_tokens(special.to_vec())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let trained = caught(move || {
        let mut tokenizer = Tokenizer::new(BPE::default());
        // No space is added in front of a text, because it may continue another text.
        let bytes = ByteLevel::new(false, true, true);
        tokenizer.with_pre_tokenizer(Some(bytes));
        tokenizer.with_decoder(Some(bytes));
        let mut tokenizer = tokenizer.into_inner();
        let mut trainer = TrainerWrapper::from(trainer);
        tokenizer.train(&mut trainer, texts.into_iter()).map_err(|error| error.to_string())?;
        let size = tokenizer.get_vocab_size(true);
        Ok((size, tokenizer.to_string(true).map_err(|error| error.to_string())?))
    });
    let (size, json) = trained.flatten().map_err(bad)?;
    if size < vocabulary {
        return Err(bad(format!(
            "the text yields only {size} of the {vocabulary} requested tokens; provide more text, or request at most {size}"
        )));
    }
    let config = serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "chat_template": CHAT_TEMPLATE,
    });
    let config = serde_json::to_string_pretty(&config).expect("strings alone") + "\n";
    let [tokenizer_name, config_name] = TOKENIZER_FILES;
    Ok([(tokenizer_name, json + "\n"), (config_name, config)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChatOptions, ChatTemplate, Message, SpecialIds, TextTokenizer};

    const TEXTS: [&str; 3] = [
        "the bread is in the oven, the oven is hot",
        "the bread rises in the warm kitchen",
        "is the bread in the oven?",
    ];

    #[test]
    fn what_is_trained_reads_texts_and_conversations() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in train_tokenizer(TEXTS.into_iter(), 280).unwrap() {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let tokenizer = TextTokenizer::from_file(&folder.path().join("tokenizer.json")).unwrap();
        assert_eq!(tokenizer.len(), 280);
        // The most frequent word is a single token. Unseen text falls back to bytes.
        assert_eq!(tokenizer.encode(" the").unwrap().len(), 1);
        for text in ["the bread", "Zürich 漢 😀\n", " <b>"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        }
        let ids = SpecialIds::from_folder(folder.path(), Some(&tokenizer)).unwrap();
        assert_eq!((ids.eos, ids.learned_end, ids.pad), (vec![2], Some(2), Some(0)));
        let template = ChatTemplate::from_folder(folder.path()).unwrap().unwrap();
        let message = Message::new("user", "hot?");
        let text = template.render(&[message], &ChatOptions::for_answer(None));
        let expected = "<|im_start|>user\nhot?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(text.unwrap(), expected);
        assert_eq!(tokenizer.encode(expected).unwrap()[0], 1);
    }

    #[test]
    fn the_order_of_texts_does_not_count() {
        let forwards = train_tokenizer(TEXTS.into_iter(), 290).unwrap();
        assert_eq!(train_tokenizer(TEXTS.into_iter().rev(), 290).unwrap(), forwards);
        assert_ne!(train_tokenizer(TEXTS[..2].iter().copied(), 290).unwrap(), forwards);
    }

    #[test]
    fn refuses_an_invalid_vocabulary() {
        let fault = |size| train_tokenizer(TEXTS.into_iter(), size).unwrap_err().to_string();
        assert_eq!(
            fault(258),
            "cannot train a tokenizer: a vocabulary of 258 is too small: the bytes and the special tokens alone require 259"
        );
        assert_eq!(
            fault(1_000_001),
            "cannot train a tokenizer: a vocabulary of 1000001 is too large; expected at most 1000000"
        );
        assert!(
            fault(5000).ends_with(
                " of the 5000 requested tokens; provide more text, or request at most 292"
            ),
            "{}",
            fault(5000)
        );
    }
}
