//! Bytes that a run will write.

use std::path::{Path, PathBuf};

use burn::module::Module;
use grpo_model::Policy;

use super::trial::Lengths;
use super::words;
use crate::train_file::TrainFile;

/// Predicted bytes of a run's folder.
pub(super) struct Need {
    /// Those that are there at the same time, each of so many bytes.
    checkpoints: u64,
    checkpoint: u64,
    completions: u64,
    metrics: u64,
}

/// Bytes of a line of metrics.
const METRICS_LINE: u64 = 2_500;
/// Bytes of a completion's record besides its tokens.
const RECORD: f64 = 600.0;
/// Bytes of a token's text, id and log-probability.
const TOKEN: f64 = 24.0;

impl Need {
    pub(super) fn of(file: &TrainFile, policy: &Policy, lengths: Option<Lengths>) -> Self {
        let (train, save) = (&file.train, &file.save);
        let tokens = lengths.map_or(file.sampling.max_new_tokens as f64, |lengths| lengths.mean);
        let completions = f64::from(train.prompts_per_step) * train.group_size as f64;
        let recorded = train.steps.checked_div(save.completions_every).unwrap_or(0);
        Self {
            // Those that are kept, that of the best evaluation, the one that is being written, and the final model.
            checkpoints: save.keep_last as u64 + 3,
            // Weights and two moments; a reference that follows.
            checkpoint: 4 * (3 + u64::from(file.reference.follows())) * policy.num_params() as u64,
            completions: (f64::from(recorded) * completions * (RECORD + TOKEN * tokens)) as u64,
            metrics: METRICS_LINE * u64::from(train.steps),
        }
    }

    fn bytes(&self) -> u64 {
        self.checkpoints * self.checkpoint + self.completions + self.metrics
    }

    /// What is needed and what there is, in words, where it is enough.
    pub(super) fn checked(&self, run: &Path) -> anyhow::Result<String> {
        let place = existing(run);
        // A file system that does not say is taken to have room.
        let Ok(free) = fs4::available_space(&place) else {
            return Ok(format!("about {} will be written", words(self.bytes())));
        };
        self.refuse_above(free, &place)?;
        Ok(format!("about {} will be written, {} are free", words(self.bytes()), words(free)))
    }

    fn refuse_above(&self, free: u64, place: &Path) -> anyhow::Result<()> {
        let checkpoints = self.checkpoints * self.checkpoint;
        let cure = if checkpoints > self.completions {
            "lower save.keep_last"
        } else {
            "raise save.completions_every"
        };
        anyhow::ensure!(
            self.bytes() <= free,
            "the run would write about {} ({} × {} of checkpoints, {} of completions), and {} are free at {}; {cure}, or give the run another folder",
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

/// The nearest folder above that there is.
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
            metrics: 1_000_000,
        };
        let refused = |need: &Need, free| {
            need.refuse_above(free, Path::new("/runs")).map_err(|e| e.to_string())
        };
        assert_eq!(refused(&need, 8_031_000_000), Ok(()));
        assert_eq!(
            refused(&need, 8_030_999_999).unwrap_err(),
            "the run would write about 8.0 GB (4 × 2.0 GB of checkpoints, 30 MB of completions), and 8.0 GB are free at /runs; lower save.keep_last, or give the run another folder"
        );
        let texts = Need { completions: 9_000_000_000, ..need };
        assert!(refused(&texts, 1).unwrap_err().contains("raise save.completions_every"));
    }

    #[test]
    fn the_folder_above_that_exists() {
        let here = tempfile::tempdir().unwrap();
        assert_eq!(existing(&here.path().join("a/b/c")), here.path());
    }
}
