//! Scores completions with an external program or server.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::cache::Cache;
use super::carrier::{Carrier, Connection, Fault};
use super::output::Output;
use super::protocol::{Format, Shape, Verdict, excerpt};
use super::settings::{OnFailure, Settings};
use crate::{Outcome, PartName, Reward, RewardInput};

/// Maximum number of consecutive crashes per batch. No further programs are started after that. The
/// limit is larger than the 10 bisection steps needed to find one bad completion among 1,024.
const MOST_DEATHS: usize = 16;

/// A reward computed by an external program or server.
pub(crate) struct ExternalReward {
    pub(super) carrier: Box<dyn Carrier>,
    format: Format,
    shape: Shape,
    settings: Settings,
    pub(super) output: Arc<Output>,
    idle: Mutex<Vec<Box<dyn Connection>>>,
    next_id: AtomicUsize,
    cache: Option<Mutex<Cache>>,
}

impl ExternalReward {
    pub(super) fn new(
        carrier: Box<dyn Carrier>,
        format: Format,
        shape: Shape,
        settings: Settings,
    ) -> Self {
        let cache = settings.cache.then(Mutex::default);
        Self {
            carrier,
            format,
            shape,
            settings,
            output: Arc::default(),
            idle: Mutex::default(),
            next_id: AtomicUsize::new(1),
            cache,
        }
    }

    /// Adds an idle connection, which the next request will use.
    pub(super) fn add_idle(&self, connection: Box<dyn Connection>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    fn take_idle(&self) -> Option<Box<dyn Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Scores a chunk. If the program crashes, the chunk is split in half and both halves are
    /// scored separately. This way, only the completion that caused the crash fails.
    fn score_chunk(&self, chunk: &[&RewardInput], deaths: &AtomicUsize) -> Vec<Verdict> {
        match self.ask(chunk) {
            Ok(verdicts) => {
                deaths.store(0, Ordering::Relaxed);
                verdicts
            }
            Err(Fault::Died(_))
                if chunk.len() > 1 && deaths.fetch_add(1, Ordering::Relaxed) < MOST_DEATHS =>
            {
                let (front, back) = chunk.split_at(chunk.len() / 2);
                let mut verdicts = self.score_chunk(front, deaths);
                verdicts.extend(self.score_chunk(back, deaths));
                verdicts
            }
            Err(fault) => vec![Verdict::Failed(fault.reason()); chunk.len()],
        }
    }

    /// Sends a request. An idle program may have exited in the meantime, in which case the request
    /// is sent to a new one.
    fn ask(&self, chunk: &[&RewardInput]) -> Result<Vec<Verdict>, Fault> {
        if let Some(connection) = self.take_idle() {
            match self.ask_over(connection, chunk) {
                Err(Fault::Died(_)) => {}
                other => return other,
            }
        }
        self.ask_over(self.carrier.connect(&self.output)?, chunk)
    }

    /// Sends a request over a connection. After an error, the connection is closed because its
    /// state is unknown.
    fn ask_over(
        &self,
        mut connection: Box<dyn Connection>,
        chunk: &[&RewardInput],
    ) -> Result<Vec<Verdict>, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = self.format.request(id, chunk);
        let limit = Duration::from_secs_f64(self.settings.time_limit * chunk.len() as f64);
        let reply = connection.exchange(&request, limit)?;
        let verdicts = self.format.verdicts(&reply, id, chunk, &self.shape);
        let (verdicts, info) = verdicts.map_err(|fault| {
            Fault::Other(format!("{fault}; its output was: {}", excerpt(&reply)))
        })?;
        if let Some(info) = info {
            self.output.note(&format!("info of request {id}: {info}"));
        }
        if connection.is_reusable() {
            self.add_idle(connection);
        }
        Ok(verdicts)
    }

    /// Returns the verdicts for all completions. The number of threads is the number of workers.
    fn verdicts(&self, inputs: &[&RewardInput]) -> Vec<Verdict> {
        let chunks: Vec<&[&RewardInput]> = inputs.chunks(self.settings.batch_size).collect();
        let done: Vec<Mutex<Vec<Verdict>>> = chunks.iter().map(|_| Mutex::default()).collect();
        let (next, deaths) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = chunks.get(index) else { break };
                let verdicts = self.score_chunk(chunk, &deaths);
                *done[index].lock().unwrap_or_else(PoisonError::into_inner) = verdicts;
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.settings.workers.min(chunks.len()) {
                scope.spawn(work);
            }
            work();
        });
        let of_chunk =
            |of: Mutex<Vec<Verdict>>| of.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.into_iter().flat_map(of_chunk).collect()
    }

    /// Returns the outcome of each completion before `on_failure` is applied.
    fn outcomes(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let known = |sample: &RewardInput| {
            let cache = self.cache.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
            cache.get(sample)
        };
        let refused = |sample: &RewardInput| {
            self.format.check(sample).err().map(|reason| Outcome::Failed { reason })
        };
        let mut outcomes: Vec<Option<Outcome>> =
            samples.iter().map(|sample| known(sample).or_else(|| refused(sample))).collect();
        let open = samples.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_none());
        let open: Vec<&RewardInput> = open.map(|(sample, _)| sample).collect();
        let mut verdicts = open.iter().zip(self.verdicts(&open));
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
            let (sample, verdict) = verdicts.next().expect("there is one verdict per sample");
            let scored = self.shape.outcome(verdict);
            if let (Some(cache), None) = (&self.cache, scored.failure()) {
                let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
                cache.insert(sample, &scored);
            }
            *outcome = Some(scored);
        }
        outcomes.into_iter().flatten().collect()
    }
}

impl Reward for ExternalReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let outcomes = self.outcomes(samples);
        let Some(reason) = outcomes.iter().find_map(Outcome::failure).map(str::to_owned) else {
            return outcomes;
        };
        self.output.note(&reason);
        match self.settings.on_failure {
            OnFailure::Fail => outcomes,
            OnFailure::Stop => vec![Outcome::Failed { reason }; samples.len()],
            OnFailure::Abstain => {
                let abstained = |outcome: Outcome| match outcome {
                    Outcome::Failed { .. } => Outcome::Abstained,
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
}
