//! Records of stages without a run folder.

use grpo_task::output::command_line;

use super::file::Stage;
use super::process::Program;

impl Stage {
    /// Records that the command of a stage without a run folder begins.
    pub(super) fn record_beginning(&self) -> anyhow::Result<()> {
        match self.config {
            Some(_) => Ok(()),
            None => self.written.begin(&self.own_words()),
        }
    }

    /// Records the command line and the results if the stage has no run folder.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn record(&self) -> anyhow::Result<()> {
        match self.config {
            Some(_) => Ok(()),
            None => self.written.finish(&self.own_words()),
        }
    }

    /// Describes how the command line differs from the one that produced the results. Results
    /// without a record were not produced by this pipeline.
    pub(super) fn changed_arguments(&self) -> Option<String> {
        match self.written.record() {
            None => Some("its results have no record of the command".to_owned()),
            Some(record) if record.arguments() != self.own_words() => {
                let words = command_line(record.arguments());
                Some(format!("its results are those of `grpo {words}`"))
            }
            Some(record) => (!record.is_finished()).then(|| "it did not finish".to_owned()),
        }
    }

    /// Returns whether results that no pipeline wrote are what the command would write, for example
    /// because the user ran it before. Commands that can tell have the option `--verify`.
    pub(super) fn would_write_the_same(&self, program: &Program) -> anyhow::Result<bool> {
        if !self.has("verify") || self.written.record().is_some() {
            return Ok(false);
        }
        let words = [self.own_words(), vec!["--verify".to_owned()]].concat();
        program.succeeds(&words)
    }

    /// Returns the command and its arguments as the pipeline file has them.
    fn own_words(&self) -> Vec<String> {
        std::iter::once(&self.section.command).chain(&self.section.arguments).cloned().collect()
    }
}
