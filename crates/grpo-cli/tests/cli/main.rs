//! The built program: what it does, and what it refuses.

mod configuration;
mod describe;
mod models;
mod molecules;
mod sample;
mod selftest;
mod shipped;
mod support;
mod training;
