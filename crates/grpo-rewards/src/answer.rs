//! Rewards for text with a verifiable answer.

use grpo_data::{AnswerForm, nested_field};
use regex::Regex;
use regex_syntax::hir::{Hir, HirKind};
use serde_json::{Map, Value};

use crate::text::verdict;
use crate::{Outcome, PartName, Reward, RewardInput, Votes};

/// Scores 1 if the completion contains the correct answer, otherwise 0.
///
/// The correct answer is read from the fields of the prompt. If it is a longer text with an answer
/// that [`Self::extract`] finds, such as a worked solution, that answer is correct too. Whitespace
/// around answers is ignored. If both answers are numbers, they are compared numerically,
/// e.g. `0.50` equals `.5`. Scoring fails if the prompt has no answer.
#[derive(Clone, Debug)]
pub struct AnswerReward {
    /// The field that contains the correct answer.
    pub field: String,
    /// Finds the answer in the completion.
    pub extract: Option<AnswerForm>,
}

impl Reward for AnswerReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        samples.iter().map(|sample| self.score_one(sample)).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["answered".into(), "correct".into()]
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        self.right(fields).map(|_| ())
    }

    fn doubt(&self, fields: &Map<String, Value>) -> Option<String> {
        let (right, extract) = (self.right(fields).ok()?, self.extract.as_ref()?);
        let is_possible = match self.extracted_from(&right) {
            Some(_) => true,
            None => match extract {
                AnswerForm::Pattern(pattern) => can_yield(pattern, &right),
                AnswerForm::Hashes | AnswerForm::Boxed => !right.contains('\n'),
            },
        };
        (!is_possible).then(|| {
            let short: String = right.trim().chars().take(60).collect();
            let short = if short.len() < right.trim().len() { short + "…" } else { short };
            format!(
                "reward.extract = {:?} finds nothing in the answer {short:?} of the prompt's record (field '{}') and cannot extract it from a completion, so no completion is correct; change reward.extract or the answers",
                extract.as_str(),
                self.field
            )
        })
    }

    fn answer(&self) -> Option<&dyn Votes> {
        Some(self)
    }
}

impl Votes for AnswerReward {
    fn vote(&self, text: &str, fields: &Map<String, Value>) -> Option<(String, bool)> {
        let given = self.given(text)?;
        let is_right = self.right(fields).is_ok_and(|right| self.is_right(given, &right));
        let is_boxed = matches!(self.extract, Some(AnswerForm::Boxed));
        let given = if is_boxed { without_latex(given) } else { given.trim().to_owned() };
        // The sum turns -0 into 0.
        let answer = number(&given).map_or(given, |number| (number + 0.0).to_string());
        Some((answer, is_right))
    }

    fn right_answer<'a>(&self, fields: &'a Map<String, Value>) -> Option<&'a Value> {
        nested_field(fields, &self.field)
    }
}

impl AnswerReward {
    fn score_one(&self, sample: &RewardInput) -> Outcome {
        let right = match self.right(&sample.fields) {
            Ok(right) => right,
            Err(reason) => return Outcome::failed(reason),
        };
        let given = self.given(&sample.text);
        let found = f64::from(u8::from(given.is_some()));
        let is_right = given.is_some_and(|given| self.is_right(given, &right));
        verdict(is_right, vec![("answered".into(), found)])
    }

    fn is_right(&self, given: &str, right: &str) -> bool {
        let is_boxed = matches!(self.extract, Some(AnswerForm::Boxed));
        let is_same = |right: &str| match is_boxed {
            true => is_same(&without_latex(given), &without_latex(right)),
            false => is_same(given, right),
        };
        is_same(right) || self.extracted_from(right).is_some_and(is_same)
    }

    /// Returns the correct answer for a prompt.
    fn right(&self, fields: &Map<String, Value>) -> Result<String, String> {
        match nested_field(fields, &self.field) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
            Some(_) => {
                Err(format!("field '{}' of the prompt's record is not an answer", self.field))
            }
            None => Err(format!("the prompt's record is missing field '{}'", self.field)),
        }
    }

    /// Extracts the answer from a text, if present.
    fn given<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.extract.as_ref().map_or(Some(text), |extract| extract.find(text))
    }

    /// Extracts the answer from a record's text. A number is an answer as it is: `\d+` would extract
    /// 5 from 0.5.
    fn extracted_from<'a>(&self, right: &'a str) -> Option<&'a str> {
        (self.extract.is_some() && number(right).is_none()).then(|| self.given(right)).flatten()
    }
}

fn is_same(given: &str, right: &str) -> bool {
    let (given, right) = (given.trim(), right.trim());
    given == right || matches!((number(given), number(right)), (Some(a), Some(b)) if a == b)
}

/// LaTeX that does not change what an answer is.
const LAYOUT: [&str; 13] = [
    "\\left",
    "\\right",
    "\\!",
    "\\,",
    "\\;",
    "\\:",
    "\\ ",
    "\\$",
    "\\%",
    "$",
    "%",
    "^{\\circ}",
    "^\\circ",
];

/// Removes the layout from a formula, and writes a fraction of two numbers as `1/2`.
fn without_latex(text: &str) -> String {
    let text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac");
    let mut text = without_layout(&text);
    for mark in ["\\text{", "\\mathrm{", "\\textbf{"] {
        if let Some(inside) = text.strip_prefix(mark).and_then(|text| text.strip_suffix('}'))
            && !inside.contains(['{', '}'])
        {
            text = inside.to_owned();
        }
    }
    let (sign, fraction) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let parts = fraction.strip_prefix("\\frac").and_then(|rest| match rest.as_bytes() {
        // As in `\frac12`.
        [above, below] if above.is_ascii_digit() && below.is_ascii_digit() => {
            Some(rest.split_at(1))
        }
        _ => rest.strip_prefix('{')?.strip_suffix('}')?.split_once("}{"),
    });
    let is_number = |part: &str| number(part).is_some() && !part.contains('/');
    match parts {
        Some((above, below)) if is_number(above) && is_number(below) => {
            format!("{sign}{above}/{below}")
        }
        _ => text,
    }
}

/// Removes the layout and the white space from a formula. A space between two digits is kept, because `1 1/2`
/// is not `11/2`.
fn without_layout(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_after_space = false;
    while let Some(first) = rest.chars().next() {
        // `\left` is not the beginning of `\leftarrow`.
        let is_here = |mark: &&&str| {
            rest.strip_prefix(**mark).is_some_and(|after| {
                let is_word = mark.ends_with(|c: char| c.is_ascii_alphabetic());
                !(is_word && after.starts_with(|c: char| c.is_ascii_alphabetic()))
            })
        };
        let length = match LAYOUT.iter().find(is_here) {
            Some(mark) => {
                is_after_space |= matches!(*mark, "\\ " | "\\;" | "\\:");
                mark.len()
            }
            None if first.is_whitespace() => {
                is_after_space = true;
                first.len_utf8()
            }
            None => {
                let is_digit = |c: char| c.is_ascii_digit();
                if is_after_space && is_digit(first) && kept.ends_with(is_digit) {
                    kept.push(' ');
                }
                is_after_space = false;
                // The line break `\\` is one sign, whatever follows it.
                let length = if rest.starts_with("\\\\") { 2 } else { first.len_utf8() };
                kept.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    kept
}

/// Reads a number as people write it: `1080`, `1,080`, `$5`, `1/2`, `5.`, `-3e4`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim().replace('\u{2212}', "-");
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(&text)),
    };
    let rest = rest.trim_start();
    let is_marked = rest.starts_with(['$', '€', '£']);
    let rest = rest.trim_start_matches(['$', '€', '£']).trim_start();
    let (sign, rest) = match rest.strip_prefix('-').filter(|_| is_marked && sign > 0.0) {
        Some(rest) => (-1.0, rest),
        None => (sign, rest),
    };
    let value = match rest.split_once('/') {
        Some((above, below)) => {
            unsigned(above.trim())? / unsigned(below.trim()).filter(|below| *below != 0.0)?
        }
        None => unsigned(rest)?,
    };
    value.is_finite().then_some(sign * value)
}

/// Reads a number without a sign, perhaps with thousands separators.
fn unsigned(text: &str) -> Option<f64> {
    let text = text.trim_end_matches([',']);
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    if !whole.contains(',') {
        return text.parse().ok();
    }
    let mut groups = whole.split(',');
    let is_grouped = groups.next().is_some_and(|first| (1..=3).contains(&first.len()))
        && groups.all(|group| group.len() == 3);
    let is_digits = whole.chars().all(|c| c.is_ascii_digit() || c == ',');
    (is_grouped && is_digits).then(|| format!("{}{rest}", whole.replace(',', "")).parse().ok())?
}

/// Returns whether an expression can extract an answer that equals `right`, from some text.
fn can_yield(extract: &Regex, right: &str) -> bool {
    let Ok(parsed) = regex_syntax::parse(extract.as_str()) else { return true };
    let answer = first_group(&parsed).unwrap_or(&parsed);
    let Ok(whole) = Regex::new(&format!(r"\A\s*(?:{answer})\s*\z")) else { return true };
    let mut spellings = vec![right.trim().to_owned()];
    if let Some(value) = number(right) {
        spellings.extend([value.to_string(), format!("{value:.1}"), format!("{value:.2}")]);
    }
    spellings.iter().any(|spelling| whole.is_match(spelling))
}

/// Returns the content of the first capture group.
fn first_group(part: &Hir) -> Option<&Hir> {
    match part.kind() {
        HirKind::Capture(capture) if capture.index == 1 => Some(&capture.sub),
        HirKind::Capture(capture) => first_group(&capture.sub),
        HirKind::Repetition(repetition) => first_group(&repetition.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().find_map(first_group),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str, answer: impl Into<Value>) -> RewardInput {
        RewardInput {
            text: text.to_owned(),
            fields: [("answer".to_owned(), answer.into())].into_iter().collect(),
            ..RewardInput::default()
        }
    }

    fn reward(extract: Option<&str>) -> AnswerReward {
        let extract = extract.map(|extract| AnswerForm::parse(extract).unwrap());
        AnswerReward { field: "answer".to_owned(), extract }
    }

    fn total(reward: &AnswerReward, text: &str, answer: impl Into<Value>) -> Option<f64> {
        reward.score(&[sample(text, answer)])[0].total()
    }

    #[test]
    fn the_last_answer_counts() {
        let reward = reward(Some(r"#### *(-?[\d.]+)"));
        assert_eq!(total(&reward, "#### 3 or rather #### 4", "4"), Some(1.0));
        assert_eq!(total(&reward, "#### 4 or rather #### 3", "4"), Some(0.0));
        assert_eq!(total(&reward, "4", "4"), Some(0.0));
        assert_eq!(total(&reward, "#### 0.50", 0.5), Some(1.0));
        let outcomes = reward.score(&[sample("4", "4"), sample("#### 5", "4")]);
        assert_eq!(
            outcomes.iter().map(|o| o.part("answered")).collect::<Vec<_>>(),
            [Some(0.0), Some(1.0)]
        );
    }

    #[test]
    fn parts_are_those_that_outcomes_have() {
        let answer = reward(None);
        let outcome = &answer.score(&[sample("4", "4")])[0];
        let Outcome::Scored(scored) = outcome else { panic!("{outcome:?}") };
        let names: Vec<PartName> = scored.parts.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, answer.parts());
    }

    #[test]
    fn without_a_pattern_all_of_the_text_is_the_answer() {
        let reward = reward(None);
        assert_eq!(total(&reward, " yes\n", "yes"), Some(1.0));
        assert_eq!(total(&reward, "yes!", "yes"), Some(0.0));
        assert_eq!(total(&reward, "true", true), Some(1.0));
    }

    #[test]
    fn a_prompt_without_an_answer_fails() {
        let other = AnswerReward { field: "solution".to_owned(), extract: None };
        let outcome = &other.score(&[sample("4", "4")])[0];
        assert_eq!(outcome.failure(), Some("the prompt's record is missing field 'solution'"));
        let nested: Value = serde_json::from_str(r#"{"ground_truth": "4"}"#).unwrap();
        let inner = AnswerReward { field: "answer.ground_truth".to_owned(), extract: None };
        assert_eq!(inner.score(&[sample("4", nested)])[0].total(), Some(1.0));
        let outcome = &reward(None).score(&[sample("4", Value::Null)])[0];
        assert_eq!(
            outcome.failure(),
            Some("field 'answer' of the prompt's record is not an answer")
        );
    }

    #[test]
    fn numbers_are_equal_however_they_are_written() {
        for (a, b) in [
            ("1,080", "1080"),
            ("1,234,567.5", "1234567.50"),
            ("$5", "5"),
            ("$1,080.00", "1080"),
            ("-$5", "$-5"),
            ("\u{2212}3", "-3"),
            ("1/2", "0.5"),
            (" 6 / 4 ", "1.5"),
            ("-1/4", "-.25"),
            ("72.", "72"),
            ("1,080,", "1080"),
            ("+7", "7"),
            ("1e3", "1,000"),
            ("€0.50", ".5"),
        ] {
            assert!(is_same(a, b) && is_same(b, a), "{a} = {b}");
        }
        for (a, b) in [
            ("1,08", "108"),
            ("1,0800", "10800"),
            ("1080,5", "1080.5"),
            ("1/0", "1/00"),
            ("nan", "NaN"),
            ("inf", "infinity"),
            ("50%", "50"),
            ("5 eggs", "5"),
            ("1/2/3", "1/6"),
            ("--5", "5"),
            ("$", "0"),
            ("", "0"),
            ("1 2", "12"),
        ] {
            assert!(!is_same(a, b) && !is_same(b, a), "{a} is not {b}");
        }
    }

    /// Answers that count as equal vote for the same, and each vote is right if the reward says so.
    #[test]
    fn equal_answers_are_one_vote() {
        let (plain, boxed) = (reward(Some(r"is (\S+)")), reward(Some("boxed")));
        let vote = |reward: &AnswerReward, text: &str| {
            let sample = sample(text, "0.5");
            let vote = reward.vote(text, &sample.fields);
            let is_right = vote.as_ref().is_some_and(|(_, is_right)| *is_right);
            assert_eq!(reward.score(&[sample])[0].total(), Some(f64::from(u8::from(is_right))));
            vote
        };
        for text in ["It is .50", "is 3, no, it is 1/2"] {
            assert_eq!(vote(&plain, text), Some(("0.5".to_owned(), true)), "{text}");
        }
        assert_eq!(vote(&plain, "It is -0"), Some(("0".to_owned(), false)));
        assert_eq!(vote(&plain, "It is x"), Some(("x".to_owned(), false)));
        assert_eq!(vote(&plain, "x"), None);
        for text in [r"\boxed{\dfrac{1}{2}}", r"\boxed{0.5\!}"] {
            assert_eq!(vote(&boxed, text), Some(("0.5".to_owned(), true)), "{text}");
        }
        // The reward says that its answers can vote.
        assert!(Reward::answer(&plain).is_some());
        // A prompt without an answer has no right one.
        assert_eq!(plain.vote("is 4", &Map::new()), Some(("4".to_owned(), false)));
    }

    /// Ten rows of GSM8K's form, read by hand.
    #[test]
    fn answers_of_gsm8k_are_right() {
        let gsm8k = reward(Some("####"));
        for (solution, right, wrong) in [
            (
                "48/2 = <<48/2=24>>24 clips in May.\n48+24 = 72 altogether.\n#### 72",
                "#### 72",
                "#### 24",
            ),
            (
                "12/60 = $<<12/60=0.2>>0.2 per minute.\n0.2 x 50 = $10.\n#### 10",
                "So $10\n#### $10",
                "#### 0.2",
            ),
            ("100 - 50 - 30 - 15 = $5\n#### 5", "####5", "5"),
            ("84/2=42\n#### 42", "#### 42.", "#### 84"),
            ("52 * 12 = 624\n#### 624", "#### 624.0", "#### 62"),
            ("A lot of money\n#### 1,080", "#### 1080", "#### 108"),
            ("#### 2,350,000", "#### 2350000", "#### 2,350"),
            ("It lost 5\n#### -5", "#### -5", "#### 5"),
            ("#### 0.5", "#### 1/2", "#### 5"),
            ("It is 16\n#### 16 ", "#### 3\nNo.\n#### 16\nDone", "#### 16\nNo.\n#### 3"),
        ] {
            assert_eq!(total(&gsm8k, right, solution), Some(1.0), "{right}");
            assert_eq!(total(&gsm8k, wrong, solution), Some(0.0), "{wrong}");
            assert_eq!(gsm8k.doubt(&sample("", solution).fields), None);
        }
    }

    /// Answers of MATH's form, read by hand.
    #[test]
    fn answers_of_math_are_right() {
        let math = reward(Some("boxed"));
        for (gold, right, wrong) in [
            ("2", r"\boxed{2}", r"\boxed{3}"),
            (r"\frac{1}{2}", r"$\boxed{\dfrac{1}{2}}$", r"\boxed{\frac{1}{3}}"),
            (r"-\frac{3}{4}", r"\boxed{-0.75}", r"\boxed{0.75}"),
            (r"10^\circ", r"\boxed{10}", r"\boxed{100}"),
            (r"\text{A}", r"\boxed{A}", r"\boxed{B}"),
            (
                r"\left(3, \frac{\pi}{2}\right)",
                r"\boxed{(3,\frac{\pi}{2})}",
                r"\boxed{(3,\frac{\pi}{3})}",
            ),
            (r"x^2 + 1", r"\boxed{x^2+1}", r"\boxed{x^2-1}"),
            (r"12,\!345", r"\boxed{12345}", r"\boxed{1234}"),
            (r"So $\boxed{7}$.", r"\boxed 7", "7"),
            (r"50\%", r"\boxed{50}", r"\boxed{0.5}"),
            (r"\frac43", r"\boxed{\frac{4}{3}}", r"\boxed{\frac34}"),
            (r"\frac{11}{2}", r"\boxed{5.5}", r"\boxed{1 1/2}"),
            (r"1 1/2", r"\boxed{1\ 1/2}", r"\boxed{11/2}"),
            (r"\frac{1/2}{3}", r"\boxed{\dfrac{1/2}{3}}", r"\boxed{\frac{1}{2/3}}"),
            (r"A\rightarrow B", r"\boxed{A \rightarrow B}", r"\boxed{A\leftarrow B}"),
            (
                r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
                r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}",
                r"\boxed{\begin{pmatrix}12\end{pmatrix}}",
            ),
        ] {
            assert_eq!(total(&math, right, gold), Some(1.0), "{right}");
            assert_eq!(total(&math, wrong, gold), Some(0.0), "{wrong}");
        }
    }

    /// The answers of GSM8K are worked solutions.
    #[test]
    fn an_answer_is_extracted_from_a_worked_solution() {
        let gsm8k = reward(Some(r"#### (-?[\d,.]+)"));
        let solution = "She has 1,080 eggs.\n#### 1,080";
        for (text, expected) in [("#### 1080", 1.0), ("#### 1,080.", 1.0), ("#### 108", 0.0)] {
            assert_eq!(total(&gsm8k, text, solution), Some(expected), "{text}");
        }
        assert_eq!(gsm8k.doubt(&sample("", solution).fields), None);
        // The expression of configs/text.
        let last = reward(Some(r"-?\d+(?:,\d{3})*(?:\.\d+)?"));
        for (text, expected) in [("It is 1080.", 1.0), ("1 or 1,080", 1.0), ("It is 80", 0.0)] {
            assert_eq!(total(&last, text, solution), Some(expected), "{text}");
        }
        let digits = reward(Some(r"\d+"));
        assert_eq!(total(&digits, "5", "0.5"), Some(0.0), "a number is not searched for another");
        assert_eq!(total(&digits, "2", "1/2"), Some(0.0));
    }

    #[test]
    fn answers_that_no_completion_can_give_are_named() {
        for (extract, answer, is_doubtful) in [
            (r"#### (-?[\d,.]+)", "1,080 eggs", true),
            (r"#### (-?[\d,.]+)", "seven", true),
            (r"#### (-?[\d,.]+)", "1,080", false),
            (r"#### (\d+)", "1,080", false),
            (r"#### (\d+)", "0.5", true),
            (r"#### (\d+\.\d+)", "7", false),
            (r"<answer>(.*?)</answer>", "Paris", false),
            (r"<answer>([a-z]+)</answer>", "Paris", true),
            (r"(?i)<answer>([a-z]+)</answer>", "Paris", false),
            (r"(?:the )?answer: (?P<answer>\w+)(x)?", "yes", false),
            (r"(A|B|C|D)", "B", false),
            (r"[ABCD]", "E", true),
            (r"answer: (?:(\w)|none)", "k", false),
        ] {
            let reward = reward(Some(extract));
            let doubt = reward.doubt(&sample("", answer).fields);
            assert_eq!(doubt.is_some(), is_doubtful, "{extract} {answer}: {doubt:?}");
        }
        assert_eq!(reward(None).doubt(&sample("", "seven").fields), None);
    }
}
