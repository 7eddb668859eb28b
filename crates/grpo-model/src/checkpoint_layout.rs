//! Describes faults in the layout of a safetensors file.
//!
//! The `safetensors` crate names a tensor in only some of its errors, and which one it finds first depends
//! on the order of a hash map.

use grpo_data::{JsonEntries, Shortened};
use safetensors::tensor::TensorInfo;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The key of a header that is not a tensor.
const METADATA: &str = "__metadata__";

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Tensor(TensorInfo),
    Other(IgnoredAny),
}

/// Returns what is wrong with the offsets of the tensors in a header, for the first one in the order of
/// offsets and names. Returns `None` if something else is wrong with the header.
pub(crate) fn layout_fault(header: &[u8]) -> Option<String> {
    let JsonEntries::<Entry> { entries, .. } = serde_json::from_slice(header).ok()?;
    let mut tensors = Vec::new();
    for (name, entry) in entries.into_iter().filter(|(name, _)| name != METADATA) {
        match entry {
            Entry::Tensor(info) => tensors.push((info.data_offsets, name, info)),
            Entry::Other(IgnoredAny) => return None,
        }
    }
    tensors.sort_by(|(place, name, _), (other, other_name, _)| {
        place.cmp(other).then_with(|| name.cmp(other_name))
    });
    let mut before: Option<&str> = None;
    let mut end = 0;
    for ((from, to), name, info) in &tensors {
        let offsets = format!("data_offsets [{from}, {to}] of tensor '{}'", Shortened(name));
        if to < from {
            return Some(format!("the {offsets} end before they begin"));
        }
        if *from < end {
            let before = Shortened(before.unwrap_or_default());
            return Some(format!("the {offsets} overlap those of tensor '{before}'"));
        }
        if *from > end {
            let gap = from - end;
            return Some(format!("the {offsets} leave {gap} unused bytes before them"));
        }
        let shape = &info.shape;
        let numbers = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let bits = numbers.and_then(|numbers| numbers.checked_mul(info.dtype.bitsize()));
        let shape = Shortened(&format!("{shape:?}")).to_string();
        match bits {
            None => {
                let name = Shortened(name);
                return Some(format!("the shape {shape} of tensor '{name}' overflows any file"));
            }
            Some(bits) if bits.div_ceil(8) != to - from || bits % 8 != 0 => {
                return Some(format!(
                    "the {offsets} span {} bytes, but its shape {shape} in {:?} needs {}",
                    to - from,
                    info.dtype,
                    bits.div_ceil(8)
                ));
            }
            Some(_) => (before, end) = (Some(name.as_str()), *to),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_header_has_one_fault() {
        let check = |header: &str, expected: Option<&str>| {
            assert_eq!(layout_fault(header.as_bytes()).as_deref(), expected, "{header}");
        };
        let tensor = |name: &str, shape: &str, from: u64, to: u64| {
            format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{from},{to}]}}"#)
        };
        let header = |tensors: &[String]| format!("{{{}}}", tensors.join(","));
        let whole = [tensor("b", "[4]", 0, 16), tensor("a", "[2,2]", 16, 32)];
        check(&header(&whole), None);
        check(&header(&[r#""__metadata__":{"format":"pt"}"#.to_owned(), whole[0].clone()]), None);
        let overlap = "the data_offsets [0, 16] of tensor 'b' overlap those of tensor 'a'";
        let same = [tensor("b", "[4]", 0, 16), tensor("a", "[4]", 0, 16)];
        check(&header(&same), Some(overlap));
        check(&header(&[same[1].clone(), same[0].clone()]), Some(overlap));
        for (shape, from, to, expected) in [
            ("[4]", 16, 0, "the data_offsets [16, 0] of tensor 'a' end before they begin"),
            (
                "[4]",
                4,
                20,
                "the data_offsets [4, 20] of tensor 'a' leave 4 unused bytes before them",
            ),
            (
                "[5]",
                0,
                16,
                "the data_offsets [0, 16] of tensor 'a' span 16 bytes, but its shape [5] in F32 needs 20",
            ),
            (
                "[9223372036854775807,4]",
                0,
                16,
                "the shape [9223372036854775807, 4] of tensor 'a' overflows any file",
            ),
        ] {
            check(&header(&[tensor("a", shape, from, to)]), Some(expected));
        }
        check("{", None);
        check(r#"{"a":3}"#, None);
    }
}
