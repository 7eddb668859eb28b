//! Signals that a process ignores.
#![expect(clippy::disallowed_methods, reason = "files of the system")]

/// Returns whether the process ignores a signal, e.g. SIGHUP under `nohup`. `false` where the system does
/// not say.
pub fn ignores_signal(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, signal)
}

/// Looks for a signal in a hexadecimal mask, whose lowest bit is signal 1.
fn is_in_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal - 1).ok();
    bit.and_then(|bit| mask.checked_shr(bit)).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_the_system() {
        let status = "Name:\tgrpo\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert!(is_in_mask(status, 1) && is_in_mask(status, 13));
        assert!(![0, 2, 15, 64, 99].iter().any(|signal| is_in_mask(status, *signal)));
        assert!(!is_in_mask("", 1));
    }
}
