//! Estimates the disk usage of a run.

use std::path::{Path, PathBuf};

use burn::module::Module;
use grpo_model::Policy;
use grpo_task::train_settings::SaveSection;

use super::trial::Lengths;
use super::words::words;
use crate::train_file::TrainFile;

/// Estimated size of a run folder in bytes.
pub(super) struct Need {
    /// Maximum number of checkpoints on disk, and the size of each.
    checkpoints: u64,
    checkpoint: u64,
    /// Size of all recorded completions.
    completions: u64,
    /// Size of everything written in each step: metrics, ledger and TensorBoard events.
    steps: u64,
}

/// Size of a line in metrics.jsonl, in bytes.
const METRICS_LINE: u64 = 2_500;
/// Size of TensorBoard events per step, in bytes, for about 60 metrics.
const TENSORBOARD: u64 = 60 * 30;
/// Size of a ledger entry per completion, in bytes. There is one for sampling and one for each
/// update.
const LEDGER: u64 = 35;
/// Size of a completion record without its tokens, in bytes.
const RECORD: f64 = 600.0;
/// Compressed size of a token in all columns, in bytes.
const TOKEN: f64 = 18.0;

impl Need {
    pub(super) fn of(file: &TrainFile, policy: &Policy, lengths: Option<Lengths>) -> Self {
        let train = &file.trainer.train;
        let tokens =
            lengths.map_or(file.trainer.sampling.max_new_tokens as f64, |lengths| lengths.mean);
        let completions = u64::from(train.prompts_per_step).saturating_mul(train.group_size as u64);
        let recorded = train.steps.checked_div(file.settings.save.completions_every).unwrap_or(0);
        let of_ledger = LEDGER
            .saturating_mul(completions)
            .saturating_mul(1 + u64::from(train.updates_per_rollout));
        // Weights, two moments, and the reference if it is updated.
        let tensors = 3 + u64::from(file.trainer.reference.follows());
        Self {
            checkpoints: checkpoints(&file.settings.save, train.steps, file.grpo().eval.every),
            checkpoint: (4 * tensors).saturating_mul(policy.num_params() as u64),
            // The cast saturates.
            completions: (f64::from(recorded) * completions as f64 * (RECORD + TOKEN * tokens))
                as u64,
            steps: (METRICS_LINE + TENSORBOARD)
                .saturating_add(of_ledger)
                .saturating_mul(u64::from(train.steps)),
        }
    }

    fn of_checkpoints(&self) -> u64 {
        self.checkpoints.saturating_mul(self.checkpoint)
    }

    fn bytes(&self) -> u64 {
        self.of_checkpoints().saturating_add(self.completions).saturating_add(self.steps)
    }

    /// Checks that the disk has enough space. Returns a description of required and available
    /// space.
    pub(super) fn checked(&self, run: &Path) -> anyhow::Result<String> {
        let place = existing(run);
        // If the file system does not report its free space, assume that it suffices.
        let Ok(free) = fs4::available_space(&place) else {
            return Ok(format!("about {} will be written", words(self.bytes())));
        };
        self.refuse_above(free, &place)?;
        Ok(format!("about {} will be written, {} free", words(self.bytes()), words(free)))
    }

    fn refuse_above(&self, free: u64, place: &Path) -> anyhow::Result<()> {
        let cure = if self.of_checkpoints() > self.completions {
            "lower save.keep_last"
        } else {
            "raise save.completions_every"
        };
        anyhow::ensure!(
            self.bytes() <= free,
            "the run would write about {} ({} × {} of checkpoints, {} of completions), but only {} is free at {}; {cure}, or use another run folder",
            words(self.bytes()),
            self.checkpoints,
            words(self.checkpoint),
            words(self.completions),
            words(free),
            place.display()
        );
        Ok(())
    }
}

/// Returns the maximum number of checkpoints that exist at the same time.
fn checkpoints(save: &SaveSection, steps: u32, eval_every: u32) -> u64 {
    let steps = u64::from(steps);
    // With a time interval, every step may write a checkpoint, including the one for the best
    // evaluation.
    let written = match save.every_minutes > 0.0 {
        true => steps,
        false => {
            let of = |every: u32| steps.checked_div(every.into()).unwrap_or(0);
            // Plus one at the end.
            (of(save.every) + of(eval_every) + 1).min(steps)
        }
    };
    // In addition to `keep_last`: the best evaluation, the checkpoint being written and the final
    // model.
    (save.keep_last as u64).min(written) + 3
}

/// Returns the nearest existing ancestor of a path.
fn existing(run: &Path) -> PathBuf {
    let run = std::path::absolute(run).unwrap_or_else(|_| run.to_owned());
    let mut folders = run.ancestors();
    folders.find(|folder| folder.exists()).unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let need = Need {
            checkpoints: 4,
            checkpoint: 2_000_000_000,
            completions: 30_000_000,
            steps: 1_000_000,
        };
        let refused = |need: &Need, free| {
            need.refuse_above(free, Path::new("/runs")).map_err(|e| e.to_string())
        };
        assert_eq!(refused(&need, 8_031_000_000), Ok(()));
        assert_eq!(
            refused(&need, 8_030_999_999).unwrap_err(),
            "the run would write about 8.0 GB (4 × 2.0 GB of checkpoints, 30 MB of completions), but only 8.0 GB is free at /runs; lower save.keep_last, or use another run folder"
        );
        let texts = Need { completions: 9_000_000_000, ..need };
        assert!(refused(&texts, 1).unwrap_err().contains("raise save.completions_every"));
    }

    #[test]
    fn no_more_checkpoints_than_are_written() {
        let save = |every, every_minutes, keep_last| SaveSection {
            every,
            every_minutes,
            keep_last,
            completions_every: 0,
            best: 0,
        };
        // A time interval allows at most one checkpoint per step.
        assert_eq!(checkpoints(&save(0, 10.0, 2), 100, 0), 2 + 3);
        assert_eq!(checkpoints(&save(0, 10.0, 1000), 100, 0), 100 + 3);
        // Steps 25, 50, 75 and 100. The last one may be counted twice.
        assert_eq!(checkpoints(&save(25, 0.0, 1000), 100, 0), 5 + 3);
        assert_eq!(checkpoints(&save(25, 0.0, 1000), 100, 50), 7 + 3);
        assert_eq!(checkpoints(&save(1, 0.0, usize::MAX), 100, 1), 100 + 3);
        assert_eq!(checkpoints(&save(0, 0.0, 1000), 100, 0), 1 + 3);
    }

    #[test]
    fn what_is_beyond_all_numbers_is_refused() {
        let need =
            Need { checkpoints: u64::MAX, checkpoint: 4, completions: u64::MAX, steps: u64::MAX };
        assert_eq!(need.bytes(), u64::MAX);
        assert!(need.refuse_above(u64::MAX - 1, Path::new("/")).is_err());
    }

    #[test]
    fn the_folder_above_that_exists() {
        let here = tempfile::tempdir().unwrap();
        assert_eq!(existing(&here.path().join("a/b/c")), here.path());
    }
}
