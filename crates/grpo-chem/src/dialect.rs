//! Rewrites valid SMILES strings that the toolkit's parser does not support.
//!
//! RDKit accepts `C(C.O)N` (a `.` inside a branch), ring closures with different bond symbols at
//! both ends, `\\` instead of `\`, `%(7)` instead of `7`, and `[#6]` instead of `[C]`. These
//! constructs are rare, so it is sufficient to rewrite them in terms of supported syntax.

use chematic::core::Element;

use crate::grammar::Dialect;

/// Rewrites the constructs listed in `dialect`. Returns `None` if there are none.
///
/// `smiles` must have been validated by [`grammar::check`](crate::grammar), which returns
/// `dialect`.
pub(crate) fn rewrite(smiles: &str, dialect: &Dialect) -> Option<String> {
    if *dialect == Dialect::default() {
        return None;
    }
    let mut writer = Writer {
        levels: vec![Level::default()],
        detached: Vec::new(),
        open_rings: Vec::new(),
        labels: 0,
    };
    let mut rest = smiles;
    while let Some((token, following)) = split_token(rest) {
        let position = smiles.len() - rest.len();
        let ignored = dialect.ignored_bonds.contains(&position);
        rest = following;
        if !ignored {
            writer.push(token);
        }
    }
    Some(writer.finish())
}

/// Replaces an atomic number (`#6`) in a bracket atom with the element symbol.
fn with_symbol(atom: &str) -> String {
    let Some((before, number)) = atom.split_once('#') else { return atom.to_owned() };
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    let (number, after) = number.split_at(digits);
    let element = number.parse().ok().and_then(Element::from_atomic_number);
    let symbol = element.map_or("*", |element| element.symbol());
    format!("{before}{symbol}{after}")
}

/// Removes stereochemistry and isotopes, except hydrogen isotopes. Returns `None` if the SMILES has
/// neither.
///
/// `smiles` must have been validated by [`grammar::check`](crate::grammar).
pub(crate) fn without_stereo(smiles: &str) -> Option<String> {
    let mut plain = String::with_capacity(smiles.len());
    let mut rest = smiles;
    while let Some((token, following)) = split_token(rest) {
        rest = following;
        match token {
            "/" | "\\" | "\\\\" => {}
            _ if token.starts_with('[') => push_plain_atom(&mut plain, token),
            _ => plain.push_str(token),
        }
    }
    (plain != smiles).then_some(plain)
}

/// Removes isotopes and atom-map numbers. Returns `None` if the SMILES has neither.
///
/// `smiles` must have been validated by [`grammar::check`](crate::grammar).
pub(crate) fn without_labels(smiles: &str) -> Option<String> {
    let mut plain = String::with_capacity(smiles.len());
    let mut rest = smiles;
    while let Some((token, following)) = split_token(rest) {
        rest = following;
        match token.strip_prefix('[') {
            Some(atom) => {
                let atom = atom.trim_start_matches(|c: char| c.is_ascii_digit());
                plain.push('[');
                plain.push_str(atom.split_once(':').map_or(atom, |(unmapped, _)| unmapped));
                if atom.contains(':') {
                    plain.push(']');
                }
            }
            None => plain.push_str(token),
        }
    }
    (plain != smiles).then_some(plain)
}

/// Appends a bracket atom without chirality and isotope, e.g. `[CH]` for `[13C@@H]`.
fn push_plain_atom(plain: &mut String, atom: &str) {
    let inside = &atom[1..];
    let symbol = inside.trim_start_matches(|c: char| c.is_ascii_digit());
    // Hydrogen isotopes such as deuterium are kept as explicit atoms, so their labels must remain.
    let is_hydrogen =
        symbol.starts_with('H') && !symbol[1..].starts_with(|c: char| c.is_ascii_lowercase());
    let kept = if is_hydrogen { inside } else { symbol };
    plain.push('[');
    match kept.split_once('@') {
        Some((symbol, chirality)) => {
            plain.push_str(symbol);
            let chirality = chirality.trim_start_matches('@');
            let classes = ["TH", "AL", "SP", "TB", "OH"];
            let class = classes.iter().find_map(|class| chirality.strip_prefix(class));
            plain.push_str(class.map_or(chirality, |number| {
                number.trim_start_matches(|c: char| c.is_ascii_digit())
            }));
        }
        None => plain.push_str(kept),
    }
}

/// A nesting level of branches: completed fragments and the text of the current fragment.
#[derive(Default)]
struct Level {
    fragments: Vec<String>,
    current: String,
}

struct Writer {
    levels: Vec<Level>,
    /// Fragments that follow a `.` inside a branch. They are appended at the end.
    detached: Vec<String>,
    /// Old and new label of each open ring. Every ring has a unique new label, so fragments can be
    /// moved.
    open_rings: Vec<(String, u32)>,
    labels: u32,
}

impl Writer {
    fn push(&mut self, token: &str) {
        let nested = self.levels.len() > 1;
        match (token, self.levels.last_mut()) {
            ("(", _) => self.levels.push(Level::default()),
            (")", _) => self.close_branch(),
            (".", Some(level)) if nested => {
                let fragment = std::mem::take(&mut level.current);
                level.fragments.push(fragment);
            }
            ("\\\\", Some(level)) => level.current.push('\\'),
            (label, Some(_)) if label.starts_with(|c: char| c.is_ascii_digit() || c == '%') => {
                self.push_ring(label)
            }
            (atom, Some(level)) if atom.starts_with('[') => {
                level.current.push_str(&with_symbol(atom))
            }
            (token, Some(level)) => level.current.push_str(token),
            (_, None) => {}
        }
    }

    fn close_branch(&mut self) {
        let Some(mut level) = self.levels.pop() else { return };
        level.fragments.push(level.current);
        let mut fragments = level.fragments.into_iter();
        let branch = fragments.next().unwrap_or_default();
        self.detached.extend(fragments);
        if let Some(parent) = self.levels.last_mut() {
            parent.current.push_str(&format!("({branch})"));
        }
    }

    fn push_ring(&mut self, label: &str) {
        let label = label.trim_matches(['%', '(', ')']);
        // `%01` is invalid, but `%(01)` is equivalent to `1`.
        let label = match label.trim_start_matches('0') {
            "" => "0",
            trimmed => trimmed,
        };
        let renamed = match self.open_rings.iter().position(|(old, _)| old == label) {
            Some(open) => self.open_rings.swap_remove(open).1,
            None => {
                self.labels += 1;
                self.open_rings.push((label.to_owned(), self.labels));
                self.labels
            }
        };
        if let Some(level) = self.levels.last_mut() {
            level.current.push_str(&match renamed {
                0..=9 => renamed.to_string(),
                10..=99 => format!("%{renamed}"),
                _ => format!("%({renamed})"),
            });
        }
    }

    fn finish(self) -> String {
        let whole = self.levels.into_iter().map(|level| level.current);
        let parts: Vec<String> = whole.chain(self.detached).collect();
        parts.join(".")
    }
}

/// Splits off the first token: a bracket atom, a `%` label, a double backslash, or one character.
pub(crate) fn split_token(text: &str) -> Option<(&str, &str)> {
    let length = match text.as_bytes() {
        [] => return None,
        [b'[', ..] => text.find(']')? + 1,
        [b'%', b'(', ..] => text.find(')')? + 1,
        [b'%', ..] => 3,
        [b'\\', b'\\', ..] | [b'-', b'>', ..] | [b'<', b'-', ..] => 2,
        _ => 1,
    };
    text.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar;

    #[test]
    fn rewrites_only_what_the_toolkit_does_not_read() {
        for (smiles, expected) in [
            ("C1CC1(C)C.O", None),
            ("C(C.O)N", Some("C(C)N.O")),
            ("C(C(F.Cl)Br.O)N", Some("C(C(F)Br)N.Cl.O")),
            ("C1(C2.C1)CC2", Some("C1(C2)CC2.C1")),
            ("C(C1.C2CC2)CC1", Some("C(C1)CC1.C2CC2")),
            (r"F/C=C\\F", Some(r"F/C=C\F")),
            ("C%(07)CC7", Some("C1CC1")),
            ("C=1CC#1", Some("C=1CC1")),
            ("[13#6H3:2]", Some("[13CH3:2]")),
            ("[#0]C", Some("[*]C")),
        ] {
            let dialect = grammar::check(smiles).unwrap();
            assert_eq!(rewrite(smiles, &dialect).as_deref(), expected, "{smiles}");
        }
    }

    #[test]
    fn drops_stereo_and_isotopes() {
        for (smiles, expected) in [
            ("CC(N)=O", None),
            ("[2H]C", None),
            ("F/C=C/F", Some("FC=CF")),
            ("[13C@@H2:1]", Some("[CH2:1]")),
            ("[C@](F)(Cl)(Br)I", Some("[C](F)(Cl)(Br)I")),
            ("[Co@OH24+3]", Some("[Co+3]")),
            ("[13He]", Some("[He]")),
        ] {
            assert_eq!(without_stereo(smiles).as_deref(), expected, "{smiles}");
        }
    }

    #[test]
    fn drops_labels() {
        for (smiles, expected) in [
            ("C[C@H](N)O", None),
            ("C1CC1C%12CC%12", None),
            ("[2H]OCC", Some("[H]OCC")),
            ("[13CH3:2][C@@H:13](N)O", Some("[CH3][C@@H](N)O")),
            ("C[12C@OH24:1]", Some("C[C@OH24]")),
            ("[235U+2]:[13c:7]1", Some("[U+2]:[c]1")),
        ] {
            assert_eq!(without_labels(smiles).as_deref(), expected, "{smiles}");
        }
    }
}
