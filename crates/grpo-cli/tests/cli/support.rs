//! Runs the program in folders of its own, on a small model that is trained once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use grpo_run::{CompletionRecord, RunFolder};
use snapbox::assert::DEFAULT_ACTION_ENV;
use snapbox::{Assert, IntoData};
use tempfile::TempDir;

/// A folder that the program runs in.
pub(crate) struct Place(TempDir);

/// What the program said and how it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The folder itself.
    pub(crate) fn into_folder(self) -> TempDir {
        self.0
    }

    /// A place with `train.toml` for the small model.
    pub(crate) fn for_training() -> Self {
        let place = Self::new();
        place.write("train.toml", train_toml());
        place
    }

    /// A place with `pretrain.toml` and `molecules.smi`.
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

    /// The program, to be run here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grpo"));
        command.current_dir(self.0.path()).args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().unwrap())
    }

    /// Runs to a good end.
    #[track_caller]
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments);
        assert_eq!(ended.code, Some(0), "grpo {arguments:?}: {}", ended.stderr);
        ended
    }

    /// Expects exit code 1, this message and no new or changed file.
    #[track_caller]
    pub(crate) fn refuse(&self, arguments: &[&str], expected: impl IntoData) {
        self.refuse_after("", arguments, expected);
    }

    /// As [`Self::refuse`], with `prefix` in front of the message.
    #[track_caller]
    pub(crate) fn refuse_after(&self, prefix: &str, arguments: &[&str], expected: impl IntoData) {
        let before = self.files();
        self.run(arguments).assert_refused_after(prefix, expected);
        assert_eq!(self.files(), before, "grpo {arguments:?} left something behind");
    }

    /// Names and sizes of all that is here.
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
                found.push((entry.path(), if data.is_dir() { 0 } else { data.len() }));
            }
        }
        found.sort();
        found
    }

    /// All completions that a run recorded, step by step.
    pub(crate) fn completions(&self, run: &str) -> Vec<CompletionRecord> {
        let folder = RunFolder::open(&self.path(run)).unwrap();
        let steps = folder.completion_steps().unwrap().into_iter();
        steps.flat_map(|step| folder.completions_of(step).unwrap()).collect()
    }

    /// Changes one completion of the run `run`.
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

    /// A copy of the small model in the folder `model`.
    pub(crate) fn copy_model(&self) {
        fs::create_dir(self.path("model")).unwrap();
        for file in ["config.json", "vocabulary.json", "model.safetensors"] {
            fs::copy(small_model().join(file), self.path("model").join(file)).unwrap();
        }
    }
}

impl Ended {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Expects exit code 1 and this message.
    ///
    /// `SNAPSHOTS=overwrite cargo test -p grpo-cli --test cli` rewrites every `str![]` to what the program prints.
    #[track_caller]
    pub(crate) fn assert_refused(&self, expected: impl IntoData) {
        self.assert_refused_after("", expected);
    }

    /// Expects exit code 1 and this message behind `prefix`.
    #[track_caller]
    pub(crate) fn assert_refused_after(&self, prefix: &str, expected: impl IntoData) {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        let message = self.stderr.strip_prefix("error: ").and_then(|m| m.strip_suffix('\n'));
        let message = message.and_then(|message| message.strip_prefix(prefix));
        let message = message.unwrap_or_else(|| panic!("not `error: {prefix}…`: {}", self.stderr));
        // Messages hold paths and escapes; a backslash is compared as it is.
        let assert = Assert::new().action_env(DEFAULT_ACTION_ENV).normalize_paths(false);
        assert.eq(message, expected);
    }
}

/// Folder of a model that `grpo pretrain` made of [`MOLECULES`], once for all tests.
pub(crate) fn small_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpo-cli-tests");
        let _absent = fs::remove_dir_all(&kept);
        fs::create_dir_all(&kept).unwrap();
        let place = Place::for_pretraining();
        let run = kept.join("prior");
        place.succeed(&["pretrain", "pretrain.toml", "--run", run.to_str().unwrap()]);
        run.join("model")
    })
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

/// A configuration with the small model.
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
