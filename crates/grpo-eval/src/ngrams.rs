//! N-gram based text metrics.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::words;

/// Returns distinct-n (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
/// Conversation Models"), which is the fraction of distinct n-grams of [`words`] over all texts.
/// Returns 0 if there are no n-grams.
///
/// # Panics
/// Panics if `n` is zero.
pub fn distinct(texts: &[&str], n: usize) -> f64 {
    Numbered::of(texts).distinct(n).unwrap_or(0.0)
}

/// Returns self-BLEU (Zhu et al. 2018, "Texygen"), which is the mean BLEU of each text against all
/// other texts. Returns 0 for fewer than two texts.
///
/// BLEU (Papineni et al. 2002) uses uniform weights up to `order`. The brevity penalty refers to
/// the other text with the closest length, or the shorter one in a tie. Zero counts are replaced by
/// 0.1 (NLTK's smoothing method 1; Chen & Cherry 2014). A text that has no [`words`] in common with
/// the others scores 0.
///
/// # Panics
/// Panics if `order` is zero.
pub fn self_bleu(texts: &[&str], order: usize) -> f64 {
    Numbered::of(texts).self_bleu(order).unwrap_or(0.0)
}

/// Texts converted to word ids.
pub(crate) struct Numbered {
    pub(crate) ids: Vec<Vec<u32>>,
}

impl Numbered {
    pub(crate) fn of(texts: &[&str]) -> Self {
        let mut known = HashMap::new();
        let mut number = |word| {
            let next = known.len() as u32;
            *known.entry(word).or_insert(next)
        };
        Self { ids: texts.iter().map(|text| words(text).map(&mut number).collect()).collect() }
    }

    pub(crate) fn without(&self, left_out: usize) -> Self {
        let kept = self.ids.iter().enumerate().filter(|(index, _)| *index != left_out);
        Self { ids: kept.map(|(_, ids)| ids.clone()).collect() }
    }

    /// Returns distinct-n, or `None` if there are no n-grams.
    pub(crate) fn distinct(&self, n: usize) -> Option<f64> {
        let all = || self.ids.iter().flat_map(|ids| ids.windows(n));
        let count = all().count();
        (count > 0).then(|| all().collect::<HashSet<_>>().len() as f64 / count as f64)
    }

    /// Returns self-BLEU, or `None` for fewer than two texts.
    pub(crate) fn self_bleu(&self, order: usize) -> Option<f64> {
        let each = Bleu { order, smoothed: true }.of_each(self);
        (each.len() > 1).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }
}

/// BLEU settings.
#[derive(Clone, Copy)]
pub(crate) struct Bleu {
    /// Maximum n-gram length.
    pub(crate) order: usize,
    /// Whether zero counts are replaced by 0.1. Without smoothing, the order is limited to the
    /// number of words, so that equal texts always score 1.
    pub(crate) smoothed: bool,
}

/// The highest count of an n-gram in any text, the index of that text, and the second-highest
/// count.
#[derive(Default)]
struct TopTwo {
    largest: usize,
    of: usize,
    second: usize,
}

impl Bleu {
    /// Returns the BLEU score of each text against all others.
    pub(crate) fn of_each(self, texts: &Numbered) -> Vec<f64> {
        assert!(self.order > 0, "an n-gram has at least one word");
        // The two highest counts suffice to find the maximum over all other texts without comparing
        // pairs of texts.
        let mut top: HashMap<&[u32], TopTwo> = HashMap::new();
        let mut lengths = BTreeMap::new();
        for (index, ids) in texts.ids.iter().enumerate() {
            *lengths.entry(ids.len()).or_insert(0_usize) += 1;
            for n in 1..=self.order {
                for (gram, count) in counts(ids, n) {
                    let known = top.entry(gram).or_default();
                    if count > known.largest {
                        *known = TopTwo { largest: count, of: index, second: known.largest };
                    } else {
                        known.second = known.second.max(count);
                    }
                }
            }
        }
        let of_others = |index: usize, gram: &[u32]| {
            let top = &top[gram];
            if top.of == index { top.second } else { top.largest }
        };
        let bleu = |(index, ids): (usize, &Vec<u32>)| {
            self.bleu(ids, closest(&lengths, ids.len()), |gram| of_others(index, gram))
        };
        texts.ids.iter().enumerate().map(bleu).collect()
    }

    /// Returns the BLEU score of a text against a single reference.
    pub(crate) fn of_pair(self, text: &[u32], other: &[u32]) -> f64 {
        let of_other = |gram: &[u32]| other.windows(gram.len()).filter(|own| *own == gram).count();
        self.bleu(text, other.len(), of_other)
    }

    /// Returns the BLEU score of a text. `closest` is the length of the closest reference, and
    /// `of_others` returns the maximum count of an n-gram in the references.
    fn bleu(self, ids: &[u32], closest: usize, of_others: impl Fn(&[u32]) -> usize) -> f64 {
        let order = if self.smoothed { self.order } else { self.order.min(ids.len()) };
        let mut logs = 0.0;
        for n in 1..=order {
            let shared = counts(ids, n).map(|(gram, count)| count.min(of_others(gram)));
            let shared: usize = shared.sum();
            let total = (ids.len() + 1).saturating_sub(n).max(1);
            logs += match shared {
                0 if n > 1 && self.smoothed => (SMALL_COUNT / total as f64).ln(),
                0 => return 0.0,
                _ => (shared as f64 / total as f64).ln(),
            };
        }
        if ids.is_empty() {
            return 0.0;
        }
        let brevity = (1.0 - closest as f64 / ids.len() as f64).min(0.0);
        (brevity + logs / order as f64).exp()
    }
}

const SMALL_COUNT: f64 = 0.1;

/// Returns the length of another text that is closest to a text of length `own`, or the shorter one
/// in a tie. `lengths` has the number of texts of each length, including the text itself.
fn closest(lengths: &BTreeMap<usize, usize>, own: usize) -> usize {
    if lengths[&own] > 1 {
        return own;
    }
    let shorter = lengths.range(..own).next_back().map(|(length, _)| *length);
    let longer = lengths.range(own + 1..).next().map(|(length, _)| *length);
    // The first of two equal distances is kept.
    shorter.into_iter().chain(longer).min_by_key(|length| length.abs_diff(own)).unwrap_or(0)
}

/// Iterates over the distinct n-grams of a text and their counts.
fn counts(ids: &[u32], n: usize) -> impl Iterator<Item = (&[u32], usize)> {
    let mut grams: Vec<&[u32]> = ids.windows(n).collect();
    grams.sort_unstable();
    let mut from = 0;
    std::iter::from_fn(move || {
        let gram = *grams.get(from)?;
        let count = grams[from..].iter().take_while(|other| **other == gram).count();
        from += count;
        Some((gram, count))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXTS: [&str; 7] = [
        "The garden is finally green, and the tomatoes are red!",
        "The garden is green and so are the tomatoes.",
        "Great!",
        "Which train do you take on Mondays? The early train is late.",
        "The garden is finally green, and the tomatoes are red!",
        "tomatoes tomatoes the the the garden garden",
        "🎉",
    ];

    #[track_caller]
    fn close(got: f64, expect: f64) {
        assert!((got - expect).abs() < 1e-12, "{got} and not {expect}");
    }

    /// Values from NLTK 3.9's `sentence_bleu` with `SmoothingFunction(epsilon=0.1).method1` on the
    /// same words.
    #[test]
    fn self_bleu_is_nltks() {
        close(self_bleu(&TEXTS, 4), 0.320_582_177_083_919_84);
        close(self_bleu(&TEXTS[..5], 4), 0.436_329_976_404_131_5);
        close(self_bleu(&TEXTS, 2), 0.409_627_917_033_559_18);
        close(self_bleu(&TEXTS[..5], 3), 0.476_346_234_157_706_94);
        assert_eq!(self_bleu(&TEXTS[..1], 4), 0.0);
        assert_eq!(self_bleu(&[], 4), 0.0);
    }

    #[test]
    fn distinct_by_hand() {
        // the red red car | the red bike: 7 words, 4 of them distinct; bigrams the-red (twice),
        // red-red, red-car, red-bike.
        let texts = ["The red, red car", "the red bike!"];
        close(distinct(&texts, 1), 4.0 / 7.0);
        close(distinct(&texts, 2), 4.0 / 5.0);
        close(distinct(&texts, 3), 3.0 / 3.0);
        assert_eq!(distinct(&texts, 5), 0.0);
        assert_eq!(distinct(&[], 1), 0.0);
    }

    /// Reference implementation that compares every pair of texts.
    fn plain_bleu(texts: &[Vec<u32>], own: usize, order: usize, smoothed: bool) -> f64 {
        let others: Vec<&Vec<u32>> =
            (0..texts.len()).filter(|other| *other != own).map(|other| &texts[other]).collect();
        let text = &texts[own];
        let order = if smoothed { order } else { order.min(text.len()) };
        let times = |ids: &[u32], gram: &[u32]| {
            (0..ids.len()).filter(|from| ids[*from..].starts_with(gram)).count()
        };
        let mut product = 1.0;
        for n in 1..=order {
            let mut grams: Vec<Vec<u32>> = Vec::new();
            for from in 0..(text.len() + 1).saturating_sub(n) {
                let gram = text[from..from + n].to_vec();
                if !grams.contains(&gram) {
                    grams.push(gram);
                }
            }
            let (mut shared, mut total) = (0, 0);
            for gram in &grams {
                let most = others.iter().map(|other| times(other, gram)).max().unwrap_or(0);
                shared += most.min(times(text, gram));
                total += times(text, gram);
            }
            let precision = match shared {
                0 if n > 1 && smoothed => 0.1 / total.max(1) as f64,
                _ => shared as f64 / total.max(1) as f64,
            };
            product *= precision.powf(1.0 / order as f64);
        }
        let mut lengths: Vec<usize> = others.iter().map(|other| other.len()).collect();
        lengths.sort_unstable();
        let closest = lengths.into_iter().min_by_key(|length| length.abs_diff(text.len()));
        let (own, closest) = (text.len() as f64, closest.unwrap_or(0) as f64);
        if own == 0.0 {
            0.0
        } else if own > closest {
            product
        } else {
            product * (1.0 - closest / own).exp()
        }
    }

    proptest! {
        #[test]
        fn two_counts_are_enough_for_all_others(
            ids in prop::collection::vec(prop::collection::vec(0_u32..4, 0..9), 2..6),
            order in 1_usize..5,
            smoothed: bool,
        ) {
            let bleu = Bleu { order, smoothed };
            let got = bleu.of_each(&Numbered { ids: ids.clone() });
            for (own, got) in got.into_iter().enumerate() {
                prop_assert!((got - plain_bleu(&ids, own, order, smoothed)).abs() < 1e-12);
            }
            let pair = plain_bleu(&ids[..2], 0, order, smoothed);
            prop_assert!((bleu.of_pair(&ids[0], &ids[1]) - pair).abs() < 1e-12);
        }
    }
}
