//! Molecules, by the pure-Rust toolkit `chematic`, pinned and measured against RDKit.
//!
//! Only its entry points that follow RDKit are used; its own `parse` does not sanitise, its own canonical form and
//! `sa_score` are other definitions under the same names.

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

/// A sanitised molecule: grammar, valences and aromaticity have been checked.
pub struct Molecule {
    smiles: String,
    /// As it was written: stereo and scaffold are perceived from here.
    graph: Graph,
    /// As RDKit holds it: the descriptors count here.
    model: Graph,
    canonical: String,
    /// Counted while parsing, so that a toolkit that fails at it refuses the molecule there.
    properties: Properties,
}

impl Molecule {
    /// Reads a SMILES (surrounding blanks are ignored) and sanitises it.
    ///
    /// # Errors
    /// The reason why RDKit would refuse the string, or why this crate does (length, a feature without support, a panic
    /// of the toolkit).
    pub fn parse(smiles: &str) -> Result<Self, InvalidSmiles> {
        guarded(|| parse(smiles))?
    }

    /// The canonical isomeric SMILES, as RDKit's `MolToSmiles` writes it.
    pub fn canonical_smiles(&self) -> &str {
        &self.canonical
    }

    /// The canonical isomeric SMILES, without a copy.
    pub fn into_canonical(self) -> String {
        self.canonical
    }

    /// The eight properties behind QED, as `rdkit.Chem.QED.properties` counts them.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Quantitative estimate of drug-likeness, 0 to 1.
    pub fn qed(&self) -> f64 {
        qed(&self.properties)
    }

    /// Synthetic accessibility, 1 (easy) to 10 (hard).
    ///
    /// # Errors
    /// [`InvalidSmiles::Unsupported`] where the toolkit cannot count fragments or stereocentres (never seen on organic
    /// molecules): a score from half of the terms would be silently wrong. [`InvalidSmiles::ToolkitPanic`].
    pub fn sa(&self) -> Result<f64, InvalidSmiles> {
        Ok(sa_score(&guarded(|| complexity(self))??))
    }

    /// The Bemis–Murcko scaffold without stereo, as RDKit's `MurckoScaffoldSmiles`; empty where there is no ring.
    ///
    /// # Errors
    /// [`InvalidSmiles::ToolkitPanic`].
    pub fn scaffold(&self) -> Result<String, InvalidSmiles> {
        guarded(|| scaffold(self))
    }

    /// The molecule as a skeletal formula: one `<svg>` element in the colours of the page around it, to be put into HTML as
    /// it is. All of its text is element symbols and numbers. Stereo is not drawn.
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
    // The template parser builds the graph without chemistry; writing the canonical form sanitises it as RDKit
    // does, so that every refusal of valences and aromaticity comes from one place.
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
    // From the order of a hash table, so that the sum over them has the same last bit everywhere.
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
    // RDKit writes the scaffold with `isomericSmiles=False`. Taking stereo and isotopes from the molecule first
    // gives the same, because they do not decide which atoms belong to the scaffold.
    let scaffold = match without_stereo(&molecule.smiles) {
        Some(plain) => parse_template(&plain).map(|graph| rdkit_murcko_scaffold(&graph)),
        None => Ok(rdkit_murcko_scaffold(&molecule.graph)),
    };
    scaffold.map_or_else(|_| String::new(), Result::unwrap_or_default)
}

/// The SMILES of a line `SMILES name`. A CXSMILES extension is no name: it would change the molecule.
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

/// The molecule as RDKit holds it after `MolFromSmiles`, ready for every descriptor.
fn sanitized(graph: &Graph) -> Graph {
    // `None` is left for a lone hydrogen, which sanitising does not change.
    let model = rdkit_parsed_molecule(graph).unwrap_or_else(|| graph.clone());
    // The model carries RDKit's aromaticity. Without this entry in its cache the descriptors would perceive it anew
    // with a second, less exact engine (seen on =[Se] beside a ring, and on metals in porphyrins).
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

/// RDKit's symmetrised smallest set of smallest rings of a sanitised molecule.
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
