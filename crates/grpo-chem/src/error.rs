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

    /// A ring closure from an atom to itself, to a neighbour it is already bonded to, or with two different bonds.
    #[error("ring closure {label} at position {position} {problem}")]
    RingClosure {
        /// The label, 0 to 99999.
        label: u32,
        /// Byte position of the closing label, from 1.
        position: usize,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// An atom has more bonds than its element permits.
    #[error("atom {atom} has more bonds than its element permits: {detail}")]
    Valence {
        /// Index of the atom, from 0.
        atom: usize,
        /// The toolkit's own words.
        detail: String,
    },

    /// No assignment of single and double bonds fits the aromatic atoms.
    #[error("the aromatic atoms cannot be kekulized: {detail}")]
    Kekulization {
        /// The toolkit's own words.
        detail: String,
    },

    /// Well-formed, but outside what the toolkit can represent.
    #[error("not supported: {detail}")]
    Unsupported {
        /// The toolkit's own words.
        detail: String,
    },
}
