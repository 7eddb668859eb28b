//! Child processes with nonblocking pipes. When a process is dropped, its process group is killed,
//! and on Linux also all descendants that left the group.

use std::fmt::Display;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use grpo_data::without_os_code;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::carrier::{Connection, Fault};
use super::output::Output;
use super::protocol::excerpt;

/// Maximum size of a reply in bytes.
const MOST: usize = 16 << 20;
/// Number of bytes of standard error output quoted in error messages.
const TAIL: usize = 2000;
/// Time that a process has to exit after its input is closed or after it closes its output.
const GRACE: Duration = Duration::from_millis(500);
/// Time that the guard has to kill all processes.
const GUARD_LIMIT: Duration = Duration::from_secs(5);

/// Environment variable that identifies the descendants of a reward program.
const MARK: &str = "GRPO_REWARD_PROGRAM";
/// Waits until its input is closed. Then kills the process group `$1` and all processes with the
/// mark `$2`. Repeated because a process can fork while the others are killed.
const GUARD: &str = r#"read -r _
kill -KILL "-$1"
for round in 1 2 3; do
    found=$(grep -lsF "$2" /proc/[0-9]*/environ)
    [ -n "$found" ] || break
    for file in $found; do
        pid=${file#/proc/}
        kill -KILL "${pid%/environ}"
    done
done"#;

/// When a program writes its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// The program writes a line for each line of input.
    ByLine,
    /// The program reads its entire input and then writes its reply before it exits.
    AtItsEnd,
}

struct Process {
    name: String,
    answers: Answers,
    child: Child,
    /// Kills the processes when its input is closed, which also happens if this program is killed.
    guard: Option<Child>,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    unread: Vec<u8>,
    tail: Vec<u8>,
    output: Arc<Output>,
    has_failed: bool,
    is_out_of_step: bool,
}

/// Starts a program. `name` is used in error messages.
pub(super) fn start(
    command: &[String],
    name: &str,
    answers: Answers,
    output: &Arc<Output>,
) -> Result<Box<dyn Connection>, Fault> {
    let fault = |error: &dyn Display| {
        let error = error.to_string();
        Fault::Other(format!("cannot start {name}: {}", without_os_code(&error)))
    };
    let (program, arguments) = command.split_first().expect("the command is not empty");
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{number}.", std::process::id());
    let mut child = Command::new(program)
        .args(arguments)
        .env(MARK, &mark)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| fault(&error))?;
    let guard = Command::new("sh")
        .args(["-c", GUARD, "grpo-reward-guard"])
        .args([child.id().to_string(), format!("{MARK}={mark}")])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok();
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let stdout = child.stdout.take().expect("it is piped");
    let process = Process {
        name: name.to_owned(),
        answers,
        child,
        guard,
        stdin,
        stdout,
        stderr,
        unread: Vec::new(),
        tail: Vec::new(),
        output: Arc::clone(output),
        has_failed: false,
        is_out_of_step: false,
    };
    process.set_nonblocking().map_err(|error| fault(&error))?;
    Ok(Box::new(process))
}

impl Connection for Process {
    fn exchange(
        &mut self,
        request: &[u8],
        limit: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Vec<u8>, Fault> {
        let reply = self.answer(request, limit, cancelled);
        self.has_failed |= reply.is_err();
        reply
    }

    fn is_reusable(&self) -> bool {
        self.answers == Answers::ByLine && !self.is_out_of_step
    }
}

impl Process {
    fn set_nonblocking(&self) -> nix::Result<()> {
        let stdin = self.stdin.as_ref().map(AsFd::as_fd);
        let stderr = self.stderr.as_ref().map(AsFd::as_fd);
        for fd in [stdin, stderr, Some(self.stdout.as_fd())].into_iter().flatten() {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        request: &[u8],
        limit: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Vec<u8>, Fault> {
        let end = Instant::now() + limit;
        let mut unsent = request;
        loop {
            if let Some(reply) = self.line() {
                // The program replied before it read the entire request. Its id shows that this
                // isn't a valid reply. The connection cannot be reused, because the rest of the
                // request would precede the next one.
                self.is_out_of_step = !unsent.is_empty();
                return Ok(reply);
            }
            if self.unread.len() > MOST {
                let excerpt = excerpt(&self.unread);
                return Err(self.fault(&format!("wrote more than 16 MiB, starting with {excerpt}")));
            }
            if self.answers == Answers::AtItsEnd && unsent.is_empty() {
                self.stdin = None;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.read_stderr();
                return Err(Fault::Late(self.sentence(&format!("did not reply within {limit:?} (reward.time_limit times the completions of the request)"))));
            }
            if cancelled.load(Ordering::Relaxed) {
                return Err(Fault::cancelled());
            }
            self.wait(!unsent.is_empty(), left);
            self.read_stderr();
            if !unsent.is_empty() {
                unsent = self.send(unsent)?;
            }
            if self.read_stdout()? {
                let last = self.line();
                return last.map_or_else(|| self.ended(unsent.is_empty()), Ok);
            }
        }
    }

    /// Removes the first complete line from the buffer and returns it.
    fn line(&mut self) -> Option<Vec<u8>> {
        if self.answers == Answers::AtItsEnd {
            return None;
        }
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.unread.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Waits until a pipe is ready, for at most a tenth of a second.
    fn wait(&self, is_writing: bool, left: Duration) {
        let mut fds: Vec<PollFd> = Vec::new();
        fds.push(PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN));
        if let Some(stderr) = &self.stderr {
            fds.push(PollFd::new(stderr.as_fd(), PollFlags::POLLIN));
        }
        if let (true, Some(stdin)) = (is_writing, &self.stdin) {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
        }
        let milliseconds = left.as_millis().clamp(1, 100) as u16;
        // A signal can interrupt the wait, which is harmless.
        let _ready = poll(&mut fds, PollTimeout::from(milliseconds));
    }

    /// Writes as much as the pipe accepts and returns the remaining bytes.
    fn send<'a>(&mut self, unsent: &'a [u8]) -> Result<&'a [u8], Fault> {
        let Some(stdin) = &mut self.stdin else { return Ok(&[]) };
        match stdin.write(unsent) {
            Ok(count) => Ok(&unsent[count..]),
            Err(error) if is_transient(&error) => Ok(unsent),
            // A program that does not need its input may already have replied. A program that
            // crashed is diagnosed later, when its output ends.
            Err(_) => {
                self.stdin = None;
                Ok(&[])
            }
        }
    }

    /// Reads all available output. Returns `true` at the end of the output.
    fn read_stdout(&mut self) -> Result<bool, Fault> {
        let mut buffer = [0; 1 << 16];
        while self.unread.len() <= MOST {
            match self.stdout.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => self.unread.extend(&buffer[..count]),
                Err(error) if is_transient(&error) => return Ok(false),
                Err(error) => {
                    let error = error.to_string();
                    return Err(self.fault(&format!("cannot be read: {}", without_os_code(&error))));
                }
            }
        }
        Ok(false)
    }

    /// Reads the standard error output. The number of reads is limited, so a program with endless
    /// output cannot block the caller.
    fn read_stderr(&mut self) {
        let mut buffer = [0; 1 << 16];
        for _ in 0..8 {
            let Some(stderr) = &mut self.stderr else { return };
            match stderr.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => {
                    self.output.write(&buffer[..count]);
                    self.tail.extend(&buffer[..count]);
                    let surplus = self.tail.len().saturating_sub(TAIL);
                    self.tail.drain(..surplus);
                }
                Err(_) => return,
            }
        }
    }

    /// Returns the reply or the error of a program that has closed its output.
    fn ended(&mut self, is_sent: bool) -> Result<Vec<u8>, Fault> {
        let status = self.wait_for_end();
        self.read_stderr();
        match (self.answers, status) {
            (Answers::AtItsEnd, Some(status)) if status.success() && is_sent => {
                Ok(std::mem::take(&mut self.unread))
            }
            (_, Some(status)) => {
                let reply = match self.unread.is_empty() {
                    true => String::new(),
                    false => format!(" after writing {}", excerpt(&self.unread)),
                };
                Err(Fault::Died(
                    self.sentence(&format!("exited ({status}) without a reply{reply}")),
                ))
            }
            (_, None) => Err(Fault::Died(self.sentence("closed its standard output"))),
        }
    }

    fn wait_for_end(&mut self) -> Option<ExitStatus> {
        wait_for(&mut self.child, GRACE)
    }

    fn fault(&mut self, what: &str) -> Fault {
        self.read_stderr();
        Fault::Other(self.sentence(what))
    }

    fn sentence(&self, what: &str) -> String {
        let tail = String::from_utf8_lossy(&self.tail);
        match tail.trim() {
            "" => format!("{} {what}", self.name),
            tail => format!("{} {what}; last lines of its standard error:\n{tail}", self.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stdin = None;
        // Closing the input asks the program to exit.
        if !self.has_failed && matches!(self.child.try_wait(), Ok(None)) {
            let _status = self.wait_for_end();
            self.read_stderr();
        }
        // Child processes are in the same process group, which can outlive the program.
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _gone = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        // Stop the guard before the child is reaped, because afterwards its process id could be
        // reused.
        if let Some(guard) = &mut self.guard {
            drop(guard.stdin.take());
            let _ended = wait_for(guard, GUARD_LIMIT);
            let _gone = guard.kill();
            let _status = guard.wait();
        }
        let _status = self.child.wait();
    }
}

/// Waits until a process has exited, for at most `limit`.
fn wait_for(process: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        match process.try_wait() {
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
}

fn is_transient(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
