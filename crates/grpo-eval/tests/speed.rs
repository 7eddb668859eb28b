//! The diversity of many texts takes seconds, not hours.

use std::time::{Duration, Instant};

use grpo_data::{CounterRng, Purpose};
use grpo_eval::GroupDiversity;

/// 1,000 prompts with 10 completions of 10 to 39 words. A comparison of all pairs of texts would take
/// minutes.
#[test]
fn ten_thousand_texts_are_measured_in_seconds() {
    let rng = CounterRng::new(1, Purpose::EVALUATION);
    let word = |text: u32, position: u32| {
        let share = rng.uniform([text, position, 0, 0]);
        format!("w{}", (5000.0 * share * share * share) as u32)
    };
    let text =
        |text: u32| (0..10 + text % 30).map(|at| word(text, at)).collect::<Vec<_>>().join(" ");
    let texts: Vec<String> = (0..10_000).map(text).collect();
    let groups: Vec<Vec<&str>> =
        texts.chunks(10).map(|group| group.iter().map(String::as_str).collect()).collect();
    let start = Instant::now();
    let found = GroupDiversity::new(&groups).unwrap();
    let time = start.elapsed();
    let (per_prompt, pooled) =
        (found.per_prompt.self_bleu.unwrap(), found.pooled.self_bleu.unwrap());
    // More texts to compare with have more in common.
    assert!(0.0 < per_prompt && per_prompt < pooled && pooled < 1.0, "{found:?}");
    assert!(time < Duration::from_secs(60), "{time:?}");
}
