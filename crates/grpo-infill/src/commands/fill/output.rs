//! Output of `grpo fill` as text or JSON lines.

use crate::Filled;
use std::io::{self, Write};

use crate::Characters;
use grpo_data::{TextCodec, counted};
use grpo_task::output::four_decimals;
use grpo_task::visible::visible;
use serde::Serialize;

use super::texts::Text;

/// Explanation of a judge's reward.
const JUDGED: &str = "; a judge's reward is 1 − its score: 1 is natural, 0 corrupted";

/// A filled text and its scores.
pub(super) struct Completion {
    /// Index among the samples of the same text.
    pub(super) sample: usize,
    pub(super) filled: Filled,
    pub(super) judge: Option<f64>,
    pub(super) second_judge: Option<f64>,
}

/// A line of the JSON output.
#[derive(Serialize)]
struct Line {
    /// Text with `␣` in place of each blank.
    blanked: String,
    /// Original text, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    sample: usize,
    filled: String,
    /// Sum of the log-probabilities of the filled characters at the time they were drawn, in nats.
    logprob: f64,
    mean_logprob: f64,
    /// Log-probability of each filled character, in the order of the blanks.
    logprobs: Vec<f32>,
    /// 1 − score of the judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    judge_reward: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    second_judge_reward: Option<f64>,
    /// Fraction of blanks filled correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<f64>,
    iterations: usize,
}

pub(super) fn write_json(
    output: &mut dyn Write,
    text: &Text,
    completions: &[Completion],
    characters: &Characters,
) -> io::Result<()> {
    for completion in completions {
        let filled = &completion.filled;
        let line = Line {
            blanked: characters.decode(&text.ids),
            text: text.truth.as_ref().map(|truth| characters.decode(truth)),
            sample: completion.sample,
            filled: characters.decode(&filled.ids),
            logprob: filled.logprob(),
            mean_logprob: filled.mean_logprob(),
            logprobs: filled.logprobs.clone(),
            judge_reward: completion.judge,
            second_judge_reward: completion.second_judge,
            recovery: recovered(text, filled)
                .map(|right| right as f64 / filled.blanks.len() as f64),
            iterations: filled.iterations,
        };
        serde_json::to_writer(&mut *output, &line)?;
        output.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes the completions as text. If `marked` is set, filled characters are bold and underlined.
pub(super) fn write_text(
    output: &mut dyn Write,
    text: &Text,
    completions: &[Completion],
    characters: &Characters,
    marked: bool,
) -> io::Result<()> {
    let blanks = text.ids.iter().filter(|&&id| id == characters.mask_id()).count();
    write!(output, "{}: {}", text.place, counted(blanks, "blank"))?;
    // The explanation matters because the judge's score has the opposite sense.
    let is_judged = completions.iter().any(|completion| completion.judge.is_some());
    writeln!(output, "{}", if is_judged { JUDGED } else { "" })?;
    writeln!(output, "{}", shown(characters, &text.ids, &[], marked))?;
    for (rank, completion) in completions.iter().enumerate() {
        let filled = &completion.filled;
        write!(output, "\n{}. log-probability {:.2}", rank + 1, filled.logprob())?;
        write!(output, " ({:.3} a blank)", filled.mean_logprob())?;
        for (name, reward) in
            [("judge", completion.judge), ("second judge", completion.second_judge)]
        {
            if let Some(reward) = reward {
                write!(output, ", {name}'s reward {}", four_decimals(reward))?;
            }
        }
        if let Some(right) = recovered(text, filled) {
            write!(output, ", {right} of {} recovered", counted(blanks, "blank"))?;
        }
        writeln!(output, "\n{}", shown(characters, &filled.ids, &filled.blanks, marked))?;
    }
    if let Some(truth) = &text.truth {
        writeln!(output, "\ntruth\n{}", shown(characters, truth, &[], marked))?;
    }
    Ok(())
}

/// Returns the number of correctly filled blanks, or `None` if the original is unknown.
pub(super) fn recovered(text: &Text, filled: &Filled) -> Option<usize> {
    let truth = text.truth.as_ref()?;
    Some(filled.blanks.iter().filter(|&&place| filled.ids[place] == truth[place]).count())
}

/// Formats a text and escapes control characters. If `marked` is set, the characters at `places`
/// are bold and underlined. `places` must be in ascending order.
fn shown(characters: &Characters, ids: &[u32], places: &[usize], marked: bool) -> String {
    if !marked {
        return visible(&characters.decode(ids)).into_owned();
    }
    let mut shown = String::new();
    let mut inside = false;
    for (place, id) in ids.iter().enumerate() {
        let is_filled = places.binary_search(&place).is_ok();
        if is_filled != inside {
            shown.push_str(if is_filled { "\x1b[1;4m" } else { "\x1b[0m" });
            inside = is_filled;
        }
        shown.push_str(&visible(&characters.decode(&[*id])));
    }
    if inside {
        shown.push_str("\x1b[0m");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_places_stand_out_on_a_terminal() {
        let characters = Characters::from_texts(["abc\u{1b}\n"]).unwrap();
        let ids = characters.encode("ab\u{1b}c\nab").unwrap();
        assert_eq!(shown(&characters, &ids, &[1, 2, 6], false), "ab\\u001bc\nab");
        assert_eq!(
            shown(&characters, &ids, &[1, 2, 6], true),
            "a\x1b[1;4mb\\u001b\x1b[0mc\na\x1b[1;4mb\x1b[0m"
        );
    }
}
