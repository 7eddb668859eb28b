//! Memory of this process, as Linux counts it.

/// Most bytes that were resident at once since the process began.
pub(crate) fn peak() -> Option<u64> {
    field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// Bytes that are resident now.
pub(crate) fn resident() -> Option<u64> {
    field(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// A line such as `VmHWM:     1234 kB`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_status() {
        let status = "Name:\tgrpo\nVmHWMx:\t1 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 7 kB\n";
        assert_eq!(field(status, "VmHWM"), Some(2048 * 1024));
        assert_eq!(field(status, "VmRSS"), Some(7 * 1024));
        assert_eq!(field(status, "VmSwap"), None);
        assert_eq!(field("VmHWM:\tmany\n", "VmHWM"), None);
    }

    /// Other tests run in this process, so that only lower bounds are sure.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_remembers_what_was_held() {
        const BYTES: usize = 256 << 20;
        let held = vec![1_u8; BYTES];
        // Counted, so that the pages are really there.
        assert_eq!(held.iter().filter(|byte| **byte == 1).count(), BYTES);
        assert!(resident().unwrap() >= BYTES as u64);
        drop(held);
        assert!(peak().unwrap() >= BYTES as u64);
    }
}
