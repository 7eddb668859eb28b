//! Fragments of a molecule at retrosynthetically interesting bonds (BRICS).
//!
//! Degen, Wegscheid-Gerlach, Zaliani, Rarey, "On the art of compiling and using 'drug-like' chemical
//! fragment spaces", ChemMedChem 3 (2008) 1503–1507. Environments and rules are those of RDKit
//! (`rdkit/Chem/BRICS.py`; see `data/LICENSE`). A fragment is cut out of the text of the SMILES, which
//! keeps its stereochemistry.

use std::collections::HashSet;
use std::sync::LazyLock;

use chematic::core::{AtomIdx, BondOrder, Molecule as Graph};
use chematic::perception::find_sssr_shared;
use chematic::smiles::{parse_template, rdkit_canonical_smiles};

use crate::dialect::split_token;
use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::{Molecule, from_parser, from_sanitizer, sanitized};
use crate::query::Pattern;

/// Number and definition of each environment.
const ENVIRONMENTS: [(u8, &str); 15] = [
    (1, "[C;D3]([#0,#6,#7,#8])(=O)"),
    (3, "[O;D2]-;!@[#0,#6,#1]"),
    (4, "[C;!D1;!$(C=*)]-;!@[#6]"),
    (5, "[N;!D1;!$(N=*);!$(N-[!#6;!#16;!#0;!#1]);!$([N;R]@[C;R]=O)]"),
    (6, "[C;D3;!R](=O)-;!@[#0,#6,#7,#8]"),
    (7, "[C;D2,D3]-[#6]"),
    (8, "[C;!R;!D1;!$(C!-*)]"),
    (9, "[n;+0;$(n(:[c,n,o,s]):[c,n,o,s])]"),
    (10, "[N;R;$(N(@C(=O))@[C,N,O,S])]"),
    (11, "[S;D2](-;!@[#0,#6])"),
    (12, "[S;D4]([#6,#0])(=O)(=O)"),
    (13, "[C;$(C(-;@[C,N,O,S])-;@[N,O,S])]"),
    (14, "[c;$(c(:[c,n,o,s]):[n,o,s])]"),
    (15, "[C;$(C(-;@C)-;@C)]"),
    (16, "[c;$(c(:c):c)]"),
];

/// Pairs of environments between which a bond is cut, in RDKit's order. For a bond that meets several
/// rules, the last one counts.
#[rustfmt::skip]
const RULES: [(u8, u8); 46] = [
    (1, 3), (1, 5), (1, 10),
    (3, 4), (3, 13), (3, 14), (3, 15), (3, 16),
    (4, 5), (4, 11),
    (5, 12), (5, 14), (5, 16), (5, 13), (5, 15),
    (6, 13), (6, 14), (6, 15), (6, 16),
    DOUBLE,
    (8, 9), (8, 10), (8, 13), (8, 14), (8, 15), (8, 16),
    (9, 13), (9, 14), (9, 15), (9, 16),
    (10, 13), (10, 14), (10, 15), (10, 16),
    (11, 13), (11, 14), (11, 15), (11, 16),
    (13, 14), (13, 15), (13, 16),
    (14, 14), (14, 15), (14, 16),
    (15, 16),
    (16, 16),
];

/// The only rule for double bonds. All others are for single bonds.
const DOUBLE: (u8, u8) = (7, 7);

impl Molecule {
    /// Returns the canonical SMILES of the BRICS fragments in ascending order, with labelled dummy
    /// atoms at the cut bonds, e.g. `[16*]c1ccccc1`. They are equal to the fragments of RDKit's
    /// `FragmentOnBRICSBonds` for the canonical SMILES. A molecule without such bonds, and each part
    /// of a salt, is a fragment itself.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the toolkit cannot find an environment or write a
    /// fragment, and [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn brics_fragments(&self) -> Result<Vec<String>, InvalidSmiles> {
        let canonical = self.canonical_smiles();
        if self.smiles() == canonical {
            return fragments(canonical, self.model());
        }
        let graph = guarded(|| parse_template(canonical))?.map_err(from_parser)?;
        fragments(canonical, &guarded(|| sanitized(&graph))?)
    }
}

/// Cuts a molecule. The atoms of `smiles` must have the order of those of `model`.
fn fragments(smiles: &str, model: &Graph) -> Result<Vec<String>, InvalidSmiles> {
    let texts = cut(smiles, &Labels::new(model)?);
    let canonical = |text: &String| {
        guarded(|| {
            let graph = parse_template(text).map_err(from_parser)?;
            rdkit_canonical_smiles(&graph).map_err(from_sanitizer)
        })?
    };
    let mut fragments: Vec<String> = texts.iter().map(canonical).collect::<Result<_, _>>()?;
    fragments.sort_unstable();
    Ok(fragments)
}

/// Decides which bonds of a molecule are cut.
struct Labels<'a> {
    model: &'a Graph,
    /// The environments of each atom as a bit mask.
    environments: Vec<u32>,
    ring_bonds: HashSet<(u32, u32)>,
}

impl<'a> Labels<'a> {
    fn new(model: &'a Graph) -> Result<Self, InvalidSmiles> {
        static PATTERNS: LazyLock<Vec<(u8, Pattern)>> = LazyLock::new(|| {
            let parsed = |smarts: &str| Pattern::parse(&format!("[$({smarts})]"));
            let pattern = |(number, smarts)| (number, parsed(smarts).expect("a valid pattern"));
            ENVIRONMENTS.into_iter().map(pattern).collect()
        });
        let mut environments = vec![0; model.atom_count()];
        for (number, pattern) in PATTERNS.iter() {
            for atom in pattern.first_atoms(model)? {
                environments[atom as usize] |= 1 << number;
            }
        }
        let rings = guarded(|| find_sssr_shared(model))?;
        let mut ring_bonds = HashSet::new();
        for ring in rings.rings() {
            for (a, b) in ring.iter().zip(ring.iter().cycle().skip(1)) {
                ring_bonds.insert((a.0.min(b.0), a.0.max(b.0)));
            }
        }
        Ok(Self { model, environments, ring_bonds })
    }

    /// Returns the labels of the dummy atoms that are attached to the two atoms of a bond, if it is
    /// cut. `first` must be smaller than `second`.
    fn of(&self, first: usize, second: usize) -> Option<(u8, u8)> {
        let (a, b) = (first as u32, second as u32);
        let (_, bond) = self.model.bond_between(AtomIdx(a), AtomIdx(b))?;
        let is_double = match bond.order {
            BondOrder::Single | BondOrder::Up | BondOrder::Down => false,
            BondOrder::Double => true,
            _ => return None,
        };
        if self.ring_bonds.contains(&(a, b)) {
            return None;
        }
        let has = |atom: usize, number: u8| (self.environments[atom] >> number) & 1 != 0;
        RULES.iter().rev().filter(|rule| (**rule == DOUBLE) == is_double).find_map(|&(x, y)| {
            if has(first, x) && has(second, y) {
                Some((x, y))
            } else {
                (has(first, y) && has(second, x)).then_some((y, x))
            }
        })
    }
}

/// Returns the text of each fragment. Only bonds between consecutive atoms of the text are cut,
/// because the others close rings.
fn cut(smiles: &str, labels: &Labels) -> Vec<String> {
    let mut fragments = vec![String::new()];
    // The fragment that is being written and its last atom, and those at each open branch.
    let (mut current, mut last) = (0, None);
    let mut branches = Vec::new();
    let (mut bond, mut atoms) = ("", 0);
    let mut rest = smiles;
    while let Some((token, following)) = split_atom(rest) {
        rest = following;
        match token {
            "(" => {
                branches.push((current, last));
                fragments[current].push('(');
            }
            ")" => {
                (current, last) = branches.pop().unwrap_or((current, last));
                fragments[current].push(')');
            }
            "." => {
                (current, last) = (fragments.len(), None);
                fragments.push(String::new());
            }
            _ if is_atom(token) => {
                match last.and_then(|last| labels.of(last, atoms)) {
                    Some((before, after)) => {
                        fragments[current].push_str(&format!("{bond}[{before}*]"));
                        current = fragments.len();
                        fragments.push(format!("[{after}*]{bond}{token}"));
                    }
                    None => fragments[current].extend([bond, token]),
                }
                (bond, last) = ("", Some(atoms));
                atoms += 1;
            }
            _ if token.starts_with(|c: char| c.is_ascii_digit() || c == '%') => {
                fragments[current].extend([bond, token]);
                bond = "";
            }
            _ => bond = token,
        }
    }
    fragments
}

/// Splits off the first token. Unlike [`split_token`], it keeps the letters of Cl and Br together.
fn split_atom(text: &str) -> Option<(&str, &str)> {
    match text.as_bytes() {
        [b'C', b'l', ..] | [b'B', b'r', ..] => text.split_at_checked(2),
        _ => split_token(text),
    }
}

fn is_atom(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '[' || c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with RDKit 2026.09: `MolToSmiles(FragmentOnBRICSBonds(molecule)).split(".")`.
    #[test]
    fn fragments_are_those_of_rdkit() {
        for (smiles, expected) in [
            ("CC", "CC"),
            ("CCN.Cl", "CCN.Cl"),
            ("CC(=O)Oc1ccccc1C(=O)O", "[1*]C(C)=O.[16*]c1ccccc1[16*].[3*]O[3*].[6*]C(=O)O"),
            (r"C/C=C/C", "[7*]=CC.[7*]=CC"),
            (
                "C[C@H](N)C(=O)N[C@@H](Cc1ccccc1)C(=O)O",
                "[1*]C(=O)[C@H](C)N.[16*]c1ccccc1.[4*][C@@H](C[8*])C(=O)O.[5*]N[5*]",
            ),
            (
                "O=C(/C=C/c1ccccc1)NC1CCN(c2ncccn2)CC1",
                "[1*]C(=O)C=[7*].[14*]c1ncccn1.[5*]N1CCC([15*])CC1.[5*]N[5*].[7*]=Cc1ccccc1",
            ),
            ("CSc1ccc(Cl)cc1", "[11*]SC.[16*]c1ccc(Cl)cc1"),
            ("CC1(Br)CC1c1ccc[nH]1", "[14*]c1ccc[nH]1.[15*]C1CC1(C)Br"),
            ("CCCCS(=O)(=O)N(C)CC", "[12*]S(=O)(=O)CCCC.[4*]CC.[5*]N([5*])C"),
            ("O=C1CCCN1Cn1cccn1", "[10*]N1CCCC1=O.[8*]C[8*].[9*]n1cccn1"),
            ("F/C(Cl)=C(/OC)c1ccccc1", "CO/C(=C(/F)Cl)c1ccccc1"),
            // Read in another order and with a bond that is not in a ring but written like one.
            ("c1ccccc1C2.N2(C)CC", "[16*]c1ccccc1.[4*]CC.[4*]C[8*].[5*]N([5*])C"),
        ] {
            let found = Molecule::parse(smiles).unwrap().brics_fragments().unwrap();
            assert_eq!(found.join("."), expected, "{smiles}");
        }
    }
}
