//! The directory of a zip archive whose entries are stored without compression, as PyTorch writes
//! them. Nothing is unpacked to disk, so the names of entries are just keys.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// Maximum size of the directory in bytes, enough for 100,000 entries.
const LARGEST_DIRECTORY: u64 = 16 << 20;
/// Size of the end record without its comment.
const END: usize = 22;
/// Maximum size of the comment of an archive.
const COMMENT: u64 = 0xFFFF;

/// Returns the positions of all entries in a file of `length` bytes.
///
/// # Errors
/// Returns a description of the problem if the archive is damaged or has compressed entries.
pub(super) fn entries(
    file: &mut (impl Read + Seek),
    length: u64,
) -> Result<BTreeMap<String, Range<u64>>, String> {
    let (start, size) = directory(file, length)?;
    let within = start.checked_add(size).is_some_and(|end| end <= length);
    if !within || size > LARGEST_DIRECTORY {
        return Err("its zip directory is damaged".to_owned());
    }
    let bytes = read(file, start, size as usize)?;
    let mut rest = bytes.as_slice();
    let mut entries = BTreeMap::new();
    while !rest.is_empty() {
        let entry = Entry::parse(&mut rest).ok_or("its zip directory is damaged")?;
        let name = entry.name.clone();
        let range = entry.range(file, length)?;
        if entries.insert(name.clone(), range).is_some() {
            return Err(format!("its zip directory lists '{name}' twice"));
        }
    }
    Ok(entries)
}

/// Returns the position and size of the directory.
fn directory(file: &mut (impl Read + Seek), length: u64) -> Result<(u64, u64), String> {
    let tail = length.min(END as u64 + COMMENT);
    let bytes = read(file, length - tail, tail as usize)?;
    let missing = "it is truncated: its zip archive has no directory";
    let end = bytes.windows(END).rposition(|window| window.starts_with(b"PK\x05\x06"));
    let end = end.ok_or(missing)?;
    let (size, start) = (u32_at(&bytes, end + 12), u32_at(&bytes, end + 16));
    if size != u32::MAX && start != u32::MAX {
        return Ok((start.into(), size.into()));
    }
    // Large archives have a second end record, whose position stands before the first one.
    let locator = end.checked_sub(20).filter(|at| bytes[*at..].starts_with(b"PK\x06\x07"));
    let at = u64_at(&bytes, locator.ok_or(missing)? + 8);
    if at.checked_add(56).is_none_or(|end| end > length) {
        return Err(missing.to_owned());
    }
    let record = read(file, at, 56)?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(missing.to_owned());
    }
    Ok((u64_at(&record, 48), u64_at(&record, 40)))
}

/// An entry of the directory.
struct Entry {
    name: String,
    flags: u16,
    method: u16,
    stored: u64,
    size: u64,
    /// Position of the local header.
    header: u64,
}

/// Size of a directory entry without its name, extra fields and comment.
const FIXED: usize = 46;
/// Size of a local header without its name and extra fields.
const LOCAL: usize = 30;

impl Entry {
    /// Parses the next entry and removes it from `bytes`.
    fn parse(bytes: &mut &[u8]) -> Option<Self> {
        let fixed = bytes.get(..FIXED).filter(|fixed| fixed.starts_with(b"PK\x01\x02"))?;
        let lengths = [28, 30, 32].map(|at| usize::from(u16_at(fixed, at)));
        let [name, extra, comment] = lengths;
        let rest = bytes.get(FIXED..FIXED + name + extra + comment)?;
        *bytes = &bytes[FIXED + rest.len()..];
        let mut large = Self::large_sizes(&rest[name..name + extra]);
        // Sizes that do not fit into 32 bits stand in an extra field, in this order.
        let mut number = |at| match u32_at(fixed, at) {
            u32::MAX => large.next(),
            small => Some(small.into()),
        };
        let (size, stored, header) = (number(24)?, number(20)?, number(42)?);
        let name = String::from_utf8_lossy(&rest[..name]).into_owned();
        let (flags, method) = (u16_at(fixed, 8), u16_at(fixed, 10));
        Some(Self { name, flags, method, stored, size, header })
    }

    /// Returns the numbers in the extra field for large archives.
    fn large_sizes(mut extra: &[u8]) -> impl Iterator<Item = u64> {
        let mut numbers = Vec::new();
        while extra.len() >= 4 {
            let (kind, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
            let Some(data) = extra.get(4..4 + length) else { break };
            if kind == 1 {
                numbers = data.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
                break;
            }
            extra = &extra[4 + length..];
        }
        numbers.into_iter()
    }

    /// Returns the position of the contents.
    fn range(&self, file: &mut (impl Read + Seek), length: u64) -> Result<Range<u64>, String> {
        let Self { name, flags, method, stored, size, header } = self;
        if *method != 0 || flags & 1 != 0 || stored != size {
            return Err(format!(
                "its zip entry '{name}' is compressed or encrypted, but PyTorch stores entries as they are; write the file with torch.save"
            ));
        }
        let damaged = || format!("its zip entry '{name}' lies outside the file");
        let fits = header.checked_add(LOCAL as u64).is_some_and(|end| end <= length);
        let local = if fits { read(file, *header, LOCAL)? } else { return Err(damaged()) };
        if !local.starts_with(b"PK\x03\x04") {
            return Err(damaged());
        }
        let names = u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
        let start = header + LOCAL as u64 + names;
        let end = start.checked_add(*size).filter(|end| *end <= length);
        Ok(start..end.ok_or_else(damaged)?)
    }
}

/// Reads `size` bytes at `start`.
pub(super) fn read(
    file: &mut (impl Read + Seek),
    start: u64,
    size: usize,
) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; size];
    let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|error| format!("it cannot be read: {error}"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
