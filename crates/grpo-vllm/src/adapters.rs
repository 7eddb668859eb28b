//! Adapter folders that servers load.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_model::{Frozen, Policy};

use crate::VllmError;

/// Writes the adapter of a policy to a folder that does not exist yet. The folder must appear with all
/// of its files at the same time. Returns an error message.
pub type WriteAdapter = Arc<dyn Fn(&Path, &Frozen<Policy>) -> Result<(), String> + Send + Sync>;

/// An adapter in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterOnDisk {
    /// Name under which servers load it. Contains the start of the hash of the weights, so different
    /// weights never have the same name or path.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

/// The adapters of the latest policies.
pub(crate) struct Adapters {
    folder: PathBuf,
    write: WriteAdapter,
    /// From the oldest to the latest.
    recent: VecDeque<AdapterOnDisk>,
}

/// Number of adapters to keep. The one before the latest may still be in use on a server.
const KEPT: usize = 2;

impl Adapters {
    /// Writes adapters to subfolders of `folder`.
    pub(crate) fn new(folder: PathBuf, write: WriteAdapter) -> Self {
        Self { folder, write, recent: VecDeque::new() }
    }

    /// Returns the adapter of a policy, which is written unless it is among the recent ones.
    pub(crate) fn of(&mut self, policy: &Frozen<Policy>) -> Result<AdapterOnDisk, VllmError> {
        let name = format!("policy-{}", &policy.digest().to_string()[..16]);
        let known = self.recent.iter().position(|adapter| adapter.name == name);
        let adapter = match known.and_then(|known| self.recent.remove(known)) {
            Some(adapter) => adapter,
            None => {
                let folder = self.folder.join(&name);
                // A folder of an interrupted run has the same weights.
                if !folder.exists() {
                    (self.write)(&folder, policy).map_err(VllmError::Write)?;
                }
                AdapterOnDisk { name, folder }
            }
        };
        self.recent.push_back(adapter.clone());
        Ok(adapter)
    }

    /// Removes the folders of all adapters except the latest ones, and returns these adapters.
    pub(crate) fn retire(&mut self) -> Vec<AdapterOnDisk> {
        self.retire_all_but(KEPT)
    }

    /// Removes the folders of all adapters, and returns these adapters.
    pub(crate) fn retire_all(&mut self) -> Vec<AdapterOnDisk> {
        self.retire_all_but(0)
    }

    fn retire_all_but(&mut self, kept: usize) -> Vec<AdapterOnDisk> {
        let count = self.recent.len().saturating_sub(kept);
        let retired: Vec<AdapterOnDisk> = self.recent.drain(..count).collect();
        for adapter in &retired {
            // A folder that is left over does no harm.
            let _ = fs::remove_dir_all(&adapter.folder);
        }
        retired
    }
}

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapters")
            .field("folder", &self.folder)
            .field("recent", &self.recent)
            .finish_non_exhaustive()
    }
}
