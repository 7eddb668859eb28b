//! The runs of `grpo gpu-check`, each a process of this program.
#![expect(clippy::disallowed_methods, reason = "a tool for developers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, ensure};
use grpo_run::RunFolder;
use grpo_task::output::last_error;
use serde::Serialize;
use serde_json::{Map, Value};

use super::rate::median;

/// This program, in the folder of the examples.
pub(super) struct Grpo {
    program: PathBuf,
    folder: PathBuf,
}

impl Grpo {
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        let program =
            std::env::current_exe().context("cannot determine the path of this program")?;
        Ok(Self { program, folder: folder.to_owned() })
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(["--threads", &rayon::current_num_threads().to_string()]);
        let output = command.args(arguments).current_dir(&self.folder).output();
        output.with_context(|| format!("cannot start {}", self.program.display()))
    }

    /// Runs a command that must succeed.
    ///
    /// # Errors
    /// Returns the error message of the command if it fails.
    fn succeed(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let output = self.run(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "`grpo {}` failed: {}",
            arguments.join(" "),
            last_error(&said).unwrap_or(said.trim())
        );
        Ok(output)
    }

    /// Returns the lines of JSON that a command prints, which must succeed.
    ///
    /// # Errors
    /// Returns the error message of the command if it fails.
    pub(super) fn json_lines_of_success(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        json_lines(&self.succeed(arguments)?, arguments)
    }

    /// Returns the lines of JSON that a command prints, whether it succeeds or not.
    pub(super) fn json_lines(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let output = self.run(arguments)?;
        let values = json_lines(&output, arguments)?;
        ensure!(
            !values.is_empty(),
            "`grpo {}` failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(values)
    }
}

fn json_lines(output: &Output, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let values = values.collect::<Result<Vec<_>, _>>();
    values.with_context(|| format!("the output of `grpo {}`", arguments.join(" ")))
}

/// A kind of task.
pub(super) struct Example {
    pub(super) task: &'static str,
    /// A configuration to write, relative to the folder, if the examples have none that is small enough.
    configuration: Option<(&'static str, &'static str)>,
    /// Commands before training.
    before: &'static [&'static [&'static str]],
    /// Arguments of `grpo train`.
    train: &'static [&'static str],
    /// Metrics of the first step and their largest relative difference due to rounding.
    pub(super) compared: &'static [(&'static str, f64)],
}

/// In f32, both devices sample the same completions.
const IN_F32: &[(&str, f64)] = &[("reward", 1e-3), ("entropy", 1e-3), ("grad_norm", 1e-2)];
/// Rounding to 16 bits turns another order of sums into other tokens in some completions.
const IN_BF16: &[(&str, f64)] = &[("reward", 0.1), ("entropy", 0.02)];
/// f16 rounds to an eighth.
const IN_F16: &[(&str, f64)] = &[("reward", 0.05), ("entropy", 0.002)];

/// Ten steps from the bundled model, with an adapter.
const REPLIES: &str = r#"run = "runs/replies"
model = "data/replies/model"
seed = 42

[lora]
rank = 8
alpha = 16.0

[data]
file = "data/replies/replies.jsonl"
thinking = false

[data.replies]

[train]
steps = 10
prompts_per_step = 4
group_size = 8
micro_batch_tokens = 4096

[sampling]
temperature = 0.8
top_p = 0.9
max_new_tokens = 40

[reward]
type = "heuristic"
embedder = { type = "hashed_ngrams" }

[loss]
preset = "grpo"
kl_coef = 0.1

[optimizer]
learning_rate = 5e-4

[eval]
samples = 32
"#;

/// configs/infill/grpo.toml without the second judge and with less of everything.
const INFILLING: &str = r#"run = "runs/infilling"
model = "runs/infill/generator/model"
seed = 42

[passages]
file = "data/molecules/molecules.smi.gz"
length = 96
unit = "line"

[masking]
stages = [{ type = "random", min_ratio = 0.1, max_ratio = 0.6 }]

[train]
steps = 10
prompts_per_step = 4
group_size = 8
micro_batch_tokens = 4096

[sampling]
temperature = 0.8
top_p = 0.95

[reward]
type = "infill"
judge = "runs/infill/judge/model"
judge_weight = 0.5
recovery_weight = 0.5

[advantage]
aggregation = "normalize_then_sum"

[loss]
preset = "reinforce"
kl_coef = 0.1
kl_estimator = "exact"

[optimizer]
learning_rate = 2e-4

[eval]
samples = 64
"#;

pub(super) const EXAMPLES: [Example; 5] = [
    Example {
        task: "molecules",
        configuration: None,
        before: &[],
        train: &[
            "configs/molecules/grpo.toml",
            "--set=train.prompts_per_step=2",
            "--set=schedule.warmup_steps=2",
            "--set=eval.samples=32",
        ],
        compared: IN_F32,
    },
    Example {
        task: "molecules in bf16",
        configuration: None,
        before: &[],
        train: &[
            "configs/molecules/grpo.toml",
            "--set=train.precision=bf16",
            // Sampling and training of a GPU add in different orders, which rounding makes visible.
            "--set=sampler_check.above=correct",
            "--set=train.prompts_per_step=2",
            "--set=schedule.warmup_steps=2",
            "--set=eval.samples=32",
        ],
        compared: IN_BF16,
    },
    Example {
        task: "molecules in f16",
        configuration: None,
        before: &[],
        train: &[
            "configs/molecules/grpo.toml",
            "--set=train.precision=f16",
            "--set=sampler_check.above=correct",
            "--set=train.prompts_per_step=2",
            "--set=schedule.warmup_steps=2",
            "--set=eval.samples=32",
        ],
        compared: IN_F16,
    },
    Example {
        task: "replies",
        configuration: Some(("replies.toml", REPLIES)),
        before: &[],
        train: &["replies.toml"],
        compared: IN_F32,
    },
    Example {
        task: "infilling",
        configuration: Some(("infilling.toml", INFILLING)),
        // A few steps each, so the judges are not good, but the operations are the same.
        before: &[
            &[
                "pretrain",
                "configs/infill/generator.toml",
                "--set=masked_lm.steps=20",
                "--set=masked_lm.warmup_steps=5",
                "--set=masked_lm.eval_every=20",
            ],
            &[
                "train-judge",
                "configs/infill/judge.toml",
                "--set=judge.steps=20",
                "--set=judge.warmup_steps=5",
                "--set=judge.eval_every=20",
                "--set=gate.max_zero_p90=1.0",
                "--set=gate.min_spearman=-1.0",
            ],
        ],
        train: &["infilling.toml"],
        compared: IN_F32,
    },
];

/// A training run.
#[derive(Serialize)]
pub(super) struct Measured {
    pub(super) task: &'static str,
    pub(super) device: String,
    /// Median over the steps, excluding the first, which compiles kernels.
    pub(super) tokens_per_second: f64,
    pub(super) step_seconds: f64,
    /// Time of the whole command.
    pub(super) seconds: f64,
    /// Peak memory of the process. Memory of a GPU is not part of it.
    peak_memory_bytes: f64,
    /// Reward of each step.
    rewards: Vec<f64>,
    #[serde(skip)]
    steps: Vec<Map<String, Value>>,
}

impl Example {
    /// Writes the configuration and trains the models that the run needs, on the CPU.
    pub(super) fn prepare(&self, grpo: &Grpo) -> anyhow::Result<()> {
        if let Some((name, text)) = self.configuration {
            let path = grpo.folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        for arguments in self.before {
            grpo.succeed(&[*arguments, &["--device", "cpu"]].concat())?;
        }
        Ok(())
    }

    /// Trains for ten steps on a device. `folder` is the name of the run.
    pub(super) fn train(
        &self,
        grpo: &Grpo,
        device: &str,
        folder: &str,
    ) -> anyhow::Result<Measured> {
        let run = format!("runs/{}-{folder}", self.task.replace(' ', "-"));
        let all = ["--plain", "--set=train.steps=10", "--set=guards=[]", "--run", &run];
        let begin = Instant::now();
        grpo.succeed(&[&["--device", device, "train"], self.train, &all].concat())?;
        let seconds = begin.elapsed().as_secs_f64();
        let steps = RunFolder::open(&grpo.folder.join(&run))?.read_metrics()?;
        let values = |metric: &str| steps.iter().map(|step| number(step, metric)).collect();
        let peaks: Vec<f64> = values("memory/peak");
        Ok(Measured {
            task: self.task,
            device: device.to_owned(),
            tokens_per_second: median_after_first(values("tokens_per_second")),
            step_seconds: median_after_first(values("step_time")),
            seconds,
            peak_memory_bytes: peaks.into_iter().fold(0.0, f64::max),
            rewards: values("reward"),
            steps,
        })
    }
}

impl Measured {
    /// Returns a metric of the first step. It is NaN if there is none.
    pub(super) fn first(&self, metric: &str) -> f64 {
        self.steps.first().map_or(f64::NAN, |step| number(step, metric))
    }
}

fn number(step: &Map<String, Value>, metric: &str) -> f64 {
    step.get(metric).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn median_after_first(values: Vec<f64>) -> f64 {
    median(values.into_iter().skip(1)).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_left_out() {
        assert_eq!(median_after_first(vec![100.0, 3.0, 1.0, 2.0]), 2.0);
        assert!(median_after_first(vec![100.0]).is_nan());
        assert!(median_after_first(vec![]).is_nan());
    }
}
