//! What is looked at before the first step: whether models are frozen that should be, rewards of a trial batch vary,
//! completions end, and memory and disk are enough.

mod disk;
mod memory;
mod trial;

use grpo_data::Codec;
use grpo_model::{Policy, parameters};
use grpo_train::Grpo;
use serde::{Deserialize, Serialize};

use crate::config::Origin;
use crate::device;
use crate::prompts::Prompts;
use crate::train_file::TrainFile;
use memory::MemoryPlan;
use trial::Trial;

/// The section `[preflight]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreflightSection {
    /// Completions of the trial batch, of a step's at most; 0 for no trial.
    pub(crate) samples: u32,
    /// The run begins even where its memory plan is above what is available.
    pub(crate) ignore_memory: bool,
}

impl Default for PreflightSection {
    fn default() -> Self {
        Self { samples: 64, ignore_memory: false }
    }
}

impl PreflightSection {
    pub(crate) fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        const MOST: u32 = 1_000_000;
        anyhow::ensure!(
            self.samples <= MOST,
            "{}preflight.samples = {} is out of range; expected 0 to {MOST}",
            origin.place("preflight.samples"),
            self.samples
        );
        Ok(())
    }
}

/// What is to be expected of a training, in lines to be shown; one that cannot be is refused. Nothing of it is changed: the trial batch
/// has random numbers of its own.
pub(crate) fn preflight(
    file: &TrainFile,
    grpo: &Grpo<Policy>,
    prompts: &Prompts,
    codec: &Codec,
) -> anyhow::Result<Vec<String>> {
    refuse_unfrozen(grpo)?;
    let trial = Trial::of(file, grpo, prompts, codec)?;
    let mut lines = trial.as_ref().map_or_else(Vec::new, |trial| trial.lines(file));
    let lengths = trial.as_ref().map(Trial::lengths);
    let disk = disk::Need::of(file, grpo.policy(), lengths);
    lines.push(format!("disk         {}", disk.checked(&file.run)?));
    let plan = MemoryPlan::of(file, grpo.policy(), prompts.longest(), lengths);
    // Elsewhere the memory is not that of this process.
    if device::name() == "flex" {
        let available = grpo_process::available_memory();
        if let Some(available) = available.filter(|_| !file.preflight.ignore_memory) {
            plan.refuse_above(available)?;
        }
        lines.extend(plan.lines(available));
    }
    Ok(lines)
}

/// What is meant to stay as it is is no parameter of the tape.
fn refuse_unfrozen(grpo: &Grpo<Policy>) -> anyhow::Result<()> {
    let on_tape = grpo.learner().reference().parameters_on_tape();
    anyhow::ensure!(
        on_tape == 0,
        "the training would change {on_tape} parameters of the reference, which must stay as it is"
    );
    if let Policy::Adapted(adapted) = grpo.policy() {
        let base = parameters(adapted.base());
        let on_tape = base.iter().filter(|parameter| parameter.is_on_tape).count();
        anyhow::ensure!(
            on_tape == 0,
            "the training would change {on_tape} parameters of the model under the adapter, which must stay as it is"
        );
    }
    Ok(())
}

/// Bytes in words.
pub(super) fn words(bytes: u64) -> String {
    let bytes = bytes as f64;
    let (unit, name) = if bytes >= 1e9 { (1e9, "GB") } else { (1e6, "MB") };
    let digits = if bytes / unit < 10.0 { 1 } else { 0 };
    format!("{:.digits$} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn bytes_in_words() {
        for (bytes, expected) in [
            (0, "0.0 MB"),
            (1_250_000, "1.2 MB"),
            (52_400_000, "52 MB"),
            (999_400_000, "999 MB"),
            (1_000_000_000, "1.0 GB"),
            (23_600_000_000, "24 GB"),
        ] {
            assert_eq!(words(bytes), expected);
        }
    }
}
