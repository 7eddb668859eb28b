//! The one place that chooses a backend: by the features that the program was built with.

use anyhow::Context;
use burn::tensor::Device;

#[cfg(not(any(feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!("choose a backend: --features flex, wgpu or cuda");

/// A device by its name in records and on the command line.
type Named = (&'static str, fn() -> Device);

/// The devices that the program was built with, the usual one first.
const BUILT_IN: &[Named] = &[
    #[cfg(feature = "cuda")]
    ("cuda:0", || Device::cuda(0)),
    #[cfg(feature = "wgpu")]
    ("wgpu", || Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
    #[cfg(feature = "flex")]
    ("flex", Device::flex),
];

/// The device that models live on.
pub fn device() -> Device {
    BUILT_IN[0].1()
}

/// How [`device`] is called in a run's records.
pub fn name() -> &'static str {
    BUILT_IN[0].0
}

/// The device of this name, or the usual one.
pub fn named(name: Option<&str>) -> anyhow::Result<Device> {
    let Some(name) = name else { return Ok(device()) };
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    let names = || BUILT_IN.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
    let (_, make) =
        found.with_context(|| format!("no device `{name}` is built in; there is {}", names()))?;
    Ok(make())
}
