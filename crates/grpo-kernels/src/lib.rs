#![doc = include_str!("../README.md")]
//!
//! Burn's CPU backend runs element-wise work as one-thread scalar loops and, under autodiff, takes
//! GELU, softmax and layer norm apart into primitives that each keep a tensor. On small models that
//! costs more than the matrix products. The operations here do the same mathematics in one pass, with
//! threads and SIMD, and give the backward pass in closed form.
//!
//! Each operation has three parts: a *plain* version in Burn's own primitives ([`plain`]), which is the
//! oracle of the tests and what runs on every other backend; a fused forward and backward over `f32`
//! slices, an [`Operation`](tape::Operation) of Burn's tape; and the public function that picks one by where the tensor
//! lives. Callers never choose.
//! [`attention_softmax`] and [`Visible`] serve the padded path: dropout on attention weights, and backends without a
//! fused attention.
//!
//! Results do not depend on the number of threads: work is cut into chunks of a fixed size, and sums
//! over chunks are taken in order.

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
