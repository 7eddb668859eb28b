//! How an answer is marked in a text: in a worked solution, and in a completion.

use crate::regex_reason;
use regex::Regex;

/// How the answer is found in a text.
#[derive(Clone, Debug)]
pub enum AnswerForm {
    /// What follows the last `####` on its line, as in GSM8K.
    Hashes,
    /// The content of the last `\boxed{…}` or `\fbox{…}`, as in MATH.
    Boxed,
    /// The first group of the last match or, if there is no group, the whole match.
    Pattern(Regex),
}

/// Marks of boxes in LaTeX.
const BOXES: [&str; 2] = ["\\boxed", "\\fbox"];

impl AnswerForm {
    /// Reads `####`, `boxed` or a regular expression.
    ///
    /// # Errors
    /// Returns the reason why the text is not a regular expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "####" => Ok(Self::Hashes),
            "boxed" | "\\boxed" | "\\boxed{}" => Ok(Self::Boxed),
            _ => Regex::new(text).map(Self::Pattern).map_err(|error| regex_reason(&error)),
        }
    }

    /// Like [`Self::parse`], but refuses an expression without a group. It would find the mark
    /// together with the answer, and most misspelled names are such expressions.
    ///
    /// # Errors
    /// Returns a sentence without the name of the key.
    pub fn parse_marked(text: &str) -> Result<Self, String> {
        let expected = "expected \"####\", \"boxed\", or a regular expression with the answer in a group, such as \"Answer: (.*)\"";
        match Self::parse(text) {
            Ok(Self::Pattern(pattern)) if pattern.captures_len() == 1 => {
                Err(format!("{text:?} has no group; {expected}"))
            }
            Err(reason) => {
                Err(format!("{text:?} is not a regular expression: {reason}; {expected}"))
            }
            form => form,
        }
    }

    /// Returns the form as it is written in a configuration.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Hashes => "####",
            Self::Boxed => "boxed",
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }

    /// Returns the last answer in a text, and `None` if there is none.
    pub fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Self::Hashes => {
                let (_, after) = text.rsplit_once("####")?;
                after.lines().next().map(str::trim).filter(|answer| !answer.is_empty())
            }
            Self::Boxed => {
                let ends = BOXES.iter().filter_map(|mark| Some(text.rfind(mark)? + mark.len()));
                boxed(&text[ends.max()?..])
            }
            Self::Pattern(pattern) => {
                let last = pattern.captures_iter(text).last()?;
                last.get(1).or_else(|| last.get(0)).map(|found| found.as_str())
            }
        }
    }
}

/// Returns the content of the braces that begin the text or, as in `\boxed 2`, its first word.
fn boxed(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let Some(inside) = text.strip_prefix('{') else {
        let end = text.find(|c: char| c.is_whitespace() || c == '$').unwrap_or(text.len());
        return Some(&text[..end]).filter(|word| !word.is_empty());
    };
    let (mut depth, mut is_escaped) = (1, false);
    for (at, c) in inside.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(inside[..at].trim()).filter(|answer| !answer.is_empty());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_where_they_are_marked() {
        for (form, text, found) in [
            ("####", "48/2 = <<48/2=24>>24\n#### 72", Some("72")),
            ("####", "#### 3\nNo:\n####  1,080 \nDone", Some("1,080")),
            ("####", "72", None),
            ("####", "#### \n72", None),
            ("####", "####", None),
            ("boxed", r"so $\boxed{\frac{1}{2}}$.", Some(r"\frac{1}{2}")),
            ("boxed", r"\boxed{1} and \fbox{ 2 }", Some("2")),
            ("boxed", r"\fbox{1} and \boxed{2}", Some("2")),
            ("boxed", r"$\boxed 2$ apples", Some("2")),
            ("boxed", r"\boxed{\{1,2\}}", Some(r"\{1,2\}")),
            ("boxed", r"\boxed{\text{a } b", None),
            ("boxed", r"\boxed{}", None),
            ("boxed", r"\boxed", None),
            ("boxed", "72", None),
            (r"(?i)answer: (\w+)", "Answer: 3. ANSWER: four", Some("four")),
            (r"\d+", "1 2 3", Some("3")),
        ] {
            let form = AnswerForm::parse(form).unwrap();
            assert_eq!(form.find(text), found, "{} in {text}", form.as_str());
        }
    }

    #[test]
    fn a_misspelled_form_is_refused() {
        for (text, fault) in [
            ("boxd", "\"boxd\" has no group; "),
            ("###", "\"###\" has no group; "),
            ("(", "\"(\" is not a regular expression: unclosed group; "),
            ("", "\"\" has no group; "),
        ] {
            let found = AnswerForm::parse_marked(text).unwrap_err();
            assert!(found.starts_with(fault), "{found}");
            assert!(found.ends_with("such as \"Answer: (.*)\""), "{found}");
        }
        for text in ["####", "boxed", "\\boxed{}", "x(.*)"] {
            AnswerForm::parse_marked(text).unwrap();
        }
    }
}
