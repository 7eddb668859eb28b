//! Damaged and hostile files are errors, and what is written is read again.

use std::io::Cursor;

use grpo_gguf::{
    Gguf, GgufError, GgufModel, GgufWriter, Metadata, MetadataValue, TensorPlan, TensorType,
    ValueType, is_gguf,
};
use proptest::prelude::*;

const SMALL: &[u8] = include_bytes!("fixtures/small.gguf");
const PIECES: &[u8] = include_bytes!("fixtures/pieces.gguf");

/// Reads everything that a model has.
fn read(file: &[u8]) -> Result<(), GgufError> {
    let mut model = GgufModel::open(Cursor::new(file))?;
    model.files()?;
    let names: Vec<String> = model.names().map(str::to_owned).collect();
    names.iter().try_for_each(|name| model.read(name).map(|_| ()))
}

fn failure(file: &[u8]) -> String {
    read(file).expect_err("the file is damaged").to_string()
}

#[test]
fn truncated_files_are_refused() {
    for whole in [SMALL, PIECES] {
        read(whole).unwrap();
        for length in (0..whole.len()).step_by(97) {
            let message = failure(&whole[..length]);
            assert!(
                message.contains("truncated") || message.contains("damaged"),
                "{length}: {message}"
            );
        }
    }
}

#[test]
fn no_changed_byte_makes_it_panic() {
    // Most changes of values are valid. What is checked is that none panics or takes memory without limit.
    let mut refused = 0;
    for at in (0..3000).step_by(7).chain((3000..SMALL.len()).step_by(997)) {
        for change in [0x01, 0x80, 0xff] {
            let mut file = SMALL.to_vec();
            file[at] ^= change;
            refused += usize::from(read(&file).is_err());
        }
    }
    assert!(refused > 200, "{refused}");
}

/// A file with the given counts, followed by bytes.
fn header(version: u32, tensors: u64, keys: u64, rest: &[u8]) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(version.to_le_bytes());
    file.extend(tensors.to_le_bytes());
    file.extend(keys.to_le_bytes());
    file.extend(rest);
    file
}

fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(value);
    bytes
}

fn tensor(name: &str, shape: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend((shape.len() as u32).to_le_bytes());
    shape.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

#[test]
fn each_fault_has_its_own_sentence() {
    let huge = u64::MAX.to_le_bytes();
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let nested = key("k", 9, &array(9, 1).repeat(9));
    let with_data = |infos: Vec<Vec<u8>>| {
        let mut file = header(3, infos.len() as u64, 0, &infos.concat());
        file.resize(file.len().next_multiple_of(32) + 64, 0);
        file
    };
    for (file, expected) in [
        (b"PK\x03\x04".to_vec(), "it is not a GGUF file: it does not begin with the letters GGUF"),
        (header(1, 0, 0, &[]), "it has version 1 of the format; supported are versions 2 and 3"),
        (header(3u32.swap_bytes(), 0, 0, &[]), "it was written for big-endian machines"),
        (
            header(3, u64::MAX, 0, &[0; 64]),
            "its header declares 18446744073709551615 tensors, but only 64 bytes follow",
        ),
        (
            header(3, 0, 1 << 40, &[0; 64]),
            "its header declares 1099511627776 metadata keys, but only 64 bytes follow",
        ),
        (
            header(3, 0, 1, &[&huge[..], &[0; 64]].concat()),
            "the name of metadata key 1 has 18446744073709551615 bytes",
        ),
        (
            header(3, 0, 1, &key("k", 13, &[0; 8])),
            "the metadata key `k` has the unknown type 13; expected 0 to 12",
        ),
        (header(3, 0, 1, &key("k", 7, &[2])), "the metadata key `k` is 2; expected 0 or 1"),
        (
            header(3, 0, 1, &key("k", 8, &huge)),
            "the metadata key `k` has 18446744073709551615 bytes",
        ),
        (
            header(3, 0, 1, &key("k", 9, &array(0, 1 << 50))),
            "the metadata key `k` lists 1125899906842624 values",
        ),
        (header(3, 0, 1, &nested), "the metadata key `k` nests more than 4 arrays"),
        (header(3, 0, 2, &key("k", 0, &[1]).repeat(2)), "the metadata key `k` occurs twice"),
        (
            header(3, 0, 1, &key("general.alignment", 4, &24u32.to_le_bytes())),
            "the metadata key `general.alignment` is 24; expected a power of two up to 65536",
        ),
        (with_data(vec![tensor("t", &[], 0, 0)]), "tensor `t` has 0 dimensions; expected 1 to 4"),
        (with_data(vec![tensor("t", &[0], 0, 0)]), "tensor `t` has an impossible shape"),
        (
            with_data(vec![tensor("t", &[1 << 40, 1 << 40], 0, 0)]),
            "tensor `t` lies outside of the file's",
        ),
        (with_data(vec![tensor("t", &[17], 0, 0)]), "tensor `t` lies outside of the file's"),
        (with_data(vec![tensor("t", &[4], 0, 1 << 63)]), "tensor `t` lies outside of the file's"),
        (
            with_data(vec![tensor("t", &[4], 0, 8)]),
            "tensor `t` begins at offset 8, which is not a multiple of 32",
        ),
        (
            with_data(vec![tensor("t", &[4], 8, 0)]),
            "tensor `t` has rows of 4 values, which are not whole blocks of Q8_0",
        ),
        (
            with_data(vec![tensor("t", &[256], 23, 0)]),
            "tensor `t` is stored as IQ4_XS, which is not supported",
        ),
        (with_data(vec![tensor("t", &[4], 99, 0)]), "tensor `t` has the unknown type 99"),
        (with_data(vec![tensor("t", &[1], 0, 0); 2]), "tensors `t` and `t` overlap"),
        (
            with_data(vec![tensor("a", &[9], 0, 0), tensor("b", &[4], 0, 32)]),
            "tensors `a` and `b` overlap",
        ),
        (
            with_data(vec![tensor("t", &[1], 0, 0), tensor("t", &[1], 0, 32)]),
            "tensor `t` occurs twice",
        ),
        (with_data(vec![]), "the metadata key `general.architecture` is missing"),
    ] {
        let message = failure(&file);
        assert!(message.starts_with(expected), "expected {expected}\nfound {message}");
    }
}

/// The small file with a key changed.
fn changed(name: &str, value: impl Into<MetadataValue>) -> String {
    let gguf = Gguf::open(Cursor::new(SMALL)).unwrap();
    let mut metadata = gguf.metadata().clone();
    metadata.set(name, value);
    let plan = TensorPlan {
        name: "token_embd.weight".to_owned(),
        shape: vec![15, 2],
        kind: TensorType::F32,
    };
    let mut writer = GgufWriter::new(Vec::new(), &metadata, vec![plan]).unwrap();
    writer.write("token_embd.weight", &[0.5; 30]).unwrap();
    failure(&writer.finish().unwrap())
}

#[test]
fn what_a_model_cannot_be_is_refused_by_one_sentence() {
    for (message, expected) in [
        (
            changed("general.architecture", "mamba"),
            "its architecture is `mamba`, which is not supported; supported are llama, qwen2 and qwen3",
        ),
        (
            changed("general.type", "adapter"),
            "it is of type `adapter`, not a model; use the model that belongs to it",
        ),
        (
            changed("split.count", 3),
            "it is one of 3 files of a model; join them with `llama-gguf-split --merge`",
        ),
        (changed("llama.expert_count", 8), "it is a mixture of experts, which is not supported"),
        (
            changed("llama.block_count", "one"),
            "the metadata key `llama.block_count` has type Text; expected a whole number that is not negative",
        ),
        (
            changed("llama.attention.head_count", 0),
            "the metadata key `llama.attention.head_count` is 0",
        ),
        (
            changed("llama.rope.dimension_count", 32),
            "the metadata key `llama.rope.dimension_count` is 32, but heads have 64 values; different widths are not supported",
        ),
        (
            changed("tokenizer.ggml.model", "bert"),
            "its tokenizer is of type `bert`, which is not supported; supported are gpt2 and llama",
        ),
        (
            changed("tokenizer.ggml.eos_token_id", 15),
            "the metadata key `tokenizer.ggml.eos_token_id` is 15, but there are only 15 tokens",
        ),
        (
            changed("tokenizer.ggml.merges", vec!["a x".to_owned()]),
            "the merge `a x` in `tokenizer.ggml.merges` is not a merge of two tokens into one",
        ),
        (changed("tokenizer.ggml.tokens", vec!["a".to_owned(); 15]), "the token `a` occurs twice"),
        (
            changed("tokenizer.ggml.token_type", vec![1]),
            "the metadata key `tokenizer.ggml.token_type` does not have one whole number for each of the 15 tokens",
        ),
    ] {
        assert_eq!(message, expected);
    }
}

#[test]
fn files_are_recognised_by_their_first_bytes() {
    assert!(is_gguf(SMALL));
    assert!(!is_gguf(b"GGU") && !is_gguf(b"{\"a\":1}"));
}

fn value() -> impl Strategy<Value = MetadataValue> {
    let scalar = prop_oneof![
        any::<u8>().prop_map(MetadataValue::U8),
        any::<i8>().prop_map(MetadataValue::I8),
        any::<u16>().prop_map(MetadataValue::U16),
        any::<i16>().prop_map(MetadataValue::I16),
        any::<u32>().prop_map(MetadataValue::U32),
        any::<i32>().prop_map(MetadataValue::I32),
        (-1e30f32..1e30).prop_map(MetadataValue::F32),
        any::<bool>().prop_map(MetadataValue::Bool),
        ".{0,20}".prop_map(MetadataValue::Text),
        any::<u64>().prop_map(MetadataValue::U64),
        any::<i64>().prop_map(MetadataValue::I64),
        (-1e300f64..1e300).prop_map(MetadataValue::F64),
    ];
    let texts = prop::collection::vec(".{0,8}".prop_map(MetadataValue::Text), 0..5)
        .prop_map(|texts| MetadataValue::Array(ValueType::Text, texts));
    let nested = prop::collection::vec(texts.clone(), 0..3)
        .prop_map(|arrays| MetadataValue::Array(ValueType::Array, arrays));
    prop_oneof![4 => scalar, 1 => texts, 1 => nested]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        values in prop::collection::vec(value(), 0..12),
        tensors in prop::collection::vec((1usize..5, 1usize..3, 0usize..4), 0..6),
        seed in 0u32..1000,
    ) {
        let kinds = [TensorType::F32, TensorType::F16, TensorType::BF16, TensorType::Q8_0];
        let mut metadata = Metadata::default();
        for (i, value) in values.into_iter().enumerate() {
            metadata.set(format!("key.{i}"), value);
        }
        let plans: Vec<TensorPlan> = tensors.iter().enumerate().map(|(i, (rows, width, kind))| {
            TensorPlan { name: format!("t.{i}"), shape: vec![*rows, 32 * width], kind: kinds[*kind] }
        }).collect();
        let of = |plan: &TensorPlan| -> Vec<f32> {
            let count: usize = plan.shape.iter().product();
            (0..count as u32).map(|i| ((i * 7 + seed) % 255) as f32 / 4.0 - 31.75).collect()
        };
        let mut writer = GgufWriter::new(Vec::new(), &metadata, plans.clone()).unwrap();
        for plan in &plans {
            writer.write(&plan.name, &of(plan)).unwrap();
        }
        let file = writer.finish().unwrap();
        let mut gguf = Gguf::open(Cursor::new(&file)).unwrap();
        prop_assert_eq!(gguf.metadata(), &metadata);
        for plan in &plans {
            let info = gguf.tensor(&plan.name).unwrap();
            prop_assert_eq!((&info.shape, info.kind), (&plan.shape, plan.kind));
            let (found, given) = (gguf.read(&plan.name).unwrap(), of(plan));
            // Eight bits of up to 31.75, whose scale has eleven bits.
            let most = if plan.kind == TensorType::Q8_0 { 32.0 / 127.0 * 0.6 } else { 0.0 };
            prop_assert!(found.iter().zip(&given).all(|(found, given)| (found - given).abs() <= most));
        }
    }

    #[test]
    fn no_file_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut file = header(3, u64::from(bytes.len() as u32 % 5), u64::from(bytes.len() as u32 % 3), &bytes);
        file.truncate(400);
        let _ = read(&file);
    }
}
