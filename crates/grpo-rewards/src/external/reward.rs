//! Scores completions with an external program or server.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::cache::{Cache, Entry, Key};
use super::carrier::{Carrier, Connection, Fault};
use super::output::Output;
use super::protocol::{Answer, Format, Shape, Verdict, excerpt};
use super::settings::{OnFailure, Settings};
use super::suspects::{Standing, Suspects};
use crate::{ExternalCalls, Identity, ItemTime, Outcome, PartName, Reward, RewardInput};

/// Maximum number of consecutive crashes per batch. No further programs are started after that. The
/// limit is larger than the 10 bisection steps needed to find one bad completion among 1,024.
const MOST_DEATHS: usize = 16;

/// A reward computed by an external program or server.
pub struct ExternalReward {
    pub(super) carrier: Box<dyn Carrier>,
    format: Format,
    shape: Shape,
    settings: Settings,
    pub(super) output: Arc<Output>,
    idle: Mutex<Vec<Box<dyn Connection>>>,
    next_id: AtomicUsize,
    cache: Mutex<Cache>,
    suspects: Mutex<Suspects>,
    calls: Mutex<ExternalCalls>,
    /// Set after an interrupt. Requests in progress end shortly afterwards, and new ones fail.
    cancelled: AtomicBool,
}

impl fmt::Debug for ExternalReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalReward").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A verdict and the note on the completion.
type Told = (Verdict, Option<String>);

impl ExternalReward {
    pub(super) fn new(
        carrier: Box<dyn Carrier>,
        format: Format,
        shape: Shape,
        settings: Settings,
    ) -> Self {
        Self {
            carrier,
            format,
            shape,
            settings,
            output: Arc::default(),
            idle: Mutex::default(),
            next_id: AtomicUsize::new(1),
            cache: Mutex::default(),
            suspects: Mutex::default(),
            calls: Mutex::default(),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Adds an idle connection, which the next request will use.
    pub(super) fn add_idle(&self, connection: Box<dyn Connection>) {
        lock(&self.idle).push(connection);
    }

    /// Starts the program or connects to the server.
    pub(super) fn connected(&self) -> Result<Box<dyn Connection>, Fault> {
        self.carrier.connect(&self.output, &self.cancelled)
    }

    fn take_idle(&self) -> Option<Box<dyn Connection>> {
        lock(&self.idle).pop()
    }

    /// Scores a chunk. If the program crashes, the chunk is split in half and both halves are
    /// scored separately. If it is late, the completions are sent one by one, which takes at most as
    /// long again. This way, only the completion that is the cause fails.
    fn score_chunk(&self, chunk: &[&RewardInput], deaths: &AtomicUsize) -> Vec<Told> {
        let pieces = match self.ask(chunk) {
            Ok(verdicts) => {
                deaths.store(0, Ordering::Relaxed);
                if let [alone] = chunk {
                    self.answered(alone);
                }
                return verdicts;
            }
            Err(Fault::Died(_))
                if chunk.len() > 1 && deaths.fetch_add(1, Ordering::Relaxed) < MOST_DEATHS =>
            {
                chunk.chunks(chunk.len().div_ceil(2))
            }
            Err(Fault::Late(_)) if chunk.len() > 1 => chunk.chunks(1),
            Err(fault) => {
                if let ([alone], Fault::Died(_) | Fault::Late(_)) = (chunk, &fault) {
                    self.failed_alone(alone, &fault);
                }
                return vec![(Verdict::Failed(fault.reason()), None); chunk.len()];
            }
        };
        pieces.flat_map(|piece| self.score_chunk(piece, deaths)).collect()
    }

    /// Remembers a completion that made the program crash or hang although it was sent alone.
    fn failed_alone(&self, sample: &RewardInput, fault: &Fault) {
        if self.settings.deterministic {
            let what = match fault {
                Fault::Late(_) => "takes longer than reward.time_limit",
                Fault::Died(_) | Fault::Other(_) => "makes the program exit",
            };
            lock(&self.suspects).failed(Key::new(sample), what);
        }
    }

    fn answered(&self, sample: &RewardInput) {
        lock(&self.suspects).answered(&Key::new(sample));
    }

    /// Sends a request. An idle program may have exited in the meantime, in which case the request
    /// is sent to a new one.
    fn ask(&self, chunk: &[&RewardInput]) -> Result<Vec<Told>, Fault> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Fault::cancelled());
        }
        if let Some(connection) = self.take_idle() {
            match self.ask_over(connection, chunk) {
                Err(Fault::Died(_)) => {}
                other => return other,
            }
        }
        self.ask_over(self.connected()?, chunk)
    }

    /// Sends a request over a connection. After an error, the connection is closed because its
    /// state is unknown.
    fn ask_over(
        &self,
        mut connection: Box<dyn Connection>,
        chunk: &[&RewardInput],
    ) -> Result<Vec<Told>, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = self.format.request(id, chunk);
        let limit = Duration::from_secs_f64(self.settings.time_limit * chunk.len() as f64);
        let started = Instant::now();
        let reply = connection.exchange(&request, limit, &self.cancelled);
        let share = started.elapsed().as_secs_f64() / chunk.len() as f64;
        let answer = reply.and_then(|reply| {
            let answer = self.format.answer(&reply, id, chunk, &self.shape);
            answer.map_err(|fault| {
                let framing = connection.framing();
                Fault::Other(format!("{fault}; its output was: {}{framing}", excerpt(&reply)))
            })
        });
        let seconds = answer.as_ref().ok().and_then(|answer| answer.seconds.clone());
        self.add_times(chunk, &seconds.unwrap_or_else(|| vec![share; chunk.len()]));
        let Answer { verdicts, info, remark, .. } = answer?;
        if let Some(remark) = remark {
            self.output.note(&format!("info of request {id}: {remark}"));
        }
        if connection.is_reusable() {
            self.add_idle(connection);
        }
        Ok(verdicts.into_iter().zip(info).collect())
    }

    fn add_times(&self, chunk: &[&RewardInput], seconds: &[f64]) {
        let times = chunk.iter().zip(seconds).map(|(sample, &seconds)| ItemTime {
            seconds,
            group: sample.group,
            sample: sample.sample,
        });
        lock(&self.calls).times.extend(times);
    }

    /// Returns the verdicts for all completions. A completion that failed alone before is sent
    /// alone, so that the others do not wait for it. If it has failed again, it is not sent any more.
    fn verdicts(&self, inputs: &[&RewardInput]) -> Vec<Told> {
        let mut verdicts: Vec<Option<Told>> = vec![None; inputs.len()];
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        let suspects = lock(&self.suspects);
        for (index, input) in inputs.iter().enumerate() {
            match suspects.standing(input) {
                Standing::Good => together.push(index),
                Standing::Suspect => alone.push(index),
                Standing::Refused(what) => {
                    let completion = excerpt(input.text.as_bytes());
                    let reason =
                        format!("completion {completion} is not sent again, because it {what}");
                    verdicts[index] = Some((Verdict::Failed(reason), None));
                }
            }
        }
        drop(suspects);
        let chunks: Vec<&[usize]> =
            together.chunks(self.settings.batch_size).chain(alone.chunks(1)).collect();
        for (chunk, told) in chunks.iter().zip(self.of_chunks(inputs, &chunks)) {
            for (index, told) in chunk.iter().zip(told) {
                verdicts[*index] = Some(told);
            }
        }
        verdicts.into_iter().map(|told| told.expect("every chunk has all its verdicts")).collect()
    }

    /// Returns the verdicts for chunks of indices. The number of threads is the number of workers.
    fn of_chunks(&self, inputs: &[&RewardInput], chunks: &[&[usize]]) -> Vec<Vec<Told>> {
        let done: Vec<Mutex<Vec<Told>>> = chunks.iter().map(|_| Mutex::default()).collect();
        let (next, deaths) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = chunks.get(index) else { break };
                let chunk: Vec<&RewardInput> = chunk.iter().map(|place| inputs[*place]).collect();
                let verdicts = self.score_chunk(&chunk, &deaths);
                *lock(&done[index]) = verdicts;
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.settings.workers.min(chunks.len()) {
                scope.spawn(work);
            }
            work();
        });
        let of_chunk =
            |of: Mutex<Vec<Told>>| of.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.into_iter().map(of_chunk).collect()
    }

    /// Returns the outcome of each completion before `on_failure` is applied. Equal completions to
    /// which the cache applies are sent only once.
    fn outcomes(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let inputs: Vec<Cow<'_, RewardInput>> = samples.iter().map(|one| self.sent(one)).collect();
        let keys: Vec<Option<Key>> =
            inputs.iter().map(|input| self.caches(input).then(|| Key::new(input))).collect();
        let mut entries: Vec<Option<Entry>> = inputs
            .iter()
            .zip(&keys)
            .map(|(input, key)| self.without_request(input).or_else(|| self.cached(key.as_ref()?)))
            .collect();
        let mut first = HashMap::new();
        let mut is_first = |index: usize| {
            keys[index].is_none_or(|key| *first.entry(key).or_insert(index) == index)
        };
        let open: Vec<usize> = (0..inputs.len()).filter(|i| entries[*i].is_none()).collect();
        let asked: Vec<usize> = open.iter().copied().filter(|index| is_first(*index)).collect();
        let sent: Vec<&RewardInput> = asked.iter().map(|index| &*inputs[*index]).collect();
        for (index, (verdict, info)) in asked.into_iter().zip(self.verdicts(&sent)) {
            let entry = (self.shape.outcome(verdict), info);
            if let (Some(key), None) = (keys[index], entry.0.failure()) {
                lock(&self.cache).insert(key, entry.clone());
            }
            entries[index] = Some(entry);
        }
        for index in open {
            if entries[index].is_none() {
                let equal = keys[index].and_then(|key| first.get(&key).copied());
                entries[index] = equal.and_then(|equal| entries[equal].clone());
                lock(&self.calls).cache_hits += 1;
            }
        }
        let mut calls = lock(&self.calls);
        let outcome = |(sample, entry): (&RewardInput, Option<Entry>)| {
            let (outcome, info) = entry.expect("every completion has an outcome");
            calls.info.extend(info.map(|info| ((sample.group, sample.sample), info)));
            outcome
        };
        samples.iter().zip(entries).map(outcome).collect()
    }

    /// Returns whether equal completions are scored once.
    fn caches(&self, sample: &RewardInput) -> bool {
        let is_canonical = matches!(sample.identity, Identity::Canonical(_));
        self.settings.deterministic && self.settings.cache.unwrap_or(is_canonical)
    }

    /// Returns a completion as it is sent. If the cache applies, it is sent in its canonical form.
    /// Otherwise, its reward could depend on which of several equivalent completions was sent first.
    fn sent<'a>(&self, sample: &'a RewardInput) -> Cow<'a, RewardInput> {
        match &sample.identity {
            Identity::Canonical(text) if self.caches(sample) => {
                Cow::Owned(RewardInput { text: text.clone(), ..sample.clone() })
            }
            _ => Cow::Borrowed(sample),
        }
    }

    /// Returns the outcome of a completion that is invalid or that the format does not support.
    fn without_request(&self, sample: &RewardInput) -> Option<Entry> {
        if let (Identity::Invalid, Some(reward)) =
            (&sample.identity, self.settings.invalid_reward())
        {
            return Some((self.shape.invalid(reward), None));
        }
        let reason = self.format.check(sample).err()?;
        Some((Outcome::failed(reason), None))
    }

    fn cached(&self, key: &Key) -> Option<Entry> {
        let entry = lock(&self.cache).get(key)?;
        lock(&self.calls).cache_hits += 1;
        Some(entry)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reward for ExternalReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let outcomes = self.outcomes(samples);
        let Some(reason) = outcomes.iter().find_map(Outcome::failure).map(str::to_owned) else {
            return outcomes;
        };
        self.output.note(&reason);
        if let OnFailure::Abstain = self.settings.on_failure {
            let failed = outcomes.iter().filter(|outcome| outcome.failure().is_some()).count();
            let mut calls = lock(&self.calls);
            calls.left_out += failed;
            calls.reason.get_or_insert_with(|| reason.clone());
        }
        match self.settings.on_failure {
            OnFailure::Fail => outcomes,
            OnFailure::Stop => vec![Outcome::failed(reason); samples.len()],
            OnFailure::Abstain => {
                let abstained = |outcome: Outcome| match outcome {
                    Outcome::Failed { .. } => Outcome::abstained(),
                    other => other,
                };
                outcomes.into_iter().map(abstained).collect()
            }
        }
    }

    fn parts(&self) -> Vec<PartName> {
        self.shape.components.iter().map(|name| name.clone().into()).collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        match self.shape.weights {
            Some(_) => self.parts(),
            None => Vec::new(),
        }
    }

    fn is_deterministic(&self) -> bool {
        self.settings.deterministic
    }

    fn keep_output_in(&self, folder: &Path) {
        self.output.keep_in(folder);
    }

    fn fails_as_a_whole(&self) -> bool {
        matches!(self.settings.on_failure, OnFailure::Stop)
    }

    fn uses_identity(&self) -> bool {
        true
    }

    fn scores_invalid(&self) -> bool {
        self.settings.invalid_reward().is_none()
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn take_calls(&self) -> Option<ExternalCalls> {
        Some(std::mem::take(&mut *lock(&self.calls)))
    }
}
