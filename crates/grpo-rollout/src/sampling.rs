//! The local engine: samples groups with several workers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_model::{Frozen, LanguageModel, RolloutActivations};

use crate::sampling_loop::Rollout;
use crate::{
    Autoregressive, Engine, EngineFactory, EngineRequest, NextTokens, Report, RolloutError,
    RolloutSettings, StepKey, TurnRequest,
};

impl<M: LanguageModel> Engine<M> for Autoregressive {
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        self.check(policy, prompts)?;
        let k = self.settings().group_size as u32;
        // Start with the longest prompts, so that the workers finish at about the same time.
        let mut order: Vec<usize> = (0..prompts.len()).collect();
        order.sort_by_key(|&prompt| std::cmp::Reverse(prompts[prompt].ids.len())); // stable
        let queue = order.into_iter().flat_map(|prompt| (0..k).map(move |sample| (prompt, sample)));
        let kept = self.activations().filter(|_| key.purpose == Purpose::SAMPLING);
        let rollout = Rollout::new(self, policy.prepared(), prompts, key, queue).keeping(kept);
        // Run inside the thread pool. Otherwise, each short operation would have to wait for a
        // thread to wake up.
        let capacities = self.capacities(policy, prompts.len(), k as usize);
        let mut completions = rayon::scope(|_| rollout.run(&capacities))?.into_iter();
        let group =
            |prompt: &Prompt| Group::new(prompt.clone(), completions.by_ref().take(k as usize));
        Ok(prompts.iter().map(group).collect())
    }

    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        let prompts = std::slice::from_ref(prompt);
        self.check(policy, prompts)?;
        let queue = [(0, sample)].into_iter();
        let rollout = Rollout::new(self, policy.unpacked(), prompts, key, queue);
        let completion = rollout.run(&[1])?.pop();
        Ok(completion.expect("one completion was requested"))
    }

    fn take_turns(
        &self,
        policy: &Frozen<M>,
        requests: &[TurnRequest<'_>],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let contexts: Vec<Prompt> =
            requests.iter().map(|request| request.context.clone()).collect();
        self.check(policy, &contexts)?;
        let queue = requests.iter().enumerate().map(|(turn, request)| (turn, request.sample));
        let rollout = Rollout::new(self, policy.prepared(), &contexts, key, queue);
        rayon::scope(|_| rollout.run(&self.capacities(policy, contexts.len(), 1)))
    }

    fn interrupted_by(&self, interrupt: Arc<AtomicBool>) -> Arc<dyn Engine<M>> {
        Arc::new(self.clone().with_interrupt(interrupt))
    }

    fn reporting(&self, report: Report) -> Option<Arc<dyn Engine<M>>> {
        Some(Arc::new(self.clone().with_report(report)))
    }

    fn keeping(&self, activations: RolloutActivations) -> Option<Arc<dyn Engine<M>>> {
        Some(Arc::new(self.clone().with_activations(activations)))
    }
}

impl<M: LanguageModel> EngineFactory<M> for NextTokens {
    fn create(
        &self,
        policy: &M,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<M>>, RolloutError> {
        let settings = RolloutSettings {
            group_size: request.group_size,
            max_new_tokens: request.max_new_tokens,
            end_ids: self.end_ids.clone(),
            distribution: request.distribution(policy.vocabulary_size(), &[])?,
            batch_size: request.batch_size,
        };
        let engine = Autoregressive::new(settings, policy, request.longest_prompt)?;
        Ok(Arc::new(engine.stopping_at(request.stop, request.decode)?))
    }
}

impl Autoregressive {
    fn check<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
    ) -> Result<(), RolloutError> {
        let context = policy.context_length();
        prompts.iter().try_for_each(|prompt| self.settings().fits(prompt.ids.len(), context))?;
        for prompt in prompts {
            policy.check_prefix(&prompt.prefix).map_err(RolloutError::Unfit)?;
        }
        let vocabulary = policy.vocabulary_size();
        let mut ids = prompts.iter().flat_map(|prompt| &prompt.ids);
        match ids.find(|&&id| id as usize >= vocabulary) {
            Some(&id) => Err(RolloutError::PromptId { id, vocabulary }),
            None => Ok(()),
        }
    }

    /// Returns the number of concurrent completions for each worker. The weights of a small model
    /// fit into the CPU caches, so each thread can sample its own rows without synchronisation
    /// between layers. For a larger model, a single worker reads the weights once for all rows.
    fn capacities<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        groups: usize,
        group_size: usize,
    ) -> Vec<usize> {
        const CACHED_WEIGHTS: usize = 8 << 20;
        let batch_size = self.settings().batch_size;
        let is_cached =
            policy.parameters() <= CACHED_WEIGHTS && grpo_kernels::is_cpu(&policy.device());
        let most = if is_cached { rayon::current_num_threads() } else { 1 };
        capacities(groups, group_size, batch_size, most)
    }
}

/// Divides concurrent completions evenly between at most `most` workers. If all completions fit
/// into the batch, they are divided by group, because each worker samples entire groups.
fn capacities(groups: usize, group_size: usize, batch_size: usize, most: usize) -> Vec<usize> {
    /// Number of rows per pass required to justify another worker.
    const ROWS: usize = 8;
    let completions = groups.saturating_mul(group_size);
    let together = batch_size.min(completions);
    let workers = most.min(together / ROWS).min(groups).max(1);
    let (parts, size) = if together == completions { (groups, group_size) } else { (together, 1) };
    let larger = parts % workers;
    (0..workers).map(|worker| (parts / workers + usize::from(worker < larger)) * size).collect()
}

#[cfg(test)]
mod tests {
    use super::capacities;

    #[test]
    fn workers_share_what_is_sampled_at_the_same_time() {
        // More completions than the batch size.
        assert_eq!(capacities(40, 8, 64, 1), [64]);
        assert_eq!(capacities(40, 8, 64, 3), [22, 21, 21]);
        assert_eq!(capacities(40, 8, 17, 3), [9, 8]);
        assert_eq!(capacities(40, 8, 15, 3), [15]);
        assert_eq!(capacities(40, 8, 1, 4), [1]);
        // All completions fit: divide by group, with at most one worker per group.
        assert_eq!(capacities(4, 8, 256, 4), [8; 4]);
        assert_eq!(capacities(5, 8, 256, 4), [16, 8, 8, 8]);
        assert_eq!(capacities(2, 64, 256, 4), [64; 2]);
        assert_eq!(capacities(4, 4, 256, 4), [8; 2]);
        assert_eq!(capacities(1, 3, 256, 4), [3]);
        // Fewer groups than workers, and a batch that cannot hold all completions.
        assert_eq!(capacities(2, 64, 100, 4), [50; 2]);
        assert_eq!(capacities(0, 8, 256, 4), [0]);
    }
}
