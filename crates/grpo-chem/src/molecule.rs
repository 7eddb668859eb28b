//! Molecules, based on the pure-Rust toolkit `chematic`, pinned and compared with RDKit.
//!
//! Only entry points that follow RDKit are used: `parse` does not sanitise, and its canonical form
//! and `sa_score` have other definitions.

use std::sync::Arc;

use chematic::chem::{
    hbd_count, logp_crippen, rdkit_molecular_weight, rdkit_tpsa, rotatable_bond_count,
};
use chematic::core::{BondOrder, DerivedSlot, Molecule as Graph};
use chematic::fp::{RdkitMorganConfig, rdkit_morgan_fingerprint};
use chematic::perception::rdkit_sssr_order::rdkit_symmetrized_sssr;
use chematic::perception::{
    AromaticityError, all_ring_list, rdkit_parity_view_is_identity, with_rdkit_parity_view,
};
use chematic::smiles::{
    RdkitSmilesError, SmilesError, parse_template, rdkit_canonical_smiles, rdkit_chiral_centers,
    rdkit_murcko_scaffold, rdkit_parsed_molecule,
};

use crate::dialect::{rewrite, without_stereo};
use crate::draw::draw;
use crate::error::InvalidSmiles;
use crate::grammar;
use crate::guard::guarded;
use crate::patterns::{count_acceptors, count_alerts};
use crate::qed::{Properties, qed};
use crate::rings::{count_aromatic_rings, count_rings, has_bridging_heteroarene};
use crate::sa::{Complexity, sa_score};

/// A sanitised molecule with checked grammar, valences and aromaticity.
pub struct Molecule {
    smiles: String,
    /// As written; stereo and scaffold are perceived from it.
    graph: Graph,
    /// As RDKit represents it; descriptors are computed from it.
    model: Graph,
    canonical: String,
    /// Computed during parsing, so that a failure rejects the molecule there.
    properties: Properties,
}

impl Molecule {
    /// Parses and sanitises a SMILES; surrounding blanks are ignored.
    ///
    /// # Errors
    /// Returns why RDKit or this crate (length, unsupported feature, panic of the toolkit) rejects
    /// the string.
    pub fn parse(smiles: &str) -> Result<Self, InvalidSmiles> {
        guarded(|| parse(smiles))?
    }

    /// Returns the canonical isomeric SMILES as RDKit's `MolToSmiles` writes it.
    pub fn canonical_smiles(&self) -> &str {
        &self.canonical
    }

    /// Returns the canonical isomeric SMILES without a copy.
    pub fn into_canonical(self) -> String {
        self.canonical
    }

    /// Returns the eight properties of QED as in `rdkit.Chem.QED.properties`.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the quantitative estimate of drug-likeness, 0 to 1.
    pub fn qed(&self) -> f64 {
        qed(&self.properties)
    }

    /// Returns the synthetic accessibility, 1 (easy) to 10 (hard).
    ///
    /// # Errors
    /// [`InvalidSmiles::Unsupported`] if the toolkit cannot count fragments or stereocentres (never
    /// seen with organic molecules), because a partial score would be silently wrong.
    /// [`InvalidSmiles::ToolkitPanic`].
    pub fn sa(&self) -> Result<f64, InvalidSmiles> {
        Ok(sa_score(&guarded(|| complexity(self))??))
    }

    /// Returns the Bemis–Murcko scaffold without stereo, as RDKit's `MurckoScaffoldSmiles`; empty
    /// without rings.
    ///
    /// # Errors
    /// [`InvalidSmiles::ToolkitPanic`].
    pub fn scaffold(&self) -> Result<String, InvalidSmiles> {
        guarded(|| scaffold(self))
    }

    /// Draws the molecule as an `<svg>` element for HTML, in the colours of the page. Its text
    /// consists of element symbols and numbers. Stereo is not drawn.
    ///
    /// # Errors
    /// [`InvalidSmiles::ToolkitPanic`].
    pub fn draw(&self) -> Result<String, InvalidSmiles> {
        guarded(|| draw(&self.model, &smallest_rings(&self.model)))
    }
}

fn parse(smiles: &str) -> Result<Molecule, InvalidSmiles> {
    let smiles = without_name(smiles)?;
    let dialect = grammar::check(smiles)?;
    let smiles = rewrite(smiles, &dialect).unwrap_or_else(|| smiles.to_owned());
    // The template parser does no chemistry. Writing the canonical form sanitises as RDKit does, so
    // all errors of valence and aromaticity come from there.
    let graph = parse_template(&smiles).map_err(from_parser)?;
    let canonical = rdkit_canonical_smiles(&graph).map_err(from_sanitizer)?;
    let model = sanitized(&graph);
    if has_bridging_heteroarene(&model, &smallest_rings(&model)) {
        let detail =
            "the aromaticity of a ring with O or S that bridges a ring of nine or more atoms";
        return Err(InvalidSmiles::Unsupported { detail: detail.to_owned() });
    }
    let properties = properties(&model);
    Ok(Molecule { smiles, graph, model, canonical, properties })
}

fn properties(model: &Graph) -> Properties {
    with_rdkit_parity_view(model, |view| {
        let view = view.unwrap_or(model);
        Properties {
            mw: rdkit_molecular_weight(model),
            logp: logp_crippen(model),
            tpsa: rdkit_tpsa(model),
            hba: count_acceptors(view),
            hbd: hbd_count(model) as u32,
            rotatable: rotatable_bond_count(model) as u32,
            aromatic_rings: count_aromatic_rings(view),
            alerts: count_alerts(view),
        }
    })
}

fn complexity(molecule: &Molecule) -> Result<Complexity, InvalidSmiles> {
    let model = &molecule.model;
    let stereocenters = rdkit_chiral_centers(&molecule.graph, true).map_err(from_sanitizer)?;
    let rings = count_rings(&smallest_rings(model));
    let fingerprint = rdkit_morgan_fingerprint(model, &RdkitMorganConfig::default())
        .map_err(|error| InvalidSmiles::Unsupported { detail: format!("no fragments: {error}") })?;
    // Sorted, because the order of a hash table would change the rounding of the sum.
    let mut fragments: Vec<(u32, u32)> = fingerprint.sparse_counts.into_iter().collect();
    fragments.sort_unstable();
    Ok(Complexity {
        atoms: model.atom_count(),
        stereocenters: stereocenters.len(),
        spiro_atoms: rings.spiro_atoms,
        bridgeheads: rings.bridgeheads,
        macrocycle: rings.macrocycle,
        fragments,
    })
}

fn scaffold(molecule: &Molecule) -> String {
    // RDKit writes the scaffold with `isomericSmiles=False`. Removing stereo and isotopes first is
    // equivalent, because they do not affect which atoms belong to the scaffold.
    let scaffold = match without_stereo(&molecule.smiles) {
        Some(plain) => parse_template(&plain).map(|graph| rdkit_murcko_scaffold(&graph)),
        None => Ok(rdkit_murcko_scaffold(&molecule.graph)),
    };
    scaffold.map_or_else(|_| String::new(), Result::unwrap_or_default)
}

/// Returns the SMILES of a line `SMILES name`. A CXSMILES extension is not a name, because it would
/// change the molecule.
fn without_name(line: &str) -> Result<&str, InvalidSmiles> {
    let line = line.trim_matches(|c: char| c.is_ascii_whitespace());
    match line.split_once([' ', '\t', '\n']) {
        Some((_, rest)) if rest.trim_start().starts_with('|') => Err(InvalidSmiles::Unsupported {
            detail: "a CXSMILES extension after the SMILES".to_owned(),
        }),
        Some((smiles, _)) => Ok(smiles),
        None => Ok(line),
    }
}

/// Returns the molecule as RDKit represents it after `MolFromSmiles`.
fn sanitized(graph: &Graph) -> Graph {
    // `None` means a lone hydrogen, which sanitising does not change.
    let model = rdkit_parsed_molecule(graph).unwrap_or_else(|| graph.clone());
    // The model has RDKit's aromaticity. Without this cache entry the descriptors would use a
    // second, less exact perception (seen with =[Se] next to a ring, and with metals in
    // porphyrins).
    if !rdkit_parity_view_is_identity(&model) {
        let view: Result<Graph, AromaticityError> = Ok(model.clone());
        model.seed_derived(DerivedSlot::RdkitParityAromatic, Arc::new(view));
    }
    model
}

fn from_parser(error: SmilesError) -> InvalidSmiles {
    InvalidSmiles::Unsupported { detail: error.to_string() }
}

fn from_sanitizer(error: RdkitSmilesError) -> InvalidSmiles {
    let detail = match error {
        RdkitSmilesError::Unsupported(detail) => return InvalidSmiles::Unsupported { detail },
        RdkitSmilesError::Sanitization(detail) => detail,
    };
    let atom = detail
        .split_once("atom # ")
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    let aromatic = ["Can't kekulize", "Kekulization", "non-ring atom"];
    match atom {
        Some(atom) => InvalidSmiles::Valence { atom, detail },
        None if aromatic.iter().any(|start| detail.starts_with(start)) => {
            InvalidSmiles::Kekulization { detail }
        }
        None => InvalidSmiles::Sanitization { detail },
    }
}

/// Returns RDKit's symmetrised smallest set of smallest rings.
fn smallest_rings(model: &Graph) -> Vec<Vec<usize>> {
    let bonds: Vec<(usize, usize, bool)> = model
        .bonds()
        .map(|(_, bond)| {
            let closes_rings = !matches!(bond.order, BondOrder::Zero | BondOrder::Dative);
            (bond.atom1.0 as usize, bond.atom2.0 as usize, closes_rings)
        })
        .collect();
    rdkit_symmetrized_sssr(model.atom_count(), &bonds).unwrap_or_else(|| {
        let rings = all_ring_list(model);
        rings.iter().map(|ring| ring.iter().map(|atom| atom.0 as usize).collect()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_label_of_its_cause() {
        for (detail, label) in [
            ("Explicit valence for atom # 12 N, 4, is greater than permitted", "atom 12 has"),
            (
                "Explicit valence for aromatic atom # 3 not equal to any accepted valence",
                "atom 3 has",
            ),
            ("Unreasonable formal charge on atom # 0.", "atom 0 has"),
            ("Can't kekulize mol.  Unkekulized atoms: 0 1", "the aromatic atoms"),
            ("Kekulization somehow screwed up valence on 2", "the aromatic atoms"),
            ("non-ring atom 0 marked aromatic", "the aromatic atoms"),
            ("something else", "sanitizing failed"),
        ] {
            let reason = from_sanitizer(RdkitSmilesError::Sanitization(detail.to_owned()));
            assert!(reason.to_string().starts_with(label), "{reason}");
        }
    }
}
