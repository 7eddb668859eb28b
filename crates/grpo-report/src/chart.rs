//! Charts as inline SVG, drawn with `plotters`.
//!
//! Charts are drawn at four times their display size because the backend rounds coordinates to
//! whole pixels. Charts of a run contain only lines and numbers: all their text is part of the
//! surrounding page, where it is escaped and can wrap. Names in other charts are escaped by the
//! backend. Text and grid use placeholder colours that the style sheet replaces according to the
//! theme.

use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::axis::{Axis, Horizontal, Ticks, margin};
use crate::labels::{Rectangle as Place, estimated_width, place_names};
use crate::series::{Points, thin};

/// The contents of a chart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    /// Filled areas below the curves.
    pub(crate) bands: Vec<Band>,
    pub(crate) curves: Vec<Curve>,
    /// Lines of horizontal and vertical segments in the colour of the text, below the curves.
    pub(crate) guides: Vec<Points>,
    /// Single points, with or without a name.
    pub(crate) dots: Vec<Dot>,
    pub(crate) marks: Vec<Mark>,
    /// Whether the value axis starts at 0. Used for stacked values.
    pub(crate) from_zero: bool,
    pub(crate) horizontal: Horizontal,
    /// Titles of the horizontal and the vertical axis, which can be empty.
    pub(crate) titles: [String; 2],
    pub(crate) size: Size,
}

/// The size of a chart and of its text, in displayed pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) text: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { width: 480, height: 230, text: 20 }
    }
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

/// A point with a name, which can be empty.
#[derive(Clone, Debug)]
pub(crate) struct Dot {
    pub(crate) color: usize,
    pub(crate) at: (f64, f64),
    pub(crate) name: String,
}

/// A vertical line with a label, which can be empty.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) step: f64,
    pub(crate) label: String,
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

/// Returns the CSS background of curve `i` in a legend: a colour, with gaps if the curve is dashed.
pub(crate) fn css_color(i: usize) -> String {
    let RGBColor(r, g, b) = color(i);
    let color = format!("#{r:02X}{g:02X}{b:02X}");
    match dashes(i) {
        None => color,
        Some((dash, gap)) => {
            let (dash, period) = (f64::from(dash) / 20.0, f64::from(dash + gap) / 20.0);
            format!(
                "repeating-linear-gradient(90deg, {color} 0 {dash}em, transparent {dash}em {period}em)"
            )
        }
    }
}

/// Returns the colour of curve `i`.
pub(crate) fn color(i: usize) -> RGBColor {
    let (r, g, b) = COLORS[i % COLORS.len()];
    RGBColor(r, g, b)
}

/// Returns the lengths of dash and gap of curve `i`, in pixels. Curves that share a colour differ
/// in their dashes.
fn dashes(i: usize) -> Option<(u32, u32)> {
    match i / COLORS.len() {
        0 => None,
        1 => Some((8, 5)),
        _ => Some((3, 4)),
    }
}

/// Returns the line of curve `i`.
fn stroke<'a, 'b, C: Clone + 'a>(i: usize, line: Vec<C>) -> DynElement<'a, SVGBackend<'b>, C> {
    let style = color(i).stroke_width(2 * SCALE);
    match dashes(i) {
        None => PathElement::new(line, style).into_dyn(),
        Some((dash, gap)) => {
            DashedPathElement::new(line, dash * SCALE, gap * SCALE, style).into_dyn()
        }
    }
}

/// Draws a sample of curve `i` for a legend.
pub(crate) fn draw_sample(area: &Area<'_>, i: usize, ends: [(i32, i32); 2]) -> Drawn {
    Ok(area.draw(&stroke(i, ends.to_vec()))?)
}

/// Placeholder for the text colour, replaced by the style sheet.
pub(crate) const INK: RGBColor = RGBColor(1, 1, 1);
/// Placeholder for the colour of the grid and axes.
const GRID: RGBColor = RGBColor(2, 2, 2);
/// Placeholder for the colour of event marks.
const MARK: RGBColor = RGBColor(3, 3, 3);

pub(crate) const SCALE: u32 = 4;
/// Maximum number of points per curve.
const POINTS: usize = 400;

/// An area of an SVG document.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
/// Result of drawing.
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;
/// The area of a chart inside of its axes.
type Context<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, RangedCoordf64>>;

/// Renders an `<svg>` element whose size is determined by the page. `draw` receives the placeholder
/// colours for text and grid, and the factor by which everything is enlarged.
pub(crate) fn inline_svg(draw: impl FnOnce(&Area<'_>, RGBColor, RGBColor, u32) -> Drawn) -> String {
    let size = Size::default();
    svg(size, "class=\"plot\" role=\"img\" ", |root| draw(root, INK, GRID, SCALE))
}

/// Renders an `<svg>` element with the attributes in place of its width and height.
pub(crate) fn svg(size: Size, attributes: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let size = (size.width * SCALE, size.height * SCALE);
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = draw(&root).and_then(|()| Ok(root.present()?));
    drawn.expect("writing to a string cannot fail");
    drop(root);
    let fixed = format!("width=\"{}\" height=\"{}\" ", size.0, size.1);
    svg.replacen(&fixed, attributes, 1)
}

impl Chart {
    /// Returns whether the chart has nothing to display.
    pub(crate) fn is_empty(&self) -> bool {
        self.bands.is_empty() && self.curves.iter().all(|curve| curve.points.is_empty())
    }

    /// Renders the chart as an `<svg>` element.
    pub(crate) fn svg(&self) -> String {
        svg(self.size, "class=\"plot\" role=\"img\" ", |root| self.draw(root))
    }

    /// Draws the chart on an area.
    pub(crate) fn draw(&self, root: &Area<'_>) -> Drawn {
        let (x, y) = self.ranges();
        let ticks = Ticks::of(&y);
        let title = self.size.text + 4;
        let title_of = |axis: usize| if self.titles[axis].is_empty() { 0 } else { title };
        let mut context = ChartBuilder::on(root)
            .margin_top(8 * SCALE)
            .margin_right(22 * SCALE)
            .margin_bottom(2 * SCALE)
            .set_label_area_size(LabelAreaPosition::Left, (ticks.width() + title_of(1)) * SCALE)
            .set_label_area_size(LabelAreaPosition::Bottom, (26 + title_of(0)) * SCALE)
            .build_cartesian_2d(self.horizontal.axis(x), y.clone())?;
        let text = ("sans-serif", self.size.text * SCALE).into_font().color(&INK);
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
            .y_label_style(text.clone())
            .y_label_formatter(&|value| ticks.text(*value))
            .x_desc(&self.titles[0])
            .y_desc(&self.titles[1])
            .axis_desc_style(text.clone())
            .draw()?;
        self.draw_data(&mut context, &y)?;
        self.draw_names(root, &context, &text)
    }

    fn draw_data(&self, context: &mut Context<'_, '_>, y: &std::ops::Range<f64>) -> Drawn {
        for band in &self.bands {
            let color = color(band.color).mix(band.opacity);
            let (lower, upper) = (thin(&band.lower, POINTS), thin(&band.upper, POINTS));
            let around: Points = lower.into_iter().chain(upper.into_iter().rev()).collect();
            context.draw_series([Polygon::new(around, color.filled())])?;
        }
        let x = context.x_range();
        for mark in self.marks.iter().filter(|mark| (x.start..=x.end).contains(&mark.step)) {
            let ends = [(mark.step, y.start), (mark.step, y.end)];
            context.draw_series([PathElement::new(ends, MARK.stroke_width(SCALE))])?;
        }
        for guide in &self.guides {
            context.draw_series([PathElement::new(guide.clone(), INK.stroke_width(SCALE))])?;
        }
        for curve in &self.curves {
            let light = if curve.points.len() > 1 { 0.35 } else { 1.0 };
            let style = color(curve.color).mix(light).filled();
            let points = thin(&curve.points, POINTS).into_iter();
            context.draw_series(points.map(|point| Circle::new(point, 2 * SCALE, style)))?;
            let line = thin(&curve.line, POINTS);
            context.draw_series([stroke(curve.color, line)])?;
        }
        let radius = if self.dots.iter().any(|dot| !dot.name.is_empty()) { 5 } else { 4 };
        let dots = self.dots.iter();
        context.draw_series(
            dots.map(|dot| Circle::new(dot.at, radius * SCALE, color(dot.color).filled())),
        )?;
        Ok(())
    }

    /// Draws the names of points, and the labels of vertical lines at the top.
    fn draw_names(
        &self,
        root: &Area<'_>,
        context: &Context<'_, '_>,
        text: &TextStyle<'_>,
    ) -> Drawn {
        let (left, top) = root.get_base_pixel();
        let pixel = |at: (f64, f64)| {
            let (x, y) = context.backend_coord(&at);
            (f64::from(x - left), f64::from(y - top))
        };
        let (x, y) = context.plotting_area().get_pixel_range();
        let bounds = Place {
            left: f64::from(x.start - left),
            top: f64::from(y.start - top),
            right: f64::from(x.end - left),
            bottom: f64::from(y.end - top),
        };
        let size = f64::from(self.size.text * SCALE) / 1.24;
        let text = text.clone().pos(Pos::new(HPos::Left, VPos::Top));
        let write = |name: &str, x: f64, y: f64| {
            root.draw(&Text::new(
                name.to_owned(),
                (x.round() as i32, y.round() as i32),
                text.clone(),
            ))
        };
        let range = context.x_range();
        let marks = self.marks.iter().filter(|mark| {
            !mark.label.is_empty() && (range.start..=range.end).contains(&mark.step)
        });
        for (row, mark) in marks.enumerate() {
            let (x, _) = pixel((mark.step, 0.0));
            let (width, gap) = (size * estimated_width(&mark.label), f64::from(4 * SCALE));
            let is_right = x + gap + width <= bounds.right;
            let x = if is_right { x + gap } else { (x - gap - width).max(bounds.left) };
            write(&mark.label, x, bounds.top + 1.2 * size * row as f64)?;
        }
        let named: Vec<&Dot> = self.dots.iter().filter(|dot| !dot.name.is_empty()).collect();
        let points: Vec<(f64, f64)> = named.iter().map(|dot| pixel(dot.at)).collect();
        let sizes: Vec<(f64, f64)> =
            named.iter().map(|dot| (size * estimated_width(&dot.name), size)).collect();
        let places = place_names(&points, &sizes, &self.obstacles(pixel), bounds, f64::from(SCALE));
        for ((dot, point), of) in named.iter().zip(points).zip(places) {
            let Place { left, top, right, bottom } = of.place;
            if of.is_far {
                let end = (point.0.clamp(left, right), point.1.clamp(top, bottom));
                let ends = [point, end].map(|(x, y)| (x.round() as i32, y.round() as i32));
                root.draw(&PathElement::new(ends, color(dot.color).stroke_width(SCALE)))?;
            }
            write(&dot.name, left, top)?;
        }
        Ok(())
    }

    /// Returns the segments of the guides, which are horizontal or vertical, as rectangles.
    fn obstacles(&self, pixel: impl Fn((f64, f64)) -> (f64, f64)) -> Vec<Place> {
        let segments = self.guides.iter().flat_map(|guide| guide.windows(2));
        let thick = f64::from(3 * SCALE);
        let segment = |ends: &[(f64, f64)]| {
            let [from, to] = [pixel(ends[0]), pixel(ends[1])];
            let center = ((from.0 + to.0) / 2.0, (from.1 + to.1) / 2.0);
            Place::around(center, ((to.0 - from.0).abs() + thick, (to.1 - from.1).abs() + thick))
        };
        segments.map(segment).collect()
    }

    /// Returns the ranges of all data. That of values has a margin.
    fn ranges(&self) -> ((f64, f64), std::ops::Range<f64>) {
        let bands = self.bands.iter().flat_map(|band| band.lower.iter().chain(&band.upper));
        let curves = self.curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.line));
        let dots = self.dots.iter().map(|dot| &dot.at);
        let (mut x, mut y) = (EMPTY, EMPTY);
        for &(step, value) in bands.chain(curves).chain(dots) {
            x = (x.0.min(step), x.1.max(step));
            y = (y.0.min(value), y.1.max(value));
        }
        if self.from_zero {
            // Damaged files may contain negative values.
            y = (y.0.min(0.0), y.1.max(0.0));
        }
        let margin = margin(y);
        let low = if self.from_zero { y.0 } else { y.0 - margin };
        (x, low..y.1 + margin)
    }
}

const EMPTY: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);
