//! Helpers shared by the tests of passages and masking.

use grpo_infill::{
    MASKING, MaskedStream, Masking, MaskingPlan, PassageOptions, PassageUnit, Passages, Split,
};
use std::path::PathBuf;
use std::sync::Arc;

/// Returns options that hold out a fifth of the text.
pub(crate) fn options(unit: PassageUnit, length: usize) -> PassageOptions {
    PassageOptions { file: "a.txt".into(), length, unit, validation_fraction: 0.2 }
}

pub(crate) fn read(text: &str, options: &PassageOptions) -> Result<Passages, String> {
    Passages::from_text(text, options, None).map_err(|error| error.to_string())
}

pub(crate) fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns `n` distinct lines of 6 letters.
pub(crate) fn letters(n: u32) -> String {
    let letter = |i: u32, at: u32| char::from(b'a' + (i / 4u32.pow(at) % 4) as u8);
    (0..n).map(|i| (0..6).map(|at| letter(i, at)).chain(['\n']).collect::<String>()).collect()
}

/// Returns passages of a text with 1,000 lines.
pub(crate) fn passages(unit: PassageUnit, length: usize) -> Arc<Passages> {
    Arc::new(read(&letters(1000), &options(unit, length)).unwrap())
}

pub(crate) fn stream(passages: &Arc<Passages>, split: Split, plan: MaskingPlan) -> MaskedStream {
    MaskedStream::new(passages.clone(), split, plan, 5, MASKING).unwrap()
}

pub(crate) fn sticky(ratio: f64, p1: f64, p2: f64) -> Masking {
    Masking::Sticky { ratio, p1, p2, redrawn: false }
}
