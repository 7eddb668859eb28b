//! A chart with its title, caption and legend, for a page and as a document of its own.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::chart::{Area, Chart, Drawn, INK, SCALE, Size, css_color, draw_sample, svg};
use crate::html::printable;
use crate::labels::{estimated_width, shortened};
use crate::panels::{Key, Panel};

/// A chart as a standalone SVG document.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonChart {
    /// Name of the file, such as `pass_at_k.svg`. It contains only letters, digits, `_` and `-`
    /// before the ending, and no two charts of a page have the same.
    pub file_name: String,
    /// Title.
    pub title: String,
    /// The document.
    pub svg: String,
}

/// A chart with its title, caption and legend.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Name of the file without its ending.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) caption: String,
    pub(crate) chart: Chart,
    /// Names of the curves with their indices of colour.
    pub(crate) legend: Vec<(usize, String)>,
}

/// Size of all figures.
pub(crate) const SIZE: Size = Size { width: 560, height: 320, text: 17 };
/// Space at the edges of a document, in pixels.
const EDGE: u32 = 12;
/// Height of the title of a document, and of a row of its legend, in pixels.
const ROW: u32 = 24;
/// Width of the sample of a curve in a legend, in pixels.
const SAMPLE: u32 = 22;
/// Colours of a document, in place of those that the style sheet of a page replaces. Text nodes
/// cannot contain a quotation mark, so no name is replaced.
const DOCUMENT_COLORS: [(&str, &str); 4] = [
    ("fill=\"#010101\"", "fill=\"#1B1F24\""),
    ("stroke=\"#010101\"", "stroke=\"#1B1F24\""),
    ("stroke=\"#020202\"", "stroke=\"#D5DAE0\""),
    ("stroke=\"#030303\"", "stroke=\"#D1494B\" stroke-dasharray=\"16 12\""),
];

impl Figure {
    /// Returns the chart for the page.
    pub(crate) fn panel(&self) -> Panel {
        let key = |(color, label): &(usize, String)| Key {
            label: label.clone(),
            color: css_color(*color),
        };
        Panel {
            title: self.title.clone(),
            meaning: String::new(),
            caption: self.caption.clone(),
            svg: self.chart.svg(),
            legend: self.legend.iter().map(key).collect(),
        }
    }

    /// Returns the chart as a document with the name of its file.
    pub(crate) fn document(&self) -> ComparisonChart {
        let file_name = format!("{}.svg", self.file);
        ComparisonChart { file_name, title: self.title.clone(), svg: self.standalone() }
    }

    /// Returns the chart as an SVG document.
    pub(crate) fn standalone(&self) -> String {
        let rows = self.rows();
        let height = SIZE.height + ROW * (rows.len() as u32 + 2);
        let attributes = format!("width=\"{}\" height=\"{height}\" ", SIZE.width);
        let mut svg = svg(Size { height, ..SIZE }, &attributes, |root| {
            root.fill(&WHITE)?;
            let (title, rest) = root.split_vertically((ROW * 3 / 2) * SCALE);
            let (chart, legend) = rest.split_vertically(SIZE.height * SCALE);
            let place = ((EDGE * SCALE) as i32, (ROW * SCALE / 2) as i32);
            title.draw(&Text::new(shortened(&self.title, 60), place, text(20)))?;
            self.chart.draw(&chart)?;
            draw_legend(&legend, &rows)
        });
        for (placeholder, color) in DOCUMENT_COLORS {
            svg = svg.replace(placeholder, color);
        }
        printable(&svg)
    }

    /// Distributes the legend over rows: name, colour and distance from the left in pixels.
    fn rows(&self) -> Vec<Vec<(String, usize, u32)>> {
        let mut rows: Vec<Vec<(String, usize, u32)>> = Vec::new();
        let mut left = SIZE.width;
        for (color, name) in &self.legend {
            let name = shortened(name, 56);
            let width = (f64::from(SIZE.text) / 1.24 * estimated_width(&name)) as u32 + SAMPLE + 24;
            if left + width > SIZE.width - EDGE {
                rows.push(Vec::new());
                left = EDGE;
            }
            rows.last_mut().expect("the first name begins a row").push((name, *color, left));
            left += width;
        }
        rows
    }
}

fn draw_legend(area: &Area<'_>, rows: &[Vec<(String, usize, u32)>]) -> Drawn {
    let at =
        |x: u32, row: usize| ((x * SCALE) as i32, ((row as u32 * ROW + ROW / 2) * SCALE) as i32);
    for (row, names) in rows.iter().enumerate() {
        for (name, color, left) in names {
            draw_sample(area, *color, [at(*left, row), at(left + SAMPLE, row)])?;
            let place = at(left + SAMPLE + 6, row);
            area.draw(&Text::new(name.clone(), place, text(SIZE.text)))?;
        }
    }
    Ok(())
}

/// Returns the style of a text whose position is that of its left end, halfway up.
fn text(size: u32) -> TextStyle<'static> {
    let style = ("sans-serif", size * SCALE).into_font().color(&INK);
    style.pos(Pos::new(HPos::Left, VPos::Center))
}
