//! Starts and resumes runs of `grpo train`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use grpo_data::{Codec, counted};
use grpo_model::Policy;
use grpo_run::{DataFile, Event, EventKind, RunFolder, RunLock, VerifiedFolder};
use grpo_runtime::Ranks;
use grpo_task::args::RunArguments;
use grpo_task::interrupt::{Interrupted, leaves_behind};
use grpo_task::models::Writer;
use grpo_task::output::{say, say_aside, sentence};
use grpo_task::phase::Phase;
use grpo_task::run_files::{
    Reopened, create_run, existing, last_whole, reopen, repeat_on_device, stay_on_device, unlisted,
};
use grpo_task::run_log::{observer_error, stopped_at_start};
use grpo_task::task::Tasks;
use grpo_task::used_inputs::{Dependents, dependents, say_kept};
use grpo_task::{checkpoint, config, device};
use grpo_train::{
    BestSamples, Ending, EngineFactory, Evaluated, Evaluation, Grpo, Parts, StepDone, TrainError,
    TrainObserver, Training,
};

use crate::inspect::evidence::violations_of_files;
use crate::inspect::recorded_steps::RecordedSteps;
use crate::inspect::run_reward::{refuse_unasked, resume_command, say_how_to_resume};
use crate::train::first_screen;
use crate::train::preflight::preflight;
use crate::train::ranks::{Inputs, Restored, refuse_short_limit};
use crate::train_file::prompts::Prompts;
use crate::train_file::{Start, TrainFile};

/// A training run and its folder.
pub(crate) struct Session {
    pub(crate) file: TrainFile,
    pub(crate) tasks: Tasks,
    pub(crate) folder: RunFolder,
    pub(crate) training: Training<Policy>,
    pub(crate) prompts: Prompts,
    pub(crate) writer: Writer,
    /// Name of the trained weights' folder.
    pub(crate) kind: &'static str,
    /// Evaluation of the initial policy.
    pub(crate) before: Option<Evaluated>,
    /// Recorded versions of steps that will be repeated.
    pub(crate) earlier: RecordedSteps,
    /// Whether the run was resumed.
    pub(crate) is_resumed: bool,
    /// Prevents other processes from writing to the folder.
    _lock: RunLock,
}

/// How to resume a run.
pub(crate) struct Resume<'a> {
    /// The run folder.
    pub(crate) run: &'a Path,
    /// Whether to repeat the steps after the checkpoint and compare them with the recorded ones.
    pub(crate) verify: bool,
    /// Whether the run is finished. It is only verified then, and nothing is written.
    pub(crate) is_finished: bool,
    /// URLs of the engine's servers, if they have changed.
    pub(crate) rollout_url: &'a [String],
    /// Whether a reward that the run's configuration names may run.
    pub(crate) run_reward: bool,
}

impl Session {
    /// Starts a run from the command-line arguments.
    pub(crate) fn begin(
        arguments: &RunArguments,
        tasks: Tasks,
        interrupt: Arc<AtomicBool>,
        ranks: &Ranks,
    ) -> anyhow::Result<Self> {
        let file = configured(arguments, &tasks)?;
        if let Some(incomplete) = file.trainer.schedule.incomplete_warmup(file.trainer.train.steps)
        {
            say(format_args!("note         {incomplete}"));
        }
        Self::begin_with(file, tasks, arguments.force, interrupt, ranks)
    }

    /// Starts a run from a validated configuration. With `force`, an existing run folder is
    /// renamed.
    pub(crate) fn begin_with(
        mut file: TrainFile,
        tasks: Tasks,
        force: bool,
        interrupt: Arc<AtomicBool>,
        ranks: &Ranks,
    ) -> anyhow::Result<Self> {
        RunFolder::check_unused(&file.settings.run, existing(force))?;
        // Performs all checks before creating the run folder.
        let (begun, data) = StartedRun::load(&mut file, &tasks, interrupt, ranks)?;
        let (grpo, codec) = (begun.training.grpo(), &begun.writer.spec.codec);
        let outlook = preflight(&file, grpo, &begun.prompts, codec, &*begun.engine)?;
        let text = config::resolved(&file.resolved()?)?;
        let info = config::run_info(file.settings.seed, data);
        let folder = create_run(&file.settings.run, force, &text, &info)?;
        let lock = folder.lock()?;
        ranks.wait_for_all()?;
        let before = begun
            .preview(&file, &folder, &outlook)
            .map_err(|error| failed_at_start(&file, &folder, false, error))?;
        let earlier = RecordedSteps::after(&folder, 0)?;
        Ok(begun.session(file, tasks, folder, lock, before, earlier))
    }

    /// Resumes a run. With [`Resume::verify`], the steps after the checkpoint are repeated and compared
    /// first.
    pub(crate) fn resume(
        resume: &Resume<'_>,
        tasks: Tasks,
        interrupt: Arc<AtomicBool>,
        ranks: &Ranks,
    ) -> anyhow::Result<Self> {
        let &Resume { run, verify, is_finished, rollout_url, run_reward } = resume;
        let reopened = reopen(run, |folder, renamed| {
            let loaded = TrainFile::of_run_with(folder, &tasks, renamed)?;
            loaded.value.check(&loaded.origin)?;
            refuse_unasked(&loaded.value, run, run_reward)?;
            Ok(loaded.value)
        })?;
        let Reopened { folder, lock, info, config: mut file } = reopened;
        if verify {
            file.refuse_unrepeatable("--verify")?;
        }
        if !is_finished {
            folder.check_writable()?;
        }
        file.replace_servers(rollout_url)?;
        let phase = Phase::begin("checking the files of the run");
        let last = RecordedSteps::after(&folder, 0)?.last();
        let from = place(&folder, last, verify)?;
        let step = from.as_ref().map_or(0, |(step, _)| *step);
        let violations = violations_of_files(run, &tasks);
        drop(phase);
        for violation in violations {
            say(format_args!("audit        {violation}"));
        }
        match last {
            Some(last) if verify => repeat_on_device(&folder, &info, step + 1..=last)?,
            _ => stay_on_device(&folder, &info)?,
        }
        if verify {
            say(format_args!("verifying    from step {step} on"));
        } else {
            say_resuming(step, file.trainer.train.steps);
        }
        let (begun, data) = StartedRun::load(&mut file, &tasks, interrupt, ranks)?;
        unlisted(data.iter().map(|file| file.path.as_path()), &info.data)?;
        ranks.wait_for_all()?;
        let before = match is_finished {
            true => None,
            false => begun
                .preview(&file, &folder, &[])
                .map_err(|error| failed_at_start(&file, &folder, true, error))?,
        };
        let earlier = RecordedSteps::after(&folder, step)?;
        let mut session = begun.session(file, tasks, folder, lock, before, earlier);
        let restored = from.as_ref().map(|(step, found)| Restored::new(*step, found.path()));
        Restored::announce(ranks, restored.transpose()?)?;
        if let Some((_, checkpoint)) = from {
            checkpoint::restore(&mut session.training, &checkpoint)?;
        }
        session.is_resumed = true;
        if verify {
            session.verify()?;
        }
        if is_finished {
            return Ok(session);
        }
        // The run was killed during a roll-back if undone steps, which are copied to
        // `rolled-back/`, are still in the log. They are not compared.
        let roll_backs = session.training.roll_backs();
        session.earlier.forget(&session.folder.undone(roll_backs)?);
        let (step, steps) = (session.training.steps(), session.file.trainer.train.steps);
        if step < steps {
            if verify {
                say_resuming(step.into(), steps);
            }
            // The existing result is incomplete.
            let model = session.folder.path().join(session.kind);
            let found = dependents(&model);
            let aside = session.folder.move_aside(session.kind)?;
            // An unfinished result is always renamed.
            if let (Dependents::Used(_), Some(aside)) = (&found, aside) {
                say_kept(&model, &aside, &found);
            }
            session.folder.move_aside("comparison.json")?;
        }
        Ok(session)
    }

    /// Repeats the recorded steps after the checkpoint and returns an error if any result differs.
    /// Writes no files.
    fn verify(&mut self) -> anyhow::Result<()> {
        let Self { training, prompts, file, earlier, .. } = self;
        let last = earlier.last().and_then(|last| u32::try_from(last).ok()).unwrap_or(0);
        let per_step = file.trainer.train.prompts_per_step;
        let mut verifier = Verifier(earlier);
        let of_step = |step| prompts.of_step(step, per_step).map_err(observer_error);
        match training.run_to(last, of_step, &mut verifier)? {
            Ending::Interrupted => return Err(Interrupted.into()),
            Ending::RollBack { message, .. } => {
                anyhow::bail!("{message}; the recorded run did not roll back here")
            }
            Ending::Finished
            | Ending::NoGain { .. }
            | Ending::OfExtension { .. }
            | Ending::Stopped { .. } => {}
        }
        self.earlier = RecordedSteps::default();
        Ok(())
    }

    /// Returns the codec of the policy.
    pub(crate) fn codec(&self) -> &Codec {
        &self.writer.spec.codec
    }
}

/// Compares repeated steps with their recorded versions.
struct Verifier<'a>(&'a RecordedSteps);

impl TrainObserver<Policy> for Verifier<'_> {
    fn step(&mut self, done: &StepDone<'_>, _: &Training<Policy>) -> Result<(), TrainError> {
        let step = done.report.step + 1;
        let verified = self.0.check(done.metrics, &done.report.observed.ledger);
        match verified.map_err(anyhow::Error::msg).map_err(observer_error)? {
            true => say(format_args!("verified     step {step} matches the record")),
            false => {
                let fault = anyhow::anyhow!(
                    "step {step} cannot be verified: metrics.jsonl or ledger.jsonl has no line for it"
                );
                return Err(observer_error(fault));
            }
        }
        Ok(())
    }
}

/// Records why a run failed before its first step, and prints how to go on.
fn failed_at_start(
    file: &TrainFile,
    folder: &RunFolder,
    is_resumed: bool,
    error: anyhow::Error,
) -> anyhow::Error {
    if error.is::<Interrupted>() {
        return error;
    }
    // The error is more important than one of its record.
    let _lost = stopped_at_start(folder, is_resumed, sentence(&error));
    say_how_to_resume(folder, file, None);
    error.context(format!("training run {} ended early", folder.path().display()))
}

fn say_resuming(step: u64, steps: u32) {
    say(format_args!("resuming     after step {step} of {steps}"));
}

/// Returns the checkpoint to resume from and its step, or `None` to start from the initial policy.
/// With `verify`, the checkpoint precedes `last`, the last recorded step, so that at least one step is
/// repeated.
fn place(
    folder: &RunFolder,
    last: Option<u64>,
    verify: bool,
) -> anyhow::Result<Option<(u64, VerifiedFolder)>> {
    anyhow::ensure!(
        !verify || last.is_some(),
        "`{}` has no steps to verify; remove --verify",
        folder.path().display()
    );
    let latest = last.filter(|_| verify).map(|last| last - 1);
    let mut checkpoints = folder.checkpoints()?;
    checkpoints.retain(|found| latest.is_none_or(|latest| found.step <= latest));
    // More roll-backs mean a later checkpoint, regardless of the step. Checkpoints without a
    // recorded number of roll-backs are tried first.
    checkpoints.sort_by_cached_key(|found| (checkpoint::roll_backs(found), found.step));
    let whole = last_whole(folder, checkpoints, "train")?;
    let went_back = |event: &Event| matches!(event.what, EventKind::RolledBack { .. });
    anyhow::ensure!(
        whole.is_some() || !folder.read_events()?.iter().any(went_back),
        "`{}` rolled back to a checkpoint that no longer exists, so it cannot be {} from the beginning",
        folder.path().display(),
        if verify { "verified" } else { "resumed" }
    );
    Ok(whole)
}

/// Returns the validated configuration that the arguments refer to.
pub(crate) fn configured(arguments: &RunArguments, tasks: &Tasks) -> anyhow::Result<TrainFile> {
    let loaded = TrainFile::read(arguments.configuration()?, &arguments.set, tasks)?;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.settings.run.clone_from(run);
    }
    file.check(&loaded.origin)?;
    Ok(file)
}

/// The state of a run before its first step.
pub(crate) struct StartedRun {
    pub(crate) training: Training<Policy>,
    pub(crate) prompts: Prompts,
    /// Creates engines of other sizes.
    engine: Arc<dyn EngineFactory<Policy>>,
    /// See [`Start::reports`].
    reports: Vec<(&'static str, String)>,
    writer: Writer,
    kind: &'static str,
}

impl StartedRun {
    /// Loads everything that the configuration refers to, sets what it leaves open, and checks that all
    /// ranks have loaded the same. Returns the input files too.
    pub(crate) fn load(
        file: &mut TrainFile,
        tasks: &Tasks,
        interrupt: Arc<AtomicBool>,
        ranks: &Ranks,
    ) -> anyhow::Result<(Self, Vec<DataFile>)> {
        file.find_on_hub(tasks)?;
        let phase = Phase::begin(format!("loading {}", file.settings.model.display()));
        let start = file.start(tasks)?;
        file.settle(&start.parts.policy, &start.prompts)?;
        drop(phase);
        let measured = start.files.iter().map(|(role, path)| DataFile::measure(role, path));
        let data = measured.collect::<Result<Vec<_>, _>>()?;
        if !ranks.is_alone() {
            file.extensions.check_ranks()?;
            anyhow::ensure!(
                file.rollout.config().supports_ranks(),
                "{} sample for a single process; use rollout.engine = \"local\", or start one process without mpirun",
                file.rollout.description()
            );
            refuse_short_limit(file, ranks)?;
            if let Some(warning) = device::shared_by_ranks() {
                say_aside(format_args!("device       {warning}"));
            }
            let text = config::resolved(&file.resolved()?)?;
            Inputs::new(text, &data, &start.parts.policy)?.agree(ranks)?;
        }
        Ok((Self::of(file, start, tasks, interrupt, ranks)?, data))
    }

    fn of(
        file: &TrainFile,
        start: Start,
        tasks: &Tasks,
        interrupt: Arc<AtomicBool>,
        ranks: &Ranks,
    ) -> anyhow::Result<Self> {
        let Start { parts, prompts, of_evaluation, writer, kind, reports, .. } = start;
        let config = file.grpo();
        let evaluation = (!of_evaluation.is_empty())
            .then(|| {
                let Parts { policy, engine, reward, decode, .. } = &parts;
                let (reward, decode) = (Arc::clone(reward), Arc::clone(decode));
                let of = of_evaluation;
                Evaluation::new(of, policy, &config, &**engine, reward, decode, file.settings.seed)
            })
            .transpose()?;
        let engine = Arc::clone(&parts.engine);
        let mut grpo = Grpo::new(parts, config, file.settings.seed)?;
        file.settings.success.check_components(&grpo.reward_names().parts)?;
        grpo.interrupted_by(interrupt);
        grpo.distribute_over(ranks);
        let mut training = Training::new(grpo, evaluation);
        if let (Some(best), 1..) = (tasks.best_files(&writer.spec.codec), file.settings.save.best) {
            training.collect_best(BestSamples::new(file.settings.save.best, best.identify));
        }
        Ok(Self { training, prompts, engine, reports, writer, kind })
    }

    /// Prints a summary of the run and evaluates the initial policy, unless the run has already
    /// done so.
    fn preview(
        &self,
        file: &TrainFile,
        folder: &RunFolder,
        outlook: &[String],
    ) -> anyhow::Result<Option<Evaluated>> {
        self.training.grpo().rewards().keep_output_in(folder.path());
        say(format_args!("run folder   {}", folder.path().display()));
        let grpo = self.training.grpo();
        let settings = first_screen::settings(file, grpo.policy(), grpo.learner().ranks().count());
        settings.iter().for_each(|line| say(format_args!("{line}")));
        for (role, report) in &self.reports {
            say(format_args!("{role:<12} {report}"));
        }
        if file.trains_on_evaluation() {
            say(format_args!(
                "evaluation   on training prompts because eval.file is not set; the best checkpoint is not selected on held-out prompts"
            ));
        }
        outlook.iter().for_each(|line| say(format_args!("{line}")));
        if !self.writer.spec.codec.is_text() {
            say(format_args!("no tokenizer: the reward receives token ids separated by spaces"));
        }
        let count = self.training.evaluated_count();
        if count == 0 {
            return Ok(None);
        }
        let ranks = grpo.learner().ranks();
        let prompts = self.training.evaluated_prompts();
        // All ranks evaluate, or none of them.
        let kept = folder.read_evaluation_before(prompts, file.trainer.eval.group_size);
        ranks.from_first(Some(kept.is_some()))?;
        if let Some(groups) = kept {
            say(format_args!(
                "evaluated    {} before training, kept in {}",
                counted(count, "completion"),
                folder.evaluation_before_path().display()
            ));
            return Ok(Some(Evaluated { groups, time: Duration::ZERO }));
        }
        let resume = resume_command("train", folder.path(), file);
        leaves_behind(format!(
            "in the evaluation before training; start it again with `grpo {resume}`"
        ));
        say(format_args!("evaluating   {} before training", counted(count, "completion")));
        let _phase = Phase::begin(format!("sampling and scoring {}", counted(count, "completion")));
        let evaluated = match self.training.evaluate() {
            Err(TrainError::Interrupted) => return Err(Interrupted.into()),
            evaluated => evaluated?,
        };
        if let Some(evaluated) = &evaluated {
            folder.write_evaluation_before(&evaluated.groups)?;
        }
        Ok(evaluated)
    }

    fn session(
        self,
        file: TrainFile,
        tasks: Tasks,
        folder: RunFolder,
        lock: RunLock,
        before: Option<Evaluated>,
        earlier: RecordedSteps,
    ) -> Session {
        let Self { training, prompts, writer, kind, .. } = self;
        Session {
            file,
            tasks,
            folder,
            training,
            prompts,
            writer,
            kind,
            before,
            earlier,
            is_resumed: false,
            _lock: lock,
        }
    }
}
