//! Tests of the log-probability path, against f64 loops and against each other.

mod draw;
mod gradients;
mod oracle;
mod scene;
mod values;
