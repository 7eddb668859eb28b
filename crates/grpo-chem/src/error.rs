//! Errors for strings that are not valid molecules or patterns.

/// The reason why a SMILES string was rejected. The message is a single line and can be used in a
/// CSV cell.
///
/// Positions are in bytes and start at 1. Atom indices start at 0 and follow the order of the
/// string, like in RDKit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmiles {
    /// The string is empty or blank. RDKit would return a molecule without atoms.
    #[error("the string is empty")]
    Empty,

    /// The string has more than [`MAX_LENGTH`](crate::grammar::MAX_LENGTH) bytes.
    #[error("{length} bytes exceed the limit of {limit}")]
    TooLong {
        /// Length in bytes, excluding leading and trailing whitespace.
        length: usize,
        /// The maximum length.
        limit: usize,
    },

    /// The string has more than [`MAX_RING_CLOSURES`](crate::grammar::MAX_RING_CLOSURES) ring
    /// closures.
    #[error("more than {limit} ring closures")]
    TooManyRings {
        /// The maximum number of ring closures.
        limit: usize,
    },

    /// The string does not conform to the SMILES grammar.
    #[error("syntax error at position {position}: {expected}")]
    Syntax {
        /// Byte position, starting at 1. For an unexpected end, this is the length plus 1.
        position: usize,
        /// A description of what was expected or what is wrong.
        expected: &'static str,
    },

    /// Text follows the SMILES, other than a CXSMILES extension, which is not supported.
    #[error("syntax error at position {position}: text after the SMILES")]
    TextAfter {
        /// Byte position of the blank before the text, starting at 1.
        position: usize,
    },

    /// A ring bond was opened but not closed.
    #[error("ring closure {label} is opened at position {position} but never closed")]
    UnclosedRing {
        /// The ring label, from 0 to 99999.
        label: u32,
        /// Byte position of the label, starting at 1.
        position: usize,
    },

    /// A ring bond connects an atom to itself or to a neighbor that it is already bonded to.
    #[error("ring closure {label} at position {position} {problem}")]
    RingClosure {
        /// The ring label, from 0 to 99999.
        label: u32,
        /// Byte position of the closing label, starting at 1.
        position: usize,
        /// A description of the problem.
        problem: &'static str,
    },

    /// An atom has an invalid number of bonds, or an isolated hydrogen atom has an invalid charge.
    #[error("atom {atom} has bonds or a charge that its element does not allow: {detail}")]
    Valence {
        /// Index of the atom, starting at 0.
        atom: usize,
        /// The error message of the toolkit.
        detail: String,
    },

    /// The aromatic atoms have no Kekulé structure, or an aromatic atom is not in a ring.
    #[error("the aromatic atoms cannot be kekulized: {detail}")]
    Kekulization {
        /// The error message of the toolkit.
        detail: String,
    },

    /// A different sanitization step failed.
    #[error("sanitizing failed: {detail}")]
    Sanitization {
        /// The error message of the toolkit.
        detail: String,
    },

    /// The toolkit panicked. The molecule may still be valid.
    #[error("the toolkit failed: {detail}")]
    ToolkitPanic {
        /// First line of the panic message.
        detail: String,
    },

    /// The string is valid, but the toolkit does not support it.
    #[error("not supported: {detail}")]
    Unsupported {
        /// A description of the unsupported feature.
        detail: String,
    },
}

/// The reason why a SMARTS pattern was rejected. The message is a single line.
///
/// Positions are in characters and start at 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmarts {
    /// The pattern is empty or blank. RDKit would return a pattern that matches nothing.
    #[error("the pattern is empty")]
    Empty,

    /// The pattern is too long.
    #[error("{length} bytes exceed the limit of {limit}")]
    TooLong {
        /// Length in bytes, excluding leading and trailing whitespace.
        length: usize,
        /// The maximum length.
        limit: usize,
    },

    /// The pattern does not conform to the SMARTS grammar.
    #[error("syntax error at position {position}: {expected}")]
    Syntax {
        /// Position in characters, starting at 1. For an unexpected end, this is the length plus 1.
        position: usize,
        /// A description of what was expected or what is wrong.
        expected: &'static str,
    },

    /// The pattern is valid, but it is nested too deeply or uses an unsupported feature.
    #[error("not supported at position {position}: {detail}")]
    Unsupported {
        /// Position in characters, starting at 1.
        position: usize,
        /// A description of the unsupported feature.
        detail: String,
    },
}
