//! Pictures of attention maps.

use std::fmt::Write;

use crate::html::printable;

/// Attention weights of a sequence, for all layers and heads.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMaps {
    /// Texts of the tokens, `[n]`.
    pub tokens: Vec<String>,
    /// Weights by layer and head. Each map has `n` rows of queries with `n` keys, `[n · n]`, and
    /// rows that sum to 1.
    pub layers: Vec<Vec<Vec<f32>>>,
}

/// Width and height of a map in pixels.
const SIDE: f64 = 168.0;
/// Space between maps.
const GAP: f64 = 14.0;
/// Space for a heading above the maps.
const HEAD: f64 = 22.0;
/// Number of shades. A weight below half a shade is not drawn.
const SHADES: usize = 32;

impl AttentionMaps {
    /// Returns the mean over the heads of a layer, `[n · n]`.
    pub fn mean_of_heads(&self, layer: usize) -> Vec<f32> {
        let heads = &self.layers[layer];
        let mean = |at: usize| heads.iter().map(|head| head[at]).sum::<f32>() / heads.len() as f32;
        (0..self.tokens.len() * self.tokens.len()).map(mean).collect()
    }

    /// Draws a row of maps for each layer: the mean over its heads, then each head. Each map has a
    /// row per query and a column per key; darker cells have larger weights.
    pub fn svg(&self) -> String {
        let n = self.tokens.len();
        let font = (SIDE / n.max(1) as f64 * 0.9).clamp(2.0, 9.0);
        let longest = self.tokens.iter().map(|token| token.chars().count()).max().unwrap_or(0);
        let margin = 12.0 + font * 0.62 * longest as f64;
        let heads = self.layers.iter().map(Vec::len).max().unwrap_or(0);
        let row = SIDE + GAP + HEAD + margin;
        let width = margin + (heads as f64 + 1.0) * (SIDE + GAP);
        let height = row * self.layers.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"system-ui, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        for layer in 0..self.layers.len() {
            let mean = self.mean_of_heads(layer);
            let maps = std::iter::once(&mean).chain(&self.layers[layer]);
            for (column, map) in maps.enumerate() {
                let x = margin + column as f64 * (SIDE + GAP);
                let y = row * layer as f64 + HEAD + margin;
                let heading = match column {
                    0 => format!("layer {}, mean of heads", layer + 1),
                    head => format!("head {head}"),
                };
                let _infallible = write!(
                    svg,
                    "<g transform=\"translate({x:.1} {y:.1})\"><text y=\"{:.1}\" font-size=\"11\" fill=\"#333\">{heading}</text>",
                    -margin
                );
                if column == 0 {
                    self.labels(&mut svg, font);
                }
                cells(&mut svg, map, n);
                svg.push_str("</g>\n");
            }
        }
        svg + "</svg>\n"
    }

    /// Writes the tokens at the rows and columns of a map.
    fn labels(&self, svg: &mut String, font: f64) {
        let step = SIDE / self.tokens.len().max(1) as f64;
        for (index, token) in self.tokens.iter().enumerate() {
            let middle = (index as f64 + 0.5) * step;
            let token = escaped(token);
            let base = middle + font * 0.35;
            let _infallible = write!(
                svg,
                "<text x=\"-3\" y=\"{base:.1}\" font-size=\"{font:.1}\" text-anchor=\"end\" fill=\"#555\">{token}</text><text transform=\"translate({base:.1} -3) rotate(-90)\" font-size=\"{font:.1}\" fill=\"#555\">{token}</text>"
            );
        }
    }
}

/// Draws the cells of a map, all cells of a shade as one path.
fn cells(svg: &mut String, map: &[f32], n: usize) {
    let step = SIDE / n.max(1) as f64;
    let mut paths = vec![String::new(); SHADES + 1];
    for (place, weight) in map.iter().enumerate() {
        let shade = (weight.clamp(0.0, 1.0) * SHADES as f32).round() as usize;
        if shade == 0 {
            continue;
        }
        let (x, y) = ((place % n) as f64 * step, (place / n) as f64 * step);
        let _infallible = write!(paths[shade], "M{x:.2} {y:.2}h{step:.2}v{step:.2}h-{step:.2}z");
    }
    let _infallible = write!(
        svg,
        "<rect width=\"{SIDE}\" height=\"{SIDE}\" fill=\"none\" stroke=\"#ccc\" stroke-width=\"0.5\"/>"
    );
    for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let opacity = shade as f64 / SHADES as f64;
        let _infallible =
            write!(svg, "<path fill=\"#1f4e9c\" fill-opacity=\"{opacity:.3}\" d=\"{path}\"/>");
    }
}

/// Escapes a token for XML. Blanks, which would vanish, are shown.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    printable(&text.replace(' ', "␣").replace(['\n', '\t'], "␣"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_head_has_a_map() {
        let maps = AttentionMaps {
            tokens: vec!["<".to_owned(), "C".to_owned()],
            layers: vec![vec![vec![1.0, 0.0, 0.5, 0.5], vec![1.0, 0.0, 0.0, 1.0]]],
        };
        assert_eq!(maps.mean_of_heads(0), [1.0, 0.0, 0.25, 0.75]);
        let svg = maps.svg();
        assert_eq!(svg.matches("<g ").count(), 3);
        assert!(svg.contains("layer 1, mean of heads") && svg.contains("head 2"), "{svg}");
        assert!(svg.contains(">&lt;</text>") && !svg.contains("><</text>"), "{svg}");
        // The mean map has cells of three shades, and a weight of 0 is not drawn.
        assert_eq!(svg.matches("<path ").count(), 3 + 2 + 1);
    }
}
