//! How a run ended.

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// All steps were completed.
    Finished,
    /// The evaluation reward stopped improving.
    NoGain {
        /// Last step.
        step: u32,
        /// Number of steps and mean reward at the best evaluation.
        best: (u32, f64),
    },
    /// An extension ended the run.
    OfExtension {
        /// Name of the extension.
        name: &'static str,
        /// Why, as a sentence.
        reason: String,
    },
    /// The run was interrupted between two steps.
    Interrupted,
    /// A guard stopped the run.
    Stopped {
        /// Message from the guard.
        message: String,
    },
    /// A guard requested a roll-back to a policy older than the one that sampled step `since`.
    RollBack {
        /// First bad step, counted from 1.
        since: u32,
        /// Factor to apply to learning rates.
        learning_rate_factor: f64,
        /// Factor to apply to the KL coefficient.
        kl_coef_factor: f64,
        /// Message from the guard.
        message: String,
    },
}
