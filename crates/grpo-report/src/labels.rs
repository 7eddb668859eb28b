//! Positions of names next to the points of a chart.

/// A rectangle: left, top, right, bottom. The vertical axis points down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rectangle {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Rectangle {
    /// Returns the rectangle around a centre, with a width and a height.
    pub(crate) fn around((x, y): (f64, f64), (width, height): (f64, f64)) -> Self {
        Self {
            left: x - width / 2.0,
            top: y - height / 2.0,
            right: x + width / 2.0,
            bottom: y + height / 2.0,
        }
    }

    fn area(&self) -> f64 {
        (self.right - self.left).max(0.0) * (self.bottom - self.top).max(0.0)
    }

    /// Returns the area that two rectangles share.
    pub(crate) fn overlap(&self, other: &Self) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }
}

/// Where a name is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) place: Rectangle,
    /// Whether the name is so far from its point that a line should connect them.
    pub(crate) is_far: bool,
}

/// Distances between a point and its name, in units.
const DISTANCES: [f64; 6] = [8.0, 18.0, 32.0, 48.0, 66.0, 88.0];
/// Directions in order of preference. The vertical axis points down.
const DIRECTIONS: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (0.7, -0.7),
    (0.7, 0.7),
    (-0.7, -0.7),
    (-0.7, 0.7),
];

/// Places a name of each size next to its point, inside of `bounds`, so that names cover each other,
/// the points and the obstacles as little as possible. `unit` is the size of a displayed pixel.
/// Names are placed from right to left, each at the best of 48 positions.
pub(crate) fn place_names(
    points: &[(f64, f64)],
    sizes: &[(f64, f64)],
    obstacles: &[Rectangle],
    bounds: Rectangle,
    unit: f64,
) -> Vec<Placed> {
    let dots = points.iter().map(|at| Rectangle::around(*at, (10.0 * unit, 10.0 * unit)));
    let obstacles: Vec<Rectangle> = dots.chain(obstacles.iter().copied()).collect();
    // Points at the right edge have the fewest free positions.
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| points[*b].0.total_cmp(&points[*a].0));
    let mut placed: Vec<(usize, Placed)> = Vec::new();
    for index in order {
        let ((x, y), (width, height)) = (points[index], sizes[index]);
        let candidates = DISTANCES.iter().flat_map(|distance| {
            DIRECTIONS.iter().map(move |(right, down)| {
                let far = distance * unit;
                // The nearest edge or corner is `far` away.
                let beyond = |direction: f64, size: f64| match direction {
                    0.0 => 0.0,
                    _ => direction * far + direction.signum() * size / 2.0,
                };
                let (across, along) = (beyond(*right, width), beyond(*down, height));
                let place = Rectangle::around((x + across, y + along), (width, height));
                (distance, Placed { place, is_far: *distance > DISTANCES[0] })
            })
        });
        let cost = |distance: f64, place: &Rectangle| {
            let others = placed.iter().map(|(_, other)| place.overlap(&other.place)).sum::<f64>();
            let obstacles = obstacles.iter().map(|of| place.overlap(of)).sum::<f64>();
            let outside = place.area() - place.overlap(&bounds);
            // Among places without overlap, the nearest is the best one.
            others + obstacles + 4.0 * outside + 0.1 * distance * unit * unit
        };
        let costs = candidates.map(|(distance, of)| (cost(*distance, &of.place), of));
        let best = costs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are candidates");
        placed.push((index, best.1));
    }
    placed.sort_by_key(|(index, _)| *index);
    placed.into_iter().map(|(_, of)| of).collect()
}

/// Returns the width of a text in units of the font size, estimated from the number of characters.
pub(crate) fn estimated_width(text: &str) -> f64 {
    // Characters of three bytes or more are mostly those of East Asian scripts, which are wide.
    text.chars().map(|c| if c.len_utf8() > 2 && c != '…' { 0.85 } else { 0.47 }).sum()
}

/// Replaces the middle of a text of more than `most` characters with an ellipsis. Names often
/// differ at the end.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= most {
        return text.to_owned();
    }
    let end = (most - 1) / 2;
    let start = most - 1 - end;
    let (start, end) = (&characters[..start], &characters[characters.len() - end..]);
    start.iter().chain(&['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Rectangle = Rectangle { left: 0.0, top: 0.0, right: 600.0, bottom: 400.0 };

    #[test]
    fn a_lone_name_is_to_the_right_and_to_the_left_at_the_edge() {
        let placed = place_names(&[(100.0, 200.0)], &[(80.0, 16.0)], &[], BOUNDS, 1.0);
        let place = Rectangle { left: 108.0, top: 192.0, right: 188.0, bottom: 208.0 };
        assert_eq!(placed, [Placed { place, is_far: false }]);
        let placed = place_names(&[(590.0, 200.0)], &[(80.0, 16.0)], &[], BOUNDS, 1.0);
        assert_eq!(placed[0].place.right, 582.0);
    }

    #[test]
    fn a_name_avoids_obstacles() {
        let right = Rectangle { left: 105.0, top: 190.0, right: 600.0, bottom: 195.0 };
        let placed = place_names(&[(100.0, 200.0)], &[(80.0, 16.0)], &[right], BOUNDS, 1.0);
        assert_eq!(placed[0].place.right, 92.0);
    }

    #[test]
    fn twelve_crowded_names_neither_cover_each_other_nor_leave_the_chart() {
        let points: Vec<(f64, f64)> = (0..12)
            .map(|i| (250.0 + 14.0 * f64::from(i % 4), 180.0 + 9.0 * f64::from(i / 4)))
            .collect();
        let placed = place_names(&points, &[(90.0, 16.0); 12], &[], BOUNDS, 1.0);
        for (i, one) in placed.iter().enumerate() {
            assert_eq!(one.place.overlap(&BOUNDS), one.place.area(), "{i}");
            for other in &placed[..i] {
                assert_eq!(one.place.overlap(&other.place), 0.0, "{i}");
            }
        }
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(shortened("grpo", 8), "grpo");
        assert_eq!(shortened("grpo-lr-1e-4", 8), "grpo…e-4");
        assert_eq!(shortened("ééééééééé", 4), "éé…é");
    }
}
