//! The ranks of a run other than the first. They take part in sampling, rewards and gradients, but
//! only the first rank writes metrics, completions and checkpoints.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_model::Policy;
use grpo_run::RunFolder;
use grpo_runtime::Ranks;
use grpo_task::checkpoint;
use grpo_task::interrupt::{Deferred, Interrupted};
use grpo_task::run_files::stay_on_device;
use grpo_task::run_log::observer_error;
use grpo_task::task::Tasks;
use grpo_train::{Ending, StepDone, TrainError, TrainObserver, Training};

use crate::args::TrainArguments;
use crate::inspect::run_reward::refuse_unasked;
use crate::train::ranks::Restored;
use crate::train::session::{StartedRun, configured};
use crate::train_file::TrainFile;

/// Takes part in a run until it ends.
pub(super) fn follow(
    arguments: &TrainArguments,
    tasks: &Tasks,
    flag: Arc<AtomicBool>,
    ranks: &Ranks,
) -> anyhow::Result<()> {
    let &TrainArguments { run: ref arguments, run_reward, .. } = arguments;
    let mut file = match &arguments.resume {
        Some(run) => {
            let folder = RunFolder::open(run)?;
            stay_on_device(&folder, &folder.read_info()?)?;
            let file = TrainFile::of_run(&folder, tasks)?.value;
            refuse_unasked(&file, run, run_reward)?;
            file
        }
        None => configured(arguments, tasks)?,
    };
    let mut started = StartedRun::load(&mut file, tasks, flag, ranks)?.0;
    let run = arguments.resume.as_deref().unwrap_or(&file.settings.run);
    let _deferred = Deferred::new();
    // The run folder exists.
    ranks.wait_for_all()?;
    let training = &mut started.training;
    training.grpo().rewards().keep_output_in(run);
    // The first rank may have kept the evaluation before training.
    if training.evaluated_count() > 0 && !ranks.from_first(None::<bool>)? {
        wait_after_error(ranks, training.evaluate())?;
    }
    if arguments.resume.is_some() {
        restore(training, run, ranks)?;
    }
    let per_step = file.trainer.train.prompts_per_step;
    loop {
        let prompts = &mut started.prompts;
        let of_step = |step| prompts.of_step(step, per_step).map_err(observer_error);
        match wait_after_error(ranks, training.run(of_step, &mut Silent))? {
            Ending::Interrupted => return Err(Interrupted.into()),
            Ending::RollBack { .. } if restore(training, run, ranks)? => {}
            _ => break,
        }
    }
    wait_after_error(ranks, training.evaluate()).map(drop)
}

/// Returns a result that all ranks have. After an error, the first rank saves the run and then ends all
/// ranks.
fn wait_after_error<T>(ranks: &Ranks, result: Result<T, TrainError>) -> anyhow::Result<T> {
    match result {
        Ok(value) => Ok(value),
        Err(TrainError::Interrupted) => Err(Interrupted.into()),
        Err(error) => {
            ranks.wait_for_all()?;
            Err(error.into())
        }
    }
}

/// Restores the checkpoint that the first rank names. Returns false if it names none.
fn restore(training: &mut Training<Policy>, run: &Path, ranks: &Ranks) -> anyhow::Result<bool> {
    let restored: Option<Restored> = ranks.from_first(None)?;
    if let Some(restored) = &restored {
        let found = restored.find(&RunFolder::open(run)?)?;
        checkpoint::restore(training, &found.verify()?)?;
    }
    ranks.wait_for_all()?;
    Ok(restored.is_some())
}

/// Records nothing.
struct Silent;

impl TrainObserver<Policy> for Silent {
    fn step(&mut self, _: &StepDone<'_>, _: &Training<Policy>) -> Result<(), TrainError> {
        Ok(())
    }
}
