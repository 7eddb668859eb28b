//! Compares each fused operation with plain f64 loops, its gradients with finite differences of
//! those loops, and both with the plain version built from Burn's primitives.

mod activations;
mod attention;
mod batch_invariant;
mod combined;
mod draw;
mod gather_rows;
mod half_linear;
mod kept_rows;
mod kv_pages;
mod linear;
mod matmul;
mod norms;
mod optimizer;
mod properties;
mod rotary;
mod softmax;
mod sums;
mod support;
#[cfg(feature = "gpu")]
mod tensor_cores;
