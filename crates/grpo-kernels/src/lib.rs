#![doc = include_str!("../README.md")]
//!
//! Burn's CPU backend runs element-wise work as single-threaded scalar loops and, with autodiff,
//! splits GELU, softmax and layer norm into primitives that each keep a tensor. On small models
//! that costs more than the matrix products. The operations here compute the same in one pass, with
//! threads and SIMD, and with a closed-form backward pass.
//!
//! Each operation has three parts: a *plain* version with Burn's primitives ([`plain`]), which is
//! the oracle of the tests and runs on other backends; a fused forward and backward pass over `f32`
//! slices, an autodiff [`Operation`](tape::Operation); and the public function, which selects one
//! by the device of the tensor. [`attention_softmax`] and [`Visible`] serve padded attention:
//! dropout on attention weights, and backends without fused attention.
//!
//! Results do not depend on the number of threads: work is divided into chunks of a fixed size, and
//! sums over chunks are taken in order.

mod activation;
mod adamw;
mod add;
mod attention;
mod attention_softmax;
mod awake;
mod batch_invariant;
mod gather_rows;
mod host;
mod kv_pages;
mod matmul;
mod norm;
mod packing;
pub mod plain;
mod rotary;
pub mod simd;
mod squared_norm;
pub mod tape;
mod visible;

#[cfg(feature = "flex")]
mod backend;

pub use activation::{gelu, gelu_tanh, swiglu};
pub use adamw::{AdamW, adamw_step};
pub use add::{add, add_bias};
pub use attention::{attention, joint_attention, padded_attention};
pub use attention_softmax::attention_softmax;
pub use awake::awake;
pub use batch_invariant::batch_invariant_linear;
pub use gather_rows::{gather_rows, indices};
pub use host::{is_cpu, on_host};
pub use kv_pages::{KvPages, PAGE, Seen};
pub use matmul::matmul;
pub use norm::{layer_norm, rms_norm};
pub use packing::{Heads, Packing, Sequence};
pub use rotary::{RotaryTables, rotary};
pub use squared_norm::squared_norm;
pub use visible::Visible;
