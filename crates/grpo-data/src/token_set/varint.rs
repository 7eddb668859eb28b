//! LEB128 varints: seven bits per byte, least significant first.

/// Appends a varint.
pub(crate) fn write(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Returns the length of the varint in bytes.
pub(crate) fn length(value: u32) -> usize {
    (32 - value.leading_zeros() as usize).div_ceil(7).max(1)
}

/// Reads a varint. Returns `None` if the input is truncated or the encoding is longer than
/// necessary.
pub(crate) fn read(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u64;
    for shift in (0..5).map(|i| 7 * i) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let shortest = byte != 0 || shift == 0;
            return u32::try_from(value).ok().filter(|_| shortest);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_the_length_that_was_said() {
        for (value, expect) in [
            (0, 1),
            (0x7f, 1),
            (0x80, 2),
            (0x3fff, 2),
            (0x4000, 3),
            (0x1f_ffff, 3),
            (0x20_0000, 4),
            (0xfff_ffff, 4),
            (0x1000_0000, 5),
            (u32::MAX, 5),
        ] {
            let mut bytes = Vec::new();
            write(&mut bytes, value);
            assert_eq!((bytes.len(), length(value)), (expect, expect), "{value}");
            let mut rest = bytes.as_slice();
            assert_eq!(read(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_is_no_number() {
        let check = |bytes: &[u8]| assert_eq!(read(&mut &*bytes), None, "{bytes:?}");
        check(&[]);
        check(&[0x80]);
        check(&[0x80, 0x00]); // 0 in two bytes
        check(&[0xff, 0xff, 0xff, 0xff, 0x1f]); // 33 bits
        check(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]);
    }
}
