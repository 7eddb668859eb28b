//! Tasks as means of modified properties.

use super::measured::{Measured, Similarity};
use crate::descriptor::Descriptor;
use crate::error::InvalidSmiles;
use crate::fingerprint::Counts;
use crate::molecule::Molecule;
use crate::query::Pattern;

/// A mean of components.
pub(super) struct Task {
    mean: Mean,
    components: Vec<Component>,
}

enum Mean {
    Arithmetic,
    Geometric,
}

/// A property of a molecule, mapped to a score from 0 to 1.
pub(super) struct Component {
    property: Property,
    modifier: Modifier,
}

enum Property {
    /// Tanimoto similarity to a target.
    Similarity(Similarity, Counts),
    LogP,
    Tpsa,
    Complexity,
    Rings,
    AromaticRings,
    Qed,
    /// Number of atoms of an element.
    Atoms(&'static str),
    /// Number of all atoms, including hydrogen.
    AllAtoms,
    /// 1 if a pattern matches, otherwise 0.
    Contains(Pattern),
    /// The score of a task.
    Task(Task),
}

#[derive(Clone, Copy)]
enum Modifier {
    Unchanged,
    /// Exchanges 0 and 1.
    Inverted,
    /// Increases linearly up to 1 at this value.
    Clipped(f64),
    /// A Gaussian function.
    Near(f64, f64),
    /// 1 up to the mean of a Gaussian function.
    AtMost(f64, f64),
    /// 1 from the mean of a Gaussian function.
    AtLeast(f64, f64),
}

impl Task {
    pub(super) fn score(&self, of: &Measured) -> Result<f64, InvalidSmiles> {
        let mut sum = 0.0;
        for component in &self.components {
            let score = component.score(of)?;
            sum += match self.mean {
                // Skips the other components, which may take long.
                Mean::Geometric if score == 0.0 => return Ok(0.0),
                Mean::Geometric => score.ln(),
                Mean::Arithmetic => score,
            };
        }
        let mean = sum / self.components.len() as f64;
        Ok(match self.mean {
            Mean::Geometric => mean.exp(),
            Mean::Arithmetic => mean,
        })
    }
}

impl From<Component> for Task {
    fn from(component: Component) -> Self {
        arithmetic([component])
    }
}

/// The arithmetic mean of components.
pub(super) fn arithmetic<const N: usize>(components: [Component; N]) -> Task {
    Task { mean: Mean::Arithmetic, components: components.into() }
}

/// The geometric mean of components.
pub(super) fn geometric<const N: usize>(components: [Component; N]) -> Task {
    Task { mean: Mean::Geometric, components: components.into() }
}

/// Tanimoto similarity to a target.
pub(super) fn similarity(kind: Similarity, target: &str) -> Component {
    let target = parse(target);
    let fingerprint = Measured::new(&target).fingerprint(kind).cloned();
    Property::Similarity(kind, embedded(fingerprint)).into()
}

/// Octanol–water partition coefficient.
pub(super) fn logp() -> Component {
    Property::LogP.into()
}

/// Topological polar surface area in Å².
pub(super) fn tpsa() -> Component {
    Property::Tpsa.into()
}

/// Bertz's index of complexity.
pub(super) fn complexity() -> Component {
    Property::Complexity.into()
}

/// Number of rings.
pub(super) fn rings() -> Component {
    Property::Rings.into()
}

/// Number of aromatic rings.
pub(super) fn aromatic_rings() -> Component {
    Property::AromaticRings.into()
}

/// Quantitative estimate of drug-likeness.
pub(super) fn qed() -> Component {
    Property::Qed.into()
}

/// Number of atoms of an element.
pub(super) fn atoms(element: &'static str) -> Component {
    Property::Atoms(element).into()
}

/// 1 if a SMARTS pattern matches, otherwise 0.
pub(super) fn contains(smarts: &str) -> Component {
    let pattern = Pattern::parse(smarts);
    Property::Contains(pattern.unwrap_or_else(|error| panic!("embedded {smarts}: {error}"))).into()
}

/// 0 if a SMARTS pattern matches, otherwise 1.
pub(super) fn lacks(smarts: &str) -> Component {
    Component { modifier: Modifier::Inverted, ..contains(smarts) }
}

/// Similarity of the formula: the geometric mean of a Gaussian function for each element and one
/// for the number of atoms.
pub(super) fn isomer(formula: &[(&'static str, f64)]) -> Component {
    let elements = formula.iter().map(|(element, count)| atoms(element).near(*count, 1.0));
    let total = formula.iter().map(|(_, count)| count).sum();
    let all = Component::from(Property::AllAtoms).near(total, 2.0);
    let components = elements.chain([all]).collect();
    Property::Task(Task { mean: Mean::Geometric, components }).into()
}

impl From<Property> for Component {
    fn from(property: Property) -> Self {
        Self { property, modifier: Modifier::Unchanged }
    }
}

impl Component {
    /// Increases linearly up to 1 at `upper`.
    pub(super) fn clipped(self, upper: f64) -> Self {
        Self { modifier: Modifier::Clipped(upper), ..self }
    }

    /// Decreases on both sides of `mean`.
    pub(super) fn near(self, mean: f64, deviation: f64) -> Self {
        Self { modifier: Modifier::Near(mean, deviation), ..self }
    }

    /// Decreases on both sides of the value of a target.
    pub(super) fn near_that_of(self, target: &str, deviation: f64) -> Self {
        let mean = embedded(self.property.value(&Measured::new(&parse(target))));
        self.near(mean, deviation)
    }

    /// Decreases above `mean`.
    pub(super) fn at_most(self, mean: f64, deviation: f64) -> Self {
        Self { modifier: Modifier::AtMost(mean, deviation), ..self }
    }

    /// Decreases below `mean`.
    pub(super) fn at_least(self, mean: f64, deviation: f64) -> Self {
        Self { modifier: Modifier::AtLeast(mean, deviation), ..self }
    }

    fn score(&self, of: &Measured) -> Result<f64, InvalidSmiles> {
        self.property.value(of).map(|value| self.modifier.apply(value))
    }
}

impl Property {
    fn value(&self, of: &Measured) -> Result<f64, InvalidSmiles> {
        let molecule = of.molecule();
        match self {
            Self::Similarity(kind, target) => Ok(of.fingerprint(*kind)?.tanimoto(target)),
            Self::LogP => molecule.descriptor(Descriptor::LogP),
            Self::Tpsa => molecule.descriptor(Descriptor::Tpsa),
            Self::Complexity => of.complexity(),
            Self::Rings => Ok(of.rings()?.all.into()),
            Self::AromaticRings => Ok(of.rings()?.aromatic.into()),
            Self::Qed => molecule.qed(),
            Self::Atoms(element) => Ok(of.formula()?.count(element)),
            Self::AllAtoms => Ok(of.formula()?.total()),
            Self::Contains(pattern) => Ok(pattern.matches(molecule)?.into()),
            Self::Task(task) => task.score(of),
        }
    }
}

impl Modifier {
    fn apply(self, value: f64) -> f64 {
        let gaussian = |value: f64, mean: f64, deviation: f64| {
            (-0.5 * ((value - mean) / deviation).powi(2)).exp()
        };
        match self {
            Self::Unchanged => value,
            Self::Inverted => 1.0 - value,
            Self::Clipped(upper) => (value / upper).clamp(0.0, 1.0),
            Self::Near(mean, deviation) => gaussian(value, mean, deviation),
            Self::AtMost(mean, deviation) => gaussian(value.max(mean), mean, deviation),
            Self::AtLeast(mean, deviation) => gaussian(value.min(mean), mean, deviation),
        }
    }
}

fn parse(target: &str) -> Molecule {
    embedded(Molecule::parse(target))
}

/// Unwraps what was computed from a target of a task. The tests compute all of them.
fn embedded<T>(result: Result<T, InvalidSmiles>) -> T {
    result.unwrap_or_else(|error| panic!("embedded target: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_have_their_published_shape() {
        // exp(−½), one standard deviation from the mean.
        let one = (-0.5_f64).exp();
        for (modifier, points) in [
            (Modifier::Unchanged, [(0.3, 0.3), (0.0, 0.0), (1.0, 1.0)]),
            (Modifier::Inverted, [(0.0, 1.0), (1.0, 0.0), (1.0, 0.0)]),
            (Modifier::Clipped(0.75), [(0.0, 0.0), (0.375, 0.5), (0.9, 1.0)]),
            (Modifier::Near(4.0, 2.0), [(2.0, one), (4.0, 1.0), (6.0, one)]),
            (Modifier::AtMost(4.0, 2.0), [(2.0, 1.0), (4.0, 1.0), (6.0, one)]),
            (Modifier::AtLeast(4.0, 2.0), [(2.0, one), (4.0, 1.0), (6.0, 1.0)]),
        ] {
            for (value, score) in points {
                assert_eq!(modifier.apply(value), score);
            }
        }
    }

    #[test]
    fn means_of_components() {
        let molecule = parse("FC(F)F");
        let of = Measured::new(&molecule);
        let score = |task: Task| task.score(&of).unwrap();
        let fluorine = || atoms("F").clipped(4.0);
        assert_eq!(score(fluorine().into()), 0.75);
        assert_eq!(score(arithmetic([fluorine(), contains("CF")])), 0.875);
        let geometric_mean = score(geometric([fluorine(), atoms("C").clipped(4.0)]));
        assert!((geometric_mean - (0.75_f64 * 0.25).sqrt()).abs() < 1e-15);
        assert_eq!(score(geometric([fluorine(), lacks("CF")])), 0.0);
        // CHF₃ has one more F and one fewer H than CH₂F₂, and as many atoms.
        let isomer = score(isomer(&[("C", 1.0), ("H", 2.0), ("F", 2.0)]).into());
        assert!((isomer - (-0.5_f64 * 2.0 / 4.0).exp()).abs() < 1e-15);
    }
}
