//! The table of methods: their files, and how many metrics are better or worse.

use serde::Serialize;

use super::data::{ComparedMethod, ComparisonPage};
use super::table::{Mark, marks_of};
use crate::chart::css_color;
use crate::panels::Key;

/// A row of the table of methods.
#[derive(Serialize)]
pub(super) struct MethodRow {
    pub(super) key: Key,
    is_baseline: bool,
    seeds: usize,
    files: Vec<String>,
    /// Numbers of metrics that are better, worse, different without a known direction and not
    /// significantly different from the baseline. `None` without tests.
    counts: Option<[usize; 4]>,
}

/// Returns a row per method.
pub(super) fn rows(page: &ComparisonPage) -> Vec<MethodRow> {
    let row = |(index, method): (usize, &ComparedMethod)| {
        let marks = marks_of(method);
        let count = |of: &[Mark]| of.iter().filter_map(|mark| marks.get(mark)).sum::<usize>();
        let counts = [
            count(&[Mark::Better, Mark::BetterSmall]),
            count(&[Mark::Worse, Mark::WorseSmall]),
            count(&[Mark::Different, Mark::DifferentSmall]),
            count(&[Mark::NotSignificant]),
        ];
        MethodRow {
            key: Key { label: method.name.clone(), color: css_color(index) },
            is_baseline: index == 0,
            seeds: method.files.len(),
            files: method.files.clone(),
            counts: (index > 0 && counts.iter().sum::<usize>() > 0).then_some(counts),
        }
    };
    page.methods.iter().enumerate().map(row).collect()
}
