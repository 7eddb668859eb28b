//! Access to tensor data from the host, and what devices are capable of.

use burn::tensor::{DType, Device, Tensor};

/// Returns whether tensors on this device are in CPU memory.
pub fn is_cpu(device: &Device) -> bool {
    #[cfg(feature = "flex")]
    if crate::backend::is_cpu(device) {
        return true;
    }
    let _ = device;
    false
}

/// Returns whether sampling and training add in the same order on this device, so that both compute the
/// same bits (docs/decisions/0039): on CPUs with fused multiply-adds.
pub fn adds_in_one_order(device: &Device) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has_fma = is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let has_fma = cfg!(target_arch = "aarch64");
    has_fma && is_cpu(device)
}

/// Returns whether a device computes in a number format, exponentials and logarithms included.
///
/// Vulkan stores and adds `f64`, but its shaders have no exponential in `f64`. NVIDIA's driver fails
/// to compile one, and the device is lost.
pub fn computes_in(device: &Device, format: DType) -> bool {
    #[cfg(feature = "gpu")]
    if format == DType::F64 && crate::gpu::is_wgpu(device) {
        return false;
    }
    device.supports_dtype(format)
}

/// Returns whether the device multiplies matrices of this format on tensor cores, with sums in `f32`.
#[allow(unused_variables, reason = "only a GPU has tensor cores")]
pub fn has_tensor_cores(device: &Device, format: DType) -> bool {
    #[cfg(feature = "gpu")]
    if matches!(format, DType::BF16 | DType::F16) {
        return crate::gpu::has_tensor_cores(device, format);
    }
    false
}

/// Returns the bytes that this process has reserved in the memory of a GPU, or `None` for a CPU.
#[allow(unused_variables, reason = "only GPUs have memory of their own")]
pub fn gpu_memory(device: &Device) -> Option<u64> {
    #[cfg(feature = "gpu")]
    return crate::gpu::reserved_memory(device);
    #[cfg(not(feature = "gpu"))]
    None
}

/// Calls `read` with the elements of `x` in row-major order. An `f32` tensor on the CPU is read in
/// place; other tensors are copied to the host first.
pub fn on_host<const D: usize, R>(x: Tensor<D>, read: impl FnOnce(&[f32]) -> R) -> R {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) && !x.is_autodiff() {
        let x = x.try_into_primitive::<burn::backend::Flex>().expect("asked just now");
        return read(rows_of(&x.to_contiguous()));
    }
    let numbers: Vec<f32> = x.into_data().iter().collect();
    read(&numbers)
}

#[cfg(feature = "flex")]
fn rows_of(x: &burn::backend::flex::FlexTensor) -> &[f32] {
    let start = x.layout().start_offset();
    &x.storage::<f32>()[start..start + x.layout().num_elements()]
}
