//! How closely molecules meet the requested conditions.

use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::statistics::mean;

use super::{Asked, descriptor};

/// Differences between requested and measured conditions for valid molecules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Accuracy {
    /// |asked − measured| of each property, by name.
    pub(crate) errors: Vec<(String, Vec<f64>)>,
    /// Similarity of each molecule's scaffold to the requested one.
    pub(crate) similarities: Vec<f64>,
}

/// Similarity above which a scaffold counts as the requested one, as in MolGPT.
pub(crate) const SAME_SCAFFOLD: f64 = 0.8;

impl Accuracy {
    /// Adds a molecule that was sampled for `asked`.
    pub(crate) fn add(&mut self, asked: &Asked, molecule: &Molecule) -> Result<(), InvalidSmiles> {
        for (name, error) in errors(asked, molecule)? {
            match self.errors.iter_mut().find(|(other, _)| *other == name) {
                Some((_, all)) => all.push(error),
                None => self.errors.push((name, vec![error])),
            }
        }
        if let Some(scaffold) = &asked.scaffold {
            self.similarities.push(scaffold_similarity(scaffold, molecule)?);
        }
        Ok(())
    }

    /// Adds the molecules of another condition.
    pub(crate) fn extend(&mut self, other: Self) {
        for (name, errors) in other.errors {
            match self.errors.iter_mut().find(|(other, _)| *other == name) {
                Some((_, all)) => all.extend(errors),
                None => self.errors.push((name, errors)),
            }
        }
        self.similarities.extend(other.similarities);
    }

    /// Returns the fraction of molecules with the requested scaffold.
    pub(crate) fn same_scaffold(&self) -> f64 {
        let same = self.similarities.iter().filter(|&&similarity| similarity >= SAME_SCAFFOLD);
        same.count() as f64 / self.similarities.len() as f64
    }

    /// Returns the fraction of molecules whose scaffold has a similarity of 1.
    pub(crate) fn equal_scaffold(&self) -> f64 {
        let equal = self.similarities.iter().filter(|&&similarity| similarity == 1.0);
        equal.count() as f64 / self.similarities.len() as f64
    }

    /// Returns the mean similarity of scaffolds.
    pub(crate) fn similarity(&self) -> f64 {
        mean(&self.similarities)
    }
}

/// Returns |asked − measured| for each requested property.
pub(crate) fn errors(
    asked: &Asked,
    molecule: &Molecule,
) -> Result<Vec<(String, f64)>, InvalidSmiles> {
    let error = |(name, value): &(String, f64)| {
        let measured = descriptor(name).map(|descriptor| molecule.descriptor(descriptor));
        let measured = measured.transpose()?.unwrap_or(f64::NAN);
        Ok((name.clone(), (value - measured).abs()))
    };
    asked.properties.iter().map(error).collect()
}

/// Returns the similarity of a molecule's scaffold to a canonical scaffold: the Tanimoto similarity
/// of RDKit fingerprints, as in MolGPT. It is 0 if the molecule has no scaffold.
pub(crate) fn scaffold_similarity(
    scaffold: &str,
    molecule: &Molecule,
) -> Result<f64, InvalidSmiles> {
    let own = molecule.scaffold()?;
    if own.is_empty() {
        return Ok(0.0);
    }
    if own == scaffold {
        return Ok(1.0);
    }
    let [own, asked] = [&*own, scaffold].map(|smiles| Molecule::parse(smiles)?.path_fingerprint());
    Ok(own?.tanimoto(&asked?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_by_hand() {
        let asked = Asked::parse("logp=1.5,tpsa=20").unwrap();
        let asked = asked.with_scaffold_of("Cc1ccccc1").unwrap();
        assert_eq!(asked.text(), "logp=1.5 tpsa=20 scaffold=c1ccccc1");
        let mut accuracy = Accuracy::default();
        // Phenol has TPSA 20.23 and logP 1.3922; cyclohexanol has another scaffold.
        for smiles in ["Oc1ccccc1", "OC1CCCCC1", "CCO"] {
            accuracy.add(&asked, &Molecule::parse(smiles).unwrap()).unwrap();
        }
        let [(logp, of_logp), (tpsa, of_tpsa)] = &accuracy.errors[..] else { panic!("two") };
        assert_eq!((logp.as_str(), tpsa.as_str()), ("logp", "tpsa"));
        assert!((of_logp[0] - 0.1078).abs() < 1e-4, "{of_logp:?}");
        assert!((of_tpsa[0] - 0.23).abs() < 1e-9);
        assert_eq!(accuracy.similarities[0], 1.0);
        assert!(accuracy.similarities[1] < 0.5 && accuracy.similarities[2] == 0.0);
        assert_eq!(accuracy.same_scaffold(), 1.0 / 3.0);
        assert_eq!(accuracy.equal_scaffold(), 1.0 / 3.0);
    }
}
