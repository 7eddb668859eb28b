//! PyTorch, transformers, TRL and vLLM, measured on the same device by bench.py.
#![expect(clippy::disallowed_methods, reason = "a tool for developers")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, ensure};
use serde::Serialize;
use serde_json::Value;

use super::rate::{RateOrReason, Repetition, first_line, median_rate, read};

/// Measures the cases of `grpo bench` with other programs.
const PROGRAM: &str = include_str!("../../peers/bench.py");

/// Prints the versions of the packages that are installed, and of the device given as the argument. Ends
/// with an error if PyTorch cannot use it.
const VERSIONS: &str = "
import importlib.metadata, json, platform, sys
found = {'Python': platform.python_version()}
for name in ['torch', 'transformers', 'trl', 'datasets', 'pandas', 'peft', 'vllm']:
    try: found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: pass
if 'torch' in found:
    import torch
    torch.zeros(1, device=sys.argv[1])
    if sys.argv[1] != 'cpu': found['device'] = torch.cuda.get_device_name(0)
print(json.dumps(found))
";

/// Seconds after which bench.py ends.
const TIME_LIMIT: u32 = 900;

/// Packages that an interpreter must have. vLLM is optional.
const NEEDED: [&str; 6] = ["torch", "transformers", "trl", "datasets", "pandas", "peft"];

/// A Python interpreter with other programs.
pub(super) struct Peers {
    python: PathBuf,
    folder: PathBuf,
    device: TorchDevice,
    /// Versions by package, and PyTorch's name of the device.
    pub(super) versions: BTreeMap<String, String>,
}

/// A device of PyTorch.
#[derive(Debug, PartialEq)]
struct TorchDevice {
    name: &'static str,
    /// Value of `CUDA_VISIBLE_DEVICES`. With one visible GPU, TRL and vLLM cannot take another one.
    visible: String,
}

/// What another program achieves in a case.
#[derive(Debug, Serialize)]
pub(super) struct Peer {
    /// `PyTorch`, `transformers`, `TRL` or `vLLM`.
    pub(super) name: &'static str,
    /// Median over the repetitions, or the reason why there is none.
    #[serde(flatten, with = "RateOrReason")]
    pub(super) per_second: Result<f64, String>,
    /// Our rate divided by its rate.
    pub(super) ratio: Option<f64>,
}

impl Peers {
    /// Finds the packages of an interpreter. `device` is our name of the device.
    ///
    /// # Errors
    /// Returns an error if it cannot be started, lacks a package, or cannot use the device.
    pub(super) fn of(python: &Path, device: &str, folder: &Path) -> anyhow::Result<Self> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let device = TorchDevice::of(device, visible.as_deref())?;
        // A name without a folder is found in PATH. Other paths are relative to the current folder.
        let python = match python.components().count() {
            1 => python.to_owned(),
            _ => std::path::absolute(python).context("cannot determine the current folder")?,
        };
        let mut command = device.command(&python);
        let output = command.args(["-c", VERSIONS, device.name]).output();
        let output = output.with_context(|| format!("--python {}", python.display()))?;
        let versions = serde_json::from_slice(&output.stdout);
        let versions: BTreeMap<String, String> = versions.map_err(|_| {
            anyhow!(
                "--python {}: expected a Python interpreter with a PyTorch for {}; it printed: {}",
                python.display(),
                device.name,
                last_line(&output.stderr)
            )
        })?;
        let missing: Vec<&str> =
            NEEDED.into_iter().filter(|name| !versions.contains_key(*name)).collect();
        ensure!(
            missing.is_empty(),
            "--python {}: these packages are not installed: {} (`pip install` them)",
            python.display(),
            missing.join(", ")
        );
        Ok(Self { python, folder: folder.to_owned(), device, versions })
    }

    /// Writes the program that measures.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let path = self.folder.join("bench.py");
        fs::write(&path, PROGRAM).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Measures a case with each program that has it. `ours` is our own rate.
    pub(super) fn measure(&self, case: &str, ours: Option<f64>) -> Vec<Peer> {
        let name = match case {
            _ if case.contains("step-") => "TRL",
            _ if case.starts_with("sampling-") || case.starts_with("scoring-") => "transformers",
            _ => "PyTorch",
        };
        let mut engines = vec![(name, "transformers")];
        if self.versions.contains_key("vllm") && cases_of_vllm().contains(&case) {
            engines.push(("vLLM", "vllm"));
        }
        let measured = engines.into_iter().map(|(name, engine)| {
            let per_second =
                self.rate(case, engine).map_err(|error| first_line(&error.to_string()));
            let ratio = ours.zip(per_second.as_ref().ok()).map(|(ours, theirs)| ours / theirs);
            Peer { name, per_second, ratio }
        });
        measured.collect()
    }

    /// Returns the rate of a case.
    ///
    /// # Errors
    /// Returns the reason why it could not be measured.
    fn rate(&self, case: &str, engine: &str) -> anyhow::Result<f64> {
        let threads = rayon::current_num_threads().to_string();
        let mut command = self.device.command(&self.python);
        command
            .args(["bench.py", "--case", case, "--engine", engine, "--device", self.device.name])
            .args(["--threads", &threads, "--repeat", "3"])
            .env("HF_HUB_OFFLINE", "1")
            .env("OMP_NUM_THREADS", &threads)
            .env("BENCH_TIME_LIMIT", TIME_LIMIT.to_string())
            .current_dir(&self.folder);
        let output = command.output()?;
        let status = output.status;
        ensure!(status.success(), "{status}; it printed: {}", last_line(&output.stderr));
        rate_of(&output.stdout)
    }
}

impl TorchDevice {
    /// Returns PyTorch's device for ours, of those that `visible`, the value of
    /// `CUDA_VISIBLE_DEVICES`, leaves.
    fn of(device: &str, visible: Option<&str>) -> anyhow::Result<Self> {
        if device == "cpu" {
            return Ok(Self { name: "cpu", visible: String::new() });
        }
        let number = device.strip_prefix("cuda:").with_context(|| {
            format!("--python compares on cuda or cpu, because PyTorch numbers GPUs differently from {device}; use --device cpu, or a program that was built for cuda")
        })?;
        let names = visible.map(|visible| visible.split(',').collect::<Vec<&str>>());
        let index: usize = number.parse()?;
        let visible = match &names {
            Some(names) => {
                names.get(index).with_context(|| format!("CUDA_VISIBLE_DEVICES hides {device}"))?
            }
            None => number,
        };
        Ok(Self { name: "cuda:0", visible: visible.to_owned() })
    }

    fn command(&self, python: &Path) -> Command {
        let mut command = Command::new(python);
        command.env("CUDA_VISIBLE_DEVICES", &self.visible);
        command
    }
}

/// Returns the median of the repetitions that bench.py has printed.
fn rate_of(stdout: &[u8]) -> anyhow::Result<f64> {
    let lines = serde_json::Deserializer::from_slice(stdout).into_iter();
    let lines = lines.collect::<Result<Vec<Value>, _>>().context("bench.py did not print JSON")?;
    // The first line says that the case is ready.
    let repetitions = lines.into_iter().skip(1).map(read);
    let repetitions = repetitions.collect::<anyhow::Result<Vec<Repetition>>>()?;
    median_rate(&repetitions).context("bench.py measured nothing")
}

/// Returns the cases that bench.py has for vLLM.
fn cases_of_vllm() -> Vec<&'static str> {
    let table = PROGRAM.split_once("\nVLLM_CASES = {").and_then(|(_, rest)| rest.split_once("\n}"));
    let (table, _) = table.expect("bench.py has the table");
    table.lines().filter_map(|line| line.split('"').nth(1)).collect()
}

/// Returns the last line of a traceback, which states the problem.
fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    last.unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vllm_samples_with_the_shapes_of_qwen() {
        assert_eq!(
            cases_of_vllm(),
            ["sampling-large", "sampling-large-bf16", "sampling-extra-large"]
        );
    }

    #[test]
    fn pytorch_sees_only_our_gpu() {
        let of = |device: &str, visible| {
            TorchDevice::of(device, visible).map(|device| (device.name, device.visible))
        };
        let check = |device: &str, visible, name, expect: &str| {
            assert_eq!(of(device, visible).unwrap(), (name, expect.to_owned()), "{device}");
        };
        check("cpu", None, "cpu", "");
        check("cuda:0", None, "cuda:0", "0");
        check("cuda:2", None, "cuda:0", "2");
        check("cuda:1", Some("3,5"), "cuda:0", "5");
        let error = of("cuda:2", Some("3,5")).unwrap_err().to_string();
        assert_eq!(error, "CUDA_VISIBLE_DEVICES hides cuda:2");
        assert!(
            of("wgpu:0", None).unwrap_err().to_string().starts_with("--python compares on cuda")
        );
    }

    #[test]
    fn the_first_line_is_no_repetition() {
        let lines = r#"{"case": "c", "threads": 1}
{"seconds": 2.0, "work": 8, "peak_bytes": 1}
{"seconds": 4.0, "work": 8}
{"seconds": 1.0, "work": 8}
"#;
        assert_eq!(rate_of(lines.as_bytes()).unwrap(), 4.0);
        let reason = |stdout: &str| rate_of(stdout.as_bytes()).unwrap_err().to_string();
        assert_eq!(reason("INFO: started\n"), "bench.py did not print JSON");
        assert_eq!(reason("{}\n"), "bench.py measured nothing");
    }

    #[test]
    fn the_last_line_is_the_reason() {
        assert_eq!(
            last_line(b"Traceback\nModuleNotFoundError: trl\n\n"),
            "ModuleNotFoundError: trl"
        );
        assert_eq!(last_line(b""), "nothing");
    }

    #[test]
    fn a_program_that_is_killed_gives_a_reason() {
        // A shell reads bench.py here.
        let folder = tempfile::tempdir().unwrap();
        let program = "echo $BENCH_TIME_LIMIT s >&2; kill -KILL $$";
        fs::write(folder.path().join("bench.py"), program).unwrap();
        let peers = Peers {
            python: "sh".into(),
            folder: folder.path().to_owned(),
            device: TorchDevice::of("cpu", None).unwrap(),
            versions: BTreeMap::new(),
        };
        let [peer] = <[Peer; 1]>::try_from(peers.measure("step-small", Some(1.0))).unwrap();
        assert_eq!((peer.name, peer.ratio), ("TRL", None));
        assert_eq!(peer.per_second.unwrap_err(), "signal: 9 (SIGKILL); it printed: 900 s");
    }

    #[test]
    fn an_interpreter_must_start_and_have_pytorch() {
        let error = Peers::of(Path::new("no/python"), "cpu", Path::new(".")).err().unwrap();
        assert!(format!("{error:#}").contains("no/python: No such file"), "{error:#}");
        // Not an interpreter.
        let error = Peers::of(Path::new("false"), "cpu", Path::new(".")).err().unwrap();
        assert!(format!("{error:#}").ends_with("it printed: nothing"), "{error:#}");
    }
}
