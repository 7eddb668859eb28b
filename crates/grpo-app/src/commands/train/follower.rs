//! The ranks of a run other than the first. They take part in sampling, rewards and gradients, but
//! write no files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use grpo_model::Policy;
use grpo_ranks::Ranks;
use grpo_run::RunFolder;
use grpo_train::{Ending, StepDone, TrainError, TrainObserver, Training};

use super::observer::is_due;
use crate::args::RunArguments;
use crate::checkpoint;
use crate::interrupt::{Deferred, Interrupted};
use crate::run_log::observer_error;
use crate::session::{StartedRun, configured};
use crate::task::Tasks;
use crate::train_file::TrainFile;

/// Takes part in a run until it ends.
pub(super) fn follow(
    arguments: &RunArguments,
    tasks: &Tasks,
    flag: Arc<AtomicBool>,
    ranks: &Ranks,
) -> anyhow::Result<()> {
    let file = match &arguments.resume {
        Some(run) => TrainFile::of_run(&RunFolder::open(run)?, tasks)?.value,
        None => configured(arguments, tasks)?,
    };
    let mut started = StartedRun::load(&file, tasks, flag, ranks)?.0;
    let _deferred = Deferred::new();
    // Evaluates the initial policy together with the first rank.
    started.training.evaluate()?;
    if arguments.resume.is_some()
        && let Some(step) = ranks.from_first(None::<Option<u64>>)?
    {
        restore(&mut started.training, &file.run, step)?;
    }
    let StartedRun { mut training, mut prompts, .. } = started;
    let per_step = file.train.prompts_per_step;
    let mut silent = Silent { completions_every: file.save.completions_every };
    loop {
        let of_step = |step| prompts.of_step(step, per_step).map_err(observer_error);
        match training.run(of_step, &mut silent)? {
            Ending::Interrupted => return Err(Interrupted.into()),
            Ending::RollBack { .. } => match ranks.from_first(None::<Option<u64>>)? {
                Some(step) => restore(&mut training, &file.run, step)?,
                None => break,
            },
            _ => break,
        }
    }
    match training.evaluate() {
        Err(TrainError::Interrupted) => Err(Interrupted.into()),
        evaluated => Ok(evaluated.map(|_| ())?),
    }
}

/// Restores the checkpoint of a step, which the first rank has checked or written.
fn restore(training: &mut Training<Policy>, run: &Path, step: u64) -> anyhow::Result<()> {
    let folder = RunFolder::open(run)?;
    let found = folder.checkpoints()?.into_iter().find(|checkpoint| checkpoint.step == step);
    let missing = || {
        format!(
            "`{}` has no checkpoint of step {step} on this machine; all ranks need the same run folder, on a shared file system",
            run.display()
        )
    };
    checkpoint::restore(training, &found.with_context(missing)?.verify()?)
}

/// Records nothing. Token traces are computed in the same steps as on the first rank.
struct Silent {
    completions_every: u32,
}

impl TrainObserver<Policy> for Silent {
    fn step(&mut self, _: &StepDone<'_>, _: &Training<Policy>) -> Result<(), TrainError> {
        Ok(())
    }

    fn records(&self, step: u32) -> bool {
        is_due(step + 1, self.completions_every)
    }
}
