//! Supervised training runs: starting, resuming and writing files.

mod model_files;
mod model_sizes;
mod observer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use grpo_data::deserialize_settings;
use grpo_run::{
    DataFile, Existing, RecordedDevice, RenamedInput, RunFolder, RunInfo, RunLock, VerifiedFolder,
    verify,
};
use grpo_train::{Objective, StopCause, SupervisedEnding, SupervisedTrainer};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::model_files::ModelFiles;
use self::model_files::save_folder;
pub use self::model_sizes::ModelSizes;
use self::observer::Observer;
use crate::args::RunArguments;
use crate::checkpoint;
use crate::checkpoint::CheckpointSection;
use crate::config;
use crate::config::{Loaded, Origin};
use crate::hub;
use crate::interrupt;
use crate::interrupt::Interrupted;
use crate::output::{command_line, say};
use crate::recorded_device::of_this_process;
use crate::run_files::{
    Reopened, config_with_inputs, create_run, existing, last_whole, or_changed_config,
    refuse_other_command, reopen, stay_on_device, unlisted,
};
use crate::run_log::{RunLog, open_events};
use crate::violations::violations_of_supervised;

/// A parsed supervised command whose run folder has not been created yet.
pub struct Request<F> {
    /// Parsed configuration.
    pub file: F,
    /// Where each configuration key was set.
    pub origin: Origin,
    /// How to open or create the run folder.
    pub start: Start,
}

/// How to open or create the run folder.
pub struct Start {
    command: &'static str,
    force: bool,
    interrupt: Arc<AtomicBool>,
    /// Set if an existing run is resumed.
    resumed: Option<(RunFolder, RunLock, RunInfo)>,
}

/// Reads the raw configuration of a supervised command.
pub fn keys(arguments: &RunArguments) -> anyhow::Result<toml::Table> {
    let path = match &arguments.resume {
        Some(run) => RunFolder::open(run)?.config_path(),
        None => arguments.configuration()?.to_owned(),
    };
    Ok(config::load::<toml::Table>(&path, &arguments.set)?.value)
}

impl<F: DeserializeOwned> Request<F> {
    /// Reads the configuration of a new or resumed run. `run` returns a reference to the
    /// configuration field that holds the run folder.
    pub fn read(
        arguments: &RunArguments,
        command: &'static str,
        run: fn(&mut F) -> &mut PathBuf,
    ) -> anyhow::Result<Self> {
        let force = arguments.force;
        // Signals are handled from here on, including while loading.
        let interrupt = interrupt::flag()?;
        if let Some(earlier) = &arguments.resume {
            let reopened = reopen(earlier, |folder, renamed| resumable(folder, command, renamed))?;
            let Reopened { folder, lock, info, config } = reopened;
            stay_on_device(&folder, &info)?;
            for violation in violations_of_supervised(&folder) {
                say(format_args!("audit        {violation}"));
            }
            let Loaded { value: file, origin } = config;
            let resumed = Some((folder, lock, info));
            return Ok(Self { file, origin, start: Start { command, force, interrupt, resumed } });
        }
        let path = arguments.configuration()?;
        let keys = config::load::<toml::Table>(path, &arguments.set)?;
        refuse_other_command(&keys.value, path, command)?;
        let mut table = keys.value.clone();
        let Loaded { value: mut file, origin } = keys.parse::<F>()?;
        let set_run = |file: &mut F| {
            if let Some(folder) = &arguments.run {
                run(file).clone_from(folder);
            }
        };
        set_run(&mut file);
        if !arguments.check {
            RunFolder::check_unused(run(&mut file), existing(force))?;
            if hub::find_models("", &mut table)? {
                file = deserialize_settings(table).map_err(|fault| origin.misread(&fault))?;
                set_run(&mut file);
            }
        }
        Ok(Self { file, origin, start: Start { command, force, interrupt, resumed: None } })
    }
}

fn resumable<F: DeserializeOwned>(
    folder: &RunFolder,
    command: &str,
    renamed: &[RenamedInput],
) -> anyhow::Result<Loaded<F>> {
    let mut keys = config_with_inputs(folder, command, renamed)?;
    let run = folder.path().display();
    // Folders in the cache of the hub are downloaded again if they are gone.
    hub::find_models("", &mut keys.value)?;
    // Older versions wrote no checkpoints and no `save` section.
    let has_checkpoints = keys.value.contains_key("save");
    let loaded = keys.parse().with_context(|| format!("`{run}` is not a run of `grpo {command}`"));
    let loaded = loaded.map_err(|error| or_changed_config(folder, error))?;
    anyhow::ensure!(
        has_checkpoints,
        "`{run}` was written by an older version of this program, which saved no checkpoints of such runs; start a new run in another folder with `grpo {command} {} --run`",
        folder.config_path().display()
    );
    Ok(loaded)
}

impl Start {
    /// Creates the folder of a new run. For a resumed run, checks that `files` are still its input
    /// files and locates the checkpoint.
    pub fn folder(
        self,
        file: &impl Serialize,
        path: &Path,
        seed: u64,
        files: &[(&'static str, PathBuf)],
    ) -> anyhow::Result<SupervisedRun> {
        let Self { command, force, interrupt, resumed } = self;
        let is_resumed = resumed.is_some();
        let (folder, lock, from) = match resumed {
            Some((folder, lock, info)) => {
                folder.check_writable()?;
                folder.check_metrics(&folder.read_events()?)?;
                unlisted(files.iter().map(|(_, path)| path.as_path()), &info.data)?;
                let from = last_whole(&folder, folder.checkpoints()?, command)?;
                (folder, lock, from)
            }
            None => {
                let data = files.iter().map(|(role, path)| DataFile::measure(role, path));
                let info = config::run_info(seed, data.collect::<Result<_, _>>()?);
                let folder = create_run(path, force, &config::resolved(file)?, &info)?;
                let lock = folder.lock()?;
                (folder, lock, None)
            }
        };
        let (resume, lock) = (folder.path().to_owned(), Some(lock));
        Ok(SupervisedRun { folder, command, from, is_resumed, resume, interrupt, _lock: lock })
    }
}

/// The locked folder of a supervised training run.
pub struct SupervisedRun {
    folder: RunFolder,
    command: &'static str,
    /// The checkpoint to resume from.
    from: Option<(u64, VerifiedFolder)>,
    is_resumed: bool,
    /// The run to pass to `--resume`. For a stage, this is the enclosing run.
    resume: PathBuf,
    interrupt: Arc<AtomicBool>,
    /// `None` for stages, whose enclosing run is locked.
    _lock: Option<RunLock>,
}

impl SupervisedRun {
    /// Returns the path of the run folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path at which the best model is saved, inside the given subfolder.
    pub fn target(&self, folder: &str) -> PathBuf {
        self.path().join(folder)
    }

    /// Writes the model to the subfolder `name` and replaces an existing one. Returns its path.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written.
    pub fn save(
        &self,
        name: &str,
        write: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        save_folder(&self.folder, name, write)?;
        Ok(self.target(name))
    }

    /// Returns whether the run can resume from a checkpoint.
    pub fn has_checkpoint(&self) -> bool {
        self.from.is_some()
    }

    /// Opens or creates a preparation stage in the subfolder `name`.
    pub fn stage(&self, name: &str) -> anyhow::Result<Self> {
        if self.is_resumed {
            // The device of a stage is that of the enclosing run.
            let done = self.from.as_ref().map_or(0, |(step, _)| *step);
            open_events(&self.folder, done, 0, true)?;
        }
        let path = self.path().join(name);
        let is_resumed = self.folder.has(name)?;
        let folder = match is_resumed {
            true => {
                let folder = self.folder.open_stage(name)?;
                folder.recover_checkpoints()?;
                folder.clear_leftovers()?;
                folder
            }
            false => {
                let RecordedDevice { name: device, gpu } = of_this_process();
                let info = RunInfo { device, gpu, ..self.folder.read_info()? };
                let config = self.folder.read_config()?;
                RunFolder::create(&path, Existing::Refuse, &config, &info)?.0
            }
        };
        let from = last_whole(&folder, folder.checkpoints()?, self.command)?;
        let (command, resume) = (self.command, self.resume.clone());
        let interrupt = Arc::clone(&self.interrupt);
        Ok(Self { folder, command, from, is_resumed, resume, interrupt, _lock: None })
    }

    /// Trains to the end, starting from a checkpoint if one exists, and prints how the run ended.
    ///
    /// # Errors
    /// Returns an error if training fails or is interrupted. Progress is saved in both cases.
    pub fn train<O: Objective, F: ModelFiles<O>>(
        &self,
        trainer: &mut SupervisedTrainer<O>,
        files: &mut F,
        save: &CheckpointSection,
    ) -> anyhow::Result<SupervisedEnding> {
        if let Some((_, checkpoint)) = &self.from {
            let restored = (|| {
                let (progress, moments) = checkpoint::read_state(checkpoint)?;
                let model = files.read(checkpoint, trainer.model())?;
                anyhow::Ok(trainer.restore(model, progress, moments)?)
            })();
            restored.with_context(|| checkpoint::unusable(checkpoint))?;
        }
        let _deferred = interrupt::Deferred::new();
        trainer.interrupted_by(Arc::clone(&self.interrupt));
        let (done, steps) = (trainer.steps(), trainer.plan().steps);
        if self.is_resumed {
            say(format_args!("resuming     after step {done} of {steps}"));
        }
        files.begin(&self.folder, done)?;
        let log =
            RunLog::open(&self.folder, done, 0, save.clone(), self.is_resumed, trainer.metrics())?;
        let run = self.resume.display().to_string();
        let resume = command_line([self.command, "--resume", &run]);
        let rest =
            format!("after the last step; everything is saved, and `grpo {resume}` does the rest");
        let mut observer = Observer::new(log, files, done, steps, resume);
        let trained = trainer.run(&mut observer);
        match trained {
            Ok(ending) => {
                observer.ended(&ending, trainer)?;
                // During the last validation, after which the trainer has ended.
                let is_stopped = matches!(ending, SupervisedEnding::Stopped { .. });
                if self.interrupt.load(Ordering::Relaxed) && !is_stopped {
                    say(format_args!("interrupted  {rest}"));
                    return Err(Interrupted.into());
                }
                interrupt::leaves_behind(rest);
                Ok(ending)
            }
            Err(error) => Err(observer.ended_early(error.into(), trainer)),
        }
    }

    /// Loads the best model and the step at which it was saved.
    pub fn best<O: Objective, F: ModelFiles<O>>(
        &self,
        trainer: &SupervisedTrainer<O>,
        files: &F,
    ) -> anyhow::Result<(O::Model, u64)> {
        let (step, _) = trainer.best().context("the run has no validation yet")?;
        let best = verify(&self.target(files.folder().context("no model has been selected yet")?))?;
        Ok((files.read(&best, trainer.model())?, step))
    }

    /// Returns an error if the run was stopped by a limit or a guard.
    pub fn refuse_stopped(&self, ending: SupervisedEnding) -> anyhow::Result<()> {
        let SupervisedEnding::Stopped { cause, message } = ending else { return Ok(()) };
        let cause = match cause {
            StopCause::Limit => "limit",
            StopCause::Guard => "guard",
        };
        anyhow::bail!("a {cause} stopped training run {}: {message}", self.path().display())
    }
}
