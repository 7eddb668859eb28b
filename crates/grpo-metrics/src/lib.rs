#![doc = include_str!("../README.md")]

mod page;
mod spec;
mod table;

pub use page::with_metrics;
pub use spec::{MetricSpec, Panel, Role};
pub use table::{MetricGroup, MetricTable};
