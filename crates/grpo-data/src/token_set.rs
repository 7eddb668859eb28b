//! A compact set of token ids.

mod varint;

use std::fmt;

use serde::{Deserialize, Serialize};

/// An immutable set of token ids below a vocabulary size.
///
/// A completion sampled with top-p has one set per token, which can contain a single id or a
/// hundred thousand. Sets are therefore stored in the shortest of three encodings: the gaps between
/// members, the gaps between missing ids, or a bitmap. The complete vocabulary needs no payload.
/// The encoding is canonical, so equal sets have equal bytes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct TokenSet {
    /// A byte for the form, the vocabulary size as a varint, and the payload.
    encoding: Box<[u8]>,
    /// Offset of the payload.
    header: u8,
    vocabulary: u32,
    len: u32,
}

/// How the payload is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// For each member, the number of ids between it and the previous member, as a varint.
    Members = 0,
    /// Like `Members`, but for the missing ids.
    Missing = 1,
    /// Bit `i % 8` of byte `i / 8` is set if `i` is a member.
    Bitmap = 2,
}

impl TokenSet {
    /// Returns the set of all ids in the vocabulary.
    ///
    /// # Panics
    /// Panics if `vocabulary` is 2³² or larger.
    pub fn all(vocabulary: usize) -> Self {
        let vocabulary = below_2_to_32(vocabulary);
        // All encodings of an empty vocabulary have the same length, in which case the first is
        // chosen.
        let form = if vocabulary == 0 { Form::Members } else { Form::Missing };
        Self::assemble(form, vocabulary, vocabulary, |_| {})
    }

    /// Creates a set from `ids` in ascending order.
    ///
    /// # Errors
    /// Returns an error if the ids are not strictly ascending or if an id is outside the
    /// vocabulary.
    ///
    /// # Panics
    /// Panics if `vocabulary` is 2³² or larger.
    pub fn from_sorted(ids: &[u32], vocabulary: usize) -> Result<Self, TokenSetError> {
        let limit = below_2_to_32(vocabulary);
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(TokenSetError::NotAscending { id: pair[1], before: pair[0] });
        }
        if let Some(&id) = ids.last().filter(|&&id| id >= limit) {
            return Err(TokenSetError::OutsideVocabulary { id, vocabulary });
        }
        let lengths = Lengths::of(gaps(ids.iter().copied()), limit);
        let len = ids.len() as u32;
        Ok(match lengths.shortest() {
            Form::Members => Self::assemble(Form::Members, limit, len, |bytes| {
                gaps(ids.iter().copied()).for_each(|gap| varint::write(bytes, gap));
            }),
            Form::Missing => Self::assemble(Form::Missing, limit, len, |bytes| {
                let mut ids = ids.iter().copied().peekable();
                let missing = (0..limit).filter(|id| ids.next_if_eq(id).is_none());
                gaps(missing).for_each(|gap| varint::write(bytes, gap));
            }),
            Form::Bitmap => Self::assemble(Form::Bitmap, limit, len, |bytes| {
                let start = bytes.len();
                bytes.resize(start + lengths.bitmap, 0);
                ids.iter().for_each(|&id| bytes[start + id as usize / 8] |= 1 << (id % 8));
            }),
        })
    }

    /// Returns an iterator over the members in ascending order. It does not allocate.
    pub fn iter(&self) -> TokenSetIter<'_> {
        let mut payload = self.payload();
        let until = match self.form() {
            Form::Members | Form::Bitmap => 0,
            Form::Missing => varint::read(&mut payload).unwrap_or(self.vocabulary),
        };
        TokenSetIter {
            form: self.form(),
            payload,
            next: 0,
            until,
            left: self.len,
            vocabulary: self.vocabulary,
        }
    }

    /// Returns `true` if `id` is a member.
    pub fn contains(&self, id: u32) -> bool {
        if id >= self.vocabulary {
            return false;
        }
        let mut payload = self.payload();
        let is_listed = |payload: &mut &[u8]| {
            let mut next = 0;
            while let Some(gap) = varint::read(payload) {
                let listed = next + gap;
                if listed >= id {
                    return listed == id;
                }
                next = listed + 1;
            }
            false
        };
        match self.form() {
            Form::Members => is_listed(&mut payload),
            Form::Missing => !is_listed(&mut payload),
            Form::Bitmap => payload[id as usize / 8] >> (id % 8) & 1 == 1,
        }
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns `true` if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the vocabulary size.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary as usize
    }

    /// Returns the size of the encoding in bytes. It exceeds the size of a bitmap with one bit per
    /// id by at most 6.
    pub fn bytes(&self) -> usize {
        self.encoding.len()
    }

    fn assemble(
        form: Form,
        vocabulary: u32,
        len: u32,
        write_payload: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let mut encoding = vec![form as u8];
        varint::write(&mut encoding, vocabulary);
        let header = encoding.len() as u8;
        write_payload(&mut encoding);
        Self { encoding: encoding.into(), header, vocabulary, len }
    }

    fn form(&self) -> Form {
        match self.encoding[0] {
            0 => Form::Members,
            1 => Form::Missing,
            _ => Form::Bitmap,
        }
    }

    fn payload(&self) -> &[u8] {
        &self.encoding[usize::from(self.header)..]
    }
}

impl fmt::Debug for TokenSet {
    /// Prints the members and the vocabulary size instead of the encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()?;
        write!(f, " of {}", self.vocabulary)
    }
}

impl<'a> IntoIterator for &'a TokenSet {
    type Item = u32;
    type IntoIter = TokenSetIter<'a>;

    fn into_iter(self) -> TokenSetIter<'a> {
        self.iter()
    }
}

impl From<TokenSet> for Vec<u8> {
    fn from(set: TokenSet) -> Self {
        set.encoding.into_vec()
    }
}

impl TryFrom<Vec<u8>> for TokenSet {
    type Error = TokenSetError;

    /// Decodes a set. The running time is linear in the number of bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes are truncated, contain ids outside the vocabulary, or are not
    /// the shortest encoding. [`TokenSet`] never produces such bytes.
    fn try_from(encoding: Vec<u8>) -> Result<Self, TokenSetError> {
        let bytes = encoding.len();
        let damaged = |fault| TokenSetError::Damaged { bytes, fault };
        let mut payload = encoding.as_slice();
        let form = match payload.split_off_first() {
            Some(0) => Form::Members,
            Some(1) => Form::Missing,
            Some(2) => Form::Bitmap,
            Some(_) => return Err(damaged("the first byte is not a known form")),
            None => return Err(damaged("the form is missing")),
        };
        let vocabulary =
            varint::read(&mut payload).ok_or(damaged("the vocabulary size is invalid"))?;
        let header = (bytes - payload.len()) as u8;
        let (len, lengths) = match form {
            Form::Members | Form::Missing => {
                let gaps = read_gaps(payload, vocabulary).map_err(damaged)?;
                let listed = gaps.len() as u32;
                let lengths = Lengths::of(gaps.into_iter(), vocabulary);
                if form == Form::Members {
                    (listed, lengths)
                } else {
                    (vocabulary - listed, lengths.of_complement())
                }
            }
            Form::Bitmap => {
                if payload.len() != vocabulary.div_ceil(8) as usize {
                    return Err(damaged("the bitmap does not match the vocabulary"));
                }
                let spare = payload.last().map_or(0, |last| {
                    let used = vocabulary - 8 * (payload.len() as u32 - 1);
                    u32::from(*last) >> used
                });
                if spare != 0 {
                    return Err(damaged("an id is outside the vocabulary"));
                }
                let len = payload.iter().map(|byte| byte.count_ones()).sum();
                let members =
                    (0..vocabulary).filter(|&id| payload[id as usize / 8] >> (id % 8) & 1 == 1);
                (len, Lengths::of(gaps(members), vocabulary))
            }
        };
        if lengths.shortest() != form {
            return Err(damaged("a shorter form exists"));
        }
        Ok(Self { encoding: encoding.into(), header, vocabulary, len })
    }
}

/// An iterator over the members of a [`TokenSet`] in ascending order.
#[derive(Clone)]
pub struct TokenSetIter<'a> {
    form: Form,
    /// The remaining gaps or, for `Bitmap`, the complete bitmap.
    payload: &'a [u8],
    /// The next id to check.
    next: u32,
    /// For `Missing`: all ids from `next` up to, but not including, this one are members.
    until: u32,
    /// Number of remaining members.
    left: u32,
    vocabulary: u32,
}

impl Iterator for TokenSetIter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let id = match self.form {
            Form::Members => self.next + self.gap().expect("each member has a gap"),
            Form::Missing => {
                while self.next == self.until {
                    self.next += 1;
                    self.until = self.gap().map_or(self.vocabulary, |gap| self.next + gap);
                }
                self.next
            }
            Form::Bitmap => {
                let mut byte = self.next as usize / 8;
                let mut bits = self.payload[byte] >> (self.next % 8) << (self.next % 8);
                while bits == 0 {
                    byte += 1;
                    bits = self.payload[byte];
                }
                8 * byte as u32 + bits.trailing_zeros()
            }
        };
        self.next = id + 1;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for TokenSetIter<'_> {}

impl TokenSetIter<'_> {
    fn gap(&mut self) -> Option<u32> {
        varint::read(&mut self.payload)
    }
}

impl fmt::Debug for TokenSetIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// Payload length of each encoding, in bytes.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    members: usize,
    missing: usize,
    bitmap: usize,
}

impl Lengths {
    /// Computes the lengths from the gaps between members. In the `Missing` encoding, the first id
    /// in a gap follows a run of members, and each of the remaining ids directly follows another
    /// missing id.
    fn of(gaps: impl Iterator<Item = u32>, vocabulary: u32) -> Self {
        let (mut members, mut missing) = (0, 0);
        let (mut next, mut run) = (0, 0);
        let mut pass = |gap: u32, run: &mut u32| {
            if gap > 0 {
                missing += varint::length(*run) + gap as usize - 1;
                *run = 0;
            }
        };
        for gap in gaps {
            members += varint::length(gap);
            pass(gap, &mut run);
            run += 1;
            next += gap + 1;
        }
        pass(vocabulary - next, &mut run);
        Self { members, missing, bitmap: vocabulary.div_ceil(8) as usize }
    }

    fn of_complement(self) -> Self {
        Self { members: self.missing, missing: self.members, ..self }
    }

    fn shortest(&self) -> Form {
        if self.members <= self.missing && self.members <= self.bitmap {
            Form::Members
        } else if self.missing <= self.bitmap {
            Form::Missing
        } else {
            Form::Bitmap
        }
    }
}

/// Returns the gaps, i.e. the number of ids skipped before each id.
fn gaps(ids: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    ids.scan(0, |next, id| {
        let gap = id - *next;
        *next = id + 1;
        Some(gap)
    })
}

/// Decodes all gaps of a payload. Fails if they exceed the vocabulary.
fn read_gaps(mut payload: &[u8], vocabulary: u32) -> Result<Vec<u32>, &'static str> {
    let mut gaps = Vec::with_capacity(payload.len());
    let mut left = vocabulary;
    while !payload.is_empty() {
        let gap = varint::read(&mut payload).ok_or("a gap is invalid")?;
        left = left
            .checked_sub(gap)
            .and_then(|left| left.checked_sub(1))
            .ok_or("an id is outside the vocabulary")?;
        gaps.push(gap);
    }
    Ok(gaps)
}

fn below_2_to_32(vocabulary: usize) -> u32 {
    u32::try_from(vocabulary).expect("a vocabulary has fewer than 2^32 tokens")
}

/// Errors when creating or decoding a token set.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSetError {
    /// The ids are not in ascending order.
    #[error("the ids of a token set must be in ascending order; {id} follows {before}")]
    NotAscending {
        /// The id that is out of order.
        id: u32,
        /// The id before it.
        before: u32,
    },
    /// An id is outside the vocabulary.
    #[error("the id {id} of a token set is outside the vocabulary of {vocabulary} tokens")]
    OutsideVocabulary {
        /// The id.
        id: u32,
        /// The vocabulary size.
        vocabulary: usize,
    },
    /// The bytes are not a valid encoding.
    #[error("{bytes} bytes are not an encoded token set: {fault}")]
    Damaged {
        /// Number of bytes.
        bytes: usize,
        /// What is wrong with the encoding.
        fault: &'static str,
    },
}
