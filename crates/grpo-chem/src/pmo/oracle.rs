//! Oracles by name.

/// An oracle of the PMO benchmark that needs no trained classifier.
///
/// The target of an oracle is parsed when a molecule is scored for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Oracle {
    /// Feature similarity (FCFP4) to albuterol.
    AlbuterolSimilarity,
    /// Similarity to amlodipine with three rings.
    AmlodipineMpo,
    /// Similarity (ECFP4) to celecoxib.
    CelecoxibRediscovery,
    /// Keeps the scaffold and the pharmacophores of a kinase inhibitor and replaces its
    /// decorations.
    DecoHop,
    /// Similarity (atom pairs) to fexofenadine with a higher TPSA and a lower logP.
    FexofenadineMpo,
    /// Isomers of C7H8N2O2.
    IsomersC7h8n2o2,
    /// Isomers of C9H10N2O2PF2Cl.
    IsomersC9h10n2o2pf2cl,
    /// Similarity (ECFP4) to both camphor and menthol.
    Median1,
    /// Similarity (ECFP6) to both tadalafil and sildenafil.
    Median2,
    /// Similarity (atom pairs) to mestranol.
    MestranolSimilarity,
    /// Feature similarity to osimertinib, but not too similar, with a high TPSA and a low logP.
    OsimertinibMpo,
    /// Similarity to perindopril with two aromatic rings.
    PerindoprilMpo,
    /// Quantitative estimate of drug-likeness.
    Qed,
    /// Similarity (atom pairs) to ranolazine with a fluorine atom and higher TPSA and logP.
    RanolazineMpo,
    /// Keeps the decorations and the pharmacophores of a kinase inhibitor and replaces its
    /// scaffold.
    ScaffoldHop,
    /// Formula, TPSA and logP of sitagliptin, but dissimilar to it.
    SitagliptinMpo,
    /// Similarity (ECFP4) to thiothixene.
    ThiothixeneRediscovery,
    /// Similarity (ECFP4) to troglitazone.
    TroglitazoneRediscovery,
    /// A substructure of valsartan with logP, TPSA and complexity of sitagliptin.
    ValsartanSmarts,
    /// Similarity to zaleplon with the formula C19H17N3O2.
    ZaleplonMpo,
}

impl Oracle {
    /// All oracles, ordered by name.
    pub const ALL: [Self; 20] = [
        Self::AlbuterolSimilarity,
        Self::AmlodipineMpo,
        Self::CelecoxibRediscovery,
        Self::DecoHop,
        Self::FexofenadineMpo,
        Self::IsomersC7h8n2o2,
        Self::IsomersC9h10n2o2pf2cl,
        Self::Median1,
        Self::Median2,
        Self::MestranolSimilarity,
        Self::OsimertinibMpo,
        Self::PerindoprilMpo,
        Self::Qed,
        Self::RanolazineMpo,
        Self::ScaffoldHop,
        Self::SitagliptinMpo,
        Self::ThiothixeneRediscovery,
        Self::TroglitazoneRediscovery,
        Self::ValsartanSmarts,
        Self::ZaleplonMpo,
    ];

    /// Returns the name in PyTDC.
    pub fn name(self) -> &'static str {
        match self {
            Self::AlbuterolSimilarity => "albuterol_similarity",
            Self::AmlodipineMpo => "amlodipine_mpo",
            Self::CelecoxibRediscovery => "celecoxib_rediscovery",
            Self::DecoHop => "deco_hop",
            Self::FexofenadineMpo => "fexofenadine_mpo",
            Self::IsomersC7h8n2o2 => "isomers_c7h8n2o2",
            Self::IsomersC9h10n2o2pf2cl => "isomers_c9h10n2o2pf2cl",
            Self::Median1 => "median1",
            Self::Median2 => "median2",
            Self::MestranolSimilarity => "mestranol_similarity",
            Self::OsimertinibMpo => "osimertinib_mpo",
            Self::PerindoprilMpo => "perindopril_mpo",
            Self::Qed => "qed",
            Self::RanolazineMpo => "ranolazine_mpo",
            Self::ScaffoldHop => "scaffold_hop",
            Self::SitagliptinMpo => "sitagliptin_mpo",
            Self::ThiothixeneRediscovery => "thiothixene_rediscovery",
            Self::TroglitazoneRediscovery => "troglitazone_rediscovery",
            Self::ValsartanSmarts => "valsartan_smarts",
            Self::ZaleplonMpo => "zaleplon_mpo",
        }
    }

    /// Returns the oracle with this [`name`](Self::name).
    ///
    /// # Errors
    /// Returns [`UnknownOracle`] with the most similar name if there is none.
    pub fn from_name(name: &str) -> Result<Self, UnknownOracle> {
        let found = Self::ALL.into_iter().find(|oracle| oracle.name() == name);
        found.ok_or_else(|| UnknownOracle::new(name))
    }
}

/// A name that is not the name of an oracle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown oracle '{name}'; {hint}")]
pub struct UnknownOracle {
    name: String,
    hint: String,
}

/// Names in other lists of the benchmark whose oracles are not available.
const CLASSIFIERS: [&str; 3] = ["drd2", "gsk3b", "jnk3"];

impl UnknownOracle {
    fn new(name: &str) -> Self {
        let all = Oracle::ALL.map(Oracle::name);
        let lower = name.to_ascii_lowercase();
        let likeness = |known: &&str| strsim::jaro_winkler(known, &lower);
        let nearest = all.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let hint = match nearest {
            _ if CLASSIFIERS.contains(&lower.as_str()) => {
                "it is a trained classifier, which is not available".to_owned()
            }
            Some(nearest) if likeness(&nearest) > 0.75 => format!("did you mean '{nearest}'?"),
            _ => format!("there are: {}", listed(&all)),
        };
        Self { name: name.to_owned(), hint }
    }
}

/// Separates names by commas. With `join`, the compiler takes minutes for so many constants
/// (docs/LOG.md, 2026-11-27).
fn listed(names: &[&str]) -> String {
    let mut list = String::new();
    for (index, name) in names.iter().enumerate() {
        list.push_str(if index == 0 { "" } else { ", " });
        list.push_str(name);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for (index, oracle) in Oracle::ALL.into_iter().enumerate() {
            assert_eq!(Oracle::from_name(oracle.name()), Ok(oracle));
            assert_eq!(oracle as usize, index);
        }
        assert!(Oracle::ALL.is_sorted_by_key(|oracle| oracle.name()));
    }

    #[test]
    fn a_misspelled_name_is_corrected() {
        for (name, message) in [
            ("albuterol", "unknown oracle 'albuterol'; did you mean 'albuterol_similarity'?"),
            ("osimertinib", "unknown oracle 'osimertinib'; did you mean 'osimertinib_mpo'?"),
            ("QED", "unknown oracle 'QED'; did you mean 'qed'?"),
            ("median_2", "unknown oracle 'median_2'; did you mean 'median2'?"),
            (
                "perindropril_mpo",
                "unknown oracle 'perindropril_mpo'; did you mean 'perindopril_mpo'?",
            ),
            ("DRD2", "unknown oracle 'DRD2'; it is a trained classifier, which is not available"),
        ] {
            assert_eq!(Oracle::from_name(name).unwrap_err().to_string(), message);
        }
        let message = Oracle::from_name("").unwrap_err().to_string();
        assert!(message.starts_with("unknown oracle ''; there are: albuterol_similarity, "));
    }
}
