//! Runs the program in temporary folders. All tests share a small trained model.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use grpo_metrics::MetricTable;
use grpo_run::{CompletionRecord, RunFolder};
use grpo_task::task::Task;
use snapbox::assert::DEFAULT_ACTION_ENV;
use snapbox::{Assert, IntoData};
use tempfile::TempDir;

/// The tasks of the program.
pub(crate) const TASKS: &[&dyn Task] = &[
    &grpo_molecules::Molecules,
    &grpo_replies::Replies,
    &grpo_infill::Infill,
    &grpo_examples::Examples,
    &grpo_bench::Bench,
];

/// Returns the metrics that the program knows.
pub(crate) fn metric_table() -> MetricTable {
    grpo_program::tasks_of(TASKS).metrics()
}

/// A temporary folder in which the program runs.
pub(crate) struct Place(TempDir);

/// Sends a signal to a program.
#[cfg(unix)]
#[track_caller]
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Output and exit code of the program.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns the underlying folder.
    pub(crate) fn into_folder(self) -> TempDir {
        self.0
    }

    /// Creates a place with `train.toml` for the small model.
    pub(crate) fn for_training() -> Self {
        let place = Self::new();
        place.write("train.toml", train_toml());
        place
    }

    /// Creates a place with `pretrain.toml` and `molecules.smi`.
    pub(crate) fn for_pretraining() -> Self {
        let place = Self::new();
        place.write("molecules.smi", MOLECULES);
        place.write("pretrain.toml", PRETRAIN_TOML);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns a command that runs the program in this folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grpo"));
        command.current_dir(self.0.path()).args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of_command(&mut self.command(arguments))
    }

    /// Starts the program with its output captured.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until a file has at least this many lines, for two minutes at most.
    #[track_caller]
    pub(crate) fn wait_for_lines(&self, name: &str, lines: usize) {
        let count = || fs::read_to_string(self.path(name)).unwrap_or_default().lines().count();
        let begun = Instant::now();
        while count() < lines {
            assert!(begun.elapsed() < Duration::from_secs(120), "{name} has {} lines", count());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs the program and expects success.
    #[track_caller]
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "grpo {arguments:?}: {}", ended.stderr);
        ended
    }

    /// Expects exit code 1, the given message, and no new or changed files.
    #[track_caller]
    pub(crate) fn refuse(&self, arguments: &[&str], expected: impl IntoData) {
        self.refuse_after("", arguments, expected);
    }

    /// Like [`Self::refuse`], with `prefix` before the message.
    #[track_caller]
    pub(crate) fn refuse_after(&self, prefix: &str, arguments: &[&str], expected: impl IntoData) {
        let before = self.files();
        self.run(arguments).assert_refused_after(prefix, expected);
        assert_eq!(self.files(), before, "grpo {arguments:?} left something behind");
    }

    /// Lists the paths of all files with a hash of their contents.
    pub(crate) fn files(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let data = entry.metadata().unwrap();
                if data.is_dir() {
                    folders.push(entry.path());
                }
                let mut hash = DefaultHasher::new();
                if data.is_file() {
                    hash.write(&fs::read(entry.path()).unwrap());
                }
                found.push((entry.path(), hash.finish()));
            }
        }
        found.sort();
        found
    }

    /// Reads all recorded completions of a run, step by step.
    pub(crate) fn completions(&self, run: &str) -> Vec<CompletionRecord> {
        let folder = RunFolder::open(&self.path(run)).unwrap();
        let steps = folder.completion_steps().unwrap().into_iter();
        steps.flat_map(|step| folder.completions_of(step).unwrap()).collect()
    }

    /// Modifies one completion of the run `run`.
    pub(crate) fn falsify(
        &self,
        [step, prompt, sample]: [u32; 3],
        change: impl Fn(&mut CompletionRecord),
    ) {
        let folder = RunFolder::open(&self.path("run")).unwrap();
        let mut records = folder.completions_of(step.into()).unwrap();
        let is_it =
            |record: &&mut CompletionRecord| (record.prompt, record.sample) == (prompt, sample);
        change(records.iter_mut().find(is_it).unwrap());
        folder.write_completions(step.into(), &records, &["valid", "qed", "sa"]).unwrap();
    }

    /// Copies the small model to the folder `model`.
    pub(crate) fn copy_model(&self) {
        fs::create_dir(self.path("model")).unwrap();
        for file in ["config.json", "vocabulary.json", "model.safetensors"] {
            fs::copy(small_model().join(file), self.path("model").join(file)).unwrap();
        }
    }
}

/// Longest time that a program may take. One that hangs would stop all tests.
const TIME_LIMIT: Duration = Duration::from_secs(600);

impl Ended {
    /// Runs a command until it ends.
    #[track_caller]
    pub(crate) fn of_command(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::wait_for(command.spawn().unwrap())
    }

    /// Waits until a program ends. After [`TIME_LIMIT`], it is killed and the test fails.
    #[track_caller]
    pub(crate) fn wait_for(child: Child) -> Self {
        let (id, (sender, ended)) = (child.id().to_string(), mpsc::channel());
        thread::spawn(move || sender.send(child.wait_with_output()));
        match ended.recv_timeout(TIME_LIMIT) {
            Ok(output) => Self::of(output.unwrap()),
            Err(_) => {
                let _killed = Command::new("kill").args(["-KILL", &id]).status();
                panic!("a program did not end within {TIME_LIMIT:?}");
            }
        }
    }

    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Expects exit code 1 and the given message.
    ///
    /// `SNAPSHOTS=overwrite cargo test -p grpo-cli --test cli` updates all `str![]` snapshots.
    #[track_caller]
    pub(crate) fn assert_refused(&self, expected: impl IntoData) {
        self.assert_refused_after("", expected);
    }

    /// Expects exit code 1 and the given message after `prefix`.
    #[track_caller]
    pub(crate) fn assert_refused_after(&self, prefix: &str, expected: impl IntoData) {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        let message = self.stderr.strip_prefix("error: ").and_then(|m| m.strip_suffix('\n'));
        let message = message.and_then(|message| message.strip_prefix(prefix));
        let message = message.unwrap_or_else(|| panic!("not `error: {prefix}…`: {}", self.stderr));
        // Messages contain paths and escapes, so backslashes must not be normalised.
        let assert = Assert::new().action_env(DEFAULT_ACTION_ENV).normalize_paths(false);
        assert.eq(message, expected);
    }
}

/// Folder of a model trained with `grpo pretrain` on [`MOLECULES`]. Created once for all tests.
pub(crate) fn small_model() -> &'static Path {
    static MODEL: OnceLock<(PathBuf, File)> = OnceLock::new();
    let (model, _lock) = MODEL.get_or_init(|| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpo-cli-tests");
        // Another run of these tests keeps its model until it ends.
        let lock = File::create(kept.with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let _absent = fs::remove_dir_all(&kept);
        fs::create_dir_all(&kept).unwrap();
        let place = Place::for_pretraining();
        let run = kept.join("prior");
        place.succeed(&["pretrain", "pretrain.toml", "--run", run.to_str().unwrap()]);
        (run.join("model"), lock)
    });
    model
}

pub(crate) const PRETRAIN_TOML: &str = r#"run = "prior"
seed = 1

[data]
file = "molecules.smi"
validation_fraction = 0.1
min_molecules = 20

[model]
n_layer = 1
n_head = 2
n_embd = 16
block_size = 24

[pretrain]
epochs = 30
batch_size = 8

[pretrain.optimizer]
learning_rate = 1e-2
"#;

/// Returns a configuration for the small model.
pub(crate) fn train_toml() -> String {
    format!(
        r#"run = "run"
model = "{}"
seed = 1

[train]
steps = 3
prompts_per_step = 2
group_size = 4
micro_batch_tokens = 3

[sampling]
max_new_tokens = 20

[reward]
type = "molecule"
qed = 0.7
sa = 0.3

[loss]
kl_coef = 0.05

[optimizer]
learning_rate = 1e-2

[eval]
samples = 20

[save]
every = 2
completions_every = 1
"#,
        small_model().display()
    )
}

pub(crate) const MOLECULES: &str = "\
C methane
CC
CCC
CCCC
CCCCC
CCCCCC
CO
CCO
CCCO
CCCCO
CCCCCO
CN
CCN
CCCN
CCCCN
CCCCCN
C=C
C=CC
C=CCC
CC=CC
C#C
C#CC
CC#CC
C#N
CC#N
CCC#N
C=O
CC=O
CCC=O
CC(C)=O
CC(=O)C
CCC(=O)C
CC(=O)O
CCC(=O)O
CCCC(=O)O
CC(=O)N
CCC(=O)N
CCCC(=O)N
COC
CCOC
CCOCC
CNC
CCNC
CCNCC
CN(C)C
CC(C)C
CC(C)CC
CC(C)O
CC(C)N
CC(C)(C)C
CC(C)(C)O
C1CC1
C1CCC1
C1CCCC1
C1CCCCC1
OCCO
NCCN
NCCO
OCC=O
NCC=O
NCC(=O)O
OCC(=O)O
CNCC=O
COCC=O
";
