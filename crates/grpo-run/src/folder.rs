//! The folder of a run: where its files are, and how they come to be.

use crate::atomic::parent;
use crate::manifest::sha256;
use crate::{
    ChainWriter, Event, EventKind, Existing, JsonLinesWriter, LedgerStep, RunError, RunInfo,
    write_folder_atomically,
};
use grpo_data::regular_file;
use serde_json::{Map, Value};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of a run, which exists and has a `config.toml` and a `run.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

/// A folder, such as that of a run, in the hands of this process; the system takes it back where the process ends, however it
/// does.
#[derive(Debug)]
pub struct RunLock {
    _file: fs::File,
}

/// Keeps other processes that ask for the lock from writing into the folder `path` while the result lives. It stands in the file
/// `.lock`, which stays.
///
/// # Errors
/// Another process has it; the file cannot be made or locked.
pub fn lock_folder(path: &Path) -> Result<RunLock, RunError> {
    let lock = path.join(".lock");
    let file = fs::File::create(&lock).map_err(RunError::write(&lock))?;
    match file.try_lock() {
        Ok(()) => Ok(RunLock { _file: file }),
        Err(fs::TryLockError::WouldBlock) => Err(RunError::FolderLocked { path: path.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(RunError::write(&lock)(error)),
    }
}

impl RunFolder {
    /// Makes the folder of a new run, with its missing parents. An empty folder may be there.
    ///
    /// With [`Existing::Replace`] an older run steps aside: its folder is renamed by adding
    /// `.old-1` (or the next free number), and the new name is returned. Nothing is deleted.
    ///
    /// # Errors
    /// The place is taken and not to be replaced, or not by a run; or writing failed, and there is
    /// then no new folder.
    pub fn create(
        path: &Path,
        existing: Existing,
        config: &str,
        info: &RunInfo,
    ) -> Result<(Self, Option<PathBuf>), RunError> {
        let taken = is_taken(path)?;
        if taken && existing == Existing::Refuse {
            return Err(RunError::RunExists { path: path.to_owned() });
        }
        // Nobody writes into it while it steps aside, or after.
        let _lock = if taken { Some(Self::open(path)?.lock()?) } else { None };
        let aside = if taken { Some(move_aside(path)?) } else { None };
        // An empty folder may be there, and goes; one that was filled meanwhile is somebody's run, and stays.
        match fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                return Err(RunError::RunExists { path: path.to_owned() });
            }
            Err(error) => return Err(RunError::write(path)(error)),
        }
        let config_sha256 = sha256(config.as_bytes());
        let info = RunInfo { config_sha256, chained: true, ..info.clone() };
        let json =
            serde_json::to_string_pretty(&info).expect("strings and numbers are JSON") + "\n";
        let made = write_folder_atomically(path, Existing::Refuse, |folder| {
            let write = |name: &str, text: &str| {
                let path = folder.join(name);
                fs::write(&path, text).map_err(RunError::write(&path))
            };
            write(CONFIG, config)?;
            write(INFO, &json)?;
            for name in [CHECKPOINTS, COMPLETIONS] {
                let path = folder.join(name);
                fs::create_dir(&path).map_err(RunError::write(&path))?;
            }
            Ok(())
        });
        if let Err(error) = made {
            if let Some(aside) = &aside {
                fs::rename(aside, path).map_err(RunError::write(path))?;
            }
            return Err(error);
        }
        let path = path.to_owned();
        Ok((Self { path }, aside))
    }

    /// Opens the folder of an earlier run.
    ///
    /// # Errors
    /// There is no `run.json` in it.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if !path.join(INFO).is_file() {
            return Err(RunError::NotARun { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Keeps other processes from writing into the folder while the result lives.
    ///
    /// # Errors
    /// Another process has it, or there is no room for the file that is locked.
    pub fn lock(&self) -> Result<RunLock, RunError> {
        lock_folder(&self.path).map_err(|error| match error {
            RunError::FolderLocked { path } => RunError::RunLocked { path },
            error => error,
        })
    }

    /// Renames what is in the folder under this name, by adding the first free number; nothing is deleted.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn move_aside(&self, name: &str) -> Result<(), RunError> {
        let path = self.path.join(name);
        if path.exists() { move_aside(&path).map(|_| ()) } else { Ok(()) }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the resolved configuration is.
    pub fn config_path(&self) -> PathBuf {
        self.path.join(CONFIG)
    }

    /// Where [`RunInfo`] is.
    pub fn info_path(&self) -> PathBuf {
        self.path.join(INFO)
    }

    /// Where the metrics of the steps are.
    pub fn metrics_path(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// Reads `config.toml`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_config(&self) -> Result<String, RunError> {
        let path = self.config_path();
        regular_file::read_to_string(&path).map_err(RunError::read(&path))
    }

    /// Reads `run.json`.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub fn read_info(&self) -> Result<RunInfo, RunError> {
        let path = self.info_path();
        let text = regular_file::read(&path).map_err(RunError::read(&path))?;
        serde_json::from_slice(&text).map_err(RunError::json(&path))
    }

    /// Refuses a `config.toml` that is not the one that the run was made with.
    ///
    /// # Errors
    /// It is another one, or cannot be read. Runs of older programs did not write down which it was.
    pub fn check_config(&self, info: &RunInfo) -> Result<(), RunError> {
        let is_same = sha256(self.read_config()?.as_bytes()) == info.config_sha256;
        match is_same || info.config_sha256.is_empty() {
            true => Ok(()),
            false => Err(RunError::ConfigChanged { path: self.config_path() }),
        }
    }

    /// Reads `metrics.jsonl`: an object a step, with its keys in the order of the file.
    ///
    /// # Errors
    /// It cannot be read, or a finished line is no JSON object.
    pub fn read_metrics(&self) -> Result<Vec<Map<String, Value>>, RunError> {
        crate::read_json_lines(&self.metrics_path())
    }

    /// Opens `metrics.jsonl` for the steps from `first_step` on. Lines of that step and later
    /// ones, which a resumed run writes again, are taken out, and so are lines without a step.
    ///
    /// # Errors
    /// It cannot be read or written, or a finished line is no JSON object.
    pub fn metrics_from(&self, first_step: u64) -> Result<JsonLinesWriter, RunError> {
        JsonLinesWriter::resume(&self.metrics_path(), |line: &Map<String, Value>| {
            crate::step_of_line(line).is_some_and(|step| step < first_step)
        })
    }

    /// Where the ledger is.
    pub fn ledger_path(&self) -> PathBuf {
        self.path.join("ledger.jsonl")
    }

    /// Opens `ledger.jsonl` for the steps from `first_step` on, as [`Self::metrics_from`]. Its lines are
    /// [`LedgerStep`]s.
    ///
    /// # Errors
    /// It cannot be read or written, or a finished line is no such step.
    pub fn ledger_from(&self, first_step: u64) -> Result<ChainWriter, RunError> {
        ChainWriter::resume(&self.ledger_path(), |line: &LedgerStep| line.step < first_step)
    }

    /// Reads `ledger.jsonl`; `None` where the run has none, as older versions wrote none.
    ///
    /// # Errors
    /// It cannot be read, or a finished line is no step.
    pub fn read_ledger(&self) -> Result<Option<Vec<LedgerStep>>, RunError> {
        let path = self.ledger_path();
        path.exists().then(|| crate::read_json_lines(&path)).transpose()
    }

    /// Takes away what a killed process left of files that it was writing; whoever calls it holds the [`RunLock`].
    ///
    /// # Errors
    /// A folder cannot be read, or a file not be removed.
    pub fn clear_leftovers(&self) -> Result<(), RunError> {
        for folder in [self.path.clone(), self.path.join(COMPLETIONS)] {
            crate::atomic::clear_leftovers(&folder)?;
        }
        Ok(())
    }

    /// Where the events are.
    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Opens `events.jsonl` for the steps from `first_step` on, of a run that has gone back `roll_backs` times. Events of
    /// that step and later ones, which a resumed run meets again, are taken out; not those of before it last went back,
    /// which it does not.
    ///
    /// # Errors
    /// It cannot be read or written, or a finished line is no event.
    pub fn events_from(&self, first_step: u64, roll_backs: u32) -> Result<ChainWriter, RunError> {
        let went_back = |event: &Event| match event.what {
            EventKind::RolledBack { number, .. } => number <= roll_backs,
            _ => false,
        };
        let undone = self.read_events()?.iter().rposition(went_back).map_or(0, |last| last + 1);
        let mut line = 0;
        ChainWriter::resume(&self.events_path(), |event: &Event| {
            line += 1;
            line <= undone || event.step < first_step
        })
    }

    /// Reads `events.jsonl`; a run without one has none.
    ///
    /// # Errors
    /// It cannot be read, or a finished line is no event.
    pub fn read_events(&self) -> Result<Vec<Event>, RunError> {
        let path = self.events_path();
        if path.exists() { crate::read_json_lines(&path) } else { Ok(Vec::new()) }
    }
}

const CONFIG: &str = "config.toml";
const INFO: &str = "run.json";
pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const COMPLETIONS: &str = "completions";

/// Whether there is anything at `path` but an empty folder.
fn is_taken(path: &Path) -> Result<bool, RunError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(RunError::read(path)(error)),
    }
}

/// Renames a folder by adding the first free number.
fn move_aside(path: &Path) -> Result<PathBuf, RunError> {
    let Some(name) = path.file_name() else {
        return Err(RunError::NoName { path: path.to_owned() });
    };
    let free = (1u32..).find_map(|number| {
        let mut name = name.to_owned();
        name.push(format!(".old-{number}"));
        let path = parent(path).join(name);
        (fs::symlink_metadata(&path).is_err()).then_some(path)
    });
    let aside = free.expect("some number below 2^32 is free");
    fs::rename(path, &aside).map_err(RunError::write(path))?;
    Ok(aside)
}
