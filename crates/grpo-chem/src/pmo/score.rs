//! Scores of molecules.

use std::sync::OnceLock;

use super::component::Task;
use super::measured::Measured;
use super::oracle::Oracle;
use super::tasks::task;
use crate::molecule::Molecule;

impl Oracle {
    /// Returns the score of a molecule, from 0 to 1.
    ///
    /// Like in PyTDC, the score is 0 if it cannot be computed. This has never been observed for
    /// organic molecules.
    pub fn score(self, molecule: &Molecule) -> f64 {
        self.score_measured(&Measured::new(molecule))
    }

    /// Returns the scores of a molecule for [`ALL`](Self::ALL) oracles. This is faster than separate
    /// calls of [`score`](Self::score), because the fingerprints are shared.
    pub fn score_all(molecule: &Molecule) -> [f64; 20] {
        let measured = Measured::new(molecule);
        Self::ALL.map(|oracle| oracle.score_measured(&measured))
    }

    fn score_measured(self, measured: &Measured) -> f64 {
        static TASKS: [OnceLock<Task>; Oracle::ALL.len()] =
            [const { OnceLock::new() }; Oracle::ALL.len()];
        let task = TASKS[self as usize].get_or_init(|| task(self));
        task.score(measured).unwrap_or(0.0)
    }
}
