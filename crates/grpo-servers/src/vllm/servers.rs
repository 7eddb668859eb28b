//! The servers of a run: which of them are used, and which adapters they have loaded.

use std::fmt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Server;
use grpo_model::{Frozen, Policy};
use grpo_rollout::Notify;

use super::adapters::{AdapterOnDisk, Adapters, Target};
use super::probe::Probe;
use super::{Tolerance, VllmConfig, VllmError, WriteAdapter, api};

/// Maximum time limit in seconds for loading adapters.
const LIMIT_OF_CONTROL: f64 = 60.0;
/// Maximum time limit in seconds for listing models and unloading adapters.
const LIMIT_OF_ATTEMPT: f64 = 5.0;
/// How often the interrupt flag is checked.
pub(crate) const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// vLLM servers with the same base model.
///
/// Adapters are unloaded and their folders are removed when the value is dropped.
pub struct Servers {
    pub(crate) config: VllmConfig,
    pub(crate) members: Vec<Member>,
    adapters: Mutex<Adapters>,
    pub(crate) tolerance: Tolerance,
    /// Maximum number of tokens of a prompt and its completion that engines ask for.
    longest: AtomicUsize,
    notify: Notify,
}

/// A server and what is known about it.
#[derive(Debug)]
pub(crate) struct Member {
    /// For completions. Does not retry, because failed requests are sent to other servers.
    pub(crate) sampling: Server,
    /// For loading adapters.
    control: Server,
    /// For listing models and unloading adapters.
    attempt: Server,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the server is not used.
    failure: Option<String>,
    /// Whether its model and log-probabilities have been checked since it was last unavailable.
    is_checked: bool,
    /// Names of the loaded adapters, as far as known.
    loaded: Vec<String>,
}

impl Servers {
    /// Creates clients. Adapters are written to subfolders of `folder` by `write`. No other run may use
    /// this folder, and its name is part of the adapters' names on the servers.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the environment variable with the API key
    /// is not set.
    pub fn new(
        config: &VllmConfig,
        folder: PathBuf,
        write: WriteAdapter,
        tolerance: Tolerance,
        notify: Notify,
    ) -> Result<Arc<Self>, VllmError> {
        let limit = config.time_limit;
        let sampling = config.servers(limit, 0)?;
        let control = config.servers(limit.min(LIMIT_OF_CONTROL), 2)?;
        let attempt = config.servers(limit.min(LIMIT_OF_ATTEMPT), 0)?;
        let members = sampling.into_iter().zip(control).zip(attempt);
        let members = members.map(|((sampling, control), attempt)| Member {
            sampling,
            control,
            attempt,
            state: Mutex::default(),
        });
        Ok(Arc::new(Self {
            config: config.clone(),
            members: members.collect(),
            adapters: Mutex::new(Adapters::new(folder, write)),
            tolerance,
            longest: AtomicUsize::new(0),
            notify,
        }))
    }

    /// Writes the policy's adapter if necessary, and unloads adapters that are not needed anymore.
    pub(crate) fn target<'a>(
        &self,
        policy: &'a Frozen<Policy>,
        temperature: f32,
    ) -> Result<Target<'a>, VllmError> {
        let mut adapters = locked(&self.adapters);
        let adapter = adapters.get_or_write(policy)?;
        let retired = adapters.retire();
        drop(adapters);
        self.unload(&retired);
        Ok(Target { policy, adapter, temperature })
    }

    /// Checks all servers that have not been checked, for prompts and completions of up to `longest`
    /// tokens. Servers that do not answer are left out.
    ///
    /// # Errors
    /// Returns an error if a server that answers cannot be used, or if none answers.
    pub(crate) fn connect(&self, target: &Target<'_>, longest: usize) -> Result<(), VllmError> {
        let before = self.longest.fetch_max(longest, Ordering::Relaxed);
        let mut last = Ok(());
        let mut is_any_used = false;
        for index in 0..self.members.len() {
            if before < longest {
                locked(&self.members[index].state).is_checked = false;
            }
            match self.admit(index, target, self.contact(index, target)) {
                Ok(()) => is_any_used = true,
                Err(error) if error.is_unavailable() => {
                    if self.members.len() > 1 {
                        self.leave_out(index, &error);
                    }
                    last = Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        if is_any_used { Ok(()) } else { last }
    }

    /// Loads the adapter on all servers that are used, and returns their indices. Servers that were
    /// left out are tried again if `readmit` is set, or if no server is left.
    ///
    /// # Errors
    /// Returns an error if the run is interrupted, or if no server can be used and the last answer
    /// was longer ago than the time limit. `since` is the time of that answer.
    pub(crate) fn ready(
        &self,
        target: &Target<'_>,
        mut readmit: bool,
        since: Instant,
        interrupt: &AtomicBool,
    ) -> Result<Vec<usize>, VllmError> {
        let mut is_waiting = false;
        loop {
            let ready = self.all_ready(target, readmit);
            if !ready.is_empty() {
                return Ok(ready);
            }
            let seconds = self.config.time_limit;
            if since.elapsed().as_secs_f64() >= seconds {
                let failures =
                    self.members.iter().map(|member| locked(&member.state).failure.clone());
                let failures = failures.flatten().collect();
                return Err(VllmError::NoServer { seconds, failures });
            }
            if !is_waiting {
                (self.notify)("all vLLM servers are unavailable; waiting for one");
            }
            (is_waiting, readmit) = (true, true);
            let pause =
                (since.elapsed() / 10).clamp(Duration::from_secs(1), Duration::from_secs(30));
            pause_unless(interrupt, pause)?;
        }
    }

    /// Loads the adapter on several servers at the same time, and returns the indices of those that are
    /// used.
    fn all_ready(&self, target: &Target<'_>, readmit: bool) -> Vec<usize> {
        let is_tried =
            |index: &usize| readmit || locked(&self.members[*index].state).failure.is_none();
        let tried: Vec<usize> = (0..self.members.len()).filter(is_tried).collect();
        // These threads only wait for servers. Scoring needs the pool, to which this thread may belong.
        let contacted: Vec<_> = thread::scope(|scope| {
            let contact = |index: &usize| {
                let index = *index;
                scope.spawn(move || self.contact(index, target))
            };
            let threads: Vec<_> = tried.iter().map(contact).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let admitted = tried.into_iter().zip(contacted).filter_map(|(index, contacted)| match self
            .admit(index, target, contacted)
        {
            Ok(()) => Some(index),
            Err(error) => {
                self.leave_out(index, &error);
                None
            }
        });
        admitted.collect()
    }

    /// Loads the adapter on a server. Asks a server that is new or was unavailable for its model, and for
    /// some tokens, which are returned.
    fn contact(&self, index: usize, target: &Target<'_>) -> Result<Option<Probe>, VllmError> {
        let member = &self.members[index];
        let AdapterOnDisk { name, folder } = &*target.adapter;
        let State { is_checked, .. } = *locked(&member.state);
        if !is_checked {
            let listed = api::list(&member.attempt, self.config.model.as_deref())?;
            self.refuse_short(member, listed.longest)?;
            self.unload_leftovers(member, &listed.adapters);
            locked(&member.state).loaded = listed.adapters;
        }
        if !locked(&member.state).loaded.contains(name) {
            api::load(&member.control, name, folder)?;
            locked(&member.state).loaded.push(name.clone());
        }
        (!is_checked).then(|| Probe::sample(&member.sampling, target)).transpose()
    }

    /// Uses a server, unless it cannot be reached or has other log-probabilities.
    fn admit(
        &self,
        index: usize,
        target: &Target<'_>,
        contacted: Result<Option<Probe>, VllmError>,
    ) -> Result<(), VllmError> {
        let Member { control, state, .. } = &self.members[index];
        if let Some(probe) = contacted? {
            probe.check(control.url(), target.policy, self.tolerance)?;
        }
        let failure = {
            let mut state = locked(state);
            state.is_checked = true;
            state.failure.take()
        };
        if failure.is_some() {
            (self.notify)(&format!("the vLLM server {} is used again", control.url()));
        }
        Ok(())
    }

    /// Refuses a server whose context is too short.
    fn refuse_short(&self, member: &Member, found: usize) -> Result<(), VllmError> {
        let longest = self.longest.load(Ordering::Relaxed);
        if longest <= found {
            return Ok(());
        }
        Err(VllmError::Server {
            url: member.control.url().to_owned(),
            what: format!(
                "prompts and completions have up to {longest} tokens, but it accepts {found}"
            ),
            fix: "start vLLM with a larger `--max-model-len`, lower sampling.max_new_tokens, or shorten the prompts",
        })
    }

    /// Unloads adapters of this run that were retired while the server was unavailable.
    fn unload_leftovers(&self, member: &Member, listed: &[String]) {
        let adapters = locked(&self.adapters);
        let prefix = adapters.prefix();
        let is_left = |name: &&String| name.starts_with(&prefix) && !adapters.has(name);
        let left: Vec<String> = listed.iter().filter(is_left).cloned().collect();
        drop(adapters);
        for name in left {
            let _ = api::unload(&member.attempt, &name);
        }
    }

    /// Stops using a server.
    pub(crate) fn leave_out(&self, index: usize, error: &VllmError) {
        let Member { control, state, .. } = &self.members[index];
        let before = {
            let mut state = locked(state);
            state.is_checked = false;
            state.failure.replace(error.to_string())
        };
        if before.is_none() {
            (self.notify)(&format!("the vLLM server {} is left out: {error}", control.url()));
        }
    }

    /// Checks a server again before it is used, because it was restarted.
    pub(crate) fn distrust(&self, index: usize) {
        locked(&self.members[index].state).is_checked = false;
    }

    fn unload(&self, retired: &[String]) {
        for member in &self.members {
            for name in retired {
                let mut state = locked(&member.state);
                let is_loaded = state.failure.is_none() && state.loaded.contains(name);
                state.loaded.retain(|loaded| loaded != name);
                drop(state);
                if is_loaded {
                    // vLLM replaces the least recently used adapters itself.
                    let _ = api::unload(&member.attempt, name);
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

/// Waits, unless the run is interrupted.
fn pause_unless(interrupt: &AtomicBool, pause: Duration) -> Result<(), VllmError> {
    let start = Instant::now();
    while start.elapsed() < pause {
        if interrupt.load(Ordering::Relaxed) {
            return Err(VllmError::Interrupted);
        }
        thread::sleep(BETWEEN_CHECKS);
    }
    Ok(())
}

/// Locks a value. No invariant spans several statements, so a panic of another thread does no harm.
pub(crate) fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
