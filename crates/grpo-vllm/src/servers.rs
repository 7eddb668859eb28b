//! The servers of a run: which of them are used, and which adapters they have loaded.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use grpo_endpoint::Server;
use grpo_model::{Frozen, Policy};

use crate::adapters::{AdapterOnDisk, Adapters};
use crate::{VllmConfig, VllmError, WriteAdapter, api};

/// Receives messages for the user, e.g. that a server is left out.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;

/// Time limit in seconds for a server that is not used at the moment.
const LIMIT_OF_UNUSED: f64 = 2.0;
/// How often to look for a server if all have failed.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// vLLM servers with the same base model.
///
/// Adapters are unloaded and their folders are removed when the value is dropped.
pub struct Servers {
    pub(crate) config: VllmConfig,
    pub(crate) members: Vec<Member>,
    adapters: Mutex<Adapters>,
    notify: Notify,
}

/// A server and what is known about it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) server: Server,
    /// The same server with a short time limit and no retries.
    quick: Server,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the server is not used.
    failure: Option<String>,
    /// Names of the loaded adapters, as far as known.
    loaded: Vec<String>,
}

impl Servers {
    /// Creates clients. Adapters are written to subfolders of `folder` by `write`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the environment variable with the API key
    /// is not set.
    pub fn new(
        config: &VllmConfig,
        folder: PathBuf,
        write: WriteAdapter,
        notify: Notify,
    ) -> Result<Arc<Self>, VllmError> {
        let servers = config.servers(config.time_limit, config.retries)?;
        let quick = config.servers(LIMIT_OF_UNUSED.min(config.time_limit), 0)?;
        let members = servers.into_iter().zip(quick);
        let members =
            members.map(|(server, quick)| Member { server, quick, state: Mutex::default() });
        Ok(Arc::new(Self {
            config: config.clone(),
            members: members.collect(),
            adapters: Mutex::new(Adapters::new(folder, write)),
            notify,
        }))
    }

    /// Checks that all servers have the model and can load the policy's adapter. Returns the maximum
    /// number of tokens of a prompt and its completion.
    pub(crate) fn connect(&self, policy: &Frozen<Policy>) -> Result<usize, VllmError> {
        let adapter = locked(&self.adapters).of(policy)?;
        let mut longest = usize::MAX;
        for member in &self.members {
            let listed = api::list(&member.server, self.config.model.as_deref())?;
            longest = longest.min(listed.longest);
            api::load(&member.server, &adapter.name, &adapter.folder)?;
            locked(&member.state).loaded = listed.adapters;
            locked(&member.state).loaded.push(adapter.name.clone());
        }
        Ok(longest)
    }

    /// Returns the adapter of a policy. Adapters that are no longer needed are unloaded.
    pub(crate) fn adapter(&self, policy: &Frozen<Policy>) -> Result<AdapterOnDisk, VllmError> {
        let mut adapters = locked(&self.adapters);
        let adapter = adapters.of(policy)?;
        let retired = adapters.retire();
        drop(adapters);
        self.unload(&retired);
        Ok(adapter)
    }

    /// Loads the adapter on all servers that are used, and returns their indices. Servers that were
    /// left out are tried again if `readmit` is set, or if no server is left.
    ///
    /// # Errors
    /// Returns an error if the run is interrupted, or if all servers have failed and none is back
    /// within the time limit.
    pub(crate) fn ready(
        &self,
        adapter: &AdapterOnDisk,
        mut readmit: bool,
        interrupt: &AtomicBool,
    ) -> Result<Vec<usize>, VllmError> {
        let start = Instant::now();
        let mut is_waiting = false;
        loop {
            let is_ready = |index: &usize| self.has(*index, adapter, readmit);
            let ready: Vec<usize> = (0..self.members.len()).filter(is_ready).collect();
            if !ready.is_empty() {
                return Ok(ready);
            }
            let seconds = self.config.time_limit;
            if start.elapsed().as_secs_f64() >= seconds {
                let failures =
                    self.members.iter().map(|member| locked(&member.state).failure.clone());
                let failures = failures.flatten().collect();
                return Err(VllmError::NoServer { seconds, failures });
            }
            if !is_waiting {
                (self.notify)("no vLLM server is left; waiting for one");
            }
            (is_waiting, readmit) = (true, true);
            if interrupt.load(Ordering::Relaxed) {
                return Err(VllmError::Interrupted);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Loads an adapter, and returns whether the server has it and is used.
    fn has(&self, index: usize, adapter: &AdapterOnDisk, readmit: bool) -> bool {
        let Member { server, quick, state } = &self.members[index];
        let is_left_out = locked(state).failure.is_some();
        if is_left_out {
            let list = || api::list(quick, self.config.model.as_deref());
            let Some(Ok(listed)) = readmit.then(list) else { return false };
            locked(state).loaded = listed.adapters;
        }
        if !locked(state).loaded.contains(&adapter.name) {
            match api::load(server, &adapter.name, &adapter.folder) {
                Ok(()) => locked(state).loaded.push(adapter.name.clone()),
                Err(error) => {
                    self.leave_out(index, &error);
                    return false;
                }
            }
        }
        if is_left_out {
            (self.notify)(&format!("the vLLM server {} is used again", server.url()));
        }
        locked(state).failure = None;
        true
    }

    /// Stops using a server.
    pub(crate) fn leave_out(&self, index: usize, error: &VllmError) {
        let Member { server, state, .. } = &self.members[index];
        let before = locked(state).failure.replace(error.to_string());
        if before.is_none() {
            (self.notify)(&format!("the vLLM server {} is left out: {error}", server.url()));
        }
    }

    /// Forgets which adapters a server has loaded, because it was restarted.
    pub(crate) fn forget_adapters(&self, index: usize) {
        locked(&self.members[index].state).loaded.clear();
    }

    fn unload(&self, retired: &[AdapterOnDisk]) {
        for member in &self.members {
            for AdapterOnDisk { name, .. } in retired {
                let mut state = locked(&member.state);
                let is_loaded = state.failure.is_none() && state.loaded.contains(name);
                state.loaded.retain(|loaded| loaded != name);
                drop(state);
                if is_loaded {
                    // vLLM replaces the least recently used adapters itself.
                    let _ = api::unload(&member.quick, name);
                }
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let retired = locked(&self.adapters).retire_all();
        self.unload(&retired);
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("members", &self.members).finish_non_exhaustive()
    }
}

/// Locks a value. No invariant spans several statements, so a panic of another thread does no harm.
pub(crate) fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
