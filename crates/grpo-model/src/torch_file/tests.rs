use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use super::{TorchFile, contents};
use crate::ModelError;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch").join(name)
}

/// Opens bytes as a file, and reads all its tensors. Returns the error without the path.
fn read(bytes: &[u8]) -> Result<BTreeMap<String, Vec<f32>>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pt");
    std::fs::write(&path, bytes).unwrap();
    let all = || -> Result<BTreeMap<String, Vec<f32>>, ModelError> {
        let mut file = TorchFile::open(&path)?;
        let names: Vec<String> = file.shapes().map(|(name, _)| name.to_owned()).collect();
        names.into_iter().map(|name| Ok((name.clone(), file.read(&name)?.values))).collect()
    };
    all().map_err(|error| error.to_string().replace(&format!("{}: ", path.display()), ""))
}

/// A zip archive of stored entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let sizes = [data.len() as u32; 2].map(u32::to_le_bytes).concat();
        let name_length = (name.len() as u32).to_le_bytes();
        directory.extend(b"PK\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        directory.extend([sizes.as_slice(), &name_length, &[0; 10]].concat());
        directory.extend((bytes.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        bytes.extend(b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        bytes.extend([sizes.as_slice(), &name_length, name.as_bytes(), data].concat());
    }
    let (start, size) = (bytes.len() as u32, directory.len() as u32);
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0\0\0\0\0");
    bytes.extend([size.to_le_bytes(), start.to_le_bytes()].concat());
    bytes.extend([0, 0]);
    bytes
}

/// An archive with a pickle and a storage `0` of four f32 values.
fn with_pickle(pickle: &[u8]) -> Vec<u8> {
    archive(&[("a/data.pkl", pickle), ("a/data/0", &[0; 16])])
}

#[track_caller]
fn check_refused(pickle: &[u8], expected: &str) {
    assert_eq!(read(&with_pickle(pickle)).unwrap_err(), expected);
}

/// A pickle of `{"w": tensor}`, with the given operations for the persistent id's class, the number
/// of elements of the storage, the offset, the shape and the strides.
fn of_tensor(class: &[u8], len: &[u8], offset: &[u8], shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let mut pickle =
        b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage".to_vec();
    pickle.extend([b"c", class, b"\nX\x01\0\0\x000X\x03\0\0\0cpu", len, b"tQ"].concat());
    pickle.extend([offset, shape, strides, b"\x89ccollections\nOrderedDict\n)RtRs."].concat());
    pickle
}

#[test]
fn tensors_are_those_of_torch() {
    let expected = std::fs::read_to_string(fixture("tensors.json")).unwrap();
    let expected: BTreeMap<String, (Vec<usize>, Vec<serde_json::Value>)> =
        serde_json::from_str(&expected).unwrap();
    for name in ["tensors.pt", "tensors-legacy.pt"] {
        let mut file = TorchFile::open(&fixture(name)).unwrap();
        assert_eq!(file.shapes().count(), expected.len());
        for (tensor, (shape, values)) in &expected {
            let stored = file.read(tensor).unwrap();
            assert_eq!(&stored.shape, shape, "{name}: {tensor}");
            let number = |value: &serde_json::Value| match value.as_bool() {
                Some(value) => f32::from(u8::from(value)),
                None => value.as_f64().unwrap() as f32,
            };
            let values: Vec<f32> = values.iter().map(number).collect();
            assert_eq!(stored.values, values, "{name}: {tensor}");
        }
    }
}

#[test]
fn state_dicts_inside_checkpoints_lose_the_prefix_of_wrappers() {
    let names = |file: &str| {
        let file = TorchFile::open(&fixture(file)).unwrap();
        file.shapes().map(|(name, shape)| (name.to_owned(), shape.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(names("legacy.pt"), names("molgpt.pt"));
}

#[test]
fn anything_that_python_would_call_is_refused_by_name() {
    let check = |pickle: &[u8], name: &str| {
        check_refused(
            pickle,
            &format!(
                "it refers to `{name}`, which is not part of a state dict and could run code; if you trust the file, load it in Python and save only model.state_dict()"
            ),
        );
    };
    check(b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.", "posix.system");
    check(b"\x80\x02cbuiltins\neval\nX\x01\0\0\x001\x85R.", "builtins.eval");
    check(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "os.system");
    // Inside an otherwise good state dict, and never called.
    check(
        b"\x80\x02}X\x01\0\0\0wcnumpy.core.multiarray\nscalar\ns.",
        "numpy.core.multiarray.scalar",
    );
    check(b"\x80\x02ctorch.storage\n_load_from_bytes\n.", "torch.storage._load_from_bytes");
    check(b"\x80\x02ctorch\nload\n.", "torch.load");
    let long = [b"\x80\x02c".as_slice(), &[b'a'; 500], b"\nb\n."].concat();
    check(&long, &"a".repeat(80));
    // Attributes of allowed names are not reachable.
    check(
        b"\x80\x04\x8c\x0bcollections\x8c\x10OrderedDict.keys\x93.",
        "collections.OrderedDict.keys",
    );
}

#[test]
fn operations_outside_of_state_dicts_are_refused() {
    let unknown = |operation: &str, at: usize| {
        format!(
            "its pickle has the operation {operation} at byte {at}, which PyTorch does not write for weights"
        )
    };
    // NEWOBJ, INST, OBJ, EXT1, DUP, NEXT_BUFFER.
    check_refused(b"\x80\x02)\x81.", &unknown("0x81", 3));
    check_refused(b"(iposix\nsystem\n.", &unknown("0x69", 1));
    check_refused(b"\x80\x02(o.", &unknown("0x6f", 3));
    check_refused(b"\x80\x02\x82\x01.", &unknown("0x82", 2));
    check_refused(b"\x80\x02N2.", &unknown("0x32", 3));
    check_refused(b"\x80\x05\x97.", &unknown("0x97", 2));
    check_refused(b"\x80\x02]]\x85R.", "its pickle calls something that is not a function");
    check_refused(
        b"\x80\x02ccollections\nOrderedDict\n]\x85R.",
        "its pickle calls OrderedDict with unexpected arguments",
    );
    check_refused(
        b"\x80\x02ctorch\nFloatStorage\n)R.",
        "its pickle calls Storage(F32) with unexpected arguments",
    );
    check_refused(
        b"\x80\x02ccollections\nOrderedDict\n}b.",
        "its pickle sets attributes of something that is not a dictionary",
    );
    check_refused(
        b"\x80\x02X\x01\0\0\0aQ.",
        "its pickle refers to something outside the file that is not a storage",
    );
    check_refused(b"\x80\x02R.", "its pickle takes a value from an empty stack");
    check_refused(b"\x80\x02N(0.", "its pickle takes a value from an empty stack");
    check_refused(b"\x80\x02h\x07.", "its pickle refers to an object that it does not contain");
    check_refused(b"\x80\x02\x8b\xff\xff\xff\xff.", "its pickle is truncated or larger than 4 MiB");
    check_refused(b"\x80\x02X\xff\xff\xff\xffa.", "its pickle is truncated or larger than 4 MiB");
    check_refused(
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
        "its pickle is truncated or larger than 4 MiB",
    );
    check_refused(b"\x80\x02", "its pickle is truncated or larger than 4 MiB");
}

#[test]
fn nesting_and_sharing_cost_neither_stack_nor_memory() {
    let no_weights = "it contains no state dict; save one with torch.save(model.state_dict(), ...)";
    // A million nested tuples.
    let nested = [b"\x80\x02N".as_slice(), &[0x85; 1_000_000], b"."].concat();
    check_refused(&nested, no_weights);
    // Lists of two references to the list before: 2^60 leaves if they were copied.
    let mut bomb = b"\x80\x02]q\0".to_vec();
    for i in 0..60u8 {
        bomb.extend([b'0', b'h', i, b'h', i, 0x86, b'q', i + 1]);
    }
    bomb.push(b'.');
    check_refused(&bomb, no_weights);
    // A list that contains itself.
    check_refused(b"\x80\x02]q\0h\0a.", no_weights);
    // A dictionary under its own name.
    check_refused(b"\x80\x02}q\0X\x05\0\0\0modelh\0s.", no_weights);
}

#[test]
fn tensors_stay_inside_their_storage() {
    let float = b"torch\nFloatStorage".as_slice();
    let good = of_tensor(float, b"K\x04", b"K\0", b"K\x02K\x02\x86", b"K\x02K\x01\x86");
    assert_eq!(read(&with_pickle(&good)).unwrap()["w"], [0.0; 4]);
    let check = |offset: &[u8], shape: &[u8], strides: &[u8], shown: &str| {
        let expected = format!(
            "it has a tensor of shape {shown} that does not fit into its storage of 4 elements"
        );
        check_refused(&of_tensor(float, b"K\x04", offset, shape, strides), &expected);
    };
    check(b"K\x01", b"K\x04\x85", b"K\x01\x85", "[4]");
    check(b"K\0", b"K\x02K\x02\x86", b"K\x03K\x01\x86", "[2, 2]");
    // Repeated by a stride of 0, to any size.
    check(b"K\0", b"J\xff\xff\xff\x7f\x85", b"K\0\x85", "[2147483647]");
    // 2^62 * 2^62 elements overflow.
    let large = b"\x8a\x08\0\0\0\0\0\0\0\x40".as_slice();
    let two = [large, large, b"\x86"].concat();
    check(b"K\0", &two, b"K\x01K\x01\x86", "[4611686018427387904, 4611686018427387904]");
    let largest = b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0".as_slice();
    check(largest, b"K\x01\x85", b"K\x01\x85", "[1]");
    let shapeless = "its pickle has a tensor without a shape";
    check_refused(
        &of_tensor(float, b"K\x04", b"K\0", b"J\xff\xff\xff\xff\x85", b"K\x01\x85"),
        shapeless,
    );
    check_refused(
        &of_tensor(float, b"K\x05", b"K\0", b"K\x05\x85", b"K\x01\x85"),
        "it is truncated: the values of tensor 'w' are missing",
    );
    // More elements than memory, in a storage that claims as many.
    let len = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f".as_slice();
    let shape = [len, b"\x85"].concat();
    check_refused(
        &of_tensor(float, len, b"K\0", &shape, b"K\x01\x85"),
        "it is truncated: the values of tensor 'w' are missing",
    );
    check_refused(
        &of_tensor(b"torch\nComplexFloatStorage", b"K\x04", b"K\0", b"K\x04\x85", b"K\x01\x85"),
        "it refers to `torch.ComplexFloatStorage`, which is not part of a state dict and could run code; if you trust the file, load it in Python and save only model.state_dict()",
    );
}

/// Returns an archive in which a tensor of one storage has many names. Its operations stand between the
/// name and the end of `tensor`.
fn under_many_names(tensor: &[u8]) -> Vec<u8> {
    let mut pickle = [&tensor[..tensor.len() - 2], b"q\x01s"].concat();
    for name in b'0'..b'z' {
        pickle.extend([b"X\x01\0\0\0".as_slice(), &[name], b"h\x01s"].concat());
    }
    pickle.push(b'.');
    archive(&[("data.pkl", &pickle), ("data/0", &[0; 4096])])
}

#[test]
fn many_tensors_of_one_storage_are_refused() {
    let tensor =
        of_tensor(b"torch\nFloatStorage", b"M\0\x04", b"K\0", b"M\0\x04\x85", b"K\x01\x85");
    let error = read(&under_many_names(&tensor)).unwrap_err();
    assert!(error.contains("its tensors have 75776 values, but the file has only"), "{error}");
}

#[test]
fn views_that_span_the_file_many_times_are_refused() {
    // Two elements, the first and the last of the storage.
    let tensor =
        of_tensor(b"torch\nFloatStorage", b"M\0\x04", b"K\0", b"K\x02\x85", b"M\xff\x03\x85");
    let error = read(&under_many_names(&tensor)).unwrap_err();
    assert!(error.starts_with("its tensors are views that span 303104 bytes, but"), "{error}");
}

#[test]
fn types_without_a_class_of_storages_are_refused_by_name() {
    let v3 = b"\x80\x02ctorch._utils\n_rebuild_tensor_v3\nctorch.storage\nUntypedStorage\n";
    for name in ["float8_e4m3fn", "float8_e5m2", "uint16"] {
        let pickle = [v3.as_slice(), b"ctorch\n", name.as_bytes(), b"\n."].concat();
        check_refused(
            &pickle,
            &format!(
                "it has tensors of the type torch.{name}; supported: float32, bfloat16, float16; use the model's weights in one of these"
            ),
        );
    }
    check_refused(
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v3\n)R.",
        "its pickle calls RebuildTensorV3 with unexpected arguments",
    );
}

#[test]
fn archives_that_torch_does_not_write_are_refused() {
    let empty = b"\x80\x02}.".as_slice();
    let check = |bytes: &[u8], expected: &str| assert_eq!(read(bytes).unwrap_err(), expected);
    check(b"", "it is not a file written by torch.save");
    check(b"{\"weights\": 1}", "it is not a file written by torch.save");
    check(b"\x80\x02K\x07.", "it is a pickle, but not one written by torch.save");
    let foreign = "it is a zip archive, but not one written by torch.save";
    check(&archive(&[("word/document.xml", b"")]), foreign);
    check(&archive(&[("a/data.pkl", empty), ("b/data.pkl", empty)]), foreign);
    check(&archive(&[("mydata.pkl", empty)]), foreign);
    let twice = [("a/data.pkl", empty), ("a/data/0", b"1"), ("a/data/0", b"2")];
    check(&archive(&twice), "its zip directory lists 'a/data/0' twice");
    check(
        &archive(&[("a/data.pkl", empty), ("a/byteorder", b"big")]),
        "it was written on a big-endian machine, which is not supported",
    );
    let large = vec![0; (4 << 20) + 1];
    check(
        &archive(&[("a/data.pkl", &large)]),
        "its entry 'data.pkl' has 4194305 bytes; at most 4194304 are supported",
    );
    let good = archive(&[("a/data.pkl", empty)]);
    check(&good[..good.len() - 3], "it is truncated: its zip archive has no directory");
    let directory = good.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let mut compressed = good.clone();
    compressed[directory + 10] = 8;
    check(
        &compressed,
        "its zip entry 'a/data.pkl' is compressed or encrypted, but PyTorch stores entries as they are; write the file with torch.save",
    );
    for (at, byte) in [(42, 0xEE), (20, 0xEE), (46, 0)] {
        let mut damaged = good.clone();
        damaged[directory + at] = byte;
        if at == 20 {
            damaged[directory + 24] = byte;
        }
        assert!(read(&damaged).is_err());
    }
}

/// Archives of more than 4 GiB have a second end record and 64-bit sizes.
#[test]
fn large_archives_have_wide_numbers() {
    let pickle = of_tensor(b"torch\nFloatStorage", b"K\x01", b"K\0", b")", b")");
    let small = archive(&[("data.pkl", &pickle), ("data/0", &7f32.to_le_bytes())]);
    let (rest, end) = small.split_at(small.len() - 22);
    let at =
        |place: usize| u64::from(u32::from_le_bytes(end[place..place + 4].try_into().unwrap()));
    let (size, start) = (at(12), at(16));
    // The position of the last entry moves to an extra field behind its name.
    let mut bytes = rest.to_vec();
    let entry = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    let header = u32::from_le_bytes(bytes[entry + 42..entry + 46].try_into().unwrap());
    bytes[entry + 42..entry + 46].fill(0xFF);
    bytes[entry + 30] = 12;
    bytes.extend([b"\x01\0\x08\0".as_slice(), &u64::from(header).to_le_bytes()].concat());
    let record = bytes.len() as u64;
    bytes.extend([b"PK\x06\x06".as_slice(), &[0; 36]].concat());
    bytes.extend([(size + 12).to_le_bytes(), start.to_le_bytes()].concat());
    bytes.extend([b"PK\x06\x07\0\0\0\0".as_slice(), &record.to_le_bytes(), &[1, 0, 0, 0]].concat());
    bytes.extend([&end[..12], &[0xFF; 8], &[0, 0]].concat());
    assert_eq!(read(&bytes).unwrap()["w"], [7.0]);
    let locator = bytes.len() - 42;
    bytes[locator + 8..locator + 16].fill(0xFF);
    assert_eq!(read(&bytes).unwrap_err(), "it is truncated: its zip archive has no directory");
}

/// A number that is not finite is refused when its tensor is read.
#[test]
fn non_finite_values_are_refused() {
    let pickle = of_tensor(b"torch\nFloatStorage", b"K\x01", b"K\0", b")", b")");
    let bytes = archive(&[("data.pkl", &pickle), ("data/0", &f32::NAN.to_le_bytes())]);
    assert_eq!(read(&bytes).unwrap_err(), "tensor 'w' holds a non-finite value");
}

/// Real files with a changed byte, or cut short. Nothing may panic or need much memory.
#[test]
fn damaged_files_are_errors_or_numbers() {
    let all = |bytes: &[u8]| -> Result<usize, String> {
        let mut file = Cursor::new(bytes);
        let contents = contents(&mut file, bytes.len() as u64)?;
        let tensors = contents.tensors.values();
        tensors.map(|tensor| Ok(contents.read(&mut file, tensor)?.len())).sum()
    };
    for name in ["tensors.pt", "tensors-legacy.pt"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        assert_eq!(all(&bytes), Ok(97));
        // A step without a common divisor with the alignment of the entries.
        for at in (0..bytes.len()).step_by(7) {
            let mut changed = bytes.clone();
            changed[at] ^= 0xFF;
            assert!(all(&changed).unwrap_or(0) <= bytes.len());
            assert!(all(&bytes[..at]).is_err(), "{name} cut at {at}");
        }
    }
}
