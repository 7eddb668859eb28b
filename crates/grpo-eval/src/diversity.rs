//! Diversity measures for texts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ngrams::{Bleu, Numbered};
use crate::{EmbedError, Embedder, cosine};

/// How the diversity of texts is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiversityMeasure {
    /// 1 − cosine similarity of embeddings. Requires an embedder.
    #[default]
    Semantic,
    /// 1 − BLEU with up to bigrams of words, without smoothing.
    Bleu,
    /// Distinct-2, i.e. the fraction of distinct word bigrams.
    Distinct,
}

/// Measures the diversity of texts. The order of the texts does not matter.
///
/// Texts without anything to compare (no embedding, words or bigrams) have a distance of 0 to all
/// other texts, so empty texts are never rewarded.
#[derive(Clone)]
pub struct Diversity(Kind);

#[derive(Clone)]
enum Kind {
    Semantic(Arc<dyn Embedder>),
    Bleu,
    Distinct,
}

/// Error for a `semantic` measure without an embedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the diversity measure 'semantic' requires an embedder; configure one, or use 'bleu' or 'distinct'"
)]
pub struct NoEmbedder;

impl fmt::Debug for Diversity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Diversity").field(&self.measure()).finish()
    }
}

/// Bigram BLEU without smoothing, so that equal texts score 1 regardless of their length.
const BLEU: Bleu = Bleu { order: 2, smoothed: false };

impl Diversity {
    /// Creates a diversity measure. `embedder` is only used by [`DiversityMeasure::Semantic`].
    ///
    /// # Errors
    /// Returns an error if the semantic measure has no embedder.
    pub fn new(
        measure: DiversityMeasure,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Result<Self, NoEmbedder> {
        Ok(Self(match measure {
            DiversityMeasure::Semantic => Kind::Semantic(embedder.ok_or(NoEmbedder)?),
            DiversityMeasure::Bleu => Kind::Bleu,
            DiversityMeasure::Distinct => Kind::Distinct,
        }))
    }

    /// Returns the kind of measure.
    pub fn measure(&self) -> DiversityMeasure {
        match self.0 {
            Kind::Semantic(_) => DiversityMeasure::Semantic,
            Kind::Bleu => DiversityMeasure::Bleu,
            Kind::Distinct => DiversityMeasure::Distinct,
        }
    }

    /// Returns the diversity D of a set of texts, or 0 for fewer than two texts.
    ///
    /// This is the mean of 1 − cosine over all pairs (semantic), the mean of 1 − BLEU of each text
    /// against all other texts (bleu), or distinct-2 of all texts (distinct).
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub fn of(&self, texts: &[&str]) -> Result<f64, EmbedError> {
        if texts.len() < 2 {
            return Ok(0.0);
        }
        Ok(match &self.0 {
            Kind::Semantic(embedder) => {
                let sums = distance_sums(&embedder.embed(texts)?);
                sums.iter().sum::<f64>() / pairs(texts.len()) / 2.0
            }
            Kind::Bleu => of_bleu(&Numbered::of(texts)),
            Kind::Distinct => of_distinct(&Numbered::of(texts)),
        })
    }

    /// Returns the contribution of each text, D(all) − D(all without it). The second term does not
    /// depend on the text, so the difference is its advantage in a score-function gradient with a
    /// baseline (Kool et al. 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!").
    ///
    /// Equal texts contribute 0 with the semantic and bleu measures. With distinct, they all have
    /// the same negative contribution, because each of them reduces the fraction of distinct
    /// bigrams. For two texts, D without one of them is the distinct-2 of the other. A single text
    /// contributes 0.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub fn leave_one_out(&self, texts: &[&str]) -> Result<Vec<f64>, EmbedError> {
        let count = texts.len();
        if count < 2 {
            return Ok(vec![0.0; count]);
        }
        let of_numbers = |of: fn(&Numbered) -> f64| {
            let texts = Numbered::of(texts);
            let all = of(&texts);
            (0..count).map(|index| all - of(&texts.without(index))).collect()
        };
        Ok(match &self.0 {
            Kind::Semantic(embedder) => {
                let sums = distance_sums(&embedder.embed(texts)?);
                let all = sums.iter().sum::<f64>() / 2.0;
                let of_all = all / pairs(count);
                let without = |sum: &f64| match count {
                    2 => 0.0,
                    _ => (all - sum) / pairs(count - 1),
                };
                sums.iter().map(|sum| of_all - without(sum)).collect()
            }
            Kind::Bleu => of_numbers(of_bleu),
            Kind::Distinct => of_numbers(of_distinct),
        })
    }

    /// Returns the distance of each text to the other texts, or 0 for a single text. Equal texts
    /// have distance 0.
    ///
    /// This is the mean of 1 − cosine (semantic), the mean of 1 − BLEU against each other text
    /// (bleu), or the fraction of its bigrams that occur in no other text (distinct).
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub fn of_each(&self, texts: &[&str]) -> Result<Vec<f64>, EmbedError> {
        let count = texts.len();
        if count < 2 {
            return Ok(vec![0.0; count]);
        }
        let others = count as f64 - 1.0;
        Ok(match &self.0 {
            Kind::Semantic(embedder) => {
                let sums = distance_sums(&embedder.embed(texts)?);
                sums.into_iter().map(|sum| sum / others).collect()
            }
            Kind::Bleu => {
                let ids = Numbered::of(texts).ids;
                let distance = |own: &[u32], other: &[u32]| match own.len() {
                    0 => 0.0,
                    _ => 1.0 - BLEU.of_pair(own, other),
                };
                let apart = |index: usize| {
                    let others = (0..count).filter(|other| *other != index);
                    others.map(|other| distance(&ids[index], &ids[other])).sum::<f64>()
                };
                (0..count).map(|index| apart(index) / others).collect()
            }
            Kind::Distinct => own_pairs(&Numbered::of(texts)),
        })
    }
}

/// Returns the number of unordered pairs among `count` texts.
fn pairs(count: usize) -> f64 {
    (count * (count - 1)) as f64 / 2.0
}

/// Returns the sum of 1 − cosine between each vector and all others.
fn distance_sums(vectors: &[Vec<f32>]) -> Vec<f64> {
    let is_nothing = |vector: &[f32]| vector.iter().all(|number| *number == 0.0);
    let mut sums = vec![0.0; vectors.len()];
    for (index, vector) in vectors.iter().enumerate() {
        for (other, another) in vectors.iter().enumerate().skip(index + 1) {
            // The dot product of a unit vector with itself may differ from 1 due to rounding.
            if vector == another || is_nothing(vector) || is_nothing(another) {
                continue;
            }
            let distance = (1.0 - cosine(vector, another)).max(0.0);
            sums[index] += distance;
            sums[other] += distance;
        }
    }
    sums
}

/// Returns the mean of 1 − BLEU of each text against the others.
fn of_bleu(texts: &Numbered) -> f64 {
    if texts.ids.len() < 2 {
        return 0.0;
    }
    let each = BLEU.of_each(texts);
    let distance = |(bleu, ids): (&f64, &Vec<u32>)| if ids.is_empty() { 0.0 } else { 1.0 - bleu };
    each.iter().zip(&texts.ids).map(distance).sum::<f64>() / each.len() as f64
}

/// Returns distinct-2. A single text is allowed.
fn of_distinct(texts: &Numbered) -> f64 {
    let mut counts = BTreeMap::new();
    for pair in texts.ids.iter().flat_map(|ids| ids.windows(2)) {
        *counts.entry(pair).or_insert(0_usize) += 1;
    }
    let all: usize = counts.values().sum();
    if all == 0 { 0.0 } else { counts.len() as f64 / all as f64 }
}

/// Returns the fraction of each text's bigrams that no other text contains.
fn own_pairs(texts: &Numbered) -> Vec<f64> {
    // The only text that contains the bigram, or `None` if there are several.
    let mut owners: BTreeMap<&[u32], Option<usize>> = BTreeMap::new();
    for (index, ids) in texts.ids.iter().enumerate() {
        for pair in ids.windows(2) {
            let owner = owners.entry(pair).or_insert(Some(index));
            if *owner != Some(index) {
                *owner = None;
            }
        }
    }
    let part = |(index, ids): (usize, &Vec<u32>)| {
        let own = ids.windows(2).filter(|pair| owners[pair] == Some(index)).count();
        let all = ids.windows(2).count();
        if all == 0 { 0.0 } else { own as f64 / all as f64 }
    };
    texts.ids.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HashedNgrams;

    const TEXTS: [&str; 4] = [
        "The garden is finally green, and the tomatoes are red!",
        "The garden is green and so are the tomatoes.",
        "Which train do you take on Mondays? The early train is late.",
        "tomatoes tomatoes the the the garden garden",
    ];

    /// Maps texts that are angles in degrees to unit vectors.
    struct Degrees;

    impl Embedder for Degrees {
        fn width(&self) -> usize {
            2
        }

        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            let vector = |text: &&str| match text.parse::<f32>() {
                Ok(degrees) => Ok(vec![degrees.to_radians().cos(), degrees.to_radians().sin()]),
                Err(_) if text.is_empty() => Ok(vec![0.0, 0.0]),
                Err(error) => Err(EmbedError { text: text.to_string(), fault: error.to_string() }),
            };
            texts.iter().map(vector).collect()
        }

        fn identity(&self) -> String {
            "degrees".to_owned()
        }
    }

    fn degrees() -> Diversity {
        Diversity::new(DiversityMeasure::Semantic, Some(Arc::new(Degrees))).unwrap()
    }

    fn all() -> [Diversity; 3] {
        let embedder: Arc<dyn Embedder> = Arc::new(HashedNgrams::new(64));
        let measures =
            [DiversityMeasure::Semantic, DiversityMeasure::Bleu, DiversityMeasure::Distinct];
        measures.map(|measure| Diversity::new(measure, Some(Arc::clone(&embedder))).unwrap())
    }

    #[track_caller]
    fn close(got: &[f64], expect: &[f64]) {
        let near = got.iter().zip(expect).all(|(got, expect)| (got - expect).abs() < 2e-7);
        assert!(got.len() == expect.len() && near, "{got:?} and not {expect:?}");
    }

    #[test]
    fn semantic_by_hand() {
        // The distances are 1/2 and 1 from 0° to the other angles, and 1 − √3/2 between 60° and
        // 90°.
        let (texts, small) = (["0", "60", "90"], 1.0 - 0.75_f64.sqrt());
        let diversity = degrees();
        let of = (0.5 + 1.0 + small) / 3.0;
        close(&[diversity.of(&texts).unwrap()], &[of]);
        close(&diversity.leave_one_out(&texts).unwrap(), &[of - small, of - 1.0, of - 0.5]);
        let each = [1.5 / 2.0, (0.5 + small) / 2.0, (1.0 + small) / 2.0];
        close(&diversity.of_each(&texts).unwrap(), &each);
        close(&diversity.leave_one_out(&texts[..2]).unwrap(), &[0.5, 0.5]);
    }

    /// Values from NLTK's `sentence_bleu` with weights 0.5, 0.5 and no smoothing.
    #[test]
    fn bleu_is_nltks() {
        let diversity = &all()[1];
        let of = 0.643_811_183_493_305_1;
        close(&[diversity.of(&TEXTS).unwrap()], &[0.643_811_183_493_305_1]);
        let without = [
            0.834_855_311_389_570_8,
            0.868_661_617_699_272_4,
            0.525_081_577_991_073_6,
            0.602_385_220_485_714_3,
        ];
        close(&diversity.leave_one_out(&TEXTS).unwrap(), &without.map(|without| of - without));
        let against = [
            [0.596_284_793_999_943_9, 0.0, 0.210_818_510_677_891_92],
            [0.596_559_544_542_913, 0.0, 0.235_702_260_395_515_87],
            [0.0, 0.0, 0.0],
            [0.201_038_457_746_379_6, 0.231_910_927_483_922_7, 0.0],
        ];
        let apart = against.map(|others| 1.0 - others.iter().sum::<f64>() / 3.0);
        close(&diversity.of_each(&TEXTS).unwrap(), &apart);
    }

    #[test]
    fn distinct_by_hand() {
        // Bigrams: the-red, red-car | the-red, red-bike | one-more.
        let texts = ["The red car", "the red bike", "One more!"];
        let diversity = &all()[2];
        close(&[diversity.of(&texts).unwrap()], &[0.8]);
        close(&diversity.leave_one_out(&texts).unwrap(), &[0.8 - 1.0, 0.8 - 1.0, 0.8 - 0.75]);
        close(&diversity.of_each(&texts).unwrap(), &[0.5, 0.5, 1.0]);
        // For two texts, the baseline is distinct-2 of the other text, so equal texts have a
        // negative contribution.
        close(&diversity.leave_one_out(&["a b c", "a b c"]).unwrap(), &[-0.5, -0.5]);
    }

    /// Acceptance test 9: equal replies get no bonus.
    #[test]
    fn equal_texts_are_not_diverse() {
        for text in ["The red car is here.", "ok", "", "🎉🎉", "!?"] {
            for diversity in all() {
                let texts = [text; 4];
                assert_eq!(diversity.of_each(&texts).unwrap(), [0.0; 4], "{diversity:?} {text:?}");
                if diversity.measure() != DiversityMeasure::Distinct {
                    assert_eq!(diversity.of(&texts).unwrap(), 0.0, "{diversity:?} {text:?}");
                    assert_eq!(diversity.leave_one_out(&texts).unwrap(), [0.0; 4]);
                }
            }
        }
    }

    #[test]
    fn an_empty_text_is_worth_nothing() {
        for diversity in all() {
            let each =
                diversity.of_each(&["", "The red car.", "Two more trains are late"]).unwrap();
            assert!(each[0] == 0.0 && each[1] > 0.0 && each[2] > 0.0, "{diversity:?} {each:?}");
        }
    }

    #[test]
    fn fewer_than_two_texts_have_no_diversity() {
        for diversity in all() {
            for texts in [&[] as &[&str], &["the red car"]] {
                assert_eq!(diversity.of(texts).unwrap(), 0.0);
                assert_eq!(diversity.of_each(texts).unwrap(), vec![0.0; texts.len()]);
                assert_eq!(diversity.leave_one_out(texts).unwrap(), vec![0.0; texts.len()]);
            }
        }
    }

    #[test]
    fn what_cannot_be_compared_is_an_error() {
        assert_eq!(Diversity::new(DiversityMeasure::Semantic, None).unwrap_err(), NoEmbedder);
        let diversity = degrees();
        assert!(diversity.of(&["1", "x"]).is_err());
        assert!(diversity.of_each(&["1", "x"]).is_err());
        assert!(diversity.leave_one_out(&["1", "x"]).is_err());
    }

    proptest! {
        /// Checks the definition: D of all texts minus D of the others.
        #[test]
        fn leave_one_out_is_what_is_lost_without_a_text(
            texts in prop::collection::vec("[abc ]{0,9}", 3..6),
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            for diversity in all() {
                let all = diversity.of(&texts).unwrap();
                let got = diversity.leave_one_out(&texts).unwrap();
                for (index, got) in got.into_iter().enumerate() {
                    let mut others = texts.clone();
                    others.remove(index);
                    let expect = all - diversity.of(&others).unwrap();
                    prop_assert!((got - expect).abs() < 1e-12, "{:?} {} {}", diversity, got, expect);
                }
            }
        }
    }
}
