//! The tasks as published.
//!
//! Targets, patterns, means and deviations are those of PyTDC 0.4.1
//! (`tdc/chem_utils/oracle/oracle.py`).

use super::component::{
    Task, arithmetic, aromatic_rings, atoms, complexity, contains, geometric, isomer, lacks, logp,
    qed, rings, similarity, tpsa,
};
use super::measured::Similarity::{AtomPairs, Ecfp4, Ecfp6, Fcfp4, Pharmacophores};
use super::oracle::Oracle;

/// Prepares the task of an oracle.
pub(super) fn task(oracle: Oracle) -> Task {
    match oracle {
        Oracle::CelecoxibRediscovery => similarity(Ecfp4, CELECOXIB).into(),
        Oracle::ThiothixeneRediscovery => similarity(Ecfp4, THIOTHIXENE).into(),
        Oracle::TroglitazoneRediscovery => similarity(Ecfp4, TROGLITAZONE).into(),

        Oracle::AlbuterolSimilarity => similarity(Fcfp4, ALBUTEROL).clipped(0.75).into(),
        Oracle::MestranolSimilarity => similarity(AtomPairs, MESTRANOL).clipped(0.75).into(),

        Oracle::Median1 => geometric([similarity(Ecfp4, CAMPHOR), similarity(Ecfp4, MENTHOL)]),
        Oracle::Median2 => geometric([similarity(Ecfp6, TADALAFIL), similarity(Ecfp6, SILDENAFIL)]),

        Oracle::IsomersC7h8n2o2 => isomer(&[("C", 7.0), ("H", 8.0), ("N", 2.0), ("O", 2.0)]).into(),
        Oracle::IsomersC9h10n2o2pf2cl => isomer(&[
            ("C", 9.0),
            ("H", 10.0),
            ("N", 2.0),
            ("O", 2.0),
            ("P", 1.0),
            ("F", 2.0),
            ("Cl", 1.0),
        ])
        .into(),

        Oracle::Qed => qed().into(),
        Oracle::DecoHop => arithmetic([
            similarity(Pharmacophores, KINASE_INHIBITOR).clipped(0.85),
            contains(QUINAZOLINE),
            lacks("CS([#6])(=O)=O"),
            lacks("[#7]-c1ccc2ncsc2c1"),
        ]),
        Oracle::ScaffoldHop => arithmetic([
            similarity(Pharmacophores, KINASE_INHIBITOR).clipped(0.75),
            lacks(QUINAZOLINE),
            contains("[#6]-[#6]-[#6]-[#8]-[#6]~[#6]~[#6]~[#6]~[#6]-[#7]-c1ccc2ncsc2c1"),
        ]),
        _ => property_task(oracle),
    }
}

/// Prepares a task with several properties (MPO: multi-property objective).
fn property_task(oracle: Oracle) -> Task {
    match oracle {
        Oracle::AmlodipineMpo => geometric([similarity(Ecfp4, AMLODIPINE), rings().near(3.0, 0.5)]),
        Oracle::FexofenadineMpo => geometric([
            similarity(AtomPairs, FEXOFENADINE).clipped(0.8),
            tpsa().at_least(90.0, 10.0),
            logp().at_most(4.0, 1.0),
        ]),
        Oracle::OsimertinibMpo => geometric([
            similarity(Fcfp4, OSIMERTINIB).clipped(0.8),
            similarity(Ecfp6, OSIMERTINIB).at_most(0.85, 0.1),
            tpsa().at_least(100.0, 10.0),
            logp().at_most(1.0, 1.0),
        ]),
        Oracle::PerindoprilMpo => {
            geometric([similarity(Ecfp4, PERINDOPRIL), aromatic_rings().near(2.0, 0.5)])
        }
        Oracle::RanolazineMpo => geometric([
            similarity(AtomPairs, RANOLAZINE).clipped(0.7),
            logp().at_least(7.0, 1.0),
            tpsa().at_least(95.0, 20.0),
            atoms("F").near(1.0, 1.0),
        ]),
        Oracle::SitagliptinMpo => geometric([
            similarity(Ecfp4, SITAGLIPTIN).near(0.0, 0.1),
            logp().near_that_of(SITAGLIPTIN, 0.2),
            tpsa().near_that_of(SITAGLIPTIN, 5.0),
            isomer(&[("C", 16.0), ("H", 15.0), ("F", 6.0), ("N", 5.0), ("O", 1.0)]),
        ]),
        Oracle::ZaleplonMpo => geometric([
            similarity(Ecfp4, ZALEPLON),
            isomer(&[("C", 19.0), ("H", 17.0), ("N", 3.0), ("O", 2.0)]),
        ]),
        _ => geometric([
            contains("CN(C=O)Cc1ccc(c2ccccc2)cc1"),
            logp().near_that_of(SITAGLIPTIN, 0.2),
            tpsa().near_that_of(SITAGLIPTIN, 5.0),
            complexity().near_that_of(SITAGLIPTIN, 30.0),
        ]),
    }
}

const ALBUTEROL: &str = "CC(C)(C)NCC(O)c1ccc(O)c(CO)c1";
const AMLODIPINE: &str = r"Clc1ccccc1C2C(=C(/N/C(=C2/C(=O)OCC)COCCN)C)\C(=O)OC";
const CAMPHOR: &str = "CC1(C)C2CCC1(C)C(=O)C2";
const CELECOXIB: &str = "CC1=CC=C(C=C1)C1=CC(=NN1C1=CC=C(C=C1)S(N)(=O)=O)C(F)(F)F";
const FEXOFENADINE: &str = "CC(C)(C(=O)O)c1ccc(cc1)C(O)CCCN2CCC(CC2)C(O)(c3ccccc3)c4ccccc4";
/// A 6-amino-benzothiazole on a quinazoline, the target of both hops.
const KINASE_INHIBITOR: &str = "CCCOc1cc2ncnc(Nc3ccc4ncsc4c3)c2cc1S(=O)(=O)C(C)(C)C";
const MENTHOL: &str = "CC(C)C1CCC(C)CC1O";
const MESTRANOL: &str = "COc1ccc2[C@H]3CC[C@@]4(C)[C@@H](CC[C@@]4(O)C#C)[C@@H]3CCc2c1";
const OSIMERTINIB: &str = "COc1cc(N(C)CCN(C)C)c(NC(=O)C=C)cc1Nc2nccc(n2)c3cn(C)c4ccccc34";
const PERINDOPRIL: &str = "O=C(OCC)C(NC(C(=O)N1C(C(=O)O)CC2CCCCC12)C)CCC";
const RANOLAZINE: &str = "COc1ccccc1OCC(O)CN2CCN(CC(=O)Nc3c(C)cccc3C)CC2";
const SILDENAFIL: &str = "CCCC1=NN(C2=C1N=C(NC2=O)C3=C(C=CC(=C3)S(=O)(=O)N4CCN(CC4)C)OCC)C";
const SITAGLIPTIN: &str = "Fc1cc(c(F)cc1F)CC(N)CC(=O)N3Cc2nnc(n2CC3)C(F)(F)F";
const TADALAFIL: &str = "O=C1N(CC(N2C1CC3=C(C2C4=CC5=C(OCO5)C=C4)NC6=C3C=CC=C6)=O)C";
const THIOTHIXENE: &str = "CN(C)S(=O)(=O)c1ccc2Sc3ccccc3C(=CCCN4CCN(C)CC4)c2c1";
const TROGLITAZONE: &str = "Cc1c(C)c2OC(C)(COc3ccc(CC4SC(=O)NC4=O)cc3)CCc2c(C)c1O";
const ZALEPLON: &str = "O=C(C)N(CC)C1=CC=CC(C2=CC=NC3=C(C=NN23)C#N)=C1";

/// The scaffold of both hops: a quinazoline with N and O substituents.
const QUINAZOLINE: &str = "[#7]-c1n[c;h1]nc2[c;h1]c(-[#8])[c;h0][c;h1]c12";
