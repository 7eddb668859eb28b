//! A set of token ids in few bytes.

mod varint;

use std::fmt;

use serde::{Deserialize, Serialize};

/// An immutable set of ids below the size of a vocabulary.
///
/// A completion that was sampled with top-p has one for each of its tokens, and such a set may hold one id or
/// a hundred thousand. So a set is kept in the shortest of three forms: the members as gaps between
/// neighbours, the missing ids likewise (the whole vocabulary is no gap at all), or a bit for each id of the
/// vocabulary. Equal sets have equal bytes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct TokenSet {
    /// One byte for the form, the vocabulary as a varint, the payload.
    encoding: Box<[u8]>,
    /// Where the payload begins.
    header: u8,
    vocabulary: u32,
    len: u32,
}

/// How the payload says which ids are members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// For each member, how many ids lie between it and the one before, as varints.
    Members = 0,
    /// The same of the ids that are no members.
    Missing = 1,
    /// Bit `i % 8` of byte `i / 8` is set for member `i`.
    Bitmap = 2,
}

impl TokenSet {
    /// Every id of a vocabulary of `vocabulary` tokens.
    ///
    /// # Panics
    /// A vocabulary of 2³² tokens or more.
    pub fn all(vocabulary: usize) -> Self {
        let vocabulary = below_2_to_32(vocabulary);
        // Of no tokens the two forms are equally short, and then the first is it.
        let form = if vocabulary == 0 { Form::Members } else { Form::Missing };
        Self::assemble(form, vocabulary, vocabulary, |_| {})
    }

    /// The set of `ids`, which ascend.
    ///
    /// # Errors
    /// An id that is not above the one before it, or that a vocabulary of `vocabulary` tokens lacks.
    ///
    /// # Panics
    /// A vocabulary of 2³² tokens or more.
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

    /// The members, ascending, without allocation.
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

    /// Whether `id` is a member.
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

    /// How many ids are members.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no id is a member.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens in the vocabulary; all members are below it.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary as usize
    }

    /// Size of the encoding in bytes; at most 6 more than an eighth of the vocabulary, rounded up.
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
    /// The members and the vocabulary, not the bytes.
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

    /// Reads an encoding, in time that its length bounds.
    ///
    /// # Errors
    /// Bytes that [`TokenSet`] does not write: cut off, with ids outside the vocabulary, or in a form that is
    /// not the shortest one.
    fn try_from(encoding: Vec<u8>) -> Result<Self, TokenSetError> {
        let bytes = encoding.len();
        let damaged = |fault| TokenSetError::Damaged { bytes, fault };
        let mut payload = encoding.as_slice();
        let form = match payload.split_off_first() {
            Some(0) => Form::Members,
            Some(1) => Form::Missing,
            Some(2) => Form::Bitmap,
            Some(_) => return Err(damaged("the first one is no form")),
            None => return Err(damaged("there is no form")),
        };
        let vocabulary =
            varint::read(&mut payload).ok_or(damaged("the vocabulary is no number"))?;
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
                    return Err(damaged("the bits are not one for each id of the vocabulary"));
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
            return Err(damaged("another form is shorter"));
        }
        Ok(Self { encoding: encoding.into(), header, vocabulary, len })
    }
}

/// The members of a [`TokenSet`], ascending.
#[derive(Clone)]
pub struct TokenSetIter<'a> {
    form: Form,
    /// Gaps that have not been walked over, or the whole bitmap.
    payload: &'a [u8],
    /// The lowest id that has not been looked at.
    next: u32,
    /// Where missing ids are listed: all from `next` to below this are members.
    until: u32,
    /// Members that are still to come.
    left: u32,
    vocabulary: u32,
}

impl Iterator for TokenSetIter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let id = match self.form {
            Form::Members => self.next + self.gap().expect("a gap for each member"),
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

/// Bytes of each form of one set, without the header.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    members: usize,
    missing: usize,
    bitmap: usize,
}

impl Lengths {
    /// From the gaps of the members. The ids of a gap are missing: the first of them follows a run of members,
    /// the others have no gap.
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

/// How many ids lie between each of `ids` and the one before.
fn gaps(ids: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    ids.scan(0, |next, id| {
        let gap = id - *next;
        *next = id + 1;
        Some(gap)
    })
}

/// All gaps of a payload, none of which leads out of the vocabulary.
fn read_gaps(mut payload: &[u8], vocabulary: u32) -> Result<Vec<u32>, &'static str> {
    let mut gaps = Vec::with_capacity(payload.len());
    let mut left = vocabulary;
    while !payload.is_empty() {
        let gap = varint::read(&mut payload).ok_or("a gap is no number")?;
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

/// What is no set of tokens.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenSetError {
    /// An id that is not above the one before it.
    #[error("the ids of a token set must ascend; {id} follows {before}")]
    NotAscending {
        /// The id.
        id: u32,
        /// The one before it.
        before: u32,
    },
    /// An id that the vocabulary does not have.
    #[error("the id {id} of a token set is outside the vocabulary of {vocabulary} tokens")]
    OutsideVocabulary {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// Bytes that encode no set, or not as this crate encodes it.
    #[error("{bytes} bytes are no encoded token set: {fault}")]
    Damaged {
        /// How many bytes there are.
        bytes: usize,
        /// What is wrong with them.
        fault: &'static str,
    },
}
