//! Fused tensor operations with hand-written derivatives.
//!
//! Burn's CPU backend runs element-wise work as one-thread scalar loops and, under autodiff, takes
//! GELU, softmax and layer norm apart into primitives that each keep a tensor. On small models that
//! costs more than the matrix products. The operations here do the same mathematics in one pass, with
//! threads and SIMD, and give the backward pass in closed form.
//!
//! Each operation has three parts: a *plain* version in Burn's own primitives ([`plain`]), which is the
//! oracle of the tests and what runs on every other backend; a fused forward and backward over `f32`
//! slices; and the public function that picks one by where the tensor lives. Callers never choose.
//! [`attention_softmax`] and [`Visible`] serve the padded path: dropout on attention weights, and backends without a
//! fused attention.
//!
//! Results do not depend on the number of threads: work is cut into chunks of a fixed size, and sums
//! over chunks are taken in order.

mod adamw;
mod add;
mod attention;
mod attention_softmax;
mod awake;
mod batch_invariant;
mod gather_rows;
mod gelu;
mod gelu_tanh;
mod host;
mod kv_pages;
mod layer_norm;
mod matmul;
mod packing;
pub mod plain;
mod rms_norm;
mod rotary;
pub mod simd;
mod squared_norm;
mod swiglu;
mod visible;

#[cfg(feature = "flex")]
mod backend;

pub use adamw::{AdamW, adamw_step};
pub use add::{add, add_bias};
pub use attention::{attention, joint_attention};
pub use attention_softmax::attention_softmax;
pub use awake::awake;
pub use batch_invariant::batch_invariant_linear;
pub use gather_rows::{gather_rows, indices};
pub use gelu::gelu;
pub use gelu_tanh::gelu_tanh;
pub use host::{is_cpu, on_host};
pub use kv_pages::{KvPages, PAGE, Seen};
pub use layer_norm::layer_norm;
pub use matmul::matmul;
pub use packing::{Heads, Packing, Sequence};
pub use rms_norm::rms_norm;
pub use rotary::{RotaryTables, rotary};
pub use squared_norm::squared_norm;
pub use swiglu::swiglu;
pub use visible::Visible;
