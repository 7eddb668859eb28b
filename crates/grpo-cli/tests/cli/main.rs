//! The built program: what it does, and what it refuses.

mod configuration;
mod describe;
mod models;
mod molecules;
mod sample;
mod shipped;
mod support;
mod training;
