//! Information about the machine and its load during a measurement.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::Serialize;

use super::Isa;

/// System information. Unavailable fields are empty or 0.
#[derive(Debug, Serialize)]
pub(super) struct Surroundings {
    commit: String,
    /// Whether the working tree has uncommitted changes.
    changed: bool,
    date: String,
    processor: String,
    /// The widest vectors that the programs may use, such as `AVX2`.
    instruction_set: &'static str,
    cores: usize,
    memory_bytes: u64,
}

impl Surroundings {
    /// Reads the current values. With `isa`, programs don't use wider vectors.
    pub(super) fn read(root: &Path, isa: Option<Isa>) -> Self {
        let git =
            |arguments: &[&str]| printed(Command::new("git").args(arguments).current_dir(root));
        let cpu = read("/proc/cpuinfo");
        let memory = read("/proc/meminfo");
        let kibibytes = value(&memory, "MemTotal").and_then(|text| {
            text.strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok())
        });
        Self {
            commit: git(&["rev-parse", "HEAD"]),
            changed: !git(&["status", "--porcelain"]).is_empty(),
            date: printed(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
            processor: value(&cpu, "model name").unwrap_or_default().to_owned(),
            instruction_set: isa.map_or_else(
                || instruction_set(value(&cpu, "flags").unwrap_or_default()),
                Isa::name,
            ),
            cores: cores(),
            memory_bytes: kibibytes.unwrap_or(0) * 1024,
        }
    }

    /// Formats the header line of the report.
    pub(super) fn line(&self) -> String {
        let commit = self.commit.get(..10).unwrap_or("no commit");
        let changed = if self.changed { " with changes" } else { "" };
        let Self { date, processor, instruction_set, cores, .. } = self;
        let vectors = match instruction_set {
            &"" => String::new(),
            name => format!(" with {name}"),
        };
        format!("{commit}{changed}, {date}, {cores} cores of {processor}{vectors}")
    }
}

/// Returns the widest vectors among the flags in `/proc/cpuinfo`. On other systems and
/// architectures, the result is empty.
fn instruction_set(flags: &str) -> &'static str {
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    let known = [("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sse2", "SSE2")];
    known.into_iter().find(|(flag, _)| has(flag)).map_or("", |(_, name)| name)
}

/// Returns the number of available cores.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Returns the load average of the last minute. If it exceeds our thread count, other processes
/// were running.
pub(super) fn load() -> Option<f64> {
    read("/proc/loadavg").split_whitespace().next()?.parse().ok()
}

/// CPU time in hundredths of a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    at: Instant,
    all: u64,
    ours: u64,
}

impl Busy {
    /// Returns the current CPU times, or `None` if they are unavailable. `ours` contains the
    /// process IDs to count as ours.
    pub(super) fn now(ours: &[u32]) -> Option<Self> {
        let all = all_ticks(read("/proc/stat").lines().next()?)?;
        let of = |id: &u32| process_ticks(&read(&format!("/proc/{id}/stat")));
        let ours = ours.iter().map(of).sum::<Option<u64>>()?;
        Some(Self { at: Instant::now(), all, ours })
    }

    /// Returns the number of cores that other processes kept busy between `self` and `later`.
    pub(super) fn others_until(self, later: Self) -> f64 {
        let all = later.all.saturating_sub(self.all);
        let others = all.saturating_sub(later.ours.saturating_sub(self.ours));
        others as f64 / TICKS / later.at.duration_since(self.at).as_secs_f64()
    }
}

/// Clock ticks per second and core on Linux.
const TICKS: f64 = 100.0;

/// Parses the aggregate `cpu` line of `/proc/stat`. The fields are user, nice, system, idle,
/// iowait, irq, softirq and steal. User time includes guest time.
fn all_ticks(line: &str) -> Option<u64> {
    let numbers = line.strip_prefix("cpu ")?.split_whitespace().take(8);
    let numbers = numbers.map(|number| number.parse().ok()).collect::<Option<Vec<u64>>>()?;
    Some(numbers.iter().sum::<u64>() - numbers.get(3)? - numbers.get(4)?)
}

/// Parses the user and system time of a process (fields 14 and 15 of `/proc/PID/stat`). The process
/// name in parentheses may contain spaces.
fn process_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut number = || fields.next()?.parse::<u64>().ok();
    Some(number()? + number()?)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the text after the first occurrence of `name:`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn printed(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widest_vectors_are_named() {
        assert_eq!(instruction_set("fpu sse2 avx2 avx512f avx512vl"), "AVX-512");
        assert_eq!(instruction_set("fpu sse2 avx avx2 fma"), "AVX2");
        assert_eq!(instruction_set(""), "");
    }

    #[test]
    fn ticks_are_read() {
        assert_eq!(all_ticks("cpu  1 2 4 1000 2000 8 16 32 64 0"), Some(63));
        assert_eq!(all_ticks("cpu0 1 2 4 1000 2000 8 16 32 0 0"), None);
        let stat = "77 (a b) c) R 1 77 77 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 1 0 9";
        assert_eq!(process_ticks(stat), Some(281));
        assert_eq!(process_ticks(""), None);
    }

    #[test]
    fn other_programs_are_what_is_not_ours() {
        let at = Instant::now();
        let before = Busy { at, all: 1000, ours: 100 };
        let after = Busy { at: at + std::time::Duration::from_secs(2), all: 1500, ours: 400 };
        assert_eq!(before.others_until(after), 1.0);
    }

    #[test]
    fn values_by_name() {
        let text = "processor\t: 0\nmodel name\t: One CPU: fast\nmodel name\t: Another\n";
        assert_eq!(value(text, "model name"), Some("One CPU: fast"));
        assert_eq!(value(text, "model"), None);
    }
}
