//! Sampling loop with continuous batching and a paged KV cache.
//!
//! Each forward pass processes the latest token of all running completions as well as new prompts.
//! A prompt is prefilled once, and its cache is shared by all completions in the group. When a
//! completion ends, the next one starts immediately. Batching does not affect the samples, because
//! each row in a pass is computed independently of the others.

use std::collections::VecDeque;
use std::iter;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use burn::tensor::Tensor;
use grpo_data::{Completion, Prompt};
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::{draw, draw_rows};
use grpo_model::{
    CacheSlot, KvCache, LanguageModel, Prepared, Recorder, RolloutActivations, TokenBatch,
};
use grpo_runtime::{awake, beside};
use rayon::prelude::*;

use crate::row::Row;
use crate::{Autoregressive, RolloutError, StepKey};

/// Maximum number of prompt tokens per pass, which limits peak memory. A single prompt may be
/// longer.
const PROMPT_TOKENS: usize = 4096;

/// Completions that have to be sampled.
pub(crate) struct Rollout<'a, M> {
    engine: &'a Autoregressive,
    policy: Prepared<M>,
    prompts: &'a [Prompt],
    key: StepKey,
    /// Groups whose prompts have not been prefilled yet.
    waiting: Mutex<VecDeque<Group>>,
    /// Store for activations, if training uses them again.
    activations: Option<&'a RolloutActivations>,
}

/// Samples completions of a [`Rollout`]. Several workers can share one, each with its own cache.
struct Worker<'a, M> {
    rollout: &'a Rollout<'a, M>,
    /// Maximum number of completions that are sampled at the same time.
    capacity: usize,
    cache: KvCache,
    /// Groups whose prompts have been prefilled and that still have completions to start.
    ready: VecDeque<Ready>,
    running: Vec<Running>,
    finished: Vec<(SampleIndex, Completion)>,
}

/// Prompt index and sample index.
type SampleIndex = (usize, u32);

/// Completions of a worker, and its recorder.
type Sampled = (Vec<(SampleIndex, Completion)>, Option<Recorder>);

struct Group {
    prompt: usize,
    samples: VecDeque<u32>,
}

struct Ready {
    group: Group,
    slot: CacheSlot,
    /// Logits after the last token of each prompt in the pass, `[prompts · vocabulary]`.
    logits: Arc<[f32]>,
    /// Range of `logits` that belongs to this prompt.
    range: Range<usize>,
}

struct Running {
    index: SampleIndex,
    row: Row,
    slot: CacheSlot,
}

impl<'a, M: LanguageModel> Rollout<'a, M> {
    /// Creates a rollout. `queue` contains all prompt and sample indices, grouped by prompt.
    pub(crate) fn new(
        engine: &'a Autoregressive,
        policy: Prepared<M>,
        prompts: &'a [Prompt],
        key: StepKey,
        queue: impl Iterator<Item = SampleIndex>,
    ) -> Self {
        let mut waiting: VecDeque<Group> = VecDeque::new();
        for (prompt, sample) in queue {
            match waiting.back_mut().filter(|group| group.prompt == prompt) {
                Some(group) => group.samples.push_back(sample),
                None => waiting.push_back(Group { prompt, samples: [sample].into() }),
            }
        }
        Self { engine, policy, prompts, key, waiting: Mutex::new(waiting), activations: None }
    }

    /// Keeps the activations.
    pub(crate) fn keeping(self, activations: Option<&'a RolloutActivations>) -> Self {
        Self { activations, ..self }
    }

    /// Samples all completions and returns them ordered by prompt and sample. One worker is created
    /// for each entry in `capacities`.
    pub(crate) fn run(&self, capacities: &[usize]) -> Result<Vec<Completion>, RolloutError> {
        let recorders = self.activations.map(|kept| kept.start_rollout(capacities.len()));
        let recorders = recorders.into_iter().flatten().map(Some).chain(iter::repeat_with(|| None));
        let workers: Vec<Worker<'_, M>> = capacities
            .iter()
            .zip(recorders)
            .map(|(&capacity, recorder)| Worker::new(self, capacity, recorder))
            .collect();
        let others = workers.len() - 1;
        let ended = match others {
            0 => workers.into_iter().map(|worker| awake(|| worker.run())).collect(),
            _ => {
                let workers = workers.into_par_iter().with_max_len(1);
                workers
                    .map(|worker| beside(others, || worker.run()))
                    .collect::<Result<Vec<Sampled>, _>>()
            }
        };
        let (sampled, recorders): (Vec<_>, Vec<_>) = ended?.into_iter().unzip();
        if let Some(activations) = self.activations {
            activations
                .finish_rollout(recorders.into_iter().flatten().collect(), self.key.policy_version);
        }
        let mut sampled = sampled.concat();
        sampled.sort_by_key(|(index, _)| *index);
        Ok(sampled.into_iter().map(|(_, completion)| completion).collect())
    }
}

impl<'a, M: LanguageModel> Worker<'a, M> {
    fn new(rollout: &'a Rollout<'a, M>, capacity: usize, recorder: Option<Recorder>) -> Self {
        Self {
            rollout,
            capacity,
            cache: KvCache::recording(recorder),
            ready: VecDeque::new(),
            running: Vec::new(),
            finished: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Sampled, RolloutError> {
        loop {
            self.rollout.engine.refuse_interrupt()?;
            self.begin_completions()?;
            let prompts = self.next_prompts();
            if !self.running.is_empty() || !prompts.is_empty() {
                self.pass(prompts)?;
            } else if self.ready.is_empty() {
                return Ok((self.finished, self.cache.into_recorder()));
            }
        }
    }

    /// Starts completions for prefilled prompts until the capacity is reached, and samples their
    /// first tokens.
    fn begin_completions(&mut self) -> Result<(), RolloutError> {
        let mut begun: Vec<(Running, usize)> = Vec::new();
        let mut exhausted = 0;
        for (index, ready) in self.ready.iter_mut().enumerate() {
            while self.running.len() + begun.len() < self.capacity {
                let Some(sample) = ready.group.samples.pop_front() else { break };
                let last = ready.group.samples.is_empty();
                let slot = if last { ready.slot } else { self.cache.fork(ready.slot) };
                let row =
                    Row::new(&self.rollout.prompts[ready.group.prompt], sample, self.rollout.key);
                begun.push((Running { index: (ready.group.prompt, sample), row, slot }, index));
            }
            exhausted += usize::from(ready.group.samples.is_empty());
        }
        let distribution = &self.rollout.engine.settings().distribution;
        let of = |(running, ready): &(Running, usize)| {
            let row = &running.row;
            let Ready { logits, range, .. } = &self.ready[*ready];
            draw(&logits[range.clone()], &row.ids, distribution, row.uniform())
        };
        let draws = begun.par_iter().map(of).collect::<Result<Vec<_>, _>>()?;
        self.ready.drain(..exhausted);
        for ((mut running, _), draw) in begun.into_iter().zip(draws) {
            running.row.push(draw, self.rollout.engine);
            self.running.push(running);
        }
        self.take_out_finished();
        Ok(())
    }

    /// Returns the groups whose prompts should be prefilled next.
    fn next_prompts(&self) -> Vec<Group> {
        let mut next: Vec<Group> = Vec::new();
        // Reserve capacity for completions that have not started yet. There may be some even if
        // capacity is free, because completions with a single token end immediately.
        let to_begin: usize = self.ready.iter().map(|ready| ready.group.samples.len()).sum();
        let mut capacity = (self.capacity - self.running.len()).saturating_sub(to_begin);
        let mut tokens = 0;
        let mut waiting = self.rollout.waiting.lock().expect("no worker panicked");
        while let Some(group) = waiting.front() {
            let prompt = &self.rollout.prompts[group.prompt];
            let length = prompt.ids.len() + prompt.prefix.ids.len();
            if capacity == 0 || (tokens > 0 && tokens + length > PROMPT_TOKENS) {
                break;
            }
            capacity = capacity.saturating_sub(group.samples.len());
            tokens += length;
            next.extend(waiting.pop_front());
        }
        next
    }

    /// Runs a forward pass on the latest token of each running completion and the prompts in
    /// `groups`.
    fn pass(&mut self, groups: Vec<Group>) -> Result<(), RolloutError> {
        let mut tokens = TokenBatch::new();
        let mut slots: Vec<CacheSlot> = Vec::new();
        for running in &self.running {
            tokens.push(&[running.row.last_id()]);
            slots.push(running.slot);
        }
        for group in &groups {
            let prompt = &self.rollout.prompts[group.prompt];
            tokens.push_conditional(&prompt.prefix, &prompt.ids);
            slots.push(self.cache.open());
        }
        let logits = self.last_logits(&tokens, &slots); // [sequences, v]
        let running = self.running.len();
        let vocabulary = self.rollout.policy.vocabulary_size();
        if running > 0 {
            let of_running = logits.clone().narrow(0, 0, running);
            let seen: Vec<&[u32]> =
                self.running.iter().map(|running| running.row.ids.as_slice()).collect();
            let uniforms: Vec<f64> =
                self.running.iter().map(|running| running.row.uniform()).collect();
            let distribution = &self.rollout.engine.settings().distribution;
            let draws = draw_rows(of_running, &seen, distribution, &uniforms)?;
            // Stop rules may have to decode text, which takes longer than sampling.
            let engine = self.rollout.engine;
            let rows = self.running.par_iter_mut().zip(draws);
            rows.for_each(|(running, draw)| running.row.push(draw, engine));
        }
        if !groups.is_empty() {
            let logits = logits.narrow(0, running, groups.len()).into_data();
            let logits: Arc<[f32]> = logits.iter().collect();
            let rows = groups.into_iter().zip(&slots[running..]).enumerate();
            self.ready.extend(rows.map(|(row, (group, &slot))| Ready {
                group,
                slot,
                logits: Arc::clone(&logits),
                range: row * vocabulary..(row + 1) * vocabulary,
            }));
        }
        self.take_out_finished();
        Ok(())
    }

    /// Returns the logits after the last token in each sequence, `[sequences, vocabulary]`.
    fn last_logits(&mut self, tokens: &TokenBatch, slots: &[CacheSlot]) -> Tensor<2> {
        let hidden = self.rollout.policy.extend(tokens, &mut self.cache, slots); // [n, d]
        let last = if tokens.tokens() == tokens.sequences() {
            hidden
        } else {
            let last = (0..tokens.sequences()).map(|i| tokens.rows(i).end - 1);
            let rows = indices(last, &hidden.device());
            gather_rows(hidden, rows)
        };
        self.rollout.policy.invariant_logits(last)
    }

    fn take_out_finished(&mut self) {
        let (finished, running): (Vec<Running>, Vec<Running>) =
            self.running.drain(..).partition(|running| running.row.is_finished());
        self.running = running;
        for Running { index, row, slot } in finished {
            let completion = row.completion(self.rollout.key, self.rollout.engine);
            self.cache.close_kept(slot, completion.ids());
            self.finished.push((index, completion));
            self.rollout.engine.report();
        }
    }
}
