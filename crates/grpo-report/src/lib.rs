#![doc = include_str!("../README.md")]
//!
//! All data is read from run folders as written by training. Nothing is recomputed and no model is
//! loaded. Reports work for running and killed runs too. [`RunData::read`] reads a folder,
//! [`judge`] compares its metrics with the `[success]` section of its configuration, and [`render`]
//! creates the page. The page has no external resources, and its only script sorts and filters the
//! table of completions.
//!
//! [`render_comparison`] creates the page of a [`ComparisonPage`], and [`comparison_charts`] its
//! charts as SVG documents. [`LineChart`] draws any other lines.

mod attention_map;
mod axis;
mod best_table;
mod chart;
mod comparison;
mod distributions;
mod drawing;
mod error;
mod figure;
mod html;
mod labels;
mod line_chart;
mod numbers;
mod page;
mod panels;
mod run_data;
mod samples;
mod series;
mod stages;
mod story;
mod success;
mod transform_curve;
mod transforms;
mod validations;

pub use attention_map::AttentionMaps;
pub use comparison::{
    BaselineTest, ComparedMethod, ComparisonChart, ComparisonPage, FrontChart, MetricDirection,
    MetricValue, PhaseBoundary, Significance, comparison_charts, render_comparison,
};
pub use distributions::{Scores, distributions};
pub use drawing::Drawing;
pub use error::ReportError;
pub use line_chart::LineChart;
pub use page::render;
pub use run_data::{
    RUN_REWARD, RunData, command_of, known_command_of, resume_command, resume_line,
};
pub use stages::{Stage, stages};
pub use success::{
    AUDIT, INPUTS, Judged, Outcome, RequiredChange, SuccessCriteria, Verdict, judge,
    judge_supervised,
};
pub use transform_curve::TransformCurve;
pub use transforms::transforms;

#[cfg(test)]
mod tests;
