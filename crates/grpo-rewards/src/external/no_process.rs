//! Programs are started on Unix only.

use std::sync::Arc;

use super::carrier::{Connection, Fault};
use super::output::Output;

/// How a program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// A line for each line that it reads.
    ByLine,
    /// All that it writes until it ends, after all that it reads.
    AtItsEnd,
}

/// Refuses.
pub(super) fn start(
    _: &[String],
    _: &str,
    _: Answers,
    _: &Arc<Output>,
) -> Result<Box<dyn Connection>, Fault> {
    Err(Fault::Other("reward programs run on Unix only; use type = \"http\"".to_owned()))
}
