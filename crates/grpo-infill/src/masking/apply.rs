//! Masks and replaces characters at selected positions.

use super::{Corruption, Draw, Draws, MaskedText, Masking, choose, lines};
use crate::{Passages, Split};

/// Draws a passage and applies a masking stage to it. The result may have no targets.
pub(crate) fn mask(
    masking: &Masking,
    corruption: Corruption,
    stage: usize,
    passages: &Passages,
    split: Split,
    draws: &Draws,
) -> MaskedText {
    let original = passages.passage(split, &draws.rng, [draws.attempt, u32::MAX]);
    let len = original.len();
    let random = |min, max| choose::random(len, draws.between(Draw::Ratio, min, max), draws);
    let alphabet = passages.characters().base_len();
    let mask_id = passages.characters().mask_id();
    let mut ids = original.clone();
    let (chosen, full_targets) = match *masking {
        Masking::Random { min_ratio, max_ratio } => {
            let chosen = random(min_ratio, max_ratio);
            corrupt(&mut ids, &chosen, corruption, alphabet, mask_id, draws);
            (chosen, false)
        }
        Masking::Sticky { ratio, p1, p2, redrawn } => {
            let ratio = if redrawn {
                let draw = |what| draws.between(what, 0.0, ratio);
                draw(Draw::Ratio).max(draw(Draw::OtherRatio))
            } else {
                ratio
            };
            let chosen = choose::sticky(len, choose::target(ratio, len), p1, p2, draws);
            corrupt(&mut ids, &chosen, corruption, alphabet, mask_id, draws);
            (chosen, false)
        }
        Masking::Span { spans } => {
            let chosen = choose::spans(len, spans, draws);
            corrupt(&mut ids, &chosen, Corruption::None, alphabet, mask_id, draws);
            (chosen, false)
        }
        Masking::Line { min_ratio, max_ratio } => {
            let part = draws.between(Draw::Ratio, min_ratio, max_ratio);
            let (replaced, is_target) =
                lines::replace(&original, part, passages.split(split), passages.options(), draws);
            ids = replaced;
            (is_target, false)
        }
        Masking::Replacement {
            min_ratio,
            max_ratio,
            random: weight,
            mask,
            fragment,
            original_multiplier,
            full_targets,
        } => {
            let chosen = random(min_ratio, max_ratio);
            let few = 2 * chosen.iter().filter(|one| **one).count() < len;
            let fragment = if few && split == Split::Train { fragment } else { 0.0 };
            let foreign = || passages.passage(split, &draws.rng, [draws.attempt, u32::MAX - 1]);
            let foreign = if fragment > 0.0 { foreign() } else { Vec::new() };
            let kinds = Kinds { random: weight, mask, fragment, original_multiplier };
            replace(&mut ids, &chosen, &kinds, &foreign, alphabet, mask_id, draws);
            (chosen, full_targets)
        }
    };
    let count = chosen.iter().filter(|one| **one).count();
    let ratio = count as f64 / ids.len() as f64;
    // Without any targets, the caller draws another text.
    let is_target = if full_targets && count > 0 { vec![true; ids.len()] } else { chosen };
    MaskedText { ids, original, is_target, ratio, stage }
}

/// Masks the selected positions. With [`Corruption::Bert`], some of them are treated differently.
fn corrupt(
    ids: &mut [u32],
    chosen: &[bool],
    corruption: Corruption,
    alphabet: usize,
    mask_id: u32,
    draws: &Draws,
) {
    for (at, id) in ids.iter_mut().enumerate().filter(|(at, _)| chosen[*at]) {
        let draw = match corruption {
            Corruption::None => 0.0,
            Corruption::Bert => draws.uniform(Draw::Corruption, at),
        };
        if draw < 0.8 {
            *id = mask_id;
        } else if draw < 0.9 {
            *id = draws.below(Draw::Character, at, alphabet) as u32;
        }
    }
}

/// The weights in [`Masking::Replacement`].
struct Kinds {
    random: f64,
    mask: f64,
    fragment: f64,
    original_multiplier: f64,
}

/// Replaces each run of selected positions with a single kind of replacement, so that fragments are
/// contiguous text.
fn replace(
    ids: &mut [u32],
    chosen: &[bool],
    kinds: &Kinds,
    foreign: &[u32],
    alphabet: usize,
    mask_id: u32,
    draws: &Draws,
) {
    let all = kinds.random + kinds.mask + kinds.fragment;
    let (mut draw, mut offset) = (0.0, 0);
    for at in 0..ids.len() {
        if !chosen[at] {
            continue;
        }
        if at == 0 || !chosen[at - 1] {
            draw = all * draws.uniform(Draw::Corruption, at);
            offset = draws.below(Draw::Offset, at, foreign.len().max(1));
        }
        ids[at] = if draw < kinds.random {
            random_character(ids[at], alphabet, kinds.original_multiplier, draws, at)
        } else if draw < kinds.random + kinds.mask {
            mask_id
        } else {
            offset += 1;
            foreign[(offset - 1) % foreign.len()]
        };
    }
}

/// Draws a random character. The correct character has the weight `multiplier`, all others 1.
fn random_character(truth: u32, alphabet: usize, multiplier: f64, draws: &Draws, at: usize) -> u32 {
    let others = (alphabet - 1) as f64;
    if draws.uniform(Draw::Truth, at) * (others + multiplier) < multiplier || alphabet == 1 {
        return truth;
    }
    let other = draws.below(Draw::Character, at, alphabet - 1) as u32;
    if other < truth { other } else { other + 1 }
}
