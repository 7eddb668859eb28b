//! Attention over paged keys and values.

use burn::tensor::{Device, Tensor};
use grpo_kernels::{Heads, KvPages, PAGE, Seen};

use crate::support::{assert_close, host, tensor, values};

/// Pages of three sequences, in arbitrary order. The first page is shared by two of them.
const PAGES: [&[u32]; 3] = [&[4, 1, 5], &[4, 2], &[0]];
const LENGTHS: [usize; 3] = [2 * PAGE + 5, PAGE + 1, 7];
const COUNT: usize = 6;
/// Small enough that rounding errors of the scores are negligible.
const SCALE: f64 = 0.05;

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
            tensor(&rows.collect::<Vec<f64>>(), [places.len(), columns], &Device::flex())
        };
        pages.grow_to(2);
        pages.grow_to(COUNT);
        assert_eq!(pages.pages(), COUNT);
        let odd_first: Vec<usize> =
            (0..COUNT * PAGE).filter(|p| p % 2 == 1).chain((0..COUNT * PAGE).step_by(2)).collect();
        for places in odd_first.chunks(37) {
            pages.write(rows(&self.keys, places), rows(&self.values, places), places);
        }
        // Copy a page there and back.
        pages.grow_to(COUNT + 1);
        pages.copy_page(2, COUNT);
        let zeros = || Tensor::zeros([PAGE, columns], &Device::flex());
        pages.write(zeros(), zeros(), &(2 * PAGE..3 * PAGE).collect::<Vec<_>>());
        pages.copy_page(COUNT, 2);
        pages
    }

    /// Computes attention from the definition in f64.
    fn oracle(&self, query: &[f64], seen: Seen<'_>, scale: f64) -> Vec<f64> {
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
                        (scale * query.iter().zip(keys).map(|(q, k)| q * k).sum::<f64>()).exp()
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
fn seen() -> Vec<Seen<'static>> {
    let of = |(pages, length): (&'static &'static [u32], usize)| {
        [1, 2, 5, PAGE - 1, PAGE, PAGE + 1, length]
            .into_iter()
            .filter(move |&positions| positions <= length)
            .map(move |positions| Seen { pages, positions })
    };
    PAGES.iter().zip(LENGTHS).flat_map(of).collect()
}

#[test]
fn both_stores_match_the_definition() {
    for heads in shapes() {
        let case = Case::new(heads);
        let seen = seen();
        let (n, columns) = (seen.len(), heads.query_columns());
        let query = values(n * columns, 3);
        let expected: Vec<f64> = query
            .chunks(columns)
            .zip(&seen)
            .flat_map(|(query, &seen)| case.oracle(query, seen, SCALE))
            .collect();
        for pages in [KvPages::new(heads, &Device::flex()), KvPages::plain(heads, &Device::flex())]
        {
            let pages = case.fill(pages);
            let input = tensor(&query, [n, columns], &Device::flex());
            assert_close(&host(pages.attend(input, &seen, SCALE)), &expected, 1e-6);
        }
    }
}

#[test]
fn no_row_depends_on_the_others() {
    for heads in shapes() {
        let case = Case::new(heads);
        let pages = case.fill(KvPages::new(heads, &Device::flex()));
        let seen = seen();
        let columns = heads.query_columns();
        let query = values(seen.len() * columns, 3);
        let attend = |query: &[f64], seen: &[Seen<'_>]| -> Vec<u32> {
            let query = tensor(query, [seen.len(), columns], &Device::flex());
            let out = pages.attend(query, seen, SCALE);
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

/// Positions of a page beyond the visible ones are never used.
#[test]
fn nothing_is_seen_beyond_the_positions() {
    let heads = Heads { heads: 2, kv_heads: 1, width: 8 };
    for mut pages in [KvPages::new(heads, &Device::flex()), KvPages::plain(heads, &Device::flex())]
    {
        pages.grow_to(1);
        let row = |value: f64| tensor(&[value; 8], [1, 8], &Device::flex());
        pages.write(row(0.5), row(0.25), &[0]);
        pages.write(row(f64::NAN), row(f64::NAN), &[1]);
        let query = tensor(&[1.0; 16], [1, 16], &Device::flex());
        let out = host(pages.attend(query, &[Seen { pages: &[0], positions: 1 }], 1.0));
        assert_eq!(out, [0.25; 16]);
    }
}

#[track_caller]
fn attend_to(pages: &[u32], positions: usize) {
    let heads = Heads { heads: 1, kv_heads: 1, width: 4 };
    let mut cache = KvPages::new(heads, &Device::flex());
    cache.grow_to(2);
    let query = tensor(&[1.0; 4], [1, 4], &Device::flex());
    cache.attend(query, &[Seen { pages, positions }], 1.0);
}

#[test]
#[should_panic(expected = "row 0 attends to 0 positions of 1 pages")]
fn seeing_nothing() {
    attend_to(&[0], 0);
}

#[test]
#[should_panic(expected = "row 0 attends to 17 positions of 1 pages")]
fn seeing_more_than_the_pages_hold() {
    attend_to(&[0], PAGE + 1);
}

#[test]
#[should_panic(expected = "row 0 attends to a page that does not exist")]
fn seeing_a_page_that_is_not_there() {
    attend_to(&[2], 1);
}

#[test]
#[should_panic(expected = "position outside the allocated pages")]
fn writing_beyond_the_pages() {
    let heads = Heads { heads: 1, kv_heads: 1, width: 4 };
    let row = || tensor(&[1.0; 4], [1, 4], &Device::flex());
    KvPages::new(heads, &Device::flex()).write(row(), row(), &[0]);
}
