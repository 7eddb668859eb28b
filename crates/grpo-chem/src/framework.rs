//! Topological scaffolds: the ring systems and linkers of a molecule, regardless of elements and
//! bond orders.

use chematic::core::{Atom, BondOrder, Element, MoleculeBuilder};
use chematic::smiles::{parse_template, rdkit_canonical_smiles};

use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::{Molecule, from_parser, from_sanitizer, sanitized};

impl Molecule {
    /// Returns the Bemis–Murcko scaffold with carbon atoms and single bonds only, defined as in
    /// RDKit's `MakeScaffoldGeneric(GetScaffoldForMol(molecule))`. It contains the atoms that are
    /// attached to the scaffold by double bonds. Empty if the molecule has no rings.
    ///
    /// Atoms with more than four neighbors, which carbon cannot replace, become `*`. RDKit fails for
    /// such scaffolds.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn topological_scaffold(&self) -> Result<String, InvalidSmiles> {
        let scaffold = self.scaffold()?;
        if scaffold.is_empty() {
            return Ok(scaffold);
        }
        guarded(|| generic(&scaffold))?
    }
}

/// Maximum number of neighbors of a carbon atom.
const MAX_NEIGHBORS: usize = 4;

fn generic(scaffold: &str) -> Result<String, InvalidSmiles> {
    let scaffold = sanitized(&parse_template(scaffold).map_err(from_parser)?);
    let mut builder = MoleculeBuilder::new();
    let atoms: Vec<_> = scaffold
        .atoms()
        .map(|(index, atom)| {
            let is_hydrogen = !atom.wildcard && atom.element == Element::H;
            builder.add_atom(match scaffold.degree(index) > MAX_NEIGHBORS {
                true => Atom::wildcard(),
                false if is_hydrogen => Atom::organic(Element::H),
                false => Atom::organic(Element::C),
            })
        })
        .collect();
    for (_, bond) in scaffold.bonds() {
        let ends = [bond.atom1, bond.atom2].map(|end| atoms[end.0 as usize]);
        builder.add_bond(ends[0], ends[1], BondOrder::Single).map_err(|error| {
            InvalidSmiles::Unsupported { detail: format!("no topological scaffold: {error}") }
        })?;
    }
    rdkit_canonical_smiles(&builder.build()).map_err(from_sanitizer)
}
