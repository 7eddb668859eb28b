//! Why a string is not a molecule.

/// The reason a SMILES was refused, one sentence that fits a CSV cell.
///
/// Positions count bytes from 1, atoms count from 0 in the order of the string, as RDKit counts them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSmiles {
    /// Nothing but blanks. (RDKit reads this as a molecule without atoms, which has no property.)
    #[error("the string is empty")]
    Empty,

    /// Longer than [`MAX_LENGTH`](crate::grammar::MAX_LENGTH) bytes.
    #[error("{length} bytes are more than the {limit} that are read")]
    TooLong {
        /// Bytes of the string, without surrounding blanks.
        length: usize,
        /// The limit.
        limit: usize,
    },

    /// More rings than [`MAX_RING_CLOSURES`](crate::grammar::MAX_RING_CLOSURES) in one string.
    #[error("more than {limit} ring closures")]
    TooManyRings {
        /// The limit.
        limit: usize,
    },

    /// The grammar of SMILES is violated.
    #[error("syntax error at position {position}: {expected}")]
    Syntax {
        /// Byte position, from 1; one more than the length where the string ends too early.
        position: usize,
        /// What should have stood there, or what is wrong with what stands there.
        expected: &'static str,
    },

    /// A ring-closure label that was opened and never closed.
    #[error("ring closure {label} is opened at position {position} and never closed")]
    UnclosedRing {
        /// The label, 0 to 99999.
        label: u32,
        /// Byte position of the opening label, from 1.
        position: usize,
    },

    /// A ring closure from an atom to itself or to a neighbour it is already bonded to.
    #[error("ring closure {label} at position {position} {problem}")]
    RingClosure {
        /// The label, 0 to 99999.
        label: u32,
        /// Byte position of the closing label, from 1.
        position: usize,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// An atom has more bonds than its element permits, or as an aromatic atom a number of bonds that it does not, or
    /// as a lone hydrogen such a charge.
    #[error("atom {atom} has bonds or a charge that its element does not permit: {detail}")]
    Valence {
        /// Index of the atom, from 0.
        atom: usize,
        /// The toolkit's own words.
        detail: String,
    },

    /// No assignment of single and double bonds fits the aromatic atoms, or one of them is in no ring.
    #[error("the aromatic atoms cannot be kekulized: {detail}")]
    Kekulization {
        /// The toolkit's own words.
        detail: String,
    },

    /// Refused by a step of sanitizing that is none of the above.
    #[error("sanitizing failed: {detail}")]
    Sanitization {
        /// The toolkit's own words.
        detail: String,
    },

    /// The toolkit panicked: nothing is known about the molecule, it may be a valid one.
    #[error("the toolkit failed: {detail}")]
    ToolkitPanic {
        /// The first line of the panic's message.
        detail: String,
    },

    /// Well-formed, but outside what the toolkit can represent.
    #[error("not supported: {detail}")]
    Unsupported {
        /// The toolkit's own words.
        detail: String,
    },
}
