//! The kinds of work that are measured, a file each.

pub(crate) mod encoder;
pub(crate) mod learning;
pub(crate) mod lengths;
pub(crate) mod matmul;
pub(crate) mod prefill;
pub(crate) mod resident;
pub(crate) mod rewards;
pub(crate) mod sampling;
pub(crate) mod step;
pub(crate) mod training;
