//! Tests through the public interface, in one binary.

mod denoising;
mod infilling;
mod masked_stream;
mod masking;
mod neighbours;
mod passages;
mod support;
mod texts;
