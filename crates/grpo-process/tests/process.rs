//! Tests through the public interface: in a process of their own, as options of the allocator and the pool of threads
//! are set once in each.

use grpo_process::{ResidentMemory, ThreadsError, compute};

#[test]
fn a_program_runs_in_a_pool_of_its_threads() {
    let error = compute(Some(0), || ()).unwrap_err();
    assert_eq!(error.to_string(), "--threads 0 is out of range; expected 1 to 1024");
    let inside = compute(Some(3), || {
        (rayon::current_thread_index().is_some(), rayon::current_num_threads())
    });
    assert_eq!(inside.unwrap(), (true, 3));
    assert!(matches!(compute(None, || ()), Err(ThreadsError::Pool(_))));
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_taken_is_counted() {
    let before = ResidentMemory::of_this_process().unwrap();
    let taken = vec![1_u8; 64 << 20];
    let after = ResidentMemory::of_this_process().unwrap();
    assert!(after.peak >= before.now + (60 << 20), "{before:?} {after:?} {}", taken[9]);
}
