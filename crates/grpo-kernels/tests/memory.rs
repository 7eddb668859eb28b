//! Measures the memory use of attention in the backward pass. This test has its own binary, because
//! it counts all allocations of the process.

use std::alloc::System;

use burn::tensor::{Device, Tensor, TensorData};
use grpo_kernels::{Heads, Packing, joint_attention};
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

#[global_allocator]
static ALLOCATOR: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// Returns the peak memory that `work` allocated in addition to existing allocations, in bytes.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    ALLOCATOR.reset_peak_memory();
    work();
    ALLOCATOR.get_peak_memory()
}

/// With twice as many tokens in a sequence, memory use doubles instead of quadrupling.
#[test]
fn the_backward_pass_of_attention_grows_with_the_length() {
    let heads = Heads { heads: 2, kv_heads: 2, width: 16 };
    let columns = heads.query_columns() + 2 * heads.key_columns();
    let pass = |tokens: usize| {
        let values: Vec<f32> = (0..tokens * columns).map(|i| (i % 11) as f32 * 0.1).collect();
        let x = TensorData::new(values, [tokens, columns]);
        let x = Tensor::<2>::from_data(x, &Device::flex().autodiff()).require_grad();
        let output = joint_attention(x.clone(), heads, 0.25, &Packing::of_lengths([tokens], true));
        output.sum().backward()
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let of = |tokens| pool.install(|| peak(|| pass(tokens)));
    // The first pass includes one-time allocations.
    of(128);
    let (half, whole) = (of(2048), of(4096));
    assert!(half > 4 * 2048 * columns, "{half} bytes: nothing is counted");
    assert!(whole < half * 5 / 2, "{half} bytes of 2048 tokens, {whole} of 4096");
}
