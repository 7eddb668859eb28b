//! Each fused operation against plain f64 loops, its gradient against the derivative of those loops taken by
//! finite differences, and both against the plain version in Burn's primitives.

mod activations;
mod attention;
mod batch_invariant;
mod gather_rows;
mod kv_pages;
mod matmul;
mod norms;
mod optimizer;
mod properties;
mod rotary;
mod softmax;
mod sums;
mod support;
