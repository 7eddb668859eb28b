//! What the host can reach without a copy.

use burn::tensor::{Device, Tensor};

/// Whether tensors of this device lie in the memory of the CPU.
pub fn is_cpu(device: &Device) -> bool {
    #[cfg(feature = "flex")]
    if crate::backend::is_cpu(device) {
        return true;
    }
    let _ = device;
    false
}

/// What `read` makes of the numbers of `x`, in their order (a matrix row by row). On the CPU in `f32` they are read where they lie; elsewhere they
/// come to the host first.
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
