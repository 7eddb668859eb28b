//! A child process that measures a case repeatedly.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Isa;
use crate::process;

/// Pause before each repetition. It gives busy-waiting threads of the other program time to go to
/// sleep.
const PAUSE: Duration = Duration::from_millis(100);

/// A running `grpo bench --serve`, or the Python program that implements the same protocol.
pub(super) struct Worker {
    name: String,
    child: Child,
    /// `None` after the worker has been asked to exit.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// First line of output, printed after the warm-up.
#[derive(Deserialize)]
struct Ready {
    case: String,
    threads: usize,
    /// The widest vectors that the program may use.
    instruction_set: String,
}

/// Result of a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Elapsed time in seconds.
    pub(super) seconds: f64,
    /// Amount of work, in the unit of the case.
    pub(super) work: f64,
    /// Number of floating-point operations that the model's matrix products need for this work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flops: Option<f64>,
    /// Peak resident memory so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) peak_bytes: Option<u64>,
    /// Additional measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Value>,
}

/// Returns the command `grpo bench`, given the command that runs the program. It computes on the CPU, like
/// the programs that it is compared with.
pub(super) fn ours(mut program: Command) -> Command {
    program.args(["bench", "--device", "cpu"]);
    program
}

/// Returns what `grpo bench` lists with the given option, one JSON line each.
pub(super) fn listed<T: DeserializeOwned>(program: &Path, option: &str) -> Result<Vec<T>> {
    let output = process::output_of(ours(Command::new(program)).arg(option))?;
    let text = String::from_utf8(output)
        .with_context(|| format!("`grpo bench {option}` did not print UTF-8"))?;
    let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    lines.with_context(|| format!("cannot parse the output of `grpo bench {option}`"))
}

impl Answer {
    /// Returns the amount of work per second.
    pub(super) fn rate(&self) -> f64 {
        self.work / self.seconds
    }
}

impl Worker {
    /// Starts `command` with `case` and waits until it has warmed up. With `isa`, the command must limit
    /// the program to this instruction set.
    pub(super) fn start(
        mut command: Command,
        case: &str,
        threads: usize,
        isa: Option<Isa>,
    ) -> Result<Self> {
        command.args(["--case", case, "--serve", "--threads", &threads.to_string()]);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{program}`"))?;
        let mut worker = Self {
            name: format!("`{program}` on the case {case}"),
            requests: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().expect("stdout is piped")),
            child,
        };
        let ready: Ready = worker.line()?;
        if ready.case != case || ready.threads != threads {
            bail!("{} measures {} on {} threads", worker.name, ready.case, ready.threads);
        }
        if let Some(isa) = isa.map(Isa::name)
            && ready.instruction_set != isa
        {
            bail!("{} uses {} instead of {isa}", worker.name, ready.instruction_set);
        }
        Ok(worker)
    }

    /// Returns the IDs of the process and of its children. A debugger runs the program as its child.
    pub(super) fn ids(&self) -> Vec<u32> {
        let id = self.child.id();
        let children = format!("/proc/{id}/task/{id}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        std::iter::once(id).chain(children).collect()
    }

    /// Runs a repetition after a short pause.
    pub(super) fn run(&mut self) -> Result<Answer> {
        thread::sleep(PAUSE);
        let requests = self.requests.as_mut().expect("the worker has not been stopped");
        // If the process has died, the missing answer gives a better error.
        let _broken = requests.write_all(b"run\n").and_then(|()| requests.flush());
        let answer: Answer = self.line()?;
        if !(answer.seconds > 0.0 && answer.work > 0.0) {
            bail!("{} reported {} s for {} units of work", self.name, answer.seconds, answer.work);
        }
        Ok(answer)
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line).with_context(|| format!("{}: no answer", self.name))?;
        if line.is_empty() {
            // The process has printed its own error message to the terminal.
            bail!("{} exited without an answer ({})", self.name, self.child.wait()?);
        }
        serde_json::from_str(&line)
            .with_context(|| format!("{} answered `{}`", self.name, line.trim_end()))
    }
}

impl Drop for Worker {
    /// Asks the process to exit and waits for it, so that it doesn't disturb the next case.
    fn drop(&mut self) {
        self.requests = None;
        let _status = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Starts a shell script as a worker, with the arguments of [`Worker::start`].
    fn script(script: &str) -> Result<Worker> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        Worker::start(command, "one", 2, Some(Isa::Avx2))
    }

    const READY: &str = r#"echo "{\"case\":\"$2\",\"threads\":$5,\"instruction_set\":\"AVX2\"}";"#;

    #[test]
    fn each_line_is_a_repetition() {
        let answers =
            format!(r#"{READY} while read line; do echo '{{"seconds":2,"work":8}}'; done"#);
        let mut worker = script(&answers).unwrap();
        for _ in 0..3 {
            assert_eq!(worker.run().unwrap().rate(), 4.0);
        }
    }

    #[test]
    fn reports_errors() {
        let check = |text: &str, expect: &str| {
            let error = script(text).and_then(|mut worker| worker.run()).unwrap_err();
            assert_eq!(error.to_string(), expect);
        };
        let ended = "`sh` on the case one exited without an answer (exit status: 3)";
        check("exit 3", ended);
        check(&format!("{READY} read line; exit 3"), ended);
        check(&format!("{READY} read line; echo no"), "`sh` on the case one answered `no`");
        check(
            r#"echo '{"case":"one","threads":4,"instruction_set":"AVX2"}'"#,
            "`sh` on the case one measures one on 4 threads",
        );
        check(
            r#"echo '{"case":"one","threads":2,"instruction_set":"AVX-512"}'"#,
            "`sh` on the case one uses AVX-512 instead of AVX2",
        );
        check(
            &format!(r#"{READY} read line; echo '{{"seconds":0,"work":1}}'"#),
            "`sh` on the case one reported 0 s for 1 units of work",
        );
    }
}
