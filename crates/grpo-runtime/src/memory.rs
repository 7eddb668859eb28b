//! Memory usage and available memory.
#![expect(clippy::disallowed_methods, reason = "files of the system")]

/// Resident memory of a process in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Current memory usage.
    pub now: u64,
    /// Peak memory usage so far.
    pub peak: u64,
}

impl ResidentMemory {
    /// Reads the memory usage of this process from `/proc/self/status`, including memory that the
    /// allocator has not returned. Returns `None` on operating systems other than Linux.
    pub fn of_this_process() -> Option<Self> {
        Self::of_status(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    /// Parses lines like `VmRSS:     1234 kB`.
    fn of_status(status: &str) -> Option<Self> {
        let now = bytes(status, "VmRSS:")?;
        // The kernel updates the peak slightly later than the current value.
        Some(Self { now, peak: bytes(status, "VmHWM:")?.max(now) })
    }
}

/// Returns how much memory this process can use in total, including what it already uses. Returns
/// `None` if the operating system does not report it.
pub fn available_memory() -> Option<u64> {
    let own = ResidentMemory::of_this_process()?.now;
    let machine = bytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")? + own;
    // A container may have a lower limit than the machine.
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse().ok());
    let available = limit.map_or(machine, |limit: u64| limit.min(machine));
    // Set with `ulimit -v`.
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    Some(address_space(&limits).map_or(available, |limit| limit.min(available)))
}

/// Parses the limit from `Max address space  8192000000  unlimited  bytes`. Returns `None` if
/// unlimited.
fn address_space(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses a line like `VmRSS:     1234 kB` and returns the number of bytes.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_kernel_writes_it() {
        let status = "Name:\tgrpo\nVmPeak:\t  900 kB\nVmHWM:\t      40 kB\nVmRSS:\t      30 kB\n";
        let expected = ResidentMemory { now: 30 * 1024, peak: 40 * 1024 };
        assert_eq!(ResidentMemory::of_status(status), Some(expected));
        let late = status.replace("30 kB", "50 kB");
        assert_eq!(ResidentMemory::of_status(&late).unwrap().peak, 50 * 1024);
        for wrong in ["", "VmRSS: 30 kB", "VmHWM: 40 kB\nVmRSS: 30 MB"] {
            assert_eq!(ResidentMemory::of_status(wrong), None, "{wrong:?}");
        }
        assert_eq!(
            bytes("MemTotal:   10 kB\nMemAvailable:   7 kB\n", "MemAvailable:"),
            Some(7 * 1024)
        );
        let limits = "Max address space         8000         unlimited            bytes\n";
        assert_eq!(address_space(limits), Some(8000));
        assert_eq!(address_space(&limits.replace("8000", "unlimited")), None);
        if cfg!(target_os = "linux") {
            assert!(available_memory().unwrap() > 1 << 20);
        }
    }
}
