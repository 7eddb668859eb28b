//! How much memory the process holds.

/// Memory of this process that is in RAM, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Now.
    pub now: u64,
    /// At most so far.
    pub peak: u64,
}

impl ResidentMemory {
    /// As the system counts it: all pages, those that the allocator keeps for later among them. `None` where the system
    /// is not Linux, which alone says it in `/proc/self/status`.
    pub fn of_this_process() -> Option<Self> {
        Self::of_status(&std::fs::read_to_string("/proc/self/status").ok()?)
    }

    /// From lines such as `VmRSS:     1234 kB`.
    fn of_status(status: &str) -> Option<Self> {
        let bytes = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.strip_suffix("kB")?.trim().parse().ok()?;
            Some(kibibytes * 1024)
        };
        let now = bytes("VmRSS:")?;
        // The kernel notes the peak a little later than what is there.
        Some(Self { now, peak: bytes("VmHWM:")?.max(now) })
    }
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
    }
}
