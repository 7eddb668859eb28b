//! Replacement for the process module on platforms other than Unix, on which programs are not
//! supported.

use std::sync::Arc;

use super::carrier::{Connection, Fault};
use super::output::Output;

/// When a program writes its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// The program writes a line for each line of input.
    ByLine,
    /// The program reads its entire input and then writes its reply before it exits.
    AtItsEnd,
}

/// Always returns an error.
pub(super) fn start(
    _: &[String],
    _: &str,
    _: Answers,
    _: &Arc<Output>,
) -> Result<Box<dyn Connection>, Fault> {
    Err(Fault::Other("reward programs run on Unix only; use type = \"http\"".to_owned()))
}
