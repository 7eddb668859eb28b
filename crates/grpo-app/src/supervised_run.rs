//! A run of supervised training: how it begins or is resumed, and what it writes.

mod observer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use grpo_run::{
    DataFile, EventKind, Existing, RunFolder, RunInfo, RunLock, VerifiedFolder, verify,
    write_folder_atomically, write_manifest,
};
use grpo_train::{Objective, StopCause, SupervisedEnding, SupervisedTrainer, Validation};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::observer::Observer;
use crate::args::RunArguments;
use crate::checkpoint::{self, CheckpointSection};
use crate::config::{self, Loaded, Origin};
use crate::interrupt;
use crate::output::say;
use crate::run_files::{Reopened, config_of_run, create_run, last_whole, reopen, unlisted};

/// A supervised command with its configuration, before the run has a folder.
pub(crate) struct Request<F> {
    pub(crate) file: F,
    pub(crate) origin: Origin,
    pub(crate) start: Start,
}

/// Where the run is to be.
pub(crate) struct Start {
    command: &'static str,
    force: bool,
    /// An earlier run to resume.
    resumed: Option<(RunFolder, RunLock, RunInfo)>,
}

/// The keys of the configuration, of whichever command it is.
pub(crate) fn keys(arguments: &RunArguments) -> anyhow::Result<toml::Table> {
    let path = match &arguments.resume {
        Some(run) => RunFolder::open(run)?.config_path(),
        None => configuration(arguments)?.to_owned(),
    };
    Ok(config::load::<toml::Table>(&path, &arguments.set)?.value)
}

fn configuration(arguments: &RunArguments) -> anyhow::Result<&Path> {
    let missing = "missing argument CONFIG (for example configs/molecules/pretrain.toml)";
    arguments.config.as_deref().context(missing)
}

impl<F: DeserializeOwned> Request<F> {
    /// Reads the configuration of a new run, or of the one to resume. `run` is its key for the folder.
    pub(crate) fn read(
        arguments: &RunArguments,
        command: &'static str,
        run: fn(&mut F) -> &mut PathBuf,
    ) -> anyhow::Result<Self> {
        let force = arguments.force;
        if let Some(earlier) = &arguments.resume {
            let Reopened { folder, lock, info, config } =
                reopen(earlier, |folder| resumable(folder, command))?;
            let Loaded { value: file, origin } = config;
            let resumed = Some((folder, lock, info));
            return Ok(Self { file, origin, start: Start { command, force, resumed } });
        }
        let Loaded { value: mut file, origin } =
            config::load::<F>(configuration(arguments)?, &arguments.set)?;
        if let Some(folder) = &arguments.run {
            run(&mut file).clone_from(folder);
        }
        Ok(Self { file, origin, start: Start { command, force, resumed: None } })
    }
}

fn resumable<F: DeserializeOwned>(folder: &RunFolder, command: &str) -> anyhow::Result<Loaded<F>> {
    let loaded = config_of_run(folder, command)?;
    // Since runs have checkpoints, their resolved configurations say when.
    let keys = config::load::<toml::Table>(&folder.config_path(), &[])?.value;
    anyhow::ensure!(
        keys.contains_key("save"),
        "`{}` was written by an older version of this program, which saved no checkpoints of such runs; begin a new run with `grpo {command} {} --run` and another folder",
        folder.path().display(),
        folder.config_path().display()
    );
    Ok(loaded)
}

impl Start {
    /// Makes the folder of a new run, or checks that the run to resume was made from `files` and finds its checkpoint.
    pub(crate) fn folder(
        self,
        file: &impl Serialize,
        path: &Path,
        seed: u64,
        files: &[(&'static str, PathBuf)],
    ) -> anyhow::Result<SupervisedRun> {
        let Self { command, force, resumed } = self;
        let is_resumed = resumed.is_some();
        let (folder, lock, from) = match resumed {
            Some((folder, lock, info)) => {
                unlisted(files, &info.data)?;
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
        let interrupt = interrupt::flag()?;
        Ok(SupervisedRun { folder, command, from, is_resumed, resume, interrupt, _lock: lock })
    }
}

/// What a command knows of the model that it trains.
pub(crate) trait ModelFiles<O: Objective> {
    /// The section of the configuration with `patience` and `min_gain`.
    const SECTION: &'static str;

    /// Writes the files of a model folder.
    fn write(&self, folder: &Path, model: &O::Model) -> anyhow::Result<()>;

    /// Reads what [`Self::write`] wrote, a model of the same kind as `like`.
    fn read(&self, folder: &VerifiedFolder, like: &O::Model) -> anyhow::Result<O::Model>;

    /// The name of the best model's folder in the run; `None` if only the last model counts.
    fn folder(&self) -> Option<&'static str> {
        Some("model")
    }

    /// When a validation was.
    fn when(&self, validation: &Validation<O::Measures>) -> String {
        format!("step {}", validation.train_step)
    }

    /// What it found, in words.
    fn words(&self, measures: &O::Measures) -> String;

    /// Called before the first step that is taken, after `done` steps.
    fn begin(&mut self, run: &RunFolder, done: u64) -> anyhow::Result<()> {
        let _nothing_else_is_written = (run, done);
        Ok(())
    }

    /// Writes what else there is of a validation.
    fn validated(&mut self, measures: &O::Measures) -> anyhow::Result<()> {
        let _nothing_else_is_written = measures;
        Ok(())
    }
}

/// The folder of a supervised run, in the hands of this process.
pub(crate) struct SupervisedRun {
    folder: RunFolder,
    command: &'static str,
    /// The checkpoint to resume from, if there is one.
    from: Option<(u64, VerifiedFolder)>,
    is_resumed: bool,
    /// The run that `--resume` takes: this one, or the one that it is a stage of.
    resume: PathBuf,
    interrupt: Arc<AtomicBool>,
    /// `None` for a stage of a run that is locked.
    _lock: Option<RunLock>,
}

impl SupervisedRun {
    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the best model is, in the folder of this name.
    pub(crate) fn target(&self, folder: &str) -> PathBuf {
        self.path().join(folder)
    }

    /// Whether there is a checkpoint to resume from.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.from.is_some()
    }

    /// A stage of this run before its own training, in the folder `name` in its folder.
    pub(crate) fn stage(&self, name: &str) -> anyhow::Result<Self> {
        let path = self.path().join(name);
        let is_resumed = path.exists();
        let folder = match is_resumed {
            true => {
                let folder = RunFolder::open(&path)?;
                folder.recover_checkpoints()?;
                folder.clear_leftovers()?;
                folder
            }
            false => {
                let (config, info) = (self.folder.read_config()?, self.folder.read_info()?);
                RunFolder::create(&path, Existing::Refuse, &config, &info)?.0
            }
        };
        let from = last_whole(&folder, folder.checkpoints()?, self.command)?;
        let (command, resume) = (self.command, self.resume.clone());
        let interrupt = Arc::clone(&self.interrupt);
        Ok(Self { folder, command, from, is_resumed, resume, interrupt, _lock: None })
    }

    /// Trains until the end, from the checkpoint on if there is one, and says and writes how it ended.
    ///
    /// # Errors
    /// The training failed or was interrupted: what was done is saved.
    pub(crate) fn train<O: Objective, F: ModelFiles<O>>(
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
            say(format_args!("going on     after step {done} of {steps}"));
        }
        files.begin(&self.folder, done)?;
        let mut observer = Observer::new(self, files, save, done, steps)?;
        if self.is_resumed {
            observer.event(done, EventKind::Resumed {})?;
        }
        let trained = trainer.run(&mut observer);
        match trained {
            Ok(ending) => {
                observer.ended(&ending, trainer)?;
                Ok(ending)
            }
            Err(error) => Err(observer.ended_early(error.into(), trainer)),
        }
    }

    /// Reads the best model that was written, and the steps that were done at its validation.
    pub(crate) fn best<O: Objective, F: ModelFiles<O>>(
        &self,
        trainer: &SupervisedTrainer<O>,
        files: &F,
    ) -> anyhow::Result<(O::Model, u64)> {
        let (step, _) = trainer.best().context("the run has had no validation")?;
        let best = verify(&self.target(files.folder().context("no model is kept")?))?;
        Ok((files.read(&best, trainer.model())?, step))
    }

    /// Refuses a run that a limit or a guard ended.
    pub(crate) fn refuse_stopped(&self, ending: SupervisedEnding) -> anyhow::Result<()> {
        let SupervisedEnding::Stopped { cause, message } = ending else { return Ok(()) };
        let cause = match cause {
            StopCause::Limit => "limit",
            StopCause::Guard => "guard",
        };
        anyhow::bail!("a {cause} ended the training of {}: {message}", self.path().display())
    }
}

/// Puts a model folder, with the hashes of its files, in the place of the one that may be there.
pub(crate) fn save_folder(
    target: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    write_folder_atomically(target, Existing::Replace, |folder| {
        write(folder)?;
        anyhow::Ok(write_manifest(folder)?)
    })
}
