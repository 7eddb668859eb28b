//! Tests that the self-test passes, detects wrong values, and reports invalid files.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod files;
mod models;
mod report;

use grpo_model::Families;

/// The families of the fixtures.
fn families() -> Families {
    Families::default().with(grpo_infill::FAMILIES)
}
