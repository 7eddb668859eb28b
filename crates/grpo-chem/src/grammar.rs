//! Validates SMILES strings before they are parsed by the toolkit.
//!
//! The toolkit's parser accepts `C()C`, `.C`, `C.`, `C=(C)C`, `C11`, `[C:]`, `C%00` and atoms with
//! `@` outside brackets, all of which RDKit rejects. A policy that is rewarded for valid strings
//! would exploit this. This module therefore accepts exactly the language of RDKit's parser
//! (`Code/GraphMol/SmilesParse/smiles.yy`):
//!
//! ```text
//! smiles  = atom step*
//! step    = bond? atom | '.' atom | bond? label | '(' bond? atom | ')'
//! atom    = organic | '[' isotope? symbol chirality? hydrogens? charge? map? ']'
//! label   = digit | '%' nonzero digit | '%(' digit{1,5} ')'
//! ```
//!
//! The parser is an automaton with an explicit stack of branch points. It isn't recursive, so the
//! call stack cannot overflow. It also checks ring closures, because an atom must not be bonded to
//! itself or bonded twice to the same neighbor.

use crate::error::InvalidSmiles;

/// Maximum length of a string in bytes.
///
/// Canonicalization takes quadratic time. A string of this length takes up to 40 ms, and one with
/// 20,000 atoms takes many seconds. Drug-like molecules have 20 to 110 bytes (vancomycin: 290). The
/// limit also restricts the nesting depth of branches (three bytes each) to 333, which is less than
/// the recursion limit of 500 in the parser of the toolkit.
pub const MAX_LENGTH: usize = 1_000;

/// Maximum number of ring closures. The limit is necessary because rings are compared in pairs.
/// Fullerene has 31 ring closures.
pub const MAX_RING_CLOSURES: usize = 100;

/// Maximum isotope and atom-map number. The toolkit would silently clamp larger numbers.
const LARGEST_NUMBER: Option<u32> = Some(65_535);

/// Valid constructs that the toolkit's parser may reject (see `dialect.rs`).
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Dialect {
    /// Whether a branch contains a `.`.
    pub split_branch: bool,
    /// Whether the string contains a bond written as `\\`, a ring label written as `%(n)`, or an
    /// element written as `#n`.
    pub spelling: bool,
    /// Positions, starting at 0, of bond symbols that are ignored because they contradict the
    /// symbol at the other end of the ring closure.
    pub ignored_bonds: Vec<usize>,
}

/// Checks `smiles` against the grammar. It must not contain leading or trailing whitespace.
///
/// # Errors
/// Returns any error of [`InvalidSmiles`] that can be detected without chemistry.
pub(crate) fn check(smiles: &str) -> Result<Dialect, InvalidSmiles> {
    if smiles.is_empty() {
        return Err(InvalidSmiles::Empty);
    }
    if smiles.len() > MAX_LENGTH {
        return Err(InvalidSmiles::TooLong { length: smiles.len(), limit: MAX_LENGTH });
    }
    Checker::new(smiles.as_bytes()).run()
}

struct Checker<'a> {
    text: &'a [u8],
    at: usize,
    atoms: usize,
    /// For each open branch, the index of its atom and the position of its parenthesis.
    branches: Vec<(usize, usize)>,
    open_rings: Vec<OpenRing>,
    closures: usize,
    /// Bonds as (smaller, larger) atom index. They are used to find duplicate ring closures.
    bonds: Vec<(usize, usize)>,
    ring_bonds: Vec<RingBond>,
    /// A construct that the toolkit would misinterpret. Only reported if there is no syntax error.
    unsupported: Option<&'static str>,
    dialect: Dialect,
}

struct OpenRing {
    label: u32,
    position: usize,
    atom: usize,
    /// The bond symbol before the label and its position, starting at 0.
    bond: Option<(u8, usize)>,
}

struct RingBond {
    label: u32,
    position: usize,
    atoms: (usize, usize),
}

type Check<T = ()> = Result<T, InvalidSmiles>;

impl<'a> Checker<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            atoms: 0,
            branches: Vec::new(),
            open_rings: Vec::new(),
            closures: 0,
            bonds: Vec::new(),
            ring_bonds: Vec::new(),
            unsupported: None,
            dialect: Dialect::default(),
        }
    }

    fn run(mut self) -> Check<Dialect> {
        self.atom()?;
        let mut current = 0;
        while let Some(byte) = self.peek() {
            current = match byte {
                b'.' => {
                    self.dialect.split_branch |= !self.branches.is_empty();
                    self.at += 1;
                    self.atom()?
                }
                b'(' => {
                    self.branches.push((current, self.at));
                    self.at += 1;
                    self.bond();
                    self.bonded_atom(current)?
                }
                b')' => {
                    let Some((atom, _)) = self.branches.pop() else {
                        return self.fail("a branch is closed but was never opened");
                    };
                    self.at += 1;
                    atom
                }
                _ => {
                    let start = self.at;
                    let bond = self.bond().map(|symbol| (symbol, start));
                    if matches!(self.peek(), Some(b'0'..=b'9' | b'%')) {
                        self.ring_closure(current, bond)?;
                        current
                    } else {
                        self.bonded_atom(current)?
                    }
                }
            };
        }
        self.finish()
    }

    fn finish(mut self) -> Check<Dialect> {
        if let Some(&(_, position)) = self.branches.last() {
            self.at = position;
            return self.fail("a branch is opened but never closed");
        }
        if let Some(ring) = self.open_rings.first() {
            return Err(InvalidSmiles::UnclosedRing { label: ring.label, position: ring.position });
        }
        // This check must come last, when all bonds are known. In `C1C1`, the ring closure
        // duplicates a chain bond, and in `C12CC12`, it duplicates another ring closure.
        for ring in self.ring_bonds {
            if self.bonds.contains(&ring.atoms) {
                return Err(InvalidSmiles::RingClosure {
                    label: ring.label,
                    position: ring.position,
                    problem: "joins two atoms that are already bonded",
                });
            }
            self.bonds.push(ring.atoms);
        }
        match self.unsupported {
            Some(detail) => Err(InvalidSmiles::Unsupported { detail: detail.to_owned() }),
            None => Ok(self.dialect),
        }
    }

    fn bonded_atom(&mut self, from: usize) -> Check<usize> {
        let to = self.atom()?;
        self.bonds.push((from, to));
        Ok(to)
    }

    /// Parses an optional bond symbol. Returns its first byte, or `>` for `->` and `<` for `<-`.
    fn bond(&mut self) -> Option<u8> {
        let (symbol, length) = match (self.peek()?, self.text.get(self.at + 1)) {
            (b'-', Some(b'>')) => (b'>', 2),
            (b'<', Some(b'-')) => (b'<', 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            (symbol @ (b'-' | b'=' | b'#' | b':' | b'$' | b'~' | b'/' | b'\\'), _) => (symbol, 1),
            _ => return None,
        };
        self.dialect.spelling |= (symbol, length) == (b'\\', 2);
        if symbol == b'~' {
            self.unsupported = Some("'~' matches any bond and is only valid in queries");
        }
        self.at += length;
        Some(symbol)
    }

    fn atom(&mut self) -> Check<usize> {
        let rest = &self.text[self.at..];
        let length = match rest {
            [b'[', ..] => {
                self.at += 1;
                self.bracket_atom()?;
                0
            }
            [b'C', b'l', ..] | [b'B', b'r', ..] => 2,
            [b'B' | b'C' | b'N' | b'O' | b'P' | b'S' | b'F' | b'I' | b'*', ..] => 1,
            [b'b' | b'c' | b'n' | b'o' | b'p' | b's', ..] => 1,
            [] => return self.fail("expected an atom"),
            _ => return self.no_atom(),
        };
        self.at += length;
        self.atoms += 1;
        Ok(self.atoms - 1)
    }

    /// Fails at a character with which no atom starts.
    fn no_atom<T>(&self) -> Check<T> {
        let rest = str::from_utf8(&self.text[self.at..]).unwrap_or_default();
        let after = rest.trim_start();
        if after.is_empty() || after.len() == rest.len() {
            return self.fail("not an atom");
        }
        Err(match after.starts_with('|') {
            // Ignoring it would result in a different molecule.
            true => InvalidSmiles::Unsupported {
                detail: "a CXSMILES extension after the SMILES".to_owned(),
            },
            false => InvalidSmiles::TextAfter { position: self.at + 1 },
        })
    }

    /// Parses the contents of a bracket atom and the closing `]`.
    fn bracket_atom(&mut self) -> Check {
        if self.number()? > LARGEST_NUMBER {
            self.unsupported = Some("an isotope above 65535");
        }
        // Hydrogen cannot be chiral. Its only valid hydrogen count is `[HH]`.
        if self.symbol()? != *b"H\0" {
            self.chirality()?;
        }
        if self.take(b'H') {
            self.number()?;
        }
        for sign in [b'+', b'-'] {
            if self.take(sign) {
                if !self.take(sign) {
                    self.number()?;
                }
                break;
            }
        }
        if self.take(b':') {
            let map = self.number()?;
            if map.is_none() {
                return self.fail("expected an atom-map number after ':'");
            }
            if map > LARGEST_NUMBER {
                self.unsupported = Some("an atom-map number above 65535");
            }
        }
        if self.take(b']') { Ok(()) } else { self.fail("not part of a bracket atom") }
    }

    fn symbol(&mut self) -> Check<[u8; 2]> {
        let rest = &self.text[self.at..];
        if self.take(b'#') {
            self.dialect.spelling = true;
            return match self.number()? {
                Some(0..=118) => Ok(*b"#\0"),
                _ => self.fail("expected an atomic number from 0 to 118 after '#'"),
            };
        }
        if let [first, second, ..] = rest {
            let pair = [*first, *second];
            if TWO_LETTER_SYMBOLS.contains(&pair) {
                self.at += 2;
                return Ok(pair);
            }
        }
        match rest.first() {
            Some(&symbol) if ONE_LETTER_SYMBOLS.contains(&symbol) => {
                self.at += 1;
                Ok([symbol, 0])
            }
            _ => self.fail("not an element symbol"),
        }
    }

    /// Parses `@`, `@@`, or a chiral class (`@TH1`, `@AL2`, `@SP3`, `@TB20`, `@OH30`) with an
    /// optional number.
    fn chirality(&mut self) -> Check {
        if !self.take(b'@') {
            return Ok(());
        }
        let class = self.text.get(self.at..self.at + 2).unwrap_or_default();
        let Some(&(_, permutations)) = CHIRAL_CLASSES.iter().find(|(name, _)| *name == class)
        else {
            self.take(b'@');
            return Ok(());
        };
        self.at += 2;
        match self.number()? {
            Some(number) if number == 0 || number > permutations => {
                self.fail("not a permutation of this chiral class")
            }
            _ => Ok(()),
        }
    }

    fn ring_closure(&mut self, atom: usize, bond: Option<(u8, usize)>) -> Check {
        let position = self.at + 1;
        let label = self.ring_label()?;
        let Some(open) = self.open_rings.iter().position(|ring| ring.label == label) else {
            self.open_rings.push(OpenRing { label, position, atom, bond });
            return Ok(());
        };
        let open = self.open_rings.remove(open);
        self.closures += 1;
        if self.closures > MAX_RING_CLOSURES {
            return Err(InvalidSmiles::TooManyRings { limit: MAX_RING_CLOSURES });
        }
        if open.atom == atom {
            return Err(InvalidSmiles::RingClosure {
                label,
                position,
                problem: "joins an atom to itself",
            });
        }
        self.dialect.ignored_bonds.extend(contradiction(open.bond, bond));
        let atoms = (open.atom.min(atom), open.atom.max(atom));
        self.ring_bonds.push(RingBond { label, position, atoms });
        Ok(())
    }

    fn ring_label(&mut self) -> Check<u32> {
        if !self.take(b'%') {
            return match self.digit() {
                Some(label) => Ok(label),
                None => self.fail("expected a ring-closure label"),
            };
        }
        if self.take(b'(') {
            self.dialect.spelling = true;
            let mut label = None;
            for _ in 0..5 {
                let Some(digit) = self.digit() else { break };
                label = Some(label.unwrap_or(0) * 10 + digit);
            }
            return match label {
                Some(label) if self.take(b')') => Ok(label),
                _ => self.fail("expected one to five digits and ')' after '%('"),
            };
        }
        match (self.digit(), self.digit()) {
            (Some(tens @ 1..), Some(units)) => Ok(tens * 10 + units),
            _ => self.fail("expected two digits, the first not 0, after '%'"),
        }
    }

    /// Parses a number without leading zeros. RDKit requires this format for isotopes, counts,
    /// charges and atom-map numbers.
    fn number(&mut self) -> Check<Option<u32>> {
        let Some(mut value) = self.digit() else {
            return Ok(None);
        };
        while value > 0 {
            let Some(digit) = self.digit() else { break };
            match value.checked_mul(10).and_then(|v| v.checked_add(digit)) {
                Some(next) if next < i32::MAX as u32 => value = next,
                _ => return self.fail("number too large"),
            }
        }
        Ok(Some(value))
    }

    fn digit(&mut self) -> Option<u32> {
        let digit = self.peek().filter(u8::is_ascii_digit)?;
        self.at += 1;
        Some(u32::from(digit - b'0'))
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fail<T>(&self, expected: &'static str) -> Check<T> {
        Err(InvalidSmiles::Syntax { position: self.at + 1, expected })
    }
}

/// Returns the position of the bond symbol that RDKit ignores if the two ends of a ring closure
/// have different symbols. This is the closing symbol, unless the opening symbol is only a
/// direction.
fn contradiction(open: Option<(u8, usize)>, close: Option<(u8, usize)>) -> Option<usize> {
    let ((open, open_at), (close, close_at)) = (open?, close?);
    let directs = |symbol| matches!(symbol, b'/' | b'\\');
    match (directs(open), directs(close)) {
        // Directions are relative to their own atom, so the same symbol at both ends is a
        // contradiction.
        (true, true) => (open == close).then_some(close_at),
        (true, false) => Some(open_at),
        _ => (open != close).then_some(close_at),
    }
}

/// Chiral classes and their number of permutations (OpenSMILES, section 3.7).
pub(crate) const CHIRAL_CLASSES: [(&[u8], u32); 5] =
    [(b"TH", 2), (b"AL", 2), (b"SP", 3), (b"TB", 20), (b"OH", 30)];

/// Aromatic symbols, elements with one letter, and the wildcard.
const ONE_LETTER_SYMBOLS: &[u8] = b"HBCNOFPSIKVYWUbcnops*";

const TWO_LETTER_SYMBOLS: &[[u8; 2]] = &[
    *b"He", *b"Li", *b"Be", *b"Ne", *b"Na", *b"Mg", *b"Al", *b"Si", *b"Cl", *b"Ar", *b"Ca", *b"Sc",
    *b"Ti", *b"Cr", *b"Mn", *b"Fe", *b"Co", *b"Ni", *b"Cu", *b"Zn", *b"Ga", *b"Ge", *b"As", *b"Se",
    *b"Br", *b"Kr", *b"Rb", *b"Sr", *b"Zr", *b"Nb", *b"Mo", *b"Tc", *b"Ru", *b"Rh", *b"Pd", *b"Ag",
    *b"Cd", *b"In", *b"Sn", *b"Sb", *b"Te", *b"Xe", *b"Cs", *b"Ba", *b"La", *b"Ce", *b"Pr", *b"Nd",
    *b"Pm", *b"Sm", *b"Eu", *b"Gd", *b"Tb", *b"Dy", *b"Ho", *b"Er", *b"Tm", *b"Yb", *b"Lu", *b"Hf",
    *b"Ta", *b"Re", *b"Os", *b"Ir", *b"Pt", *b"Au", *b"Hg", *b"Tl", *b"Pb", *b"Bi", *b"Po", *b"At",
    *b"Rn", *b"Fr", *b"Ra", *b"Ac", *b"Th", *b"Pa", *b"Np", *b"Pu", *b"Am", *b"Cm", *b"Bk", *b"Cf",
    *b"Es", *b"Fm", *b"Md", *b"No", *b"Lr", *b"Rf", *b"Db", *b"Sg", *b"Bh", *b"Hs", *b"Mt", *b"Ds",
    *b"Rg", *b"Cn", *b"Nh", *b"Fl", *b"Mc", *b"Lv", *b"Ts", *b"Og", *b"si", *b"as", *b"se", *b"te",
];

#[cfg(test)]
mod tests;
