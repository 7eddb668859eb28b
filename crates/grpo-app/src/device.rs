//! Backend selection by Cargo feature.

use anyhow::Context;
use burn::tensor::Device;

#[cfg(not(any(feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!("choose a backend: --features flex, wgpu or cuda");

/// A device name and its constructor.
type Named = (&'static str, fn() -> Device);

/// Available devices, starting with the default one.
const BUILT_IN: &[Named] = &[
    #[cfg(feature = "cuda")]
    ("cuda:0", || Device::cuda(0)),
    #[cfg(feature = "wgpu")]
    ("wgpu", || Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
    #[cfg(feature = "flex")]
    ("flex", Device::flex),
];

/// Returns the default device.
pub fn device() -> Device {
    BUILT_IN[0].1()
}

/// Returns the name of [`device`], as recorded in runs.
pub fn name() -> &'static str {
    BUILT_IN[0].0
}

/// Returns the device with the given name, or the default device.
pub fn named(name: Option<&str>) -> anyhow::Result<Device> {
    let Some(name) = name else { return Ok(device()) };
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    let names = || BUILT_IN.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
    let (_, make) = found
        .with_context(|| format!("device `{name}` is not built in; available: {}", names()))?;
    Ok(make())
}
