//! Tests for token sets: membership, encoded size and invalid encodings.

use std::collections::BTreeSet;

use grpo_data::{TokenSet, TokenSetError};
use proptest::prelude::*;

/// Creates a set and checks its methods against the list of members.
#[track_caller]
fn check(ids: &[u32], vocabulary: usize) -> TokenSet {
    let set = TokenSet::from_sorted(ids, vocabulary).unwrap();
    assert_eq!(set.iter().collect::<Vec<u32>>(), ids);
    assert_eq!(set.iter().len(), ids.len());
    assert_eq!((set.len(), set.is_empty()), (ids.len(), ids.is_empty()));
    assert_eq!(set.vocabulary(), vocabulary);
    let members: BTreeSet<u32> = ids.iter().copied().collect();
    for id in (0..vocabulary as u32 + 9).chain([u32::MAX]) {
        assert_eq!(set.contains(id), members.contains(&id), "{id}");
    }
    let encoding = Vec::from(set.clone());
    assert_eq!(encoding.len(), set.bytes());
    assert_eq!(TokenSet::try_from(encoding), Ok(set.clone()));
    assert!(set.bytes() <= vocabulary.div_ceil(8) + 6, "{} bytes", set.bytes());
    // Gaps below 2^14 need two bytes, gaps below 2^21 three.
    let a_gap = if vocabulary <= 1 << 14 { 2 } else { 3 };
    assert!(set.bytes() <= a_gap * ids.len() + 6, "{} bytes", set.bytes());
    set
}

#[test]
fn small_sets_and_large_ones() {
    for vocabulary in [0_usize, 1, 7, 8, 9, 16, 151_936] {
        let all: Vec<u32> = (0..vocabulary as u32).collect();
        check(&[], vocabulary);
        assert_eq!(check(&all, vocabulary), TokenSet::all(vocabulary));
        assert!(TokenSet::all(vocabulary).bytes() <= 4);
        for hole in [0, vocabulary / 2, vocabulary.saturating_sub(1)] {
            let mut most = all.clone();
            if hole < most.len() {
                most.remove(hole);
                check(&most, vocabulary);
                assert!(check(&[hole as u32], vocabulary).bytes() <= 4 + 3);
            }
        }
    }
    // The form, the vocabulary size (3 bytes), and the gaps 0, 0, 127, 128.
    let set = check(&[0, 1, 129, 258], 151_936);
    assert_eq!(Vec::from(set), [0, 0x80, 0xa3, 0x09, 0, 0, 127, 0x80, 1]);
    // Even ids: a bitmap is shorter than both gap encodings.
    let even: Vec<u32> = (0..100).step_by(2).collect();
    assert_eq!(check(&even, 100).bytes(), 2 + 13);
    // The gap encoding of the missing ids 3 and 99.
    let most: Vec<u32> = (0..100).filter(|id| ![3, 99].contains(id)).collect();
    assert_eq!(Vec::from(check(&most, 100)), [1, 100, 3, 95]);
    // The missing ids are 0 and 19 ids starting at 128. Their gaps need 20 bytes, the same as a
    // bitmap.
    let tie: Vec<u32> = (1..128).chain(147..160).collect();
    let zeros = [0; 18];
    assert_eq!(Vec::from(check(&tie, 160)), [&[1, 0xa0, 1, 0, 127][..], &zeros].concat());
}

#[test]
fn lists_the_members_of_a_set() {
    let set = TokenSet::from_sorted(&[3, 5], 9).unwrap();
    assert_eq!(format!("{set:?}"), "{3, 5} of 9");
    let mut members = set.iter();
    members.next();
    assert_eq!(format!("{members:?}"), "[5]");
    assert_eq!((&set).into_iter().sum::<u32>(), 8);
}

#[test]
fn what_is_no_set() {
    let refused = |ids: &[u32]| TokenSet::from_sorted(ids, 10).unwrap_err();
    assert_eq!(refused(&[1, 3, 3]), TokenSetError::NotAscending { id: 3, before: 3 });
    assert_eq!(refused(&[4, 3]), TokenSetError::NotAscending { id: 3, before: 4 });
    assert_eq!(
        refused(&[4, 10]).to_string(),
        "the id 10 of a token set is outside the vocabulary of 10 tokens"
    );
}

#[test]
fn bytes_that_encode_nothing() {
    let check = |encoding: &[u8], fault: &str| {
        let error = TokenSet::try_from(encoding.to_vec()).unwrap_err().to_string();
        let bytes = encoding.len();
        assert_eq!(error, format!("{bytes} bytes are not an encoded token set: {fault}"));
    };
    check(&[], "the form is missing");
    check(&[3, 10], "the first byte is not a known form");
    check(&[0], "the vocabulary size is invalid");
    check(&[0, 0x80], "the vocabulary size is invalid");
    check(&[0, 10, 0x80], "a gap is invalid");
    check(&[0, 10, 0x85, 0], "a gap is invalid");
    check(&[0, 10, 10], "an id is outside the vocabulary");
    check(&[0, 10, 4, 5], "an id is outside the vocabulary");
    check(&[1, 10, 10], "an id is outside the vocabulary");
    check(&[0, 10, 0xff, 0xff, 0xff, 0xff, 0x0f], "an id is outside the vocabulary");
    check(&[2, 10, 0xaa], "the bitmap does not match the vocabulary");
    check(&[2, 10, 0xaa, 0xaa, 0], "the bitmap does not match the vocabulary");
    check(&[2, 10, 0xaa, 0x04], "an id is outside the vocabulary");
    check(&[2, 20, 0x55, 0, 0x10], "an id is outside the vocabulary");
    // The set {0, 1} with a vocabulary of 2 has no missing ids, so only one of the three forms is
    // valid.
    check(&[0, 2, 0, 0], "a shorter form exists");
    check(&[2, 2, 3], "a shorter form exists");
    assert_eq!(TokenSet::try_from(vec![1, 2]), Ok(TokenSet::all(2)));
    // A vocabulary of 2^32 − 1 tokens is decoded in constant time.
    let huge = TokenSet::try_from(vec![1, 0xff, 0xff, 0xff, 0xff, 0x0f, 7]).unwrap();
    assert_eq!(huge.len(), u32::MAX as usize - 1);
    assert!(huge.contains(u32::MAX - 1) && !huge.contains(7));
}

#[test]
fn json() {
    let set = TokenSet::from_sorted(&[3, 5], 9).unwrap();
    let text = serde_json::to_string(&set).unwrap();
    assert_eq!(text, "[0,9,3,1]");
    assert_eq!(serde_json::from_str::<TokenSet>(&text).unwrap(), set);
    let error = serde_json::from_str::<TokenSet>("[0,9,3,9]").unwrap_err().to_string();
    assert!(error.contains("an id is outside the vocabulary"), "{error}");
}

proptest! {
    #[test]
    fn every_density_comes_back(
        vocabulary in 0_usize..2000,
        density in prop_oneof![Just(0.003), Just(0.997), Just(0.1), Just(0.9), 0.0..=1.0],
        lots in prop::collection::vec(0.0..1.0, 2000),
    ) {
        let ids: Vec<u32> =
            (0..vocabulary as u32).filter(|&id| lots[id as usize] < density).collect();
        check(&ids, vocabulary);
    }

    /// Decoding and re-encoding returns the same bytes, so no set has two encodings.
    #[test]
    fn any_bytes_are_an_error_or_a_set(
        bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..12),
    ) {
        if let Ok(set) = TokenSet::try_from(bytes.clone()) {
            prop_assert_eq!(set.bytes(), bytes.len());
            if set.vocabulary() < 1 << 20 {
                let ids: Vec<u32> = set.iter().collect();
                prop_assert_eq!(ids.len(), set.len());
                let again = TokenSet::from_sorted(&ids, set.vocabulary()).unwrap();
                prop_assert_eq!(Vec::from(again), bytes);
            }
        }
    }

    #[test]
    fn damaged_bytes_never_panic(
        vocabulary in 1_usize..300,
        density in 0.0..1.0,
        lots in prop::collection::vec(0.0..1.0, 300),
        place in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let ids: Vec<u32> =
            (0..vocabulary as u32).filter(|&id| lots[id as usize] < density).collect();
        let mut bytes = Vec::from(TokenSet::from_sorted(&ids, vocabulary).unwrap());
        let place = place.index(bytes.len());
        if cut { bytes.truncate(place) } else { bytes[place] = value }
        let read = TokenSet::try_from(bytes).ok();
        if let Some(set) = read.filter(|set| set.vocabulary() < 1 << 20) {
            prop_assert!(set.iter().all(|id| set.contains(id)));
        }
    }
}
