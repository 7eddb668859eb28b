//! Tests that the self-test passes, detects wrong values, and reports invalid files.

mod files;
mod models;
mod report;

use grpo_model::Families;

/// The families of the fixtures.
fn families() -> Families {
    Families::default().with(grpo_infill::FAMILIES)
}
