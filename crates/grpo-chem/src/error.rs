//! Reasons why a string is not a molecule.

/// The reason why a SMILES was rejected, a sentence that fits into a CSV cell.
///
/// Positions count bytes from 1; atoms count from 0 in the order of the string, as in RDKit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmiles {
    /// The string is empty or blank. (RDKit reads it as a molecule without atoms and properties.)
    #[error("the string is empty")]
    Empty,

    /// The string has more than [`MAX_LENGTH`](crate::grammar::MAX_LENGTH) bytes.
    #[error("{length} bytes exceed the limit of {limit}")]
    TooLong {
        /// Bytes of the string, without surrounding blanks.
        length: usize,
        /// The limit.
        limit: usize,
    },

    /// The string has more than [`MAX_RING_CLOSURES`](crate::grammar::MAX_RING_CLOSURES) rings.
    #[error("more than {limit} ring closures")]
    TooManyRings {
        /// The limit.
        limit: usize,
    },

    /// The string violates the grammar of SMILES.
    #[error("syntax error at position {position}: {expected}")]
    Syntax {
        /// Byte position, from 1; one more than the length at the end.
        position: usize,
        /// What was expected, or what is wrong.
        expected: &'static str,
    },

    /// A ring closure was not closed.
    #[error("ring closure {label} is opened at position {position} but never closed")]
    UnclosedRing {
        /// The label, 0 to 99999.
        label: u32,
        /// Byte position of the opening label, from 1.
        position: usize,
    },

    /// A ring closure to the same atom or to a bonded neighbour.
    #[error("ring closure {label} at position {position} {problem}")]
    RingClosure {
        /// The label, 0 to 99999.
        label: u32,
        /// Byte position of the closing label, from 1.
        position: usize,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// An atom has an invalid number of bonds, or a lone hydrogen an invalid charge.
    #[error("atom {atom} has bonds or a charge that its element does not allow: {detail}")]
    Valence {
        /// Index of the atom, from 0.
        atom: usize,
        /// The toolkit's message.
        detail: String,
    },

    /// No assignment of single and double bonds fits the aromatic atoms, or an aromatic atom is not
    /// in a ring.
    #[error("the aromatic atoms cannot be kekulized: {detail}")]
    Kekulization {
        /// The toolkit's message.
        detail: String,
    },

    /// Another step of sanitisation failed.
    #[error("sanitizing failed: {detail}")]
    Sanitization {
        /// The toolkit's message.
        detail: String,
    },

    /// The toolkit panicked, so the molecule may be valid.
    #[error("the toolkit failed: {detail}")]
    ToolkitPanic {
        /// The first line of the panic message.
        detail: String,
    },

    /// Well-formed, but not supported by the toolkit.
    #[error("not supported: {detail}")]
    Unsupported {
        /// The toolkit's message.
        detail: String,
    },
}
