//! The first prompt as the model reads it.

use grpo_data::Codec;
use grpo_model::Policy;

use crate::train_file::prompts::Prompts;

/// Number of characters that are shown from the start and from the end of a long prompt. The end shows
/// how the template begins the answer.
const SHOWN: [usize; 2] = [120, 80];

/// Returns a line with the first prompt of a file and its length, and a note if the model has ids
/// without a token.
pub(super) fn lines(prompts: &Prompts, codec: &Codec, policy: &Policy) -> Vec<String> {
    let prompt = prompts.first_of_file().map(|prompt| {
        let text = prompt.text(|ids| codec.decode_all(ids));
        let tokens = prompt.ids.len();
        let unit = if tokens == 1 { "token" } else { "tokens" };
        format!("first prompt {} ({tokens} {unit})", shortened(&text))
    });
    let ids = policy.parts().0.description().vocabulary;
    let without_token = codec.token_count().map_or(0, |tokens| ids.saturating_sub(tokens));
    let note = (without_token > 0).then(|| {
        format!(
            "note         {without_token} of the model's {ids} ids have no token in {}; if one is sampled, it decodes to nothing",
            codec.file()
        )
    });
    prompt.into_iter().chain(note).collect()
}

/// Quotes a text and leaves out the middle of a long one.
fn shortened(text: &str) -> String {
    let characters = text.chars().count();
    let [start, end] = SHOWN;
    if characters <= start + end {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(start).collect();
    let tail: String = text.chars().skip(characters - end).collect();
    format!("{head:?} … {tail:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_prompts_are_cut_in_the_middle() {
        assert_eq!(shortened("a\n\"é\""), "\"a\\n\\\"é\\\"\"");
        let long = format!("{}{}", "a".repeat(1000), "é".repeat(1000));
        assert_eq!(shortened(&long), format!("\"{}\" … \"{}\"", "a".repeat(120), "é".repeat(80)));
        assert_eq!(shortened(&"é".repeat(200)), format!("\"{}\"", "é".repeat(200)));
    }
}
