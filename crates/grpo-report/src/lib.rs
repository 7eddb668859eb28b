#![doc = include_str!("../README.md")]
//!
//! Everything is read from the folders of the runs, as the training wrote it: nothing is computed again, no model is loaded,
//! and a run that is still going, or was killed, is shown as far as it got. [`RunData::read`] reads a folder, [`judge`]
//! compares its numbers with the section `[success]` of its configuration, and [`render`] writes the page, which loads
//! nothing. Its only script sorts and filters the table of completions.

mod chart;
mod distributions;
mod error;
mod numbers;
mod page;
mod panels;
mod run_data;
mod samples;
mod series;
mod stages;
mod story;
mod success;
mod validations;

pub use distributions::{Scores, distributions};
pub use error::ReportError;
pub use page::render;
pub use run_data::{RunData, command_of};
pub use samples::Drawing;
pub use stages::{Stage, stages};
pub use success::{Judged, Outcome, SuccessCriteria, Verdict, judge};

#[cfg(test)]
mod tests;
