//! The quantitative estimate of drug-likeness (QED).
//!
//! Bickerton, Paolini, Besnard, Muresan, Hopkins, "Quantifying the chemical beauty of drugs",
//! Nature Chemistry 4 (2012) 90–98. Parameters and mean weights are those of `rdkit.Chem.QED`.

/// The eight properties for QED, defined as in `rdkit.Chem.QED.properties`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Properties {
    /// Average molecular weight in g/mol, including hydrogens.
    pub mw: f64,
    /// Logarithm (base 10) of the octanol–water partition coefficient, Wildman–Crippen method.
    pub logp: f64,
    /// Topological polar surface area in Å², Ertl method. Only includes contributions from N and O.
    pub tpsa: f64,
    /// Number of hydrogen-bond acceptors, i.e. matches of QED's eleven acceptor patterns.
    pub hba: u32,
    /// Number of hydrogen-bond donors (`CalcNumHBD`).
    pub hbd: u32,
    /// Number of rotatable bonds (`CalcNumRotatableBonds`, strict).
    pub rotatable: u32,
    /// Number of aromatic rings, i.e. rings that remain after deleting aliphatic ring atoms.
    pub aromatic_rings: u32,
    /// Number of structural alerts, out of 116, that match the molecule.
    pub alerts: u32,
}

/// Computes the quantitative estimate of drug-likeness, from 0 to 1.
///
/// This is the weighted geometric mean of eight desirability functions: exp(Σ wᵢ ln dᵢ / Σ wᵢ)
/// (Bickerton 2012, equation 2).
pub fn qed(properties: &Properties) -> f64 {
    let values = [
        properties.mw,
        properties.logp,
        f64::from(properties.hba),
        f64::from(properties.hbd),
        properties.tpsa,
        f64::from(properties.rotatable),
        f64::from(properties.aromatic_rings),
        f64::from(properties.alerts),
    ];
    let mut log_sum = 0.0;
    let mut weight_sum = 0.0;
    for (value, term) in values.into_iter().zip(&TERMS) {
        log_sum += term.weight * term.desirability(value).ln();
        weight_sum += term.weight;
    }
    (log_sum / weight_sum).exp()
}

/// Parameters of an asymmetric double sigmoid and the weight of the property.
struct Term {
    weight: f64,
    a: f64,
    b: f64,
    c: f64,
    d: f64,
    e: f64,
    f: f64,
    max: f64,
}

impl Term {
    /// Returns d(x), normalized to a maximum of 1 (Bickerton 2012, equation 1).
    fn desirability(&self, x: f64) -> f64 {
        let rise = 1.0 + (-(x - self.c + self.d / 2.0) / self.e).exp();
        let fall = 1.0 + (-(x - self.c - self.d / 2.0) / self.f).exp();
        (self.a + self.b / rise * (1.0 - 1.0 / fall)) / self.max
    }
}

/// The terms in the order of [`qed`]: MW, ALOGP, HBA, HBD, PSA, ROTB, AROM, ALERTS. Copied from
/// `adsParameters` and `WEIGHT_MEAN` in RDKit.
#[rustfmt::skip]
const TERMS: [Term; 8] = [
    Term { weight: 0.66, a: 2.817065973, b: 392.5754953, c: 290.7489764, d: 2.419764353, e: 49.22325677, f: 65.37051707, max: 104.9805561 },
    Term { weight: 0.46, a: 3.172690585, b: 137.8624751, c: 2.534937431, d: 4.581497897, e: 0.822739154, f: 0.576295591, max: 131.3186604 },
    Term { weight: 0.05, a: 2.948620388, b: 160.4605972, c: 3.615294657, d: 4.435986202, e: 0.290141953, f: 1.300669958, max: 148.7763046 },
    Term { weight: 0.61, a: 1.618662227, b: 1010.051101, c: 0.985094388, d: 0.000000001, e: 0.713820843, f: 0.920922555, max: 258.1632616 },
    Term { weight: 0.06, a: 1.876861559, b: 125.2232657, c: 62.90773554, d: 87.83366614, e: 12.01999824, f: 28.51324732, max: 104.5686167 },
    Term { weight: 0.65, a: 0.01, b: 272.4121427, c: 2.558379970, d: 1.565547684, e: 1.271567166, f: 2.758063707, max: 105.4420403 },
    Term { weight: 0.48, a: 3.217788970, b: 957.7374108, c: 2.274627939, d: 0.000000001, e: 1.317690384, f: 0.375760881, max: 312.3372610 },
    Term { weight: 0.95, a: 0.01, b: 1199.094025, c: -0.09002883, d: 0.000000001, e: 0.185904477, f: 0.875193782, max: 417.7253140 },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The properties and the expected value were computed with RDKit 2026.09.
    #[test]
    fn aspirin() {
        let aspirin = Properties {
            mw: 180.159,
            logp: 1.3101,
            tpsa: 63.6,
            hba: 4,
            hbd: 1,
            rotatable: 2,
            aromatic_rings: 1,
            alerts: 2,
        };
        assert!((qed(&aspirin) - 0.550_121_796_693_884_8).abs() < 1e-12, "{}", qed(&aspirin));
    }

    /// Compares the desirability of the molecular weight with the formula, at a point on its slope.
    #[test]
    fn desirability_is_the_double_sigmoidal() {
        let x = 300.0;
        let (rise, fall) = (
            1.0 / (1.0 + f64::exp(-(x - 290.7489764 + 2.419764353 / 2.0) / 49.22325677)),
            1.0 / (1.0 + f64::exp(-(x - 290.7489764 - 2.419764353 / 2.0) / 65.37051707)),
        );
        let expected = (2.817065973 + 392.5754953 * rise * (1.0 - fall)) / 104.9805561;
        assert!((TERMS[0].desirability(x) - expected).abs() < 1e-15);
    }

    #[test]
    fn weights_are_those_of_the_mean() {
        let sum: f64 = TERMS.iter().map(|term| term.weight).sum();
        assert!((sum - 3.92).abs() < 1e-12);
        // Another alert changes the logarithm by 0.95 divided by the total weight.
        let none = Properties {
            mw: 300.0,
            logp: 2.5,
            tpsa: 60.0,
            hba: 3,
            hbd: 1,
            rotatable: 3,
            aromatic_rings: 2,
            alerts: 0,
        };
        let one = Properties { alerts: 1, ..none };
        let step = TERMS[7].desirability(1.0).ln() - TERMS[7].desirability(0.0).ln();
        assert!(((qed(&one) / qed(&none)).ln() - step * 0.95 / sum).abs() < 1e-12);
    }
}
