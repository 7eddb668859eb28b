//! Mean cosine distance of vectors without a matrix of all pairs.

use crate::error::{MeasureError, check_count, check_lengths};

/// Returns the mean of 1 − cosine over all pairs of vectors, which need not have length 1.
///
/// The cosines of all pairs of unit vectors add up to (‖Σ v‖² − n) / 2, so time and memory are
/// proportional to the number of vectors. Zero vectors have a distance of 0 to all vectors, as in
/// [`crate::Diversity`].
///
/// # Errors
/// Returns an error if there are fewer than two vectors, if their widths differ, or if a number is
/// not finite.
pub fn mean_cosine_distance(vectors: &[&[f32]]) -> Result<f64, MeasureError> {
    const WHAT: &str = "vectors";
    check_count(WHAT, vectors.len(), 2)?;
    let mut sum = vec![0.0_f64; vectors[0].len()];
    let mut count = 0.0;
    for vector in vectors {
        check_lengths(WHAT, sum.len(), vector.len())?;
        if let Some(index) = vector.iter().position(|number| !number.is_finite()) {
            let value = f64::from(vector[index]);
            return Err(MeasureError::NotFinite { what: "vector", index, value });
        }
        let squares = vector.iter().map(|number| f64::from(*number).powi(2));
        let length = squares.sum::<f64>().sqrt();
        if length > 0.0 {
            count += 1.0;
            for (sum, number) in sum.iter_mut().zip(*vector) {
                *sum += f64::from(*number) / length;
            }
        }
    }
    let square: f64 = sum.iter().map(|sum| sum * sum).sum();
    // Σ over pairs of 1 − cosine is (n (n − 1) − (‖Σ v‖² − n)) / 2.
    let distances = 0.5 * (count * count - square);
    let all = vectors.len() as f64;
    Ok((distances / (0.5 * all * (all - 1.0))).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Diversity, DiversityMeasure, Embedder, HashedNgrams};
    use proptest::prelude::*;
    use std::sync::Arc;

    #[test]
    fn distances_by_hand() {
        // Distances 1, 2, 1.
        let found = mean_cosine_distance(&[&[1.0, 0.0], &[0.0, 2.0], &[-1.0, 0.0]]).unwrap();
        assert!((found - 4.0 / 3.0).abs() < 1e-15, "{found}");
        assert!(mean_cosine_distance(&[[0.1, 0.2].as_slice(); 50]).unwrap() < 1e-14);
        assert_eq!(mean_cosine_distance(&[&[0.0, 0.0], &[1.0, 0.0]]), Ok(0.0));
        assert!(mean_cosine_distance(&[&[1.0]]).is_err());
        assert!(mean_cosine_distance(&[&[1.0], &[1.0, 2.0]]).is_err());
        assert!(mean_cosine_distance(&[&[1.0], &[f32::NAN]]).is_err());
    }

    proptest! {
        #[test]
        fn it_is_the_mean_over_all_pairs(texts in prop::collection::vec("[abc ]{0,9}", 2..8)) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let embedder: Arc<dyn Embedder> = Arc::new(HashedNgrams::new(64));
            let vectors = embedder.embed(&texts).unwrap();
            let vectors: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
            let found = mean_cosine_distance(&vectors).unwrap();
            let pairs = Diversity::new(DiversityMeasure::Semantic, Some(embedder)).unwrap();
            // The vectors of an embedder have length 1 in f32.
            prop_assert!((found - pairs.of(&texts).unwrap()).abs() < 1e-6);
        }
    }
}
