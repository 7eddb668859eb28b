//! Validates SMARTS patterns before they are parsed by the toolkit.

use chematic::smarts::SmartsError;

/// The reason why a SMARTS pattern was rejected. The message is a single line.
///
/// Positions are in characters and start at 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmarts {
    /// The pattern is empty or blank.
    #[error("the pattern is empty")]
    Empty,

    /// The pattern has more than 2,000 characters.
    #[error("{length} characters exceed the limit of {limit}")]
    TooLong {
        /// Length in characters, excluding leading and trailing whitespace.
        length: usize,
        /// The maximum length.
        limit: usize,
    },

    /// The pattern does not conform to the SMARTS grammar.
    #[error("syntax error at position {position}: {expected}")]
    Syntax {
        /// Position in characters, starting at 1.
        position: usize,
        /// A description of what was expected or what is wrong.
        expected: String,
    },

    /// The pattern is valid, but it is too complex or the toolkit does not support it.
    #[error("not supported at position {position}: {detail}")]
    Unsupported {
        /// Position in characters, starting at 1.
        position: usize,
        /// A description of the unsupported feature.
        detail: String,
    },
}

const MAX_LENGTH: usize = 2_000;

pub(crate) fn check(text: &str) -> Result<(), InvalidSmarts> {
    if text.is_empty() {
        return Err(InvalidSmarts::Empty);
    }
    let length = text.chars().count();
    if length > MAX_LENGTH {
        return Err(InvalidSmarts::TooLong { length, limit: MAX_LENGTH });
    }
    Ok(())
}

pub(crate) fn unsupported(_text: &str, detail: String) -> InvalidSmarts {
    InvalidSmarts::Unsupported { position: 1, detail }
}

pub(crate) fn from_toolkit(text: &str, error: &SmartsError) -> InvalidSmarts {
    let (byte, detail) = match error {
        SmartsError::UnexpectedChar(_, at) => (*at, "unexpected character".to_owned()),
        SmartsError::UnclosedBracket(at) => (*at, "unclosed bracket".to_owned()),
        SmartsError::UnclosedBranch(at) => (*at, "unclosed branch".to_owned()),
        other => (text.len(), other.to_string()),
    };
    InvalidSmarts::Syntax { position: byte + 1, expected: detail }
}
