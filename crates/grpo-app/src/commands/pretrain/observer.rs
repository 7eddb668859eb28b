//! What a supervised training writes and shows: metrics, samples, the best model, the bar, and the tables at the end.

use std::path::PathBuf;

use comfy_table::{CellAlignment, Table, presets};
use grpo_model::Policy;
use grpo_run::{Event, EventKind, JsonLinesWriter, RunFolder};
use grpo_train::{
    PretrainConfig, PretrainEnding, PretrainEvaluation, PretrainObserver, PretrainStep, SampleRow,
    TrainError,
};

use crate::config;
use crate::models::Writer;
use crate::output::{Progress, labelled, say};
use crate::run_files::observer_error;

/// Writes metrics and the best model, and moves the bar.
pub(super) struct Observer {
    metrics: JsonLinesWriter,
    events: JsonLinesWriter,
    /// Where completions of validation prompts go, where some are sampled.
    samples: Option<JsonLinesWriter>,
    progress: Option<Progress>,
    target: PathBuf,
    writer: Writer,
    /// Whether an evaluation is of an epoch.
    by_epochs: bool,
    first: Option<PretrainEvaluation>,
    best: Option<PretrainEvaluation>,
    last: Option<PretrainEvaluation>,
}

impl Observer {
    /// Of a run in `folder`, whose best model goes to `target`.
    pub(super) fn new(
        folder: &RunFolder,
        config: &PretrainConfig,
        target: PathBuf,
        writer: Writer,
    ) -> anyhow::Result<Self> {
        let samples = folder.path().join("samples.jsonl");
        let samples = config.eval.as_ref().map(|_| JsonLinesWriter::open(&samples));
        Ok(Self {
            metrics: JsonLinesWriter::open(&folder.metrics_path())?,
            events: JsonLinesWriter::open(&folder.events_path())?,
            samples: samples.transpose()?,
            progress: None,
            target,
            writer,
            by_epochs: config.eval_every == 0,
            first: None,
            best: None,
            last: None,
        })
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.progress.iter().for_each(Progress::finish);
    }

    /// Says and writes why the training ended.
    pub(super) fn ended(&mut self, ending: &PretrainEnding) -> anyhow::Result<()> {
        let what = match ending {
            PretrainEnding::Finished => EventKind::Finished {},
            PretrainEnding::Limit { message } => EventKind::Stopped { reason: message.clone() },
            PretrainEnding::NoGain { step, best: (best, loss) } => {
                let reason = format!(
                    "up to step {step} no validation loss was lower by enough (pretrain.patience, pretrain.min_gain); the lowest is {loss:.4}, after step {best}"
                );
                say(format_args!("stopped      {reason}"));
                // Nothing is left to do: it is finished as well.
                self.event(self.steps_done(), EventKind::Stopped { reason })?;
                EventKind::Finished {}
            }
        };
        self.event(self.steps_done(), what)
    }

    /// Steps that are done.
    fn steps_done(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.train_step)
    }

    /// The tables of what was sampled, and which model was kept.
    pub(super) fn summary(&self) {
        let Some(best) = &self.best else { return };
        if !best.rows.is_empty() {
            say(format_args!(
                "completions  of the model that is kept, after step {}",
                best.train_step
            ));
            for SampleRow { prompt, generated, ground_truth, .. } in &best.rows {
                let rows =
                    [("prompt", prompt), ("  generated", generated), ("  truth", ground_truth)];
                rows.iter().for_each(|(name, text)| say(format_args!("{}", labelled(name, text))));
            }
        }
        if let (Some(first), Some(last)) = (&self.first, &self.last)
            && best.sampled.is_some()
        {
            say(format_args!("{}", measures_table([first, best, last])));
        }
        say(format_args!(
            "best         step {}, validation loss {:.4}",
            best.train_step, best.eval_loss
        ));
    }

    fn event(&mut self, step: u64, what: EventKind) -> anyhow::Result<()> {
        Ok(self.events.append(&Event { step, at: config::now(), what })?)
    }
}

impl PretrainObserver<Policy> for Observer {
    fn step(&mut self, step: &PretrainStep, steps: u64) -> Result<(), TrainError> {
        self.metrics.append(step).map_err(observer_error)?;
        let progress = self.progress.get_or_insert_with(|| Progress::new(steps));
        let diversity = step.diversity.map(|term| format!("  D {:.3}", term.diversity_score));
        let valid = self.last.as_ref().map(|last| format!("  validation {:.4}", last.eval_loss));
        progress.step(format!(
            "loss {:.4}  lr {:.1e}{}{}",
            step.step_train_loss,
            step.learning_rate,
            diversity.unwrap_or_default(),
            valid.unwrap_or_default()
        ));
        Ok(())
    }

    fn evaluated(
        &mut self,
        evaluation: &PretrainEvaluation,
        model: &Policy,
    ) -> Result<(), TrainError> {
        self.metrics.append(evaluation).map_err(observer_error)?;
        for row in &evaluation.rows {
            self.samples
                .iter_mut()
                .try_for_each(|file| file.append(row))
                .map_err(observer_error)?;
        }
        if evaluation.best {
            self.writer.save(&self.target, model).map_err(observer_error)?;
        }
        let when = match self.by_epochs {
            true => format!("epoch {}", evaluation.epoch),
            false => format!("step {}", evaluation.train_step),
        };
        let mut lines = vec![format!(
            "{when}: training loss {:.4}, validation loss {:.4}{}",
            evaluation.train_loss,
            evaluation.eval_loss,
            if evaluation.best { ", saved" } else { "" }
        )];
        for message in &evaluation.warnings {
            lines.push(format!("limit        {message}"));
            let what = EventKind::Guard {
                watch: "eval_loss".to_owned(),
                value: Some(evaluation.eval_loss),
                bound: None,
                steps: 1,
                action: "warn".to_owned(),
                message: message.clone(),
            };
            self.event(evaluation.train_step, what).map_err(observer_error)?;
        }
        for line in lines {
            self.progress.iter().for_each(|progress| progress.say(&line));
        }
        self.first.get_or_insert_with(|| evaluation.clone());
        if evaluation.best {
            self.best = Some(evaluation.clone());
        }
        self.last = Some(evaluation.clone());
        Ok(())
    }
}

/// How a measure is called, and what it was.
type Measure = (&'static str, fn(&PretrainEvaluation) -> Option<f64>);

fn measures_table(evaluations: [&PretrainEvaluation; 3]) -> Table {
    let measures: [Measure; 8] = [
        ("validation loss", |e| Some(e.eval_loss)),
        ("self-BLEU", |e| Some(e.sampled?.eval_self_bleu)),
        ("distinct-1", |e| Some(e.sampled?.eval_distinct_1)),
        ("distinct-2", |e| Some(e.sampled?.eval_distinct_2)),
        ("semantic diversity", |e| e.sampled?.eval_diversity),
        ("characters of a reply", |e| Some(e.sampled?.eval_reply_length)),
        ("unique words of a reply", |e| Some(e.sampled?.eval_unique_words)),
        ("empty replies", |e| Some(e.sampled?.eval_empty)),
    ];
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let [first, best, last] = evaluations.map(|evaluation| evaluation.train_step);
    table.set_header([
        String::new(),
        format!("first (step {first})"),
        format!("kept (step {best})"),
        format!("last (step {last})"),
    ]);
    for (name, value) in measures {
        let values: Option<Vec<f64>> = evaluations.into_iter().map(value).collect();
        let Some(values) = values else { continue };
        let cells = values.iter().map(|value| format!("{value:.4}"));
        table.add_row(std::iter::once(name.to_owned()).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
