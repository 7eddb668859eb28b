//! Merges of SentencePiece vocabularies, which GGUF stores as scores.

use std::collections::HashMap;

/// Longest token in bytes for which merges are sought. SentencePiece has at most 16 characters.
const LONGEST: usize = 256;

/// A merge: the ids of both parts.
pub(crate) type Merge = (usize, usize);

/// Returns the merges that a vocabulary with scores implies, best first: each way to split a token in
/// two tokens. The order of equal scores is that of transformers.
pub(crate) fn merges(
    tokens: &[&str],
    scores: &[f32],
    is_merged: impl Fn(usize) -> bool,
) -> Vec<Merge> {
    let ids: HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
    let mut found: Vec<(f32, usize, usize, Merge)> = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        if !is_merged(id) || token.len() > LONGEST {
            continue;
        }
        let from = found.len();
        let length = token.chars().count();
        for (position, (at, _)) in token.char_indices().enumerate().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(left), Some(right)) = (ids.get(left), ids.get(right)) {
                found.push((scores[id], position, length - position, (*left, *right)));
            }
        }
        found[from..].sort_by_key(|(_, _, _, merge)| *merge);
    }
    // Best score first, then the longest left part, then the longest right part.
    found.sort_by(|one, other| {
        other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)).then(other.2.cmp(&one.2))
    });
    found.into_iter().map(|(_, _, _, merge)| merge).collect()
}

/// Returns scores that put merges in the given order: minus the rank of the first merge that makes a token.
/// Tokens that no merge makes have the least score.
pub(crate) fn scores(tokens: &[String], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    let rank = |token: &String| ranks.get(token).copied().unwrap_or(merges.len());
    tokens.iter().map(|token| -(rank(token) as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_scores_and_scores_follow_merges() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "<s>"];
        let found = merges(&tokens, &[0., 0., 0., -2., -1., -3., 0.], |id| id < 6);
        // bc, then ab, then abc: from ab and c before a and bc, as the left part is longer.
        assert_eq!(found, [(1, 2), (0, 1), (3, 2), (0, 4)]);
        let texts: Vec<(&str, &str)> =
            found.iter().map(|(l, r)| (tokens[*l], tokens[*r])).collect();
        let tokens = tokens.map(str::to_owned);
        assert_eq!(scores(&tokens, &texts), [-4., -4., -4., -1., 0., -2., -4.]);
    }
}
