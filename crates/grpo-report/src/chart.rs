//! Charts as inline SVG, drawn with `plotters`.
//!
//! Charts are drawn at four times their display size because the backend rounds coordinates to
//! whole pixels. They contain only lines and numbers. All text is part of the surrounding page,
//! where it is escaped and can wrap. Text and grid use placeholder colours that the style sheet
//! replaces according to the theme.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::series::{Points, thin};

/// The contents of a chart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    /// Filled areas below the curves.
    pub(crate) bands: Vec<Band>,
    pub(crate) curves: Vec<Curve>,
    /// Steps at which an event occurred.
    pub(crate) marks: Vec<f64>,
    /// Whether the value axis starts at 0. Used for stacked values.
    pub(crate) from_zero: bool,
}

/// The area between two curves with the same steps.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) color: usize,
    /// Opacity between 0 and 1.
    pub(crate) opacity: f64,
    pub(crate) lower: Points,
    pub(crate) upper: Points,
}

/// Light dots with a line.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) color: usize,
    pub(crate) points: Points,
    pub(crate) line: Points,
}

/// RGB colours of the curves. They are visible on both white and near-black backgrounds and can be
/// distinguished with colour blindness (after Okabe and Ito).
const COLORS: [(u8, u8, u8); 8] = [
    (0x2b, 0x7f, 0xd4),
    (0xe0, 0x7b, 0x1a),
    (0x1f, 0x9e, 0x77),
    (0xc2, 0x5d, 0xa8),
    (0xb8, 0x9a, 0x1c),
    (0xd1, 0x49, 0x4b),
    (0x4f, 0xb3, 0xcf),
    (0x8b, 0x78, 0xd6),
];

/// Returns the CSS colour of curve `i`.
pub(crate) fn css_color(i: usize) -> String {
    let (r, g, b) = COLORS[i % COLORS.len()];
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Placeholder for the text colour, replaced by the style sheet.
const INK: RGBColor = RGBColor(1, 1, 1);
/// Placeholder for the colour of the grid and axes.
const GRID: RGBColor = RGBColor(2, 2, 2);
/// Placeholder for the colour of event marks.
const MARK: RGBColor = RGBColor(3, 3, 3);

const SCALE: u32 = 4;
const WIDTH: u32 = 480;
const HEIGHT: u32 = 230;
/// Maximum number of points per curve.
const POINTS: usize = 400;

/// An area of an SVG document.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Renders an `<svg>` element whose size is determined by the page. `draw` receives the placeholder
/// colours for text and grid, and the factor by which everything is enlarged.
pub(crate) fn inline_svg(
    draw: impl FnOnce(&Area<'_>, RGBColor, RGBColor, u32) -> Result<(), Box<dyn std::error::Error>>,
) -> String {
    let size = (WIDTH * SCALE, HEIGHT * SCALE);
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = draw(&root, INK, GRID, SCALE).and_then(|()| Ok(root.present()?));
    drawn.expect("writing to a string cannot fail");
    drop(root);
    let fixed = format!("width=\"{}\" height=\"{}\" ", size.0, size.1);
    svg.replacen(&fixed, "class=\"plot\" role=\"img\" ", 1)
}

impl Chart {
    /// Returns whether the chart has nothing to display.
    pub(crate) fn is_empty(&self) -> bool {
        self.bands.is_empty() && self.curves.iter().all(|curve| curve.points.is_empty())
    }

    /// Renders the chart as an `<svg>` element.
    pub(crate) fn svg(&self) -> String {
        inline_svg(|root, _, _, _| self.draw(root))
    }

    fn draw(&self, root: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let (x, y) = self.ranges();
        let ticks = Ticks::of(&y);
        let mut context = ChartBuilder::on(root)
            .margin_top(8 * SCALE)
            .margin_right(22 * SCALE)
            .margin_bottom(2 * SCALE)
            .set_label_area_size(LabelAreaPosition::Left, ticks.width() * SCALE)
            .set_label_area_size(LabelAreaPosition::Bottom, 26 * SCALE)
            .build_cartesian_2d(Steps(x.clone()), y.clone())?;
        let text = ("sans-serif", 20 * SCALE).into_font().color(&INK);
        context
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(6)
            .y_labels(6)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(SCALE))
            .axis_style(GRID.stroke_width(SCALE))
            .set_all_tick_mark_size(3 * SCALE)
            .x_label_style(text.clone().pos(Pos::new(HPos::Center, VPos::Top)))
            .y_label_style(text)
            .y_label_formatter(&|value| ticks.text(*value))
            .draw()?;
        for band in &self.bands {
            let color = color(band.color).mix(band.opacity);
            let (lower, upper) = (thin(&band.lower, POINTS), thin(&band.upper, POINTS));
            let around: Points = lower.into_iter().chain(upper.into_iter().rev()).collect();
            context.draw_series([Polygon::new(around, color.filled())])?;
        }
        for &step in self.marks.iter().filter(|step| (x.start..=x.end).contains(*step)) {
            let line = PathElement::new([(step, y.start), (step, y.end)], MARK.stroke_width(SCALE));
            context.draw_series([line])?;
        }
        for curve in &self.curves {
            let color = color(curve.color);
            let light = if curve.points.len() > 1 { 0.35 } else { 1.0 };
            let points = thin(&curve.points, POINTS).into_iter();
            context.draw_series(
                points.map(|point| Circle::new(point, 2 * SCALE, color.mix(light).filled())),
            )?;
            let line = color.stroke_width(2 * SCALE);
            context.draw_series([PathElement::new(thin(&curve.line, POINTS), line)])?;
        }
        Ok(())
    }

    /// Returns the axis ranges, which contain all data plus a margin.
    fn ranges(&self) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
        let bands = self.bands.iter().flat_map(|band| band.lower.iter().chain(&band.upper));
        let curves = self.curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.line));
        let (mut x, mut y) = (EMPTY, EMPTY);
        for &(step, value) in bands.chain(curves) {
            x = (x.0.min(step), x.1.max(step));
            y = (y.0.min(value), y.1.max(value));
        }
        if self.from_zero {
            // Damaged files may contain negative values.
            y = (y.0.min(0.0), y.1.max(0.0));
        }
        // A single step or a flat line needs a range as well.
        if x.1 - x.0 < 0.5 {
            x = (x.0 - 0.5, x.1 + 0.5);
        }
        let flat = y.1 - y.0 <= 1e-12 * y.1.abs().max(y.0.abs());
        let air = if flat { (0.1 * y.1.abs()).max(1e-3) } else { 0.06 * (y.1 - y.0) };
        let low = if self.from_zero { y.0 } else { y.0 - air };
        (x.0..x.1, low..y.1 + air)
    }
}

const EMPTY: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);

/// Returns the colour of curve `i`.
pub(crate) fn color(i: usize) -> RGBColor {
    let (r, g, b) = COLORS[i % COLORS.len()];
    RGBColor(r, g, b)
}

/// Step axis with integer labels.
struct Steps(std::ops::Range<f64>);

impl Ranged for Steps {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.0.start) / (self.0.end - self.0.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points().max(2) as f64;
        let apart = (self.0.end - self.0.start) / most;
        let ten = 10f64.powf(apart.max(1.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * ten);
        let apart = steps.into_iter().find(|step| *step >= apart).unwrap_or(10.0 * ten);
        let first = (self.0.start / apart).ceil() as i64;
        let points = (first..).map(|i| i as f64 * apart);
        points.take_while(|point| *point <= self.0.end).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.clone()
    }
}

impl ValueFormatter<f64> for Steps {
    fn format_ext(&self, value: &f64) -> String {
        format!("{value:.0}")
    }
}

/// Number format of the value axis.
struct Ticks {
    decimals: usize,
    scientific: bool,
    longest: usize,
    /// Absolute values below this are displayed as 0.
    zero: f64,
}

impl Ticks {
    fn of(range: &std::ops::Range<f64>) -> Self {
        let largest = range.start.abs().max(range.end.abs());
        let apart = (range.end - range.start) / 5.0;
        let scientific = !(1e-3..1e6).contains(&largest);
        let decimals = (-apart.log10()).ceil().clamp(0.0, 8.0) as usize;
        let mut ticks = Self { decimals, scientific, longest: 0, zero: 1e-6 * apart };
        ticks.longest = ticks.text(range.start).len().max(ticks.text(range.end).len());
        ticks
    }

    fn text(&self, value: f64) -> String {
        if value.abs() < self.zero {
            return "0".to_owned();
        }
        if self.scientific { format!("{value:.1e}") } else { format!("{value:.*}", self.decimals) }
    }

    /// Returns the width reserved for the labels, in pixels.
    fn width(&self) -> u32 {
        (self.longest as u32 * 9 + 10).max(32)
    }
}
