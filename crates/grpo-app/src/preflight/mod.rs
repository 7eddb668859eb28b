//! Checks before the first step: frozen models, variation of rewards in a trial batch, length of
//! completions, memory and disk.

mod disk;
mod memory;
mod section;
mod trial;
mod words;

use grpo_data::Codec;
use grpo_model::{Policy, parameters};
use grpo_train::Grpo;

pub(crate) use self::section::PreflightSection;
use crate::phase::Phase;
use crate::prompts::Prompts;
use crate::train_file::TrainFile;
use crate::{device, first_screen};
use memory::MemoryPlan;
use trial::Trial;

/// Returns lines about what to expect of the run, or an error if it cannot work. The run is not
/// affected: the trial batch has its own random numbers.
pub(crate) fn preflight(
    file: &TrainFile,
    grpo: &Grpo<Policy>,
    prompts: &Prompts,
    codec: &Codec,
) -> anyhow::Result<Vec<String>> {
    refuse_unfrozen(grpo)?;
    let phase = Phase::begin("sampling and scoring a trial batch");
    let trial = Trial::of(file, grpo, prompts, codec)?;
    drop(phase);
    let seconds = trial.as_ref().map(Trial::seconds_per_completion);
    let mut lines = vec![first_screen::plan(file, seconds)];
    lines.extend(trial.iter().flat_map(|trial| trial.lines(file)));
    let lengths = trial.as_ref().map(Trial::lengths);
    let disk = disk::Need::of(file, grpo.policy(), lengths);
    lines.push(format!("disk         {}", disk.checked(&file.run)?));
    let plan = MemoryPlan::of(file, grpo.policy(), prompts.longest(), lengths);
    // On other devices, memory is not that of this process.
    if device::name() == "flex" {
        let available = grpo_process::available_memory();
        if let Some(available) = available.filter(|_| !file.preflight.ignore_memory) {
            plan.refuse_above(available)?;
        }
        lines.extend(plan.lines(available));
    }
    Ok(lines)
}

/// Checks that frozen models have no autodiff.
fn refuse_unfrozen(grpo: &Grpo<Policy>) -> anyhow::Result<()> {
    let on_tape = grpo.learner().reference().parameters_on_tape();
    anyhow::ensure!(
        on_tape == 0,
        "training would change {on_tape} parameters of the reference, which must stay frozen"
    );
    if let Policy::Adapted(adapted) = grpo.policy() {
        let base = parameters(adapted.base());
        let on_tape = base.iter().filter(|parameter| parameter.is_on_tape).count();
        anyhow::ensure!(
            on_tape == 0,
            "training would change {on_tape} parameters of the base model, which must stay frozen"
        );
    }
    Ok(())
}
