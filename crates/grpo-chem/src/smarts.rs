//! Validates SMARTS patterns before they are parsed by the toolkit.
//!
//! The toolkit's parser accepts `C-;C`, `C()` and `[C&&N]`, and it reports most errors without a
//! position. This module accepts the language of RDKit's parser
//! (`Code/GraphMol/SmilesParse/smarts.yy`), within limits on length and nesting:
//!
//! ```text
//! pattern = atom step*
//! step    = bond? atom | '.' atom | bond? label | '(' bond? atom | ')'
//! atom    = organic | '*' | 'a' | 'A' | '[' query (operator? query)* map? ']'
//! query   = '!' query | '$(' pattern ')' | primitive
//! bond    = '!'* symbol (operator? '!'* symbol)*
//! ```

use crate::error::InvalidSmarts;

/// Maximum length of a pattern in bytes. The longest pattern in RDKit's filter catalogs has fewer
/// than 500. The limit restricts the call stack and the time of a search.
const MAX_LENGTH: usize = 2_000;

/// Maximum number of nested branches, including those in `$(…)`.
const MAX_BRANCHES: usize = 200;

/// Maximum number of nested `$(…)`. This is the limit of the toolkit's parser.
const MAX_NESTING: usize = 8;

/// A search ignores stereochemistry, like RDKit's by default, so such a pattern would match other
/// stereoisomers too.
const STEREO: &str = "stereochemistry, which the search would ignore; remove '/' and '\\' between atoms and '@' in brackets";

const EXPECTED_STEP: &str = "expected an atom, a bond, a branch or a ring-closure label";

/// Checks a pattern that begins at the byte `start` of a text.
pub(crate) fn check(text: &str, start: usize) -> Result<(), InvalidSmarts> {
    let length = text.len() - start;
    if length == 0 {
        return Err(InvalidSmarts::Empty);
    }
    if length > MAX_LENGTH {
        return Err(InvalidSmarts::TooLong { length, limit: MAX_LENGTH });
    }
    let mut checker = Checker { text: text.as_bytes(), at: start, branches: 0, nesting: 0 };
    checker.pattern()?;
    match checker.peek() {
        None => Ok(()),
        Some(b')') => checker.fail("a branch is closed but was never opened"),
        Some(byte) if byte.is_ascii_whitespace() => checker.fail("whitespace within the pattern"),
        Some(_) => checker.fail(checker.not_an_element().unwrap_or(EXPECTED_STEP)),
    }
}

/// A recursive-descent parser. Positions in bytes are equal to positions in characters, because it
/// stops at the first character that is not ASCII.
struct Checker<'a> {
    text: &'a [u8],
    at: usize,
    branches: usize,
    nesting: usize,
}

/// The ring closures of a pattern.
#[derive(Default)]
struct Rings<'a> {
    open: Vec<OpenRing<'a>>,
    /// Pairs of bonded atoms, the smaller index first.
    bonds: Vec<(usize, usize)>,
    /// Bonds that close rings, with their positions. They are checked when all bonds are known.
    closures: Vec<((usize, usize), usize)>,
}

struct OpenRing<'a> {
    label: u32,
    atom: usize,
    bond: &'a [u8],
    position: usize,
}

type Check<T = ()> = Result<T, InvalidSmarts>;

impl<'a> Checker<'a> {
    /// Parses a pattern up to its end or to a `)` that it did not open.
    fn pattern(&mut self) -> Check {
        let mut rings = Rings::default();
        let mut open = Vec::new();
        self.atom()?;
        let (mut current, mut atoms) = (0, 1);
        while let Some(byte) = self.peek() {
            let start = self.at;
            let bond = match byte {
                b')' => {
                    let Some((atom, _)) = open.pop() else { break };
                    self.at += 1;
                    self.branches -= 1;
                    current = atom;
                    continue;
                }
                b'(' => {
                    self.at += 1;
                    open.push((current, start));
                    self.branches += 1;
                    if self.branches > MAX_BRANCHES {
                        return self.unsupported(start, "more than 200 nested branches");
                    }
                    self.bond()?
                }
                b'.' => {
                    self.at += 1;
                    self.atom()?;
                    current = atoms;
                    atoms += 1;
                    continue;
                }
                _ => self.bond()?,
            };
            let is_label = matches!(self.peek(), Some(b'0'..=b'9' | b'%')) && byte != b'(';
            if is_label {
                self.ring_closure(&mut rings, current, bond)?;
                continue;
            }
            if bond.is_empty() && byte != b'(' && !self.starts_atom() {
                break;
            }
            self.atom()?;
            rings.bonds.push((current, atoms));
            current = atoms;
            atoms += 1;
        }
        if let Some((_, position)) = open.last() {
            return self.fail_at(*position, "a branch is opened but never closed");
        }
        self.finish(rings)
    }

    fn finish(&self, mut rings: Rings) -> Check {
        if let Some(ring) = rings.open.first() {
            return self.fail_at(ring.position, "a ring closure is opened but never closed");
        }
        for (ends, position) in rings.closures {
            if rings.bonds.contains(&ends) {
                let problem = "a ring closure joins two atoms that are already bonded";
                return self.fail_at(position, problem);
            }
            rings.bonds.push(ends);
        }
        Ok(())
    }

    fn ring_closure(&mut self, rings: &mut Rings<'a>, atom: usize, bond: &'a [u8]) -> Check {
        let position = self.at;
        let label = self.label()?;
        let Some(open) = rings.open.iter().position(|ring| ring.label == label) else {
            rings.open.push(OpenRing { label, atom, bond, position });
            return Ok(());
        };
        let open = rings.open.remove(open);
        if open.atom == atom {
            return self.fail_at(position, "a ring closure joins an atom to itself");
        }
        if !open.bond.is_empty() && !bond.is_empty() && open.bond != bond {
            return self.unsupported(position, "a ring closure with two different bonds");
        }
        rings.closures.push(((open.atom.min(atom), open.atom.max(atom)), position));
        Ok(())
    }

    fn label(&mut self) -> Check<u32> {
        let start = self.at;
        if !self.take(b'%') {
            return match self.digit() {
                Some(digit) => Ok(digit),
                None => self.fail("expected a ring-closure label"),
            };
        }
        if self.peek() == Some(b'(') {
            return self.unsupported(start, "a ring-closure label in parentheses");
        }
        match (self.digit(), self.digit()) {
            (Some(tens @ 1..), Some(units)) => Ok(tens * 10 + units),
            _ => self.fail_at(start, "expected two digits, the first not 0, after '%'"),
        }
    }

    /// Parses an optional bond and returns its text.
    fn bond(&mut self) -> Check<&'a [u8]> {
        let start = self.at;
        if !self.bond_symbol()? {
            return Ok(&[]);
        }
        loop {
            if self.take_any(b"&,;") {
                if !self.bond_symbol()? {
                    return self.fail("expected a bond");
                }
            } else if !self.bond_symbol()? {
                return Ok(&self.text[start..self.at]);
            }
        }
    }

    /// Parses an optional bond symbol with its negations.
    fn bond_symbol(&mut self) -> Check<bool> {
        let mut negated = false;
        while self.take(b'!') {
            negated = true;
        }
        let length = match (self.peek(), self.text.get(self.at + 1)) {
            (Some(b'-'), Some(b'>')) | (Some(b'<'), Some(b'-')) | (Some(b'\\'), Some(b'\\')) => 2,
            (Some(b'-' | b'=' | b'#' | b':' | b'$' | b'~' | b'@' | b'/' | b'\\'), _) => 1,
            _ if negated => return self.fail("expected a bond after '!'"),
            _ => 0,
        };
        if matches!(self.peek(), Some(b'/' | b'\\')) {
            return self.unsupported(self.at, STEREO);
        }
        self.at += length;
        Ok(length > 0)
    }

    fn starts_atom(&self) -> bool {
        self.peek().is_some_and(|byte| b"[*aABCNOPSFIbcnops".contains(&byte))
    }

    /// Returns the reason why a letter is not an atom outside of brackets.
    fn not_an_element(&self) -> Option<&'static str> {
        match self.peek()? {
            b'H' => Some("hydrogen must be written as [H]"),
            byte if byte.is_ascii_alphabetic() => {
                Some("only B, C, N, O, P, S, F, Cl, Br and I can be written without brackets")
            }
            _ => None,
        }
    }

    fn atom(&mut self) -> Check {
        let start = self.at;
        if self.take(b'[') {
            return self.bracket_atom(start);
        }
        if !self.starts_atom() {
            let expected = self.not_an_element().unwrap_or("expected an atom");
            return self.fail(expected);
        }
        let pair = self.text.get(self.at..self.at + 2);
        self.at += if matches!(pair, Some(b"Cl" | b"Br")) { 2 } else { 1 };
        Ok(())
    }

    /// Parses the rest of a bracket atom whose `[` is at `start`.
    fn bracket_atom(&mut self, start: usize) -> Check {
        self.query()?;
        loop {
            match self.peek() {
                None => return self.fail_at(start, "a bracket is opened but never closed"),
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b':') => {
                    self.at += 1;
                    if self.number()?.is_none() {
                        return self.fail("expected an atom-map number after ':'");
                    }
                    if !self.take(b']') {
                        return self.fail("expected ']' after the atom-map number");
                    }
                    return Ok(());
                }
                Some(b'&' | b',' | b';') => self.at += 1,
                Some(_) => {}
            }
            self.query()?;
        }
    }

    fn query(&mut self) -> Check {
        while self.take(b'!') {}
        match self.text.get(self.at..self.at + 2) {
            Some(b"$(") => self.recursive(),
            _ => self.primitive(),
        }
    }

    fn recursive(&mut self) -> Check {
        let start = self.at;
        if self.nesting == MAX_NESTING {
            return self.unsupported(start, "more than 8 nested '$(…)'");
        }
        self.at += 2;
        self.nesting += 1;
        self.pattern()?;
        self.nesting -= 1;
        if self.peek().is_none() {
            return self.fail_at(start, "'$(' is never closed");
        }
        if !self.take(b')') {
            return self.fail(self.not_an_element().unwrap_or(EXPECTED_STEP));
        }
        if self.peek() == Some(b'_') {
            return self.unsupported(self.at, "a label after '$(…)'");
        }
        Ok(())
    }

    /// Parses a condition on an atom. An isotope can be followed by an element or be a condition by
    /// itself.
    fn primitive(&mut self) -> Check {
        let has_number = self.number()?.is_some();
        let rest = &self.text[self.at..];
        let has_symbol = |length: usize| {
            rest.get(..length)
                .is_some_and(|symbol| SYMBOLS.split(|b| *b == b' ').any(|s| s == symbol))
        };
        // The longest symbol wins: `[Sc]` is scandium, and `[Xx]` is a connectivity and a ring bond
        // count.
        if rest.starts_with(b"Nh") {
            return self.unsupported(self.at, "'Nh', which the toolkit reads as nihonium");
        }
        if rest.starts_with(b"as") {
            let detail = "'as', which the toolkit reads as 'a' and 's'; write $([#33;a])";
            return self.unsupported(self.at, detail);
        }
        if has_symbol(3) || has_symbol(2) || has_symbol(1) {
            self.at += if has_symbol(3) { 3 } else { 1 + usize::from(has_symbol(2)) };
            return Ok(());
        }
        match rest.first() {
            Some(b'#') => {
                self.at += 1;
                match self.number()? {
                    Some(_) => Ok(()),
                    None => self.fail("expected an atomic number after '#'"),
                }
            }
            Some(b'H') => {
                self.at += 1;
                self.number().map(|_| ())
            }
            _ if has_number => Ok(()),
            Some(b'D' | b'X' | b'v' | b'R' | b'd' | b'k' | b'z' | b'Z' | b'x' | b'h' | b'r') => {
                self.at += 1;
                if self.number()?.is_some() { Ok(()) } else { self.range() }
            }
            Some(sign @ (b'+' | b'-')) => {
                self.at += 1;
                if self.text[self.at..].starts_with(b"{-") && *sign == b'-' {
                    return self
                        .unsupported(self.at, "a range of negative charges without a start");
                }
                if self.take(*sign) || self.number()?.is_some() { Ok(()) } else { self.range() }
            }
            Some(b'@') => self.unsupported(self.at, STEREO),
            Some(b'^') if matches!(rest.get(1), Some(b'0'..=b'5')) => {
                self.at += 2;
                Ok(())
            }
            Some(b'^') => self.fail("expected a hybridization from 0 to 5 after '^'"),
            Some(b'$') => self.fail("expected '(' after '$'"),
            None | Some(b']') => self.fail("expected a condition on the atom"),
            Some(_) => self.fail("not a condition on an atom"),
        }
    }

    /// Parses an optional range: `{1-3}`, `{1-}` or `{-3}`.
    fn range(&mut self) -> Check {
        if !self.take(b'{') {
            return Ok(());
        }
        let low = self.number()?;
        let has_dash = self.take(b'-');
        let high = self.number()?;
        if has_dash && (low.is_some() || high.is_some()) && self.take(b'}') {
            return Ok(());
        }
        self.fail("expected a range such as {1-3}, {1-} or {-3}")
    }

    /// Parses a number without leading zeros.
    fn number(&mut self) -> Check<Option<u32>> {
        let start = self.at;
        let Some(mut value) = self.digit() else { return Ok(None) };
        while value > 0 {
            let Some(digit) = self.digit() else { break };
            value = match value.checked_mul(10).and_then(|value| value.checked_add(digit)) {
                Some(next) if next < i32::MAX as u32 => next,
                _ => return self.fail_at(start, "the number is too large"),
            };
        }
        Ok(Some(value))
    }

    fn digit(&mut self) -> Option<u32> {
        let digit = self.peek().filter(u8::is_ascii_digit)?;
        self.at += 1;
        Some(u32::from(digit - b'0'))
    }

    fn take(&mut self, byte: u8) -> bool {
        self.take_any(&[byte])
    }

    fn take_any(&mut self, bytes: &[u8]) -> bool {
        let found = self.peek().is_some_and(|byte| bytes.contains(&byte));
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn fail<T>(&self, expected: &'static str) -> Check<T> {
        self.fail_at(self.at, expected)
    }

    fn fail_at<T>(&self, at: usize, expected: &'static str) -> Check<T> {
        Err(InvalidSmarts::Syntax { position: at + 1, expected })
    }

    fn unsupported<T>(&self, at: usize, detail: &str) -> Check<T> {
        Err(InvalidSmarts::Unsupported { position: at + 1, detail: detail.to_owned() })
    }
}

/// Symbols that RDKit knows in brackets. `H` has its own rules.
const SYMBOLS: &[u8] = b"* a A B C N O F P S I b c n o p s Cl Br si as se te \
    He Li Be Ne Na Mg Al Si Ar K Ca Sc Ti V Cr Mn Co Fe Ni Cu Zn Ga Ge As Se Kr Rb Sr Y Zr Nb Mo Tc \
    Ru Rh Pd Ag Cd In Sn Sb Te Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os \
    Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs \
    Mt Ds Rg Cn Fl Lv";
