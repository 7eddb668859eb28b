#![doc = include_str!("../README.md")]
//!
//! Burn's CPU backend implements elementwise operations as single-threaded scalar loops. With
//! autodiff, it also splits GELU, softmax and layer norm into primitives, each of which keeps a
//! tensor. For small models, this costs more than the matrix products. The operations in this crate
//! do the same work in a single pass, with multithreading, SIMD and closed-form gradients.
//!
//! Each operation consists of these parts:
//!
//! - A *plain* version in [`plain`], built from Burn's primitives. Tests use it as the reference,
//!   and it is used for other precisions and for operations without a kernel.
//! - A fused forward and backward pass over `f32` slices on the CPU, implemented as an autodiff
//!   [`Operation`](tape::Operation). Most operations also have kernels in CubeCL for GPUs.
//! - The public function, which picks one of them based on the tensor's device.
//!
//! [`attention_softmax`] and [`Visible`] are used for padded attention, i.e. for dropout on
//! attention weights and for backends without fused attention.
//!
//! Results don't depend on the number of threads. Work is divided into chunks of a fixed size, and
//! sums over chunks are computed in order.

mod activation;
mod adamw;
mod add;
mod attention;
mod attention_softmax;
mod batch_invariant;
mod candidates;
mod chunks;
mod draw;
mod four_bits;
mod gather_rows;
mod half;
mod host;
mod kept_rows;
mod kv_pages;
mod linear;
mod matmul;
mod norm;
mod packing;
pub mod plain;
mod positions;
mod rotary;
mod rounding;
mod scaling;
mod scoring;
pub mod simd;
mod squared_norm;
pub mod tape;
mod visible;

#[cfg(feature = "flex")]
mod backend;
#[cfg(feature = "flex")]
mod bf16_product;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "flex")]
mod prefetch;
#[cfg(feature = "flex")]
mod product;

pub use activation::{gelu, gelu_tanh, swiglu};
pub use adamw::{AdamW, AdamWUpdates, adamw_step};
pub use add::{add, add_bias};
pub use attention::{attention, joint_attention, padded_attention};
pub use attention_softmax::attention_softmax;
pub use batch_invariant::{PackedWeight, batch_invariant_linear};
pub use candidates::{Likely, Truncation};
pub use draw::{draw_on_gpu, likely_on_gpu};
pub use four_bits::{dense, is_packed, pack_four_bits, unpack_four_bits, unpacked_shape};
pub use gather_rows::{gather_rows, indices};
#[cfg(feature = "gpu")]
pub use gpu::{LogitTile, RunningScores, logit_gradients, product, tensor_core_product};
pub use half::Half;
pub use host::{adds_in_one_order, computes_in, gpu_memory, has_tensor_cores, is_cpu, on_host};
pub use kept_rows::KeptRows;
pub use kv_pages::{HeadNorms, HeadPreparation, KvPages, PAGE, PagePlan};
pub use linear::{half_linear, known_half_linear, known_linear, linear};
pub use matmul::matmul;
pub use norm::{add_layer_norm, add_rms_norm, layer_norm, rms_norm};
pub use packing::{Heads, Packing, Sequence};
pub use rotary::{RotaryTables, rotary};
pub use scaling::{Penalty, Scaling};
pub use scoring::Scoring;
pub use squared_norm::{SquaredNorm, squared_norm};
pub use visible::Visible;
