//! The page that compares methods: data, page and charts.
//!
//! The page shows what the caller measured. It computes differences of means, and means over the
//! seeds of [training curves](ComparedMethod::dynamics), but no metrics and no tests.

mod charts;
mod data;
mod methods;
mod page;
mod table;
#[cfg(test)]
mod tests;

use crate::ReportError;
use crate::figure::Figure;

pub use self::data::{
    BaselineTest, ComparedMethod, ComparisonPage, FrontChart, MetricDirection, MetricValue,
    PhaseBoundary, Significance,
};
pub use crate::figure::ComparisonChart;

/// Renders a self-contained HTML page that needs no scripts or other resources. Charts without data
/// are omitted.
///
/// # Errors
/// Returns an error if there are no methods, if two have the same name, or if the Pareto front
/// contains a method that does not exist.
pub fn render_comparison(page: &ComparisonPage) -> Result<String, ReportError> {
    page.check()?;
    Ok(page::render(page))
}

/// Returns the charts of the page as standalone SVG documents on a white background.
///
/// # Errors
/// Returns the same errors as [`render_comparison`].
pub fn comparison_charts(page: &ComparisonPage) -> Result<Vec<ComparisonChart>, ReportError> {
    page.check()?;
    Ok(charts::figures(page).iter().map(Figure::document).collect())
}
