//! A compact set of token ids.

mod varint;

use std::fmt;

use serde::{Deserialize, Serialize};

/// An immutable set of ids below a vocabulary size.
///
/// A completion sampled with top-p has one set per token, with one id or a hundred thousand. A set
/// is therefore stored in the shortest of three forms: gaps between members, gaps between missing
/// ids (none for the whole vocabulary), or a bitmap. Equal sets have equal bytes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct TokenSet {
    /// One byte for the form, the vocabulary as a varint, the payload.
    encoding: Box<[u8]>,
    /// Start of the payload.
    header: u8,
    vocabulary: u32,
    len: u32,
}

/// The form of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// For each member, the number of ids since the previous one, as varints.
    Members = 0,
    /// The same for missing ids.
    Missing = 1,
    /// Bit `i % 8` of byte `i / 8` is set for member `i`.
    Bitmap = 2,
}

impl TokenSet {
    /// Returns the set of all `vocabulary` ids.
    ///
    /// # Panics
    /// Panics for a vocabulary of 2³² tokens or more.
    pub fn all(vocabulary: usize) -> Self {
        let vocabulary = below_2_to_32(vocabulary);
        // Without tokens the forms are equally short, and the first is used.
        let form = if vocabulary == 0 { Form::Members } else { Form::Missing };
        Self::assemble(form, vocabulary, vocabulary, |_| {})
    }

    /// Returns the set of ascending `ids`.
    ///
    /// # Errors
    /// Returns an error if the ids are not ascending or an id is outside of the vocabulary.
    ///
    /// # Panics
    /// Panics for a vocabulary of 2³² tokens or more.
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

    /// Iterates over the members, ascending, without allocation.
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

    /// Returns whether `id` is a member.
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

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary as usize
    }

    /// Returns the size of the encoding in bytes; at most 6 more than an eighth of the vocabulary,
    /// rounded up.
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
    /// Shows members and vocabulary instead of bytes.
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

    /// Decodes a set, in time bounded by its length.
    ///
    /// # Errors
    /// Returns an error for bytes that [`TokenSet`] does not write: truncated, with ids outside of
    /// the vocabulary, or in a form that is not the shortest.
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

/// Iterator over the members of a [`TokenSet`], ascending.
#[derive(Clone)]
pub struct TokenSetIter<'a> {
    form: Form,
    /// Remaining gaps, or the whole bitmap.
    payload: &'a [u8],
    /// The next id to visit.
    next: u32,
    /// With missing ids: all ids from `next` to below this one are members.
    until: u32,
    /// Remaining members.
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

/// Bytes of each form of a set, without the header.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    members: usize,
    missing: usize,
    bitmap: usize,
}

impl Lengths {
    /// Computes the lengths from the gaps of the members. The first missing id of a gap follows a
    /// run of members; the others have no gap.
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

/// Returns the number of ids between neighbours of `ids`.
fn gaps(ids: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    ids.scan(0, |next, id| {
        let gap = id - *next;
        *next = id + 1;
        Some(gap)
    })
}

/// Reads all gaps of a payload and checks that they stay in the vocabulary.
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

/// Errors of token sets.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSetError {
    /// The ids are not ascending.
    #[error("the ids of a token set must be in ascending order; {id} follows {before}")]
    NotAscending {
        /// The id.
        id: u32,
        /// The previous id.
        before: u32,
    },
    /// An id is outside of the vocabulary.
    #[error("the id {id} of a token set is outside the vocabulary of {vocabulary} tokens")]
    OutsideVocabulary {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The bytes are not a valid encoding.
    #[error("{bytes} bytes are not an encoded token set: {fault}")]
    Damaged {
        /// Number of bytes.
        bytes: usize,
        /// The reason.
        fault: &'static str,
    },
}
