//! Deterministic mutations of files, selected by a case number.

use grpo_data::{CounterRng, Purpose};

/// Numbers that are often mishandled, such as limits of ranges, negative numbers and huge sizes.
const WORDS: &[&[u8]] = &[
    b"\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    b"-1",
    b"0",
    b"1e308",
    b"NaN",
    b"null",
    b"18446744073709551615",
    b"9223372036854775808",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\"",
    b",",
    b":",
    b"\n",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\x1b]0;x\x07",
    b"{{",
    b"}}",
    b"{%",
    b"%}",
    b"..",
    b"/",
    b"(",
    b")",
    b"%99",
    b"[C@@H]",
];

/// A source of random numbers.
struct Draws {
    rng: CounterRng,
    case: u64,
    drawn: u32,
}

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let counter = [self.drawn, self.case as u32, (self.case >> 32) as u32, 0];
        self.rng.below(counter, bound.max(1) as u64) as usize
    }

    /// Returns a random range of at most `most` bytes.
    fn range(&mut self, length: usize, most: usize) -> std::ops::Range<usize> {
        let begin = self.below(length + 1);
        begin..(begin + self.below(most + 1)).min(length)
    }
}

/// Applies one to eight mutations to `file`. Some of them insert parts of `other`.
pub(crate) fn changed(file: &[u8], other: &[u8], case: u64) -> Vec<u8> {
    let mut draws = Draws { rng: CounterRng::new(17, Purpose::EVALUATION), case, drawn: 0 };
    let mut bytes = file.to_vec();
    for _ in 0..1 + draws.below(8) {
        let at = draws.below(bytes.len() + 1);
        match draws.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << draws.below(8),
            1 if at < bytes.len() => bytes[at] = draws.below(256) as u8,
            2 => drop(bytes.drain(draws.range(bytes.len(), 64))),
            3 => bytes.truncate(at),
            4 => {
                let part = bytes[draws.range(bytes.len(), 64)].to_vec();
                let part = part.repeat(1 + draws.below(100));
                bytes.splice(at..at, part);
            }
            5 => {
                let part = other[draws.range(other.len(), 256)].to_vec();
                bytes.splice(at..at, part);
            }
            6 => {
                let range = draws.range(bytes.len(), 8);
                bytes.splice(range, WORDS[draws.below(WORDS.len())].iter().copied());
            }
            _ => {
                let word = WORDS[draws.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
    bytes
}
