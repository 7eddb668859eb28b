//! Tests that the self-test passes, detects wrong values, and reports invalid files.

mod files;
mod models;
mod report;
