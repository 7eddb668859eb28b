//! Numeric descriptors that are selected by name, e.g. in a configuration.

use std::collections::VecDeque;

use chematic::chem::{
    formal_charge_sum, fsp3, hbd_count, heavy_atom_count, num_heteroatoms, rdkit_molecular_weight,
    rdkit_tpsa, rotatable_bond_count,
};
use chematic::core::{AtomIdx, BondOrder, Molecule as Graph};
use chematic::smiles::{rdkit_atom_stereocenter_counts, rdkit_hybridizations};

use crate::error::InvalidSmiles;
use crate::guard::guarded;
use crate::molecule::{Molecule, from_sanitizer, in_view, logp};
use crate::patterns::{count_acceptors, count_alerts};
use crate::qed::Properties;
use crate::rings::{count_aromatic_rings, rings};

/// A numeric descriptor of a molecule. All values are equal to those of RDKit, except for
/// [`Self::Sa`] between 8 and 9 and [`Self::GraphLength`] of several fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Descriptor {
    /// Quantitative estimate of drug-likeness, from 0 to 1 (`QED.qed`).
    Qed,
    /// Synthetic accessibility, from 1 (easy) to 10 (hard) (`sascorer.calculateScore`), but on the
    /// scale of [`Molecule::monotonic_sa`].
    Sa,
    /// Octanol–water partition coefficient (`Crippen.MolLogP`).
    LogP,
    /// Average molecular weight in Da (`Descriptors.MolWt`).
    Mw,
    /// Topological polar surface area in Å² (`rdMolDescriptors.CalcTPSA`).
    Tpsa,
    /// Hydrogen-bond acceptors as defined by QED (`QED.properties`).
    Hba,
    /// Hydrogen-bond donors (`rdMolDescriptors.CalcNumHBD`).
    Hbd,
    /// Rotatable bonds by the strict definition (`rdMolDescriptors.CalcNumRotatableBonds`).
    Rotatable,
    /// Aromatic rings as defined by QED (`QED.properties`).
    AromaticRings,
    /// Structural alerts of QED that match, out of 116 (`QED.properties`).
    Alerts,
    /// Atoms other than hydrogen (`rdMolDescriptors.CalcNumHeavyAtoms`).
    HeavyAtoms,
    /// Atoms other than carbon and hydrogen (`rdMolDescriptors.CalcNumHeteroatoms`).
    HeteroAtoms,
    /// Rings (`rdMolDescriptors.CalcNumRings`).
    Rings,
    /// Atoms of the largest ring in RDKit's list of rings, or 0 (`RingInfo.AtomRings`).
    LargestRing,
    /// Rings with a bond that is not aromatic (`rdMolDescriptors.CalcNumAliphaticRings`).
    AliphaticRings,
    /// Fraction of the carbon atoms that are sp³-hybridized (`rdMolDescriptors.CalcFractionCSP3`).
    FractionCsp3,
    /// Stereocenters, both assigned and unassigned (`rdMolDescriptors.CalcNumAtomStereoCenters`).
    StereoCenters,
    /// Sum of the formal charges (`Chem.GetFormalCharge`).
    Charge,
    /// Atoms with sp hybridization (`Atom.GetHybridization`).
    SpAtoms,
    /// Atoms with sp² hybridization (`Atom.GetHybridization`).
    Sp2Atoms,
    /// Atoms with sp³ hybridization (`Atom.GetHybridization`).
    Sp3Atoms,
    /// Bonds of the longest shortest path between two atoms of a fragment (for a single fragment, the
    /// maximum of `Chem.GetDistanceMatrix`).
    GraphLength,
}

impl Descriptor {
    /// All descriptors.
    pub const ALL: [Self; 22] = [
        Self::Qed,
        Self::Sa,
        Self::LogP,
        Self::Mw,
        Self::Tpsa,
        Self::Hba,
        Self::Hbd,
        Self::Rotatable,
        Self::AromaticRings,
        Self::Alerts,
        Self::HeavyAtoms,
        Self::HeteroAtoms,
        Self::Rings,
        Self::LargestRing,
        Self::AliphaticRings,
        Self::FractionCsp3,
        Self::StereoCenters,
        Self::Charge,
        Self::SpAtoms,
        Self::Sp2Atoms,
        Self::Sp3Atoms,
        Self::GraphLength,
    ];

    /// Returns the name that is used in configurations and column headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qed => "qed",
            Self::Sa => "sa",
            Self::LogP => "logp",
            Self::Mw => "mw",
            Self::Tpsa => "tpsa",
            Self::Hba => "hba",
            Self::Hbd => "hbd",
            Self::Rotatable => "rotatable",
            Self::AromaticRings => "aromatic_rings",
            Self::Alerts => "alerts",
            Self::HeavyAtoms => "heavy_atoms",
            Self::HeteroAtoms => "hetero_atoms",
            Self::Rings => "rings",
            Self::LargestRing => "largest_ring",
            Self::AliphaticRings => "aliphatic_rings",
            Self::FractionCsp3 => "fraction_csp3",
            Self::StereoCenters => "stereo_centers",
            Self::Charge => "charge",
            Self::SpAtoms => "sp_atoms",
            Self::Sp2Atoms => "sp2_atoms",
            Self::Sp3Atoms => "sp3_atoms",
            Self::GraphLength => "graph_length",
        }
    }

    /// Returns the descriptor with this [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|descriptor| descriptor.name() == name)
    }
}

/// Returns a descriptor that is one of the properties for QED.
fn of_properties(known: &Properties, descriptor: Descriptor) -> Option<f64> {
    Some(match descriptor {
        Descriptor::LogP => known.logp,
        Descriptor::Mw => known.mw,
        Descriptor::Tpsa => known.tpsa,
        Descriptor::Hba => known.hba.into(),
        Descriptor::Hbd => known.hbd.into(),
        Descriptor::Rotatable => known.rotatable.into(),
        Descriptor::AromaticRings => known.aromatic_rings.into(),
        Descriptor::Alerts => known.alerts.into(),
        _ => return None,
    })
}

impl Molecule {
    /// Computes a descriptor.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the toolkit cannot compute it, and
    /// [`InvalidSmiles::ToolkitPanic`] if the toolkit panics. Neither has been observed for organic
    /// molecules.
    pub fn descriptor(&self, descriptor: Descriptor) -> Result<f64, InvalidSmiles> {
        let graph = self.model();
        if let Some(value) =
            self.known_properties().and_then(|known| of_properties(known, descriptor))
        {
            return Ok(value);
        }
        match descriptor {
            Descriptor::Qed => self.qed(),
            Descriptor::Sa => self.monotonic_sa(),
            Descriptor::LogP => guarded(|| in_view(graph, |view| logp(graph, view))),
            Descriptor::Mw => guarded(|| rdkit_molecular_weight(graph)),
            Descriptor::Tpsa => guarded(|| rdkit_tpsa(graph)),
            Descriptor::Hba => guarded(|| in_view(graph, count_acceptors).into()),
            Descriptor::Hbd => guarded(|| hbd_count(graph) as f64),
            Descriptor::Rotatable => guarded(|| rotatable_bond_count(graph) as f64),
            Descriptor::AromaticRings => guarded(|| in_view(graph, count_aromatic_rings).into()),
            Descriptor::Alerts => Ok(guarded(|| in_view(graph, count_alerts))??.into()),
            Descriptor::HeavyAtoms => guarded(|| heavy_atom_count(graph) as f64),
            Descriptor::HeteroAtoms => guarded(|| num_heteroatoms(graph) as f64),
            Descriptor::Rings => Ok(rings(graph)?.len() as f64),
            Descriptor::LargestRing => {
                Ok(rings(graph)?.iter().map(Vec::len).max().unwrap_or(0) as f64)
            }
            Descriptor::AliphaticRings => {
                let is_aliphatic = |ring: &&Vec<AtomIdx>| !is_aromatic(graph, ring);
                Ok(rings(graph)?.iter().filter(is_aliphatic).count() as f64)
            }
            Descriptor::FractionCsp3 => guarded(|| fsp3(graph)),
            Descriptor::StereoCenters => {
                let (total, _) = guarded(|| rdkit_atom_stereocenter_counts(self.graph()))?
                    .map_err(from_sanitizer)?;
                Ok(total as f64)
            }
            Descriptor::Charge => guarded(|| formal_charge_sum(graph).into()),
            Descriptor::SpAtoms => hybridized(graph, 1),
            Descriptor::Sp2Atoms => hybridized(graph, 2),
            Descriptor::Sp3Atoms => hybridized(graph, 3),
            Descriptor::GraphLength => Ok(graph_length(graph)),
        }
    }

    /// Returns the molecular formula in Hill order, followed by the charge, like RDKit's
    /// `CalcMolFormula`.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn formula(&self) -> Result<String, InvalidSmiles> {
        guarded(|| chematic::chem::calc_mol_formula(self.model()))
    }
}

/// Returns `true` if all bonds of a ring are aromatic. In RDKit, a triple bond can be aromatic and
/// remain a triple bond.
pub(crate) fn is_aromatic(graph: &Graph, ring: &[AtomIdx]) -> bool {
    let is_aromatic = |(a, b): (&AtomIdx, &AtomIdx)| match graph.bond_between(*a, *b) {
        Some((_, bond)) if bond.order == BondOrder::Triple => {
            graph.atom(*a).aromatic && graph.atom(*b).aromatic
        }
        Some((_, bond)) => bond.order == BondOrder::Aromatic,
        None => false,
    };
    ring.iter().zip(ring.iter().cycle().skip(1)).all(is_aromatic)
}

/// Counts the atoms with sp (1), sp² (2) or sp³ (3) hybridization.
fn hybridized(graph: &Graph, code: u8) -> Result<f64, InvalidSmiles> {
    let codes = guarded(|| rdkit_hybridizations(graph))?.ok_or_else(|| {
        InvalidSmiles::Unsupported { detail: "the hybridization of the atoms".to_owned() }
    })?;
    Ok(codes.iter().filter(|found| **found == code).count() as f64)
}

fn graph_length(graph: &Graph) -> f64 {
    let all = (0..graph.atom_count()).flat_map(|start| distances(graph, start));
    all.filter(|distance| *distance != usize::MAX).max().unwrap_or(0) as f64
}

/// Returns the number of bonds from an atom to each atom, or `usize::MAX` if they are not connected.
pub(crate) fn distances(graph: &Graph, start: usize) -> Vec<usize> {
    let mut distances = vec![usize::MAX; graph.atom_count()];
    distances[start] = 0;
    let mut queue = VecDeque::from([start]);
    while let Some(atom) = queue.pop_front() {
        for (neighbor, _) in graph.neighbors(AtomIdx(atom as u32)) {
            let neighbor = neighbor.0 as usize;
            if distances[neighbor] == usize::MAX {
                distances[neighbor] = distances[atom] + 1;
                queue.push_back(neighbor);
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_parsed() {
        for descriptor in Descriptor::ALL {
            assert_eq!(Descriptor::parse(descriptor.name()), Some(descriptor));
        }
        assert_eq!(Descriptor::parse("QED"), None);
    }
}
