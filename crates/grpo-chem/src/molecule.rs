//! Molecules, based on a pinned version of the pure-Rust toolkit `chematic`. Results are tested
//! against RDKit.
//!
//! This module only uses toolkit functions that follow RDKit. `parse` doesn't sanitize molecules,
//! and the toolkit's default canonical form and `sa_score` have different definitions.

use std::sync::{Arc, OnceLock};

use chematic::chem::{
    hbd_count, logp_crippen, rdkit_molecular_weight, rdkit_tpsa, rotatable_bond_count,
};
use chematic::core::{AtomIdx, BondOrder, DerivedSlot, Molecule as Graph, implicit_hcount};
use chematic::fp::{RdkitMorganConfig, rdkit_morgan_fingerprint};
use chematic::perception::{
    AromaticityError, rdkit_parity_view_is_identity, with_rdkit_parity_view,
};
use chematic::smiles::{
    RdkitSmilesError, RdkitSmilesParams, SmilesError, parse_template, rdkit_canonical_smiles,
    rdkit_chiral_centers, rdkit_crippen_logp_mr, rdkit_murcko_scaffold, rdkit_parsed_molecule,
    rdkit_random_smiles,
};

use crate::dialect::{rewrite, without_stereo};
use crate::draw::draw;
use crate::error::InvalidSmiles;
use crate::grammar;
use crate::guard::guarded;
use crate::patterns::{count_acceptors, count_alerts};
use crate::qed::{Properties, qed};
use crate::rings::{count_aromatic_rings, count_rings, rings, too_many_rings};
use crate::sa::{Complexity, monotonic, sa_score};

/// A sanitized molecule with valid syntax, valences and aromaticity.
pub struct Molecule {
    smiles: String,
    /// The molecule as written. It is used for stereochemistry and the scaffold.
    graph: Graph,
    /// The molecule as represented by RDKit. It is used for descriptors.
    model: Graph,
    canonical: String,
    /// Computed when they are needed, because counting the alerts takes longer than parsing.
    properties: OnceLock<Result<Properties, InvalidSmiles>>,
}

impl Molecule {
    /// Parses and sanitizes a SMILES string. Leading and trailing whitespace is ignored. Text after
    /// the SMILES, which RDKit takes for a name, is an error: a policy must not be rewarded for it.
    ///
    /// # Errors
    /// Returns an error if RDKit would reject the string, if it is too long or uses an unsupported
    /// feature, or if the toolkit panics.
    pub fn parse(smiles: &str) -> Result<Self, InvalidSmiles> {
        guarded(|| parse(smiles))?
    }

    /// Returns the canonical isomeric SMILES, identical to that of RDKit's `MolToSmiles`. For a few
    /// symmetric molecules, it depends on the spelling, as in RDKit; see [`Self::identity`].
    pub fn canonical_smiles(&self) -> &str {
        &self.canonical
    }

    /// Returns the canonical isomeric SMILES without copying it.
    pub fn into_canonical(self) -> String {
        self.canonical
    }

    /// Returns a SMILES of the same molecule that starts at a random atom and visits its branches in
    /// a random order, like RDKit's `MolToSmiles` with `doRandom=True`. The same `random` number
    /// always gives the same string. Stereochemistry and isotopes are kept.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the string would be another molecule, which happens
    /// for metal complexes with stereochemistry, and [`InvalidSmiles::ToolkitPanic`] if the toolkit
    /// panics.
    pub fn randomized_smiles(&self, random: u32) -> Result<String, InvalidSmiles> {
        // The toolkit's generator accepts the seeds 1 to 2³¹ − 2. 0 would continue the sequence of
        // the previous call.
        let seed = random % (i32::MAX as u32 - 1) + 1;
        let written =
            guarded(|| rdkit_random_smiles(&self.graph, 1, seed, &RdkitSmilesParams::default()))?;
        let smiles = written.map_err(from_sanitizer)?.pop();
        let unsupported = |detail: &str| InvalidSmiles::Unsupported { detail: detail.to_owned() };
        let smiles = smiles.ok_or_else(|| unsupported("the toolkit wrote no random SMILES"))?;
        // Some metal complexes change their stereochemistry, in RDKit too.
        match Self::parse(&smiles)?.is_same(self)? {
            true => Ok(smiles),
            false => Err(unsupported("random SMILES of this molecule change its stereochemistry")),
        }
    }

    /// Returns the eight properties for QED, defined as in `rdkit.Chem.QED.properties`. They are
    /// computed by the first call. For one of them, use [`Self::descriptor`].
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the search for an alert takes too long, and
    /// [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn properties(&self) -> Result<&Properties, InvalidSmiles> {
        let compute = || guarded(|| properties(&self.model))?;
        self.properties.get_or_init(compute).as_ref().map_err(InvalidSmiles::clone)
    }

    /// Returns the properties if they have been computed.
    pub(crate) fn known_properties(&self) -> Option<&Properties> {
        self.properties.get()?.as_ref().ok()
    }

    /// Returns the quantitative estimate of drug-likeness, from 0 to 1.
    ///
    /// # Errors
    /// Same as [`Self::properties`].
    pub fn qed(&self) -> Result<f64, InvalidSmiles> {
        self.properties().map(qed)
    }

    /// Returns the synthetic accessibility score, from 1 (easy) to 10 (hard).
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::Unsupported`] if the toolkit cannot count the fragments or
    /// stereocenters, because an incomplete score would be wrong. This has never been observed for
    /// organic molecules. Returns [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn sa(&self) -> Result<f64, InvalidSmiles> {
        Ok(sa_score(&guarded(|| complexity(self))??))
    }

    /// Returns the synthetic accessibility score on a scale on which harder molecules never score
    /// better: values from 8 to 9 before RDKit's smoothing, which [`Self::sa`] maps to up to 1, are
    /// 8. All other values equal [`Self::sa`].
    ///
    /// # Errors
    /// Same as [`Self::sa`].
    pub fn monotonic_sa(&self) -> Result<f64, InvalidSmiles> {
        Ok(monotonic(&guarded(|| complexity(self))??))
    }

    /// Returns the Bemis–Murcko scaffold without stereochemistry, defined as in RDKit's
    /// `MurckoScaffoldSmiles`. Empty if the molecule has no rings.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn scaffold(&self) -> Result<String, InvalidSmiles> {
        guarded(|| scaffold(self))
    }

    /// Returns the SMILES as written, in the syntax that the toolkit supports.
    pub(crate) fn smiles(&self) -> &str {
        &self.smiles
    }

    /// Returns the molecule as written.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the molecule as represented by RDKit.
    pub(crate) fn model(&self) -> &Graph {
        &self.model
    }

    /// Draws the molecule as an `<svg>` element for HTML that adapts to the colors of the page. It
    /// only contains element symbols and numbers as text. Stereochemistry is not drawn.
    ///
    /// # Errors
    /// Returns [`InvalidSmiles::ToolkitPanic`] if the toolkit panics.
    pub fn draw(&self) -> Result<String, InvalidSmiles> {
        let rings = rings(&self.model)?;
        guarded(|| draw(&self.model, &rings))
    }
}

fn parse(smiles: &str) -> Result<Molecule, InvalidSmiles> {
    let smiles = smiles.trim_ascii();
    let dialect = grammar::check(smiles)?;
    let smiles = rewrite(smiles, &dialect).unwrap_or_else(|| smiles.to_owned());
    // The template parser performs no chemistry checks. Computing the canonical form sanitizes the
    // molecule like RDKit and reports all errors in valences and aromaticity.
    let graph = parse_template(&smiles).map_err(from_parser)?;
    let canonical = rdkit_canonical_smiles(&graph).map_err(from_sanitizer)?;
    let model = sanitized(&graph);
    Ok(Molecule { smiles, graph, model, canonical, properties: OnceLock::new() })
}

fn properties(model: &Graph) -> Result<Properties, InvalidSmiles> {
    in_view(model, |view| {
        Ok(Properties {
            mw: rdkit_molecular_weight(model),
            logp: logp(model, view),
            tpsa: rdkit_tpsa(model),
            hba: count_acceptors(view),
            hbd: hbd_count(model) as u32,
            rotatable: rotatable_bond_count(model) as u32,
            aromatic_rings: count_aromatic_rings(view),
            alerts: count_alerts(view)?,
        })
    })
}

/// Passes the molecule to `compute` with the aromaticity that RDKit's descriptors use.
pub(crate) fn in_view<T>(model: &Graph, compute: impl FnOnce(&Graph) -> T) -> T {
    with_rdkit_parity_view(model, |view| compute(view.unwrap_or(model)))
}

/// Returns Crippen's logP. The toolkit assigns a wrong type to the hydrogen of hydroxyl groups at
/// some unsaturated carbon atoms, unless it builds a model with explicit hydrogens.
pub(crate) fn logp(model: &Graph, view: &Graph) -> f64 {
    let bonded = |atom: AtomIdx, order: BondOrder| {
        view.neighbors(atom)
            .filter(move |(_, bond)| view.bond(*bond).order == order)
            .map(|(neighbor, _)| view.atom(neighbor).element.atomic_number())
    };
    let is_hydroxyl = |(atom, _): (AtomIdx, _)| {
        view.atom(atom).element.atomic_number() == 8 && implicit_hcount(view, atom) > 0
    };
    // An alkynol, or a double bond to an element such as P.
    let is_affected = view.atoms().any(|(atom, element)| {
        element.element.atomic_number() == 6
            && view.neighbors(atom).any(is_hydroxyl)
            && (bonded(atom, BondOrder::Triple).next().is_some()
                || bonded(atom, BondOrder::Double).any(|other| !matches!(other, 6 | 7 | 8 | 16)))
    });
    let explicit = if is_affected { rdkit_crippen_logp_mr(model) } else { None };
    explicit.map_or_else(|| logp_crippen(model), |(logp, _)| logp)
}

fn complexity(molecule: &Molecule) -> Result<Complexity, InvalidSmiles> {
    let model = &molecule.model;
    let stereocenters = rdkit_chiral_centers(&molecule.graph, true).map_err(from_sanitizer)?;
    let rings = count_rings(&rings(model)?);
    let fingerprint = rdkit_morgan_fingerprint(model, &RdkitMorganConfig::default())
        .map_err(|error| InvalidSmiles::Unsupported { detail: format!("no fragments: {error}") })?;
    // Sort the fragments, because the order of a hash table would affect rounding errors in the
    // sum.
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
    // RDKit writes the scaffold with `isomericSmiles=False`. It is equivalent to remove
    // stereochemistry and isotopes first, because they do not affect which atoms belong to the
    // scaffold.
    let scaffold = match without_stereo(&molecule.smiles) {
        Some(plain) => parse_template(&plain).map(|graph| rdkit_murcko_scaffold(&graph)),
        None => Ok(rdkit_murcko_scaffold(&molecule.graph)),
    };
    scaffold.map_or_else(|_| String::new(), Result::unwrap_or_default)
}

/// Returns the molecule in the representation of RDKit's `MolFromSmiles`.
pub(crate) fn sanitized(graph: &Graph) -> Graph {
    // `None` is returned for an isolated hydrogen atom, which sanitization does not change.
    let model = rdkit_parsed_molecule(graph).unwrap_or_else(|| graph.clone());
    // `model` has the same aromaticity as in RDKit. Without this cache entry, the descriptors would
    // use a second, less accurate aromaticity model. The two differ for =[Se] next to a ring and
    // for metals in porphyrins.
    if !rdkit_parity_view_is_identity(&model) {
        let view: Result<Graph, AromaticityError> = Ok(model.clone());
        model.seed_derived(DerivedSlot::RdkitParityAromatic, Arc::new(view));
    }
    model
}

pub(crate) fn from_parser(error: SmilesError) -> InvalidSmiles {
    InvalidSmiles::Unsupported { detail: error.to_string() }
}

pub(crate) fn from_sanitizer(error: RdkitSmilesError) -> InvalidSmiles {
    let detail = match error {
        RdkitSmilesError::Unsupported(detail) => {
            // The toolkit only fails to find rings above `MAX_RINGS`.
            return match detail.starts_with("ring perception") {
                true => too_many_rings(),
                false => InvalidSmiles::Unsupported { detail },
            };
        }
        RdkitSmilesError::Sanitization(detail) => detail,
    };
    let atom = detail
        .split_once("atom # ")
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    let aromatic = ["Can't kekulize", "Kekulization", "non-ring atom"];
    match atom {
        Some(atom) => InvalidSmiles::Valence { atom, detail: reason_of_toolkit(&detail) },
        None if aromatic.iter().any(|start| detail.starts_with(start)) => {
            InvalidSmiles::Kekulization { detail: reason_of_toolkit(&detail) }
        }
        None => InvalidSmiles::Sanitization { detail },
    }
}

/// Returns the toolkit's message without what the message of [`InvalidSmiles`] already says.
fn reason_of_toolkit(detail: &str) -> String {
    let after_atom = |start: &str| {
        let rest = detail.strip_prefix(start)?.trim_start_matches(|c: char| c.is_ascii_digit());
        Some(rest.trim_start())
    };
    if let Some(atoms) = detail.strip_prefix("Can't kekulize mol.  Unkekulized atoms: ") {
        format!("no double bonds fit the atoms {atoms}")
    } else if let Some(atom) = detail.strip_prefix("Kekulization somehow screwed up valence on ") {
        format!("the valence is wrong on atom {atom}")
    } else if let Some(of) = after_atom("Explicit valence for atom # ") {
        format!("the explicit valence of {of}")
    } else if let Some(is) = after_atom("Explicit valence for aromatic atom # ") {
        format!("the explicit valence is {is}")
    } else if after_atom("Unreasonable formal charge on atom # ").is_some() {
        "the formal charge is unreasonable".to_owned()
    } else {
        detail.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with RDKit 2026.09: `MolLogP`.
    #[test]
    fn hydroxyl_groups_at_unsaturated_carbon() {
        for (smiles, expected) in [
            ("C#CO", -0.0504),
            ("CC#CO", 0.3397),
            ("OC1=[PH]C=CC=C1", 1.2508),
            ("NC(=O)C1=CC(O)=[PH](N)C=C1", -0.4843),
        ] {
            let logp = Molecule::parse(smiles).unwrap().properties().unwrap().logp;
            assert!((logp - expected).abs() < 1e-12, "{smiles}: {logp}");
        }
    }

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
            let reason = reason.to_string();
            assert!(reason.starts_with(label), "{reason}");
            // Nothing is said twice.
            for words in ["kekuli", "atom ", "charge is", "explicit"] {
                assert!(reason.matches(words).count() <= 1, "{reason}");
            }
        }
    }
}
