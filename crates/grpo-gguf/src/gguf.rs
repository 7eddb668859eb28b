//! A file: header, metadata, and tensors that are read one at a time.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek, SeekFrom};

use crate::dequantize::dequantize;
use crate::error::{Result, damaged, unsupported};
use crate::metadata::Metadata;
use crate::source::Source;
use crate::tensor_type::TensorType;

/// First bytes of a file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// Version that is written. Version 2 has the same layout.
pub(crate) const VERSION: u32 = 3;
/// Alignment of tensors in bytes, unless the metadata has another.
pub(crate) const ALIGNMENT: u64 = 32;
/// Longest accepted name of a tensor. ggml itself accepts 63 bytes.
const LONGEST_NAME: usize = 1024;
/// Bytes that are read and converted at a time.
const CHUNK: usize = 1 << 20;

/// Returns whether a file with these first bytes is a GGUF file, whatever its name. The blobs of
/// Ollama are named after their hash.
pub fn is_gguf(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(&MAGIC)
}

/// What a file says about a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// The shape in the order of PyTorch: rows first. The file has the reverse order.
    pub shape: Vec<usize>,
    /// How the values are stored.
    pub kind: TensorType,
    /// Position of the first byte in the file.
    start: u64,
    /// Number of bytes.
    size: u64,
}

/// An open file.
#[derive(Debug)]
pub struct Gguf<R> {
    reader: R,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Index of each tensor by its name.
    names: BTreeMap<String, usize>,
}

impl<R: Read + Seek> Gguf<R> {
    /// Reads the header of a file, and checks that all tensors are in it.
    ///
    /// # Errors
    /// Returns an error if the file is not a GGUF file of version 2 or 3, is truncated or damaged, or has a
    /// tensor of a type that is not supported.
    pub fn open(mut reader: R) -> Result<Self> {
        let length = reader.seek(SeekFrom::End(0))?;
        reader.seek(SeekFrom::Start(0))?;
        let mut source = Source::new(BufReader::with_capacity(1 << 16, &mut reader), length);
        let (metadata, infos) = header(&mut source)?;
        let alignment = alignment(&metadata)?;
        let begin = source.position().next_multiple_of(alignment);
        let tensors = place(infos, begin, alignment, length)?;
        let mut names = BTreeMap::new();
        for (index, tensor) in tensors.iter().enumerate() {
            if names.insert(tensor.name.clone(), index).is_some() {
                return damaged(format!("tensor `{}` occurs twice", tensor.name));
            }
        }
        Ok(Self { reader, metadata, tensors, names })
    }

    /// Returns the metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the tensors in the order of the header.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Returns what the file says about a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.names.get(name).map(|index| &self.tensors[*index])
    }

    /// Reads the values of a tensor, row by row.
    ///
    /// # Errors
    /// Returns an error if there is no such tensor, if the file cannot be read, or if a value is not
    /// finite.
    pub fn read(&mut self, name: &str) -> Result<Vec<f32>> {
        let Some(info) = self.names.get(name).map(|index| &self.tensors[*index]) else {
            return damaged(format!("tensor `{name}` is missing"));
        };
        self.reader.seek(SeekFrom::Start(info.start))?;
        let block = info.kind.block_bytes();
        let count = info.size as usize / block * info.kind.block_values();
        let mut values = Vec::with_capacity(count);
        let mut bytes = vec![0; (CHUNK / block * block).min(info.size as usize)];
        let mut left = info.size as usize;
        while left > 0 {
            let part = &mut bytes[..left.min(CHUNK / block * block)];
            self.reader.read_exact(part)?;
            dequantize(info.kind, part, &mut values);
            left -= part.len();
        }
        if values.iter().any(|value| !value.is_finite()) {
            return damaged(format!("tensor `{name}` contains a value that is not finite"));
        }
        Ok(values)
    }
}

/// A tensor as the header describes it: name, shape, type and offset from the first tensor.
struct Described {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    offset: u64,
}

fn header(source: &mut Source<impl Read>) -> Result<(Metadata, Vec<Described>)> {
    if source.bytes("the magic number")? != MAGIC {
        return damaged("it is not a GGUF file: it does not begin with the letters GGUF");
    }
    let version = source.u32("the version")?;
    match version {
        2 | 3 => {}
        _ if matches!(version.swap_bytes(), 1..=3) => {
            return unsupported(
                "it was written for big-endian machines; convert it with `gguf-convert-endian`",
            );
        }
        _ => {
            return unsupported(format!(
                "it has version {version} of the format; supported are versions 2 and 3, so convert the model again with a current llama.cpp"
            ));
        }
    }
    let tensors = source.u64("the number of tensors")?;
    let keys = source.u64("the number of metadata keys")?;
    let metadata = Metadata::read(source, keys)?;
    // Name, number of dimensions, one of them, type and offset take 32 bytes.
    if tensors > source.left() / 32 {
        return damaged(format!(
            "its header declares {tensors} tensors, but only {} bytes follow; the file is truncated or damaged, so download it again",
            source.left()
        ));
    }
    let mut described = Vec::new();
    for number in 1..=tensors {
        described.push(describe(source, number)?);
    }
    Ok((metadata, described))
}

fn describe(source: &mut Source<impl Read>, number: u64) -> Result<Described> {
    let name = source.text(&format!("the name of tensor {number}"))?;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return damaged(format!("the name of tensor {number} is damaged"));
    }
    source.take_memory(2 * (name.len() + 128) as u64)?;
    let what = format!("the description of tensor `{name}`");
    let dimensions = source.u32(&what)?;
    if !(1..=4).contains(&dimensions) {
        return damaged(format!("tensor `{name}` has {dimensions} dimensions; expected 1 to 4"));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        match usize::try_from(source.u64(&what)?) {
            Ok(size) if size > 0 => shape.push(size),
            _ => return damaged(format!("tensor `{name}` has an impossible shape")),
        }
    }
    shape.reverse();
    let kind = TensorType::from_number(source.u32(&what)?, &name)?;
    let offset = source.u64(&what)?;
    Ok(Described { name, shape, kind, offset })
}

fn alignment(metadata: &Metadata) -> Result<u64> {
    match metadata.size("general.alignment")? {
        None => Ok(ALIGNMENT),
        Some(value) if value.is_power_of_two() && value <= 1 << 16 => Ok(value),
        Some(value) => damaged(format!(
            "the metadata key `general.alignment` is {value}; expected a power of two up to 65536"
        )),
    }
}

/// Finds where tensors are in the file, and checks that they are inside of it and do not overlap.
fn place(
    infos: Vec<Described>,
    begin: u64,
    alignment: u64,
    length: u64,
) -> Result<Vec<TensorInfo>> {
    let mut tensors = Vec::with_capacity(infos.len());
    for Described { name, shape, kind, offset } in infos {
        let row = shape[shape.len() - 1];
        if !row.is_multiple_of(kind.block_values()) {
            return damaged(format!(
                "tensor `{name}` has rows of {row} values, which are not whole blocks of {}",
                kind.name()
            ));
        }
        if !offset.is_multiple_of(alignment) {
            return damaged(format!(
                "tensor `{name}` begins at offset {offset}, which is not a multiple of {alignment}"
            ));
        }
        let values = shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size as u64));
        let size = values.and_then(|values| {
            (values / kind.block_values() as u64).checked_mul(kind.block_bytes() as u64)
        });
        let start = begin.checked_add(offset);
        let end = size.zip(start).and_then(|(size, start)| start.checked_add(size));
        match (size, start, end) {
            (Some(size), Some(start), Some(end)) if end <= length => {
                tensors.push(TensorInfo { name, shape, kind, start, size });
            }
            _ => {
                return damaged(format!(
                    "tensor `{name}` lies outside of the file's {length} bytes; the file is truncated or damaged, so download it again"
                ));
            }
        }
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.start);
    for pair in order.windows(2) {
        if pair[0].start + pair[0].size > pair[1].start {
            return damaged(format!("tensors `{}` and `{}` overlap", pair[0].name, pair[1].name));
        }
    }
    Ok(tensors)
}
