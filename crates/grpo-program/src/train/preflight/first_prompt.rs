//! The first prompt as the model reads it.

use grpo_data::Codec;
use grpo_model::Policy;

use crate::train_file::prompts::Prompts;

/// Number of characters that are shown from the start and from the end of a long prompt. The end shows
/// how the template begins the answer.
const SHOWN: [usize; 2] = [120, 80];

/// Number of ids that are shown from the start and from the end of a long prompt.
const SHOWN_IDS: usize = 8;

/// Returns lines with the first prompt of a file, its length and its ids, and a note if the model has
/// ids without a token.
pub(super) fn lines(prompts: &Prompts, codec: &Codec, policy: &Policy) -> Vec<String> {
    let prompt = prompts.first_of_file().map(|prompt| {
        let text = prompt.text(|ids| codec.decode_all(ids));
        let tokens = prompt.ids.len();
        let unit = if tokens == 1 { "token" } else { "tokens" };
        let ids = format!("             ids {}", shown_ids(&prompt.ids));
        [format!("first prompt {} ({tokens} {unit})", shortened(&text)), ids]
    });
    let ids = policy.parts().0.description().vocabulary;
    let without_token = (0..ids as u32).filter(|id| !codec.has_token(*id)).count();
    let note = (without_token > 0).then(|| {
        format!(
            "note         {without_token} of the model's {ids} ids have no token in {}; they are sampled with the probability that the model gives them, and decode to nothing",
            codec.file()
        )
    });
    prompt.into_iter().flatten().chain(note).collect()
}

/// Lists the ids and leaves out the middle of a long prompt.
fn shown_ids(ids: &[u32]) -> String {
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    if ids.len() <= 2 * SHOWN_IDS {
        return list(ids);
    }
    format!("{} … {}", list(&ids[..SHOWN_IDS]), list(&ids[ids.len() - SHOWN_IDS..]))
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
    fn ids_are_cut_in_the_middle() {
        assert_eq!(shown_ids(&[7]), "7");
        let ids: Vec<u32> = (1..=16).collect();
        assert_eq!(shown_ids(&ids), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16");
        let ids: Vec<u32> = (1..=17).collect();
        assert_eq!(shown_ids(&ids), "1 2 3 4 5 6 7 8 … 10 11 12 13 14 15 16 17");
    }

    #[test]
    fn long_prompts_are_cut_in_the_middle() {
        assert_eq!(shortened("a\n\"é\""), "\"a\\n\\\"é\\\"\"");
        let long = format!("{}{}", "a".repeat(1000), "é".repeat(1000));
        assert_eq!(shortened(&long), format!("\"{}\" … \"{}\"", "a".repeat(120), "é".repeat(80)));
        assert_eq!(shortened(&"é".repeat(200)), format!("\"{}\"", "é".repeat(200)));
    }
}
