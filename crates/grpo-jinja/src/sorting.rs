//! Sorting with an order that can fail.

use crate::value::Result;
use std::cmp::Ordering;

/// Sorts stably with an order that can fail or be inconsistent.
///
/// # Errors
/// Returns the first error of the order.
pub(crate) fn sort_by<T: Clone>(
    items: &mut Vec<T>,
    order: impl Fn(&T, &T) -> Result<Ordering>,
) -> Result<()> {
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        for pair in items.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let ([a, left_rest @ ..], [b, right_rest @ ..]) = (left, right) {
                if order(b, a)? == Ordering::Less {
                    merged.push(b.clone());
                    right = right_rest;
                } else {
                    merged.push(a.clone());
                    left = left_rest;
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        *items = merged;
        width *= 2;
    }
    Ok(())
}
