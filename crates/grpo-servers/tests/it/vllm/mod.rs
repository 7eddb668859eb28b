//! Samples on servers that run in this process.

mod fake;
mod refusals;
mod sampling;
mod several;
mod support;
