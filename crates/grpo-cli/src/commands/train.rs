//! `grpo train`: GRPO from a model folder, with a look before and after.

use anyhow::Context;
use grpo_data::{Codec, Completion};
use grpo_model::Policy;
use grpo_rewards::Outcome;
use grpo_run::{CompletionRecord, DataFile, JsonLinesWriter, RunFolder};
use grpo_train::{Grpo, Metrics, StepReport, TrainError, TrainObserver};

use crate::args::RunArguments;
use crate::config;
use crate::look::{Look, comparison};
use crate::models::Writer;
use crate::output::{Progress, say};
use crate::preflight::preflight;
use crate::run_files::{create_run, observer_error};
use crate::train_file::{SaveSection, Start, TrainFile};

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = config::load::<TrainFile>(&arguments.config, &arguments.set)?;
    let origin = loaded.origin;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.run.clone_from(run);
    }
    file.check(&origin)?;
    // Everything that can be refused is refused before the run has a folder.
    let Start { parts, mut prompts, writer, kind, files } = file.start()?;
    let measured = files.iter().map(|(role, path)| DataFile::measure(role, path));
    let data = measured.collect::<Result<Vec<_>, _>>()?;
    let codec = &writer.spec.codec;
    let look = Look::new(codec, prompts.for_look(file.eval.samples), file.grpo(), file.seed);
    let mut grpo = Grpo::new(parts, file.grpo(), file.seed)?;
    let outlook = preflight(&file, &grpo, &prompts, codec)?;
    let text = config::resolved(&file.resolved()?)?;
    let info = config::run_info(file.seed, data);
    let folder = create_run(&file.run, arguments.force, &text, &info)?;
    say(format_args!("run folder   {}", folder.path().display()));
    if let Some(report) = &prompts.report {
        say(format_args!("prompts      {report}"));
    }

    outlook.iter().for_each(|line| say(format_args!("{line}")));
    if !codec.is_text() {
        say(format_args!("no tokenizer: the reward sees ids with spaces between them"));
    }
    if look.count() > 0 {
        say(format_args!("drawing {} completions, to compare with later", look.count()));
    }
    let before = look.at(grpo.policy())?;
    let steps = u64::from(file.train.steps);
    let mut observer = Observer {
        metrics: folder.metrics_from(1)?,
        completions: folder.completions_from(1)?,
        progress: Progress::new(steps),
        folder,
        save: file.save.clone(),
        writer: writer.clone(),
        idle_steps: 0,
        was_corrected: false,
    };
    let of_step = |_step| prompts.next(file.train.prompts_per_step);
    let trained = grpo_train::train(&mut grpo, of_step, &mut observer);
    observer.progress.finish();
    // What was learned before a failure is not lost; where both fail, the training's reason is the one to know.
    let target = observer.folder.path().join(kind);
    let saved = writer.save(&target, grpo.policy());
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    saved?;

    if 2 * observer.idle_steps > file.train.steps {
        say(format_args!(
            "in {} of {} steps the rewards of every group were equal, and nothing was learned from them",
            observer.idle_steps, file.train.steps
        ));
    }
    let after = look.at(grpo.policy())?;
    say(format_args!("{}", comparison(&before, &after)));
    say(format_args!("{kind:<12} {}", target.display()));
    say(format_args!("metrics      {}", observer.folder.metrics_path().display()));
    Ok(())
}

/// Writes metrics, completions and models, and moves the bar.
struct Observer {
    metrics: JsonLinesWriter,
    completions: JsonLinesWriter,
    progress: Progress,
    folder: RunFolder,
    save: SaveSection,
    writer: Writer,
    /// Steps in which no group had a completion that was better than another.
    idle_steps: u32,
    /// Whether a step before had to be corrected for its sampler.
    was_corrected: bool,
}

impl TrainObserver<Policy> for Observer {
    fn step(
        &mut self,
        report: &StepReport,
        metrics: &Metrics,
        policy: &Policy,
    ) -> Result<(), TrainError> {
        self.metrics.append(metrics).map_err(observer_error)?;
        let done = report.step + 1;
        self.idle_steps += u32::from(report.advantages.zero_std_share == 1.0);
        if report.corrected == Some(true) && !self.was_corrected {
            self.was_corrected = true;
            self.progress.say(&format!(
                "step {done}: the sampler is further from the trainer than sampler_check.tolerance, and its tokens are weighed; `sampling/corrected` in metrics.jsonl marks such steps"
            ));
        }
        if is_due(done, self.save.completions_every) {
            for record in records(report, &self.writer.spec.codec) {
                self.completions.append(&record).map_err(observer_error)?;
            }
        }
        if is_due(done, self.save.every) {
            self.folder
                .write_checkpoint(u64::from(done), |folder| self.writer.fill(folder, policy))
                .map_err(observer_error)?;
        }
        let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
        let valid = metrics.get("rewards/valid/mean").map(|valid| format!("  valid {valid:.2}"));
        self.progress.step(format!(
            "reward {:.3}{}  KL {:.3}  {:.0} tokens/s",
            value("reward"),
            valid.unwrap_or_default(),
            value("kl"),
            value("tokens_per_second"),
        ));
        Ok(())
    }
}

fn is_due(done: u32, every: u32) -> bool {
    every > 0 && done.is_multiple_of(every)
}

/// The completions of a step as they are stored.
fn records(report: &StepReport, codec: &Codec) -> Vec<CompletionRecord> {
    let completions: Vec<&Completion> =
        report.groups.iter().flat_map(|group| &group.completions).collect();
    let prompts: Vec<String> = report
        .groups
        .iter()
        .flat_map(|group| vec![codec.decode(&group.prompt.ids); group.completions.len()])
        .collect();
    let advantages: Vec<f64> = report.advantages.groups.concat();
    (0..completions.len())
        .map(|i| {
            let (completion, outcome) = (completions[i], &report.outcomes[i]);
            let parts = match outcome {
                Outcome::Scored(scored) => scored.parts.as_slice(),
                Outcome::Abstained | Outcome::Failed { .. } => &[],
            };
            CompletionRecord {
                step: u64::from(report.step) + 1,
                prompt: completion.key().prompt,
                prompt_text: Some(prompts[i].clone()).filter(|text| !text.is_empty()),
                sample: completion.key().sample,
                text: report.texts[i].clone(),
                reward: outcome.total(),
                parts: parts.iter().map(|(name, v)| ((*name).to_owned(), Some(*v))).collect(),
                advantage: Some(advantages[i]),
                actions: completion.actions() as u32,
                completion_ids: completion.action_ids().collect(),
                sampling_logprobs: completion.sampling_logprobs().to_vec(),
                sampling_logprob: Some(
                    completion.sampling_logprobs().iter().map(|&l| f64::from(l)).sum(),
                ),
                finish: completion.finish(),
                policy_version: completion.policy_version(),
            }
        })
        .collect()
}
