//! Commands that generate, score and compare completions.

pub(crate) mod compare;
pub(crate) mod comparison;
pub(crate) mod comparison_page;
pub(crate) mod comparison_tables;
pub(crate) mod completion_line;
pub(crate) mod dynamics;
pub(crate) mod eval;
pub(crate) mod judge;
pub(crate) mod logprob;
pub(crate) mod measured_steps;
pub(crate) mod sample;
pub(crate) mod score;
