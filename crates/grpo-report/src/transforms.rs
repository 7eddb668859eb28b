//! Small plots of the functions that map properties to scores.

use plotters::prelude::*;

use crate::chart::{Area, color, inline_svg};
use crate::panels::Panel;
use crate::transform_curve::TransformCurve;

/// Size of a plot in a standalone document, in pixels.
const CELL: (u32, u32) = (300, 200);
/// Number of plots in a row.
const COLUMNS: usize = 3;

/// Renders an SVG document with a plot of each function.
pub fn transforms(curves: &[TransformCurve]) -> String {
    let columns = COLUMNS.min(curves.len().max(1));
    let rows = curves.len().div_ceil(columns).max(1);
    let size = (CELL.0 * columns as u32, CELL.1 * rows as u32);
    let mut svg = String::new();
    let draw = |svg: &mut String| -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (curve, area) in curves.iter().zip(root.split_evenly((rows, columns))) {
            let title = format!("{} ({})", curve.name, curve.kind);
            let area = area.titled(&title, ("sans-serif", 14))?;
            plot(
                &area,
                curve,
                &Style { ink: BLACK, grid: RGBColor(0xdd, 0xdd, 0xdd), text: 12, scale: 1 },
            )?;
        }
        root.present()?;
        Ok(())
    };
    draw(&mut svg).expect("writing to a string cannot fail");
    svg
}

/// Returns a plot of each function for a run's page.
pub(crate) fn panels(curves: &[TransformCurve]) -> Vec<Panel> {
    let panel = |curve: &TransformCurve| Panel {
        title: curve.name.clone(),
        meaning: String::new(),
        caption: format!("Score for each value, transform {}", curve.kind),
        svg: inline(curve),
        legend: Vec::new(),
    };
    curves.iter().map(panel).collect()
}

/// Renders a plot as an `<svg>` element for the page.
fn inline(curve: &TransformCurve) -> String {
    inline_svg(|area, ink, grid, scale| plot(area, curve, &Style { ink, grid, text: 20, scale }))
}

struct Style {
    ink: RGBColor,
    grid: RGBColor,
    /// Font size in displayed pixels.
    text: u32,
    /// The factor by which everything is enlarged.
    scale: u32,
}

fn plot(
    area: &Area<'_>,
    curve: &TransformCurve,
    style: &Style,
) -> Result<(), Box<dyn std::error::Error>> {
    let &Style { ink, grid, scale, .. } = style;
    let x = curve.points.iter().map(|(x, _)| *x);
    let (low, high) =
        x.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let mut chart = ChartBuilder::on(area)
        .margin(8 * scale)
        .set_label_area_size(LabelAreaPosition::Left, 32 * scale)
        .set_label_area_size(LabelAreaPosition::Bottom, 24 * scale)
        .build_cartesian_2d(low..high, 0.0..1.05)?;
    let text = ("sans-serif", style.text * scale);
    chart
        .configure_mesh()
        .x_labels(6)
        .y_labels(3)
        .light_line_style(TRANSPARENT)
        .bold_line_style(grid.stroke_width(scale))
        .axis_style(grid.stroke_width(scale))
        .label_style(text.into_font().color(&ink))
        .draw()?;
    let line = PathElement::new(curve.points.clone(), color(0).stroke_width(2 * scale));
    chart.draw_series([line])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_a_plot_with_its_name() {
        let curve = |name: &str| TransformCurve {
            name: name.to_owned(),
            kind: "step".to_owned(),
            points: vec![(0.0, 0.0), (1.0, 1.0)],
        };
        let curves = ["a", "b", "c", "d"].map(curve);
        let svg = transforms(&curves);
        assert!(svg.contains("width=\"900\" height=\"400\""), "{svg}");
        for curve in &curves {
            assert!(svg.contains(&format!("{} (step)", curve.name)));
        }
        let lines = svg.lines().filter(|line| line.contains("#2B7FD4")).count();
        assert_eq!((lines, panels(&curves).len()), (4, 4));
        assert!(panels(&curves)[0].svg.starts_with("<svg class=\"plot\""));
        assert!(transforms(&[]).starts_with("<svg"));
    }
}
