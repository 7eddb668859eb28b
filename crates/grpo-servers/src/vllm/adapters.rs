//! Adapter folders that servers load.
#![expect(clippy::disallowed_methods, reason = "a temporary folder of this process")]

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_model::{Frozen, Policy};

use super::VllmError;

/// Writes the adapter of a policy to a folder that does not exist yet. The folder must appear with all
/// of its files at the same time. Returns an error message.
pub type WriteAdapter = Arc<dyn Fn(&Path, &Frozen<Policy>) -> Result<(), String> + Send + Sync>;

/// An adapter in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterOnDisk {
    /// Name under which servers load it. Contains the name of this run's folder and the start of the
    /// hash of the weights, so no other weights have the same name or path.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

/// A policy to sample from.
pub(crate) struct Target<'a> {
    pub(crate) policy: &'a Frozen<Policy>,
    pub(crate) adapter: Arc<AdapterOnDisk>,
    pub(crate) temperature: f32,
}

/// The adapters of the latest policies.
pub(crate) struct Adapters {
    folder: PathBuf,
    write: WriteAdapter,
    /// From the oldest to the latest.
    recent: VecDeque<Arc<AdapterOnDisk>>,
}

/// Number of adapters to keep, in addition to those in use.
const KEPT: usize = 2;

impl Adapters {
    /// Writes adapters to subfolders of `folder`, which belongs to this run alone.
    pub(crate) fn new(folder: PathBuf, write: WriteAdapter) -> Self {
        Self { folder, write, recent: VecDeque::new() }
    }

    /// Returns the adapter of a policy, which is written unless it is among the recent ones. It is in
    /// use as long as the caller keeps it.
    pub(crate) fn get_or_write(
        &mut self,
        policy: &Frozen<Policy>,
    ) -> Result<Arc<AdapterOnDisk>, VllmError> {
        let name = format!("{}{}", self.prefix(), &policy.digest().to_string()[..16]);
        let known = self.recent.iter().position(|adapter| adapter.name == name);
        let adapter = match known.and_then(|known| self.recent.remove(known)) {
            Some(adapter) => adapter,
            None => {
                let folder = self.folder.join(&name);
                (self.write)(&folder, policy).map_err(VllmError::Write)?;
                Arc::new(AdapterOnDisk { name, folder })
            }
        };
        self.recent.push_back(Arc::clone(&adapter));
        Ok(adapter)
    }

    /// Returns what the names of this run's adapters begin with.
    pub(crate) fn prefix(&self) -> String {
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{folder}-")
    }

    /// Returns whether an adapter has been written and not retired.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.recent.iter().any(|adapter| adapter.name == name)
    }

    /// Removes the folders of adapters that are neither in use nor among the latest ones, and returns
    /// the names of these adapters.
    pub(crate) fn retire(&mut self) -> Vec<String> {
        let old = self.recent.len().saturating_sub(KEPT);
        let mut index = 0;
        self.retire_if(|adapter| {
            index += 1;
            index <= old && Arc::strong_count(adapter) == 1
        })
    }

    /// Removes the folders of all adapters, and returns the names of these adapters.
    pub(crate) fn retire_all(&mut self) -> Vec<String> {
        self.retire_if(|_| true)
    }

    fn retire_if(&mut self, mut is_old: impl FnMut(&Arc<AdapterOnDisk>) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        self.recent.retain(|adapter| {
            let is_old = is_old(adapter);
            if is_old {
                // A folder that is left over does no harm.
                let _ = fs::remove_dir_all(&adapter.folder);
                names.push(adapter.name.clone());
            }
            !is_old
        });
        names
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
