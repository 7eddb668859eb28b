use crate::texts::{passages, sticky, stream};
use grpo_data::{Purpose, TextCodec};
use grpo_infill::{
    Corruption, MASKING, MaskedStream, MaskedText, Masking, MaskingPlan, MaskingPreset,
    PassageUnit, Split,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn complex() -> MaskingPlan {
    MaskingPlan::preset(MaskingPreset::Complex, Corruption::Bert)
}

fn of(seed: u64, purpose: Purpose, split: Split) -> MaskedStream {
    let passages = passages(PassageUnit::Lines, 40);
    MaskedStream::new(passages, split, complex(), seed, purpose).unwrap()
}

fn stages(texts: &[MaskedText]) -> Vec<usize> {
    texts.iter().map(|text| text.stage).collect()
}

/// Regression test for a bug in the original: its seeds depended on a hash that is salted per
/// process, so no two runs used the same data. The expected bytes were computed with a separate
/// implementation in Python.
#[test]
fn texts_stay_what_they_are() {
    let passages = passages(PassageUnit::Lines, 20);
    let plan = MaskingPlan::new(
        vec![sticky(0.4, 0.15, 0.3), Masking::Random { min_ratio: 0.0, max_ratio: 0.5 }],
        Corruption::None,
    )
    .unwrap();
    let text = |split| {
        let stream = MaskedStream::new(passages.clone(), split, plan.clone(), 42, MASKING);
        let show = |text: &MaskedText| (text.stage, passages.characters().decode(&text.ids));
        stream.unwrap().batch(7, 2).unwrap().iter().map(show).collect::<Vec<_>>()
    };
    let expect = |texts: [(usize, &str); 2]| texts.map(|(stage, text)| (stage, text.to_owned()));
    assert_eq!(text(Split::Train), expect([(0, "␣dba␣␣\n"), (1, "␣␣␣␣␣a\nb␣␣␣aa\n")]));
    assert_eq!(text(Split::Validation), expect([(1, "ccdc␣␣\ndcdcda\n"), (0, "␣␣dcd␣\n␣␣dcda␣")]));
}

/// Regression test for a bug in the original, which used each batch twice, in a different order.
#[test]
fn no_batch_comes_twice() {
    let sorted = |index| {
        let mut texts = of(1, MASKING, Split::Train).batch(index, 18).unwrap();
        texts.sort_by(|a, b| a.ids.cmp(&b.ids));
        texts
    };
    let batches: Vec<_> = [0, 1, 2, 3, 4, 1 << 32].map(sorted).into();
    for i in 0..6 {
        for j in 0..i {
            let same = batches[i].iter().filter(|text| batches[j].contains(text)).count();
            assert_eq!(same, 0, "batches {i} and {j}");
        }
    }
}

#[test]
fn seeds_purposes_and_halves_have_texts_of_their_own() {
    let ids = |stream: MaskedStream| {
        let texts = stream.batch(0, 9).unwrap();
        texts.into_iter().map(|text| (text.stage, text.is_target)).collect::<Vec<_>>()
    };
    let all = [
        ids(of(1, MASKING, Split::Train)),
        ids(of(2, MASKING, Split::Train)),
        ids(of(1 << 40, MASKING, Split::Train)),
        ids(of(1, Purpose::EVALUATION, Split::Train)),
        ids(of(1, MASKING, Split::Validation)),
    ];
    for i in 0..all.len() {
        assert!(all[..i].iter().all(|other| *other != all[i]), "stream {i}");
    }
}

#[test]
fn stages_are_mixed_evenly_and_shuffled() {
    let stream = of(1, MASKING, Split::Train);
    let count = |stages: &[usize]| {
        let mut counts = BTreeMap::new();
        for stage in stages {
            *counts.entry(*stage).or_insert(0) += 1;
        }
        counts
    };
    // 32 texts and 9 stages: each stage is used 3 times, and the first 5 stages once more.
    let first = stages(&stream.batch(0, 32).unwrap());
    let expect = (0..9).map(|stage| (stage, if stage < 5 { 4 } else { 3 })).collect();
    assert_eq!(count(&first), expect);
    let sorted = |stages: &[usize]| stages.is_sorted();
    assert!(!sorted(&first));
    // With batches smaller than the list of stages, later stages still get their turn.
    let small: Vec<usize> = (0..9).flat_map(|i| stages(&stream.batch(i, 4).unwrap())).collect();
    assert_eq!(count(&small), (0..9).map(|stage| (stage, 4)).collect());
    // Batches are shuffled, so the position of a stage differs between batches.
    let places: Vec<_> = (0..20)
        .map(|i| stages(&stream.batch(i, 9).unwrap()).iter().position(|one| *one == 0).unwrap())
        .collect();
    assert!(
        (0..9).all(|place| places.iter().filter(|one| **one == place).count() < 9),
        "{places:?}"
    );
    assert!(stream.batch(0, 0).unwrap().is_empty());
}

#[test]
fn each_stage_masks_by_its_own_numbers() {
    let plan =
        MaskingPlan::new(vec![sticky(0.25, 0.1, 0.1), sticky(0.75, 0.1, 0.1)], Corruption::None);
    let texts =
        stream(&passages(PassageUnit::Window, 40), Split::Train, plan.unwrap()).batch(0, 20);
    for text in texts.unwrap() {
        assert_eq!(text.ratio, [0.25, 0.75][text.stage]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A batch is the same after resuming, regardless of the batches requested before.
    #[test]
    fn a_batch_is_a_function_of_its_index(seed: u64, indices in prop::collection::vec(any::<u64>(), 1..5), size in 1usize..12) {
        let (first, second) = (of(seed, MASKING, Split::Train), of(seed, MASKING, Split::Train));
        let forwards: Vec<_> = indices.iter().map(|index| first.batch(*index, size).unwrap()).collect();
        for (index, texts) in indices.iter().zip(&forwards).rev() {
            prop_assert_eq!(&second.batch(*index, size).unwrap(), texts);
            prop_assert_eq!(texts.len(), size);
        }
    }
}
