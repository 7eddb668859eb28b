//! Checks before the first step: frozen models, reward variation in a trial batch, completion
//! lengths, memory and disk space.

mod disk;
mod first_prompt;
mod memory;
mod trial;
mod words;

use grpo_data::Codec;
use grpo_model::Policy;
use grpo_task::device;
use grpo_task::device::Backend;
use grpo_task::phase::Phase;
use grpo_train::{EngineFactory, Grpo};

use crate::train::first_screen;
use crate::train_file::prompts::Prompts;
use crate::train_file::{ModelSize, TrainFile};
use memory::MemoryPlan;
use trial::Trial;

/// Returns lines that describe what to expect from the run, or an error if it cannot work. The
/// trial batch uses separate random numbers, so it does not affect the run.
pub(crate) fn preflight(
    file: &TrainFile,
    grpo: &Grpo<Policy>,
    prompts: &Prompts,
    codec: &Codec,
    engine: &dyn EngineFactory<Policy>,
) -> anyhow::Result<Vec<String>> {
    let phase = Phase::begin("sampling and scoring a trial batch");
    let trial = Trial::of(file, grpo, prompts, codec, engine)?;
    drop(phase);
    trial.iter().try_for_each(|trial| trial.refuse_without_score(file))?;
    let seconds = trial.as_ref().map(Trial::seconds_per_completion);
    let ranks = grpo.learner().ranks().count();
    let mut lines = first_prompt::lines(prompts, codec, grpo.policy());
    lines.push(first_screen::plan(file, ranks, seconds));
    lines.extend(trial.iter().flat_map(|trial| trial.lines(file)));
    let unusual =
        ModelSize::of(grpo.policy()).unusual_learning_rate(file.trainer.optimizer.learning_rate);
    lines.extend(unusual.map(|unusual| format!("warning: {unusual}")));
    let lengths = trial.as_ref().map(Trial::lengths);
    let disk = disk::Need::of(file, grpo.policy(), lengths);
    lines.push(format!("disk         {}", disk.checked(&file.settings.run)?));
    let mut plan = MemoryPlan::of(file, grpo.policy(), prompts.longest(), lengths, ranks);
    // Other devices have their own memory.
    if device::name().backend == Backend::Cpu {
        let available = grpo_runtime::available_memory();
        if let Some(available) = available.filter(|_| !file.settings.preflight.ignore_memory) {
            plan.refuse_above(available)?;
            grpo.learner().limit_reuse(plan.limit_kept(available));
        }
        lines.push(plan.line(ranks, available));
        lines.extend(MemoryPlan::spare(file, grpo.policy(), prompts.longest(), lengths, available));
    }
    let micro_batches = plan.micro_batches;
    if micro_batches < ranks as f64 {
        let noun = if micro_batches == 1.0 { "batch" } else { "batches" };
        lines.push(format!(
            "warning: {ranks} processes share about {micro_batches} micro-{noun} per update, so some wait; lower train.micro_batch_tokens"
        ));
    }
    Ok(lines)
}
