//! Draws molecules as skeletal formulas in SVG.
//!
//! The toolkit computes the layout and the positions of double bonds in aromatic rings. This module
//! draws lines and labels. The second line of a double bond is inside its ring, lines end before a
//! label, and colors adapt to the page (`currentColor`). Stereochemistry is not drawn, because the
//! toolkit's layout does not include wedges for ring atoms. It is included in the SMILES next to a
//! drawing.

use std::fmt::Write as _;

use chematic::core::{AtomIdx, BondOrder, Molecule, apply_kekule, implicit_hcount, kekulize};
use chematic::depict::{BOND_LEN, compute_layout};

/// Margin around the outermost atoms, in layout units. A bond has a length of 40.
const MARGIN: f64 = 22.0;
/// Font size of atom labels.
const FONT: f64 = 17.0;
/// Distance between a labelled atom and the end of its bonds.
const GAP: f64 = 11.0;
/// Distance between the two lines of a double bond.
const SECOND: f64 = 6.0;

/// A point in the drawing. The `y` axis points down.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

impl Point {
    fn toward(self, other: Self, share: f64) -> Self {
        Self { x: self.x + share * (other.x - self.x), y: self.y + share * (other.y - self.y) }
    }

    fn distance(self, other: Self) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// Draws a sanitized molecule. `rings` contains the atoms of each ring.
pub(crate) fn draw(model: &Molecule, rings: &[Vec<AtomIdx>]) -> String {
    // If there is no Kekulé structure, aromatic bonds are drawn with a dashed second line.
    let kekule = kekulize(model).ok().map(|bonds| apply_kekule(model, &bonds));
    let model = kekule.as_ref().unwrap_or(model);
    let places = upright(places(model));
    let labels: Vec<Option<Label>> = (0..model.atom_count()).map(|i| label(model, i)).collect();
    let left = least(places.iter().map(|place| place.x)) - MARGIN;
    let top = least(places.iter().map(|place| place.y)) - MARGIN;
    let width = -least(places.iter().map(|place| -place.x)) + MARGIN - left;
    let height = -least(places.iter().map(|place| -place.y)) + MARGIN - top;
    // Reserve space for the labels of the outermost atoms.
    let beside = labels.iter().flatten().map(|label| label.width()).fold(0.0, f64::max);
    let mut svg = format!(
        "<svg class=\"molecule\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{:.1} {top:.1} {:.1} {height:.1}\" \
         width=\"{:.0}\" height=\"{height:.0}\" role=\"img\">\
         <g stroke=\"currentColor\" stroke-width=\"2\" stroke-linecap=\"round\">",
        left - beside,
        width + 2.0 * beside,
        width + 2.0 * beside,
    );
    for (_, bond) in model.bonds() {
        let ends = [bond.atom1.0 as usize, bond.atom2.0 as usize];
        let [a, b] = ends.map(|end| places[end]);
        let length = a.distance(b).max(1.0);
        let cut = |end: usize| if labels[end].is_some() { (GAP / length).min(0.4) } else { 0.0 };
        let (from, to) = (a.toward(b, cut(ends[0])), b.toward(a, cut(ends[1])));
        let inside = inside(ends, rings, &places);
        bond_lines(&mut svg, bond.order, [from, to], [a, b], inside);
    }
    svg.push_str("</g>");
    for (i, label) in labels.iter().enumerate() {
        let Some(label) = label else { continue };
        let neighbors = model.neighbors(AtomIdx(i as u32)).map(|(atom, _)| places[atom.0 as usize]);
        label.write(&mut svg, places[i], free_side(places[i], &neighbors.collect::<Vec<_>>()));
    }
    svg.push_str("</svg>");
    svg
}

fn places(model: &Molecule) -> Vec<Point> {
    let layout = compute_layout(model);
    let place = |i| {
        let point = layout.get(AtomIdx(i as u32));
        Point { x: point.x, y: point.y }
    };
    (0..model.atom_count()).map(place).collect()
}

/// Rotates a drawing by 90° if it is significantly taller than wide.
fn upright(places: Vec<Point>) -> Vec<Point> {
    let span = |of: fn(&Point) -> f64| {
        -least(places.iter().map(|place| -of(place))) - least(places.iter().map(of))
    };
    if span(|place| place.y) <= 1.2 * span(|place| place.x) {
        return places;
    }
    places.iter().map(|place| Point { x: -place.y, y: place.x }).collect()
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

/// Returns the center of the smallest ring that contains a bond. The second line of a double bond
/// is drawn on this side.
fn inside(ends: [usize; 2], rings: &[Vec<AtomIdx>], places: &[Point]) -> Option<Point> {
    let ring = rings
        .iter()
        .filter(|ring| ends.iter().all(|end| ring.contains(&AtomIdx(*end as u32))))
        .min_by_key(|ring| ring.len())?;
    let n = ring.len() as f64;
    let sum = |of: fn(&Point) -> f64| {
        ring.iter().map(|atom| of(&places[atom.0 as usize])).sum::<f64>() / n
    };
    Some(Point { x: sum(|place| place.x), y: sum(|place| place.y) })
}

fn bond_lines(
    svg: &mut String,
    order: BondOrder,
    [from, to]: [Point; 2],
    [a, b]: [Point; 2],
    inside: Option<Point>,
) {
    let length = a.distance(b).max(1.0);
    // The unit vector perpendicular to the bond.
    let across = Point { x: -(b.y - a.y) / length, y: (b.x - a.x) / length };
    let beside =
        |place: Point, by: f64| Point { x: place.x + by * across.x, y: place.y + by * across.y };
    match order {
        BondOrder::Double | BondOrder::Aromatic => {
            let dashed = order == BondOrder::Aromatic;
            match inside {
                Some(middle) => {
                    let side = (middle.x - a.x) * across.x + (middle.y - a.y) * across.y;
                    let by = SECOND * side.signum();
                    line(svg, from, to, false);
                    let short = 0.12 * BOND_LEN / from.distance(to).max(1.0);
                    let (from, to) = (from.toward(to, short), to.toward(from, short));
                    line(svg, beside(from, by), beside(to, by), dashed);
                }
                None => {
                    line(svg, beside(from, SECOND / 2.0), beside(to, SECOND / 2.0), false);
                    line(svg, beside(from, -SECOND / 2.0), beside(to, -SECOND / 2.0), dashed);
                }
            }
        }
        BondOrder::Triple => {
            for by in [0.0, SECOND, -SECOND] {
                line(svg, beside(from, by), beside(to, by), false);
            }
        }
        BondOrder::Zero | BondOrder::Dative => line(svg, from, to, true),
        _ => line(svg, from, to, false),
    }
}

fn line(svg: &mut String, from: Point, to: Point, dashed: bool) {
    let dashes = if dashed { " stroke-dasharray=\"3 4\"" } else { "" };
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"{dashes}/>",
        from.x, from.y, to.x, to.y
    );
}

/// The label of an atom: an element symbol with isotope, hydrogens and charge.
struct Label {
    isotope: Option<u16>,
    symbol: &'static str,
    hydrogens: u8,
    charge: i8,
}

/// Returns the label of an atom, or `None` for carbon atoms without a label.
fn label(model: &Molecule, atom: usize) -> Option<Label> {
    let index = AtomIdx(atom as u32);
    let found = model.atom(index);
    let symbol = found.element.symbol();
    let is_plain = found.charge == 0 && found.isotope.is_none();
    if symbol == "C" && is_plain && model.degree(index) > 0 {
        return None;
    }
    let hydrogens = implicit_hcount(model, index);
    Some(Label { isotope: found.isotope, symbol, hydrogens, charge: found.charge })
}

impl Label {
    /// Returns the approximate width of the characters after the first one.
    fn width(&self) -> f64 {
        let letters = self.symbol.len() + usize::from(self.hydrogens > 0);
        FONT * 0.6 * (letters as f64 - 1.0)
            + if self.hydrogens > 1 || self.charge != 0 { 10.0 } else { 0.0 }
    }

    fn charge(&self) -> String {
        match (self.charge, self.charge.unsigned_abs()) {
            (0, _) => String::new(),
            (1, _) => "+".to_owned(),
            (-1, _) => "−".to_owned(),
            (charge, size) => format!("{size}{}", if charge > 0 { '+' } else { '−' }),
        }
    }

    /// Draws the symbol at the position of the atom and the hydrogens on the free side.
    fn write(&self, svg: &mut String, at: Point, free: Side) {
        let symbol = self.symbol;
        let isotope = raised(&self.isotope.map(|mass| mass.to_string()).unwrap_or_default());
        let charge = raised(&self.charge());
        let hydrogens = match self.hydrogens {
            0 => String::new(),
            1 => "H".to_owned(),
            count => format!("H{}", lowered(count)),
        };
        let half = FONT * 0.36 * symbol.len() as f64;
        let mut text = |anchor: &str, x: f64, y: f64, text: &str| {
            let _ = write!(
                svg,
                "<text class=\"atom-{symbol}\" x=\"{x:.1}\" y=\"{:.1}\" font-family=\"sans-serif\" font-size=\"{FONT}\" \
                 fill=\"{}\" text-anchor=\"{anchor}\">{text}</text>",
                y + 0.36 * FONT,
                color(symbol)
            );
        };
        let is_alone = self.hydrogens == 0 || self.isotope.is_some();
        match free {
            Side::Left if !is_alone => {
                // Leave space for the charge, which follows the symbol.
                let beyond = if self.charge == 0 { 0.0 } else { 0.5 * FONT };
                text("end", at.x + half + beyond, at.y, &format!("{hydrogens}{symbol}{charge}"));
            }
            Side::Above | Side::Below if !is_alone => {
                let by = if free == Side::Above { -LINE } else { LINE };
                text("middle", at.x, at.y, symbol);
                text("middle", at.x, at.y + by, &format!("{hydrogens}{charge}"));
            }
            _ => {
                let digits = self.isotope.map_or(0, |mass| mass.to_string().len());
                let before = SMALL * 0.55 * digits as f64;
                let all = format!("{isotope}{symbol}{hydrogens}{charge}");
                text("start", at.x - half - before, at.y, &all);
            }
        }
    }
}

/// Vertical distance between a symbol and hydrogens above or below it.
const LINE: f64 = 0.9 * FONT;
/// Font size of subscripts and superscripts.
const SMALL: f64 = 0.72 * FONT;

fn raised(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!(
        "<tspan font-size=\"{SMALL:.1}\" dy=\"-6\">{text}</tspan><tspan dy=\"6\">&#8203;</tspan>"
    )
}

fn lowered(count: u8) -> String {
    format!(
        "<tspan font-size=\"{SMALL:.1}\" dy=\"4\">{count}</tspan><tspan dy=\"-4\">&#8203;</tspan>"
    )
}

/// A side of an atom that has no bonds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Right,
    Left,
    Above,
    Below,
}

/// Returns a free side of the atom, preferably the right one.
fn free_side(at: Point, neighbors: &[Point]) -> Side {
    let is_free = |toward: fn(Point, Point) -> f64| {
        neighbors.iter().all(|neighbor| toward(at, *neighbor) < 0.3 * BOND_LEN)
    };
    if is_free(|at, neighbor| neighbor.x - at.x) {
        return Side::Right;
    }
    if is_free(|at, neighbor| at.x - neighbor.x) {
        return Side::Left;
    }
    let down: f64 = neighbors.iter().map(|neighbor| neighbor.y - at.y).sum();
    if down > 0.0 { Side::Above } else { Side::Below }
}

/// Returns a color that is readable on both light and dark backgrounds.
fn color(symbol: &str) -> &'static str {
    match symbol {
        "N" => "#3b78e7",
        "O" => "#e0403a",
        "S" => "#b98a00",
        "F" | "Cl" => "#2e9e44",
        "Br" => "#b0563a",
        "I" => "#9b59b6",
        "P" => "#d97706",
        _ => "currentColor",
    }
}
