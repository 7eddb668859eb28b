//! What the measures need to know of a molecule.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use chematic::chem::{bertz_ct, rdkit_aromatic_ring_count, rdkit_hba_count};
use chematic::smiles::{RdkitSmilesParams, rdkit_murcko_scaffold, rdkit_smiles};
use rayon::prelude::*;

use super::similarity::OnBits;
use crate::descriptor::Descriptor;
use crate::error::InvalidSmiles;
use crate::fingerprint::{Fingerprint, Morgan, MorganRadius};
use crate::guard::guarded;
use crate::molecule::{Molecule, from_sanitizer};

/// A molecule as seen by the measures. It needs about 1 kB of memory.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Canonical isomeric SMILES.
    pub canonical: String,
    /// Folded Morgan fingerprint with radius 2 and 1,024 bits.
    pub bits: OnBits,
    /// Canonical SMILES of the BRICS fragments, unless the role is [`Role::Single`].
    pub fragments: Vec<String>,
    /// Bemis–Murcko scaffold with stereochemistry, if it has at least two rings and the role is not
    /// [`Role::Single`].
    pub scaffold: Option<String>,
    /// Octanol–water partition coefficient.
    pub logp: f64,
    /// Synthetic accessibility.
    pub sa: f64,
    /// Quantitative estimate of drug-likeness.
    pub qed: f64,
    /// Average molecular weight in Da.
    pub mw: f64,
    /// Whether the molecule passes MOSES's filters. `None` if they were not evaluated.
    pub passes_filters: Option<bool>,
    /// The molecule without stereochemistry and isotopes, unless the role is [`Role::Single`].
    pub flat: Option<Flat>,
}

/// A molecule without stereochemistry and isotopes, as seen by GuacaMol.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Flat {
    /// Canonical SMILES.
    pub canonical: String,
    /// Folded Morgan fingerprint with radius 2 and 4,096 bits.
    pub bits: OnBits,
    /// The descriptors in the order of [`Flat::NAMES`].
    pub descriptors: [f64; 9],
}

/// Whether a molecule was generated or belongs to a training or test set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A generated molecule, for which the filters are evaluated.
    Generated,
    /// A molecule of a training or test set, for which they are not.
    Reference,
    /// A generated molecule that is not compared with a training or test set. It takes a fraction of
    /// the time.
    Single,
}

impl Flat {
    /// RDKit's names of the descriptors. The first four are continuous, the others are counts.
    pub const NAMES: [&str; 9] = [
        "BertzCT",
        "MolLogP",
        "MolWt",
        "TPSA",
        "NumHAcceptors",
        "NumHDonors",
        "NumRotatableBonds",
        "NumAliphaticRings",
        "NumAromaticRings",
    ];

    /// Removes stereochemistry and isotopes, like GuacaMol, which writes and parses the molecule.
    /// `environments` are those of `molecule`.
    fn new(molecule: &Molecule, environments: &Fingerprint) -> Result<Self, InvalidSmiles> {
        let canonical = molecule.canonical_smiles();
        let has_isotopes =
            canonical.as_bytes().windows(2).any(|two| two[0] == b'[' && two[1].is_ascii_digit());
        if !has_isotopes && !canonical.contains(['@', '/', '\\']) {
            return Self::with_canonical(canonical.to_owned(), molecule, environments);
        }
        let plain = RdkitSmilesParams { isomeric: false, ..RdkitSmilesParams::default() };
        let written =
            guarded(|| rdkit_smiles(molecule.graph(), &plain))?.map_err(from_sanitizer)?;
        // Stereochemistry has no influence on the descriptors, but isotopes do.
        if has_isotopes {
            let molecule = Molecule::parse(&written)?;
            return Self::with_canonical(written, &molecule, &environments_of(&molecule)?);
        }
        Self::with_canonical(written, molecule, environments)
    }

    fn with_canonical(
        canonical: String,
        molecule: &Molecule,
        environments: &Fingerprint,
    ) -> Result<Self, InvalidSmiles> {
        let (model, properties) = (molecule.model(), molecule.properties()?);
        let descriptors = [
            guarded(|| bertz_ct(model))?,
            properties.logp,
            properties.mw,
            properties.tpsa,
            guarded(|| rdkit_hba_count(model))? as f64,
            properties.hbd.into(),
            properties.rotatable.into(),
            molecule.descriptor(Descriptor::AliphaticRings)?,
            guarded(|| rdkit_aromatic_ring_count(model))? as f64,
        ];
        let bits = OnBits::folded(environments.environments(), 4096);
        Ok(Self { canonical, bits, descriptors })
    }
}

impl Record {
    /// Computes everything that the measures need.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the toolkit cannot compute a value, and
    /// [`InvalidSmiles::ToolkitPanic`] if the toolkit panics. Neither has been observed for organic
    /// molecules.
    pub fn new(molecule: &Molecule, role: Role) -> Result<Self, InvalidSmiles> {
        let properties = molecule.properties()?;
        let passes_filters = match role {
            Role::Generated | Role::Single => Some(molecule.passes_moses_filters()?),
            Role::Reference => None,
        };
        let environments = environments_of(molecule)?;
        let (fragments, scaffold, flat) = match role {
            Role::Single => (Vec::new(), None, None),
            Role::Generated | Role::Reference => (
                molecule.brics_fragments()?,
                scaffold(molecule)?,
                Some(Flat::new(molecule, &environments)?),
            ),
        };
        Ok(Self {
            canonical: molecule.canonical_smiles().to_owned(),
            bits: OnBits::folded(environments.environments(), 1024),
            fragments,
            scaffold,
            logp: properties.logp,
            sa: molecule.sa()?,
            qed: molecule.qed()?,
            mw: properties.mw,
            passes_filters,
            flat,
        })
    }

    /// Parses SMILES strings in parallel and computes a record of each valid molecule.
    pub fn parse_all<S: AsRef<str> + Sync>(
        smiles: &[S],
        role: Role,
    ) -> Vec<Result<Self, InvalidSmiles>> {
        Self::parse_all_with(smiles, role, &|_, _| ())
    }

    /// Does the same, and reports how many of how many strings are done. Equal strings are computed,
    /// and counted, once.
    pub fn parse_all_with<S: AsRef<str> + Sync>(
        smiles: &[S],
        role: Role,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Vec<Result<Self, InvalidSmiles>> {
        let mut places = HashMap::new();
        let mut distinct: Vec<&str> = Vec::new();
        for text in smiles.iter().map(AsRef::as_ref) {
            places.entry(text).or_insert_with(|| {
                distinct.push(text);
                distinct.len() - 1
            });
        }
        let done = AtomicUsize::new(0);
        let record = |smiles: &&str| {
            let record = Molecule::parse(smiles).and_then(|molecule| Self::new(&molecule, role));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, distinct.len());
            record
        };
        let records: Vec<Result<Self, InvalidSmiles>> = distinct.par_iter().map(record).collect();
        smiles.iter().map(|text| records[places[text.as_ref()]].clone()).collect()
    }
}

fn environments_of(molecule: &Molecule) -> Result<Fingerprint, InvalidSmiles> {
    molecule.morgan(Morgan::Counts(MorganRadius::Two))
}

/// Returns the scaffold with stereochemistry if it has at least two rings, like MOSES's
/// `compute_scaffold`.
fn scaffold(molecule: &Molecule) -> Result<Option<String>, InvalidSmiles> {
    if molecule.descriptor(Descriptor::Rings)? < 2.0 {
        return Ok(None);
    }
    let scaffold = guarded(|| rdkit_murcko_scaffold(molecule.graph()))?.map_err(from_sanitizer)?;
    Ok(Some(scaffold).filter(|scaffold| !scaffold.is_empty()))
}
