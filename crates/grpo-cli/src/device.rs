//! The one place that chooses a backend: by the features that the program was built with.

use anyhow::Context;
use burn::tensor::Device;

#[cfg(not(any(feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!("choose a backend: --features flex, wgpu or cuda");

/// The device that models live on.
pub(crate) fn device() -> Device {
    #[cfg(feature = "cuda")]
    return Device::cuda(0);
    #[cfg(all(feature = "wgpu", not(feature = "cuda")))]
    return Device::wgpu(burn::tensor::DeviceKind::DefaultDevice);
    #[cfg(all(feature = "flex", not(any(feature = "cuda", feature = "wgpu"))))]
    return Device::flex();
}

/// How [`device`] is called in a run's records.
pub(crate) fn name() -> &'static str {
    if cfg!(feature = "cuda") {
        "cuda:0"
    } else if cfg!(feature = "wgpu") {
        "wgpu"
    } else {
        "flex"
    }
}

/// Threads of the CPU backend, of rewards and of chemistry.
pub(crate) fn set_threads(threads: Option<usize>) -> anyhow::Result<()> {
    let Some(threads) = threads else { return Ok(()) };
    anyhow::ensure!(
        (1..=1024).contains(&threads),
        "--threads {threads} is out of range; expected 1 to 1024"
    );
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .context("the pool of threads could not be made")
}
