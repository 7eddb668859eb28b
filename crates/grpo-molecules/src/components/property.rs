//! Properties of molecules that a component can score.

use std::collections::BTreeSet;

use grpo_chem::{Descriptor, Fingerprint, InvalidSmiles, Molecule, Morgan, Pattern};
use grpo_data::ConfigFault;

use super::fields::ComponentFields;
use super::property_names::descriptor;
use crate::KnownMolecules;
use crate::identity::identity;

/// A property that is computed from a molecule.
pub(super) enum Property {
    /// A numeric descriptor.
    Descriptor(Descriptor),
    /// The highest Tanimoto similarity to one of several molecules.
    Similarity { kind: Morgan, references: Vec<Fingerprint> },
    /// 1 if one of the patterns occurs in the molecule, otherwise 0.
    Substructure(Vec<Pattern>),
    /// The number of occurrences of all patterns.
    SubstructureCount(Vec<Pattern>),
    /// The number of patterns that occur in the molecule.
    CustomAlerts(Vec<Pattern>),
    /// 1 if the Bemis–Murcko scaffold is one of these canonical SMILES, otherwise 0.
    Scaffold(BTreeSet<String>),
    /// 0 if the molecule is one of these, otherwise 1.
    Novelty(Box<KnownMolecules>),
    /// 1 if the molecule has this formula, otherwise 0.
    Formula(String),
}

impl Property {
    /// Creates the property of a component, or returns `None` if it is not computed from the
    /// molecule.
    pub(super) fn parse(fields: &ComponentFields) -> Result<Option<Self>, ConfigFault> {
        let property = match fields.property.as_str() {
            "similarity" => {
                let kind = fields.fingerprint.unwrap_or_default();
                let kind = kind.with_radius(fields.radius.unwrap_or(2));
                let fingerprint = |molecule: Molecule| molecule.morgan(kind);
                Self::Similarity { kind, references: fields.molecules(fingerprint)? }
            }
            "substructure" => Self::Substructure(fields.patterns()?),
            "substructure_count" => Self::SubstructureCount(fields.patterns()?),
            "custom_alerts" => Self::CustomAlerts(fields.patterns_or_alerts()?),
            "scaffold" => Self::Scaffold(
                fields.molecules(|molecule| molecule.scaffold())?.into_iter().collect(),
            ),
            "novelty" => Self::Novelty(Box::new(fields.known_molecules()?)),
            "formula" => Self::Formula(fields.formula()?),
            "external" | "expression" => return Ok(None),
            name => Self::Descriptor(descriptor(name)?),
        };
        Ok(Some(property))
    }

    /// Returns the value for a molecule, which is a single fragment.
    pub(super) fn of(&self, molecule: &Molecule) -> Result<f64, InvalidSmiles> {
        Ok(match self {
            Self::Descriptor(descriptor) => molecule.descriptor(*descriptor)?,
            Self::Similarity { kind, references } => {
                let own = molecule.morgan(*kind)?;
                references.iter().map(|reference| own.tanimoto(reference)).fold(0.0, f64::max)
            }
            Self::Substructure(patterns) => f64::from(count_matching(patterns, molecule)? > 0),
            Self::SubstructureCount(patterns) => {
                let counts = patterns.iter().map(|pattern| pattern.count(molecule));
                counts.sum::<Result<usize, _>>()? as f64
            }
            Self::CustomAlerts(patterns) => count_matching(patterns, molecule)? as f64,
            Self::Scaffold(scaffolds) => f64::from(scaffolds.contains(&molecule.scaffold()?)),
            Self::Novelty(known) => f64::from(!known.contains(&identity(molecule)?)),
            Self::Formula(formula) => f64::from(molecule.formula()? == *formula),
        })
    }
}

fn count_matching(patterns: &[Pattern], molecule: &Molecule) -> Result<usize, InvalidSmiles> {
    let matches = patterns.iter().map(|pattern| Ok(usize::from(pattern.matches(molecule)?)));
    matches.sum()
}
