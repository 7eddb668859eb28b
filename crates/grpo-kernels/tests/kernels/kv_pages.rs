//! Attention over paged keys and values.

use burn::tensor::Tensor;
use grpo_kernels::{Heads, KvPages, PAGE, Packing, PagePlan, Scoring, Sequence, attention, is_cpu};

use crate::support::{assert_close, bits, device, host, tensor, values};

/// Pages of three sequences, in arbitrary order. The first page is shared by two of them.
/// The first sequence is longer than what the units of a GPU read at once.
const PAGES: [&[u32]; 3] = [&[4, 1, 5, 11, 6, 10, 7, 9, 8], &[4, 2], &[0]];
const LENGTHS: [usize; 3] = [8 * PAGE + 5, PAGE + 1, 7];
const COUNT: usize = 12;
/// Small enough that rounding errors of the scores are negligible.
const SCALE: f64 = 0.05;

/// The visible positions of a row.
#[derive(Clone, Copy)]
struct Seen {
    pages: &'static [u32],
    positions: usize,
}

/// Plans a row for each place.
fn at(places: &[usize]) -> PagePlan {
    let mut plan = PagePlan::new();
    for place in places {
        plan.push(&[(place / PAGE) as u32], place % PAGE..place % PAGE + 1);
    }
    plan
}

fn copying(from: usize, to: usize) -> PagePlan {
    let mut plan = PagePlan::new();
    plan.copy(from as u32, to as u32);
    plan
}

/// Plans a row at the last position of each `seen`.
fn reading(seen: &[Seen]) -> PagePlan {
    let mut plan = PagePlan::new();
    seen.iter().for_each(|seen| plan.push(seen.pages, seen.positions - 1..seen.positions));
    plan
}

struct Case {
    heads: Heads,
    /// Keys for all positions, `[COUNT · PAGE, kv heads · width]`.
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl Case {
    fn new(heads: Heads) -> Self {
        let size = COUNT * PAGE * heads.key_columns();
        Self { heads, keys: values(size, 1), values: values(size, 2) }
    }

    /// Fills the cache in two steps, and copies a page.
    fn fill(&self, mut pages: KvPages) -> KvPages {
        let columns = self.heads.key_columns();
        let rows = |numbers: &[f64], places: &[usize]| -> Tensor<2> {
            let rows = places.iter().flat_map(|&p| numbers[p * columns..][..columns].to_vec());
            tensor(&rows.collect::<Vec<f64>>(), [places.len(), columns], &device())
        };
        pages.grow_to(2);
        pages.grow_to(COUNT);
        assert_eq!(pages.pages(), COUNT);
        let odd_first: Vec<usize> =
            (0..COUNT * PAGE).filter(|p| p % 2 == 1).chain((0..COUNT * PAGE).step_by(2)).collect();
        for places in odd_first.chunks(37) {
            pages.write(rows(&self.keys, places), rows(&self.values, places), &at(places));
        }
        // Copy a page there and back.
        pages.grow_to(COUNT + 1);
        pages.write(rows(&[], &[]), rows(&[], &[]), &copying(2, COUNT));
        let zeros = || Tensor::zeros([PAGE, columns], &device());
        pages.write(zeros(), zeros(), &at(&(2 * PAGE..3 * PAGE).collect::<Vec<_>>()));
        pages.write(rows(&[], &[]), rows(&[], &[]), &copying(COUNT, 2));
        pages
    }

    /// Computes attention from the definition in f64.
    fn oracle(&self, query: &[f64], seen: Seen, scoring: Scoring) -> Vec<f64> {
        let Scoring { scale, window, cap } = scoring;
        let Heads { heads, kv_heads, width } = self.heads;
        let columns = self.heads.key_columns();
        (0..heads)
            .flat_map(|head| {
                let kv = head / (heads / kv_heads);
                let of = |numbers: &[f64], at: usize| {
                    let place = seen.pages[at / PAGE] as usize * PAGE + at % PAGE;
                    numbers[place * columns + kv * width..][..width].to_vec()
                };
                let query = &query[head * width..][..width];
                let weights: Vec<f64> = (0..seen.positions)
                    .map(|at| {
                        let keys = of(&self.keys, at);
                        let score = scale * query.iter().zip(keys).map(|(q, k)| q * k).sum::<f64>();
                        let score = cap.map_or(score, |cap| cap * (score / cap).tanh());
                        let is_too_far = window.is_some_and(|window| at + window < seen.positions);
                        if is_too_far { 0.0 } else { score.exp() }
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                let mut out = vec![0.0; width];
                for (at, weight) in weights.iter().enumerate() {
                    for (out, value) in out.iter_mut().zip(of(&self.values, at)) {
                        *out += weight / total * value;
                    }
                }
                out
            })
            .collect()
    }
}

fn shapes() -> impl Iterator<Item = Heads> {
    [(1, 1, 1), (2, 2, 8), (4, 2, 16), (6, 2, 20), (3, 1, 64), (2, 1, 35)]
        .into_iter()
        .map(|(heads, kv_heads, width)| Heads { heads, kv_heads, width })
}

/// Returns the visible positions of each sequence for several lengths.
fn seen() -> Vec<Seen> {
    let of = |(&pages, length): (&&'static [u32], usize)| {
        [1, 2, 5, PAGE - 1, PAGE, PAGE + 1, length]
            .into_iter()
            .filter(move |&positions| positions <= length)
            .map(move |positions| Seen { pages, positions })
    };
    PAGES.iter().zip(LENGTHS).flat_map(of).collect()
}

/// Without a window, and with windows around the borders of pages, with and without a cap.
fn scorings(scale: f64) -> impl Iterator<Item = Scoring> {
    let windows = [None, Some(1), Some(5), Some(PAGE), Some(PAGE + 1), Some(3 * PAGE), Some(1000)];
    let caps = [None, Some(0.5)];
    windows
        .into_iter()
        .flat_map(move |window| caps.map(|cap| Scoring { window, cap, ..scale.into() }))
}

#[test]
fn both_stores_match_the_definition() {
    for heads in shapes() {
        let case = Case::new(heads);
        let seen = seen();
        let (n, columns) = (seen.len(), heads.query_columns());
        let query = values(n * columns, 3);
        let both = [KvPages::new(heads, &device()), KvPages::plain(heads, &device())]
            .map(|pages| case.fill(pages));
        for scoring in scorings(SCALE) {
            let expected: Vec<f64> = query
                .chunks(columns)
                .zip(&seen)
                .flat_map(|(query, &seen)| case.oracle(query, seen, scoring))
                .collect();
            for pages in &both {
                let input = tensor(&query, [n, columns], &device());
                assert_close(&host(pages.attend(input, &reading(&seen), scoring)), &expected, 1e-6);
            }
        }
    }
}

#[test]
fn no_row_depends_on_the_others() {
    // Without a kernel for these heads, a GPU pads the rows.
    let has_kernel = |heads: &Heads| is_cpu(&device()) || heads.width.is_power_of_two();
    for heads in shapes().filter(has_kernel) {
        let case = Case::new(heads);
        let pages = case.fill(KvPages::new(heads, &device()));
        let seen = seen();
        let columns = heads.query_columns();
        let query = values(seen.len() * columns, 3);
        let attend = |query: &[f64], seen: &[Seen]| -> Vec<u32> {
            let query = tensor(query, [seen.len(), columns], &device());
            let out = pages.attend(query, &reading(seen), SCALE);
            out.into_data().iter::<f32>().map(f32::to_bits).collect()
        };
        let together = attend(&query, &seen);
        let alone: Vec<u32> = query
            .chunks(columns)
            .zip(&seen)
            .flat_map(|(query, seen)| attend(query, std::slice::from_ref(seen)))
            .collect();
        assert_eq!(together, alone);
    }
}

/// A token has the same output in sampling and in training, whether its sequence is read at once or
/// continues a shared prompt.
#[test]
fn pages_have_the_bits_of_packed_sequences() {
    if !is_cpu(&device()) {
        return;
    }
    for heads in shapes() {
        for (own, prompt) in [(1, 0), (15, 0), (16, 0), (17, 0), (150, 0), (20, 5), (33, 130)] {
            let n = prompt + own;
            let columns = [heads.query_columns(), heads.key_columns()];
            let of = |columns: usize, seed: u64| {
                tensor(&values(n * columns, seed), [n, columns], &device())
            };
            let (query, keys, values) = (of(columns[0], 1), of(columns[1], 2), of(columns[1], 3));
            let mut pages = KvPages::new(heads, &device());
            pages.grow_to(n.div_ceil(PAGE));
            let mut plan = PagePlan::new();
            plan.push(&(0..n.div_ceil(PAGE) as u32).collect::<Vec<_>>(), 0..n);
            pages.write(keys.clone(), values.clone(), &plan);
            let sequences = match prompt {
                0 => vec![Sequence { rows: 0..n, behind: None }],
                _ => vec![
                    Sequence { rows: 0..prompt, behind: None },
                    Sequence { rows: prompt..n, behind: Some(0) },
                ],
            };
            let packing = Packing::new(sequences, true);
            for scoring in scorings(0.3) {
                let expected = bits(pages.attend(query.clone(), &plan, scoring));
                let (keys, values) = (keys.clone(), values.clone());
                let packed = attention(query.clone(), keys, values, heads, scoring, &packing);
                assert_eq!(bits(packed), expected, "{heads:?}, {scoring:?}, {own} behind {prompt}");
            }
        }
    }
}

/// Positions of a page beyond the visible ones are never used.
#[test]
fn nothing_is_seen_beyond_the_positions() {
    let heads = Heads { heads: 2, kv_heads: 1, width: 8 };
    for mut pages in [KvPages::new(heads, &device()), KvPages::plain(heads, &device())] {
        pages.grow_to(1);
        let row = |value: f64| tensor(&[value; 8], [1, 8], &device());
        pages.write(row(0.5), row(0.25), &at(&[0]));
        pages.write(row(f64::NAN), row(f64::NAN), &at(&[1]));
        let query = tensor(&[1.0; 16], [1, 16], &device());
        let out = host(pages.attend(query, &at(&[0]), 1.0));
        assert_eq!(out, [0.25; 16]);
    }
}

#[test]
#[should_panic(expected = "17 positions exceed 1 pages")]
fn more_positions_than_the_pages_hold() {
    PagePlan::new().push(&[0], 0..PAGE + 1);
}

#[test]
#[should_panic(expected = "a row attends to a page that does not exist")]
fn seeing_a_page_that_is_not_there() {
    let heads = Heads { heads: 1, kv_heads: 1, width: 4 };
    let mut cache = KvPages::new(heads, &device());
    cache.grow_to(2);
    let query = tensor(&[1.0; 4], [1, 4], &device());
    cache.attend(query, &at(&[2 * PAGE]), 1.0);
}

#[test]
#[should_panic(expected = "a row is written to a page that does not exist")]
fn writing_beyond_the_pages() {
    let heads = Heads { heads: 1, kv_heads: 1, width: 4 };
    let row = || tensor(&[1.0; 4], [1, 4], &device());
    KvPages::new(heads, &device()).write(row(), row(), &at(&[0]));
}
