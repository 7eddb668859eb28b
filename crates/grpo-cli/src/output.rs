//! Words and bars on the terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// An error and its causes as one sentence; a cause that the sentence already holds is not said twice.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence.push_str(": ");
            sentence.push_str(&cause);
        }
    }
    sentence
}

/// A bar of `steps` steps on standard error with a message of numbers; silent where that is no terminal.
pub(crate) fn progress_bar(steps: u64) -> ProgressBar {
    let style = "{bar:24} {pos}/{len}  {msg}  {elapsed} + {eta}";
    let style = ProgressStyle::with_template(style).expect("the template is right");
    ProgressBar::new(steps).with_style(style)
}
