//! Tests of the public interface. They run sequentially on the main thread without a test harness,
//! because the allocator and the thread pool can only be configured once per process and before any
//! other thread starts.

use std::ffi::c_long;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use grpo_runtime::{ResidentMemory, ThreadsError, compute, time_limited};

/// Environment variable that marks the child process of a test.
const CHILD: &str = "GRPO_PROCESS_TEST_CHILD";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return work_that_never_ends();
    }
    work_beyond_its_time_limit_ends_the_process();
    if cfg!(target_os = "linux") {
        a_process_that_has_threads_already_is_refused();
        what_is_taken_is_counted();
    }
    a_program_runs_in_a_pool_of_its_threads();
}

fn work_that_never_ends() {
    let long = Duration::from_secs(600);
    assert_eq!(time_limited("work", "do less", long, || 7).unwrap(), 7);
    let short = Duration::from_millis(1);
    time_limited("work", "do less", short, || std::thread::sleep(long)).unwrap();
}

fn work_beyond_its_time_limit_ends_the_process() {
    let child = Command::new(std::env::current_exe().unwrap()).env(CHILD, "").output().unwrap();
    assert_eq!(child.status.code(), Some(1));
    let error = String::from_utf8(child.stderr).unwrap();
    assert_eq!(error, "error: work exceeded the time limit of 0.001 s; do less\n");
}

fn a_process_that_has_threads_already_is_refused() {
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || ended.recv());
    let error = compute(None, || ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the process already has 2 threads; call `compute` first in `main`"
    );
    assert!(purge_delay() > 1, "the option is as it was, and no other has this default");
    drop(end);
    assert!(thread.join().unwrap().is_err());
}

fn a_program_runs_in_a_pool_of_its_threads() {
    let error = compute(Some(0), || ()).unwrap_err();
    assert_eq!(error.to_string(), "--threads 0 is out of range; expected 1 to 1024");
    let inside = compute(Some(3), || {
        (rayon::current_thread_index().is_some(), rayon::current_num_threads())
    });
    assert_eq!(inside.unwrap(), (true, 3));
    assert_eq!(purge_delay(), -1, "free memory is kept");
    let again = compute(None, || ());
    assert!(matches!(again, Err(ThreadsError::Late { .. } | ThreadsError::Pool(_))));
}

fn what_is_taken_is_counted() {
    let before = ResidentMemory::of_this_process().unwrap();
    let taken = vec![1_u8; 64 << 20];
    let after = ResidentMemory::of_this_process().unwrap();
    assert!(after.peak >= before.now + (60 << 20), "{before:?} {after:?} {}", taken[9]);
}

fn purge_delay() -> c_long {
    const PURGE_DELAY: i32 = 15;
    #[expect(unsafe_code, reason = "mimalloc's options can only be set through its C functions")]
    // SAFETY: only reads an integer.
    unsafe {
        libmimalloc_sys::mi_option_get(PURGE_DELAY)
    }
}
