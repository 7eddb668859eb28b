//! What attention holds on its way back, by counting bytes. A binary of its own: every allocation of the process
//! counts.

use std::alloc::System;

use burn::tensor::{Device, Tensor, TensorData};
use grpo_kernels::{Heads, Packing, joint_attention};
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

#[global_allocator]
static ALLOCATOR: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// The most bytes that `work` held at one time, beyond those held before it.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    ALLOCATOR.reset_peak_memory();
    work();
    ALLOCATOR.get_peak_memory()
}

/// Of twice as many tokens in one sequence it holds twice as much, and not four times.
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
    // What is allocated once in a process is there after the first pass.
    of(128);
    let (half, whole) = (of(2048), of(4096));
    assert!(half > 4 * 2048 * columns, "{half} bytes: nothing is counted");
    assert!(whole < half * 5 / 2, "{half} bytes of 2048 tokens, {whole} of 4096");
}
