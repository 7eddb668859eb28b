//! Compares with the packages `gguf` and `transformers` (see `fixtures/make_golden.py`).

use std::io::Cursor;

use grpo_gguf::{
    Gguf, GgufModel, GgufWriter, HuggingFaceModel, Metadata, MetadataValue, SpecialTokens,
    StoredType, TensorPlan, TensorType, ValueType, export_model, quantized,
};
use serde_json::{Value, json};

const SMALL: &[u8] = include_bytes!("fixtures/small.gguf");
const PIECES: &[u8] = include_bytes!("fixtures/pieces.gguf");

fn golden() -> Value {
    serde_json::from_str(include_str!("fixtures/golden.json")).unwrap()
}

fn bytes(hexadecimal: &Value) -> Vec<u8> {
    let text = hexadecimal.as_str().unwrap();
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(pair).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

fn kind(name: &Value) -> TensorType {
    let all = [
        TensorType::F32,
        TensorType::F16,
        TensorType::BF16,
        TensorType::Q4_0,
        TensorType::Q4_1,
        TensorType::Q5_0,
        TensorType::Q5_1,
        TensorType::Q8_0,
        TensorType::Q2_K,
        TensorType::Q3_K,
        TensorType::Q4_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
        TensorType::Q8_K,
    ];
    all.into_iter().find(|kind| name == kind.name()).unwrap()
}

/// Returns a file with one tensor whose blocks are given.
fn file_of(kind: TensorType, blocks: &[u8]) -> Vec<u8> {
    let values = blocks.len() / kind.block_bytes() * kind.block_values();
    let plan = TensorPlan { name: "t".to_owned(), shape: vec![values], kind };
    let mut file = Vec::new();
    // The writer cannot write all types, so only the header is its own.
    let _ = GgufWriter::new(&mut file, &Metadata::default(), vec![plan]).unwrap();
    file.extend(blocks);
    file
}

#[test]
fn blocks_have_the_values_that_gguf_reads() {
    let cases = golden()["dequantised"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 13);
    for case in cases {
        let file = file_of(kind(&case["type"]), &bytes(&case["bytes"]));
        let found = Gguf::open(Cursor::new(file)).unwrap().read("t").unwrap();
        let expected = floats(&bytes(&case["values"]));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&expected), "{}", case["type"]);
    }
}

#[test]
fn values_have_the_blocks_that_gguf_writes() {
    let cases = golden()["quantised"].as_array().unwrap().clone();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let found = quantized(kind(&case["type"]), &floats(&bytes(&case["values"]))).unwrap();
        assert_eq!(found, bytes(&case["bytes"]), "{}", case["type"]);
    }
}

#[test]
fn metadata_of_every_type_is_read() {
    let gguf = Gguf::open(Cursor::new(SMALL)).unwrap();
    let metadata = gguf.metadata();
    let numbers = [1, 2, 3].map(MetadataValue::I32).to_vec();
    for (key, expected) in [
        ("test.u8", MetadataValue::U8(200)),
        ("test.i8", MetadataValue::I8(-100)),
        ("test.u16", MetadataValue::U16(60_000)),
        ("test.i16", MetadataValue::I16(-30_000)),
        ("llama.block_count", MetadataValue::U32(1)),
        ("test.i32", MetadataValue::I32(-2_000_000_000)),
        ("test.u64", MetadataValue::U64(1 << 63)),
        ("test.i64", MetadataValue::I64(-(1 << 62))),
        ("llama.attention.layer_norm_rms_epsilon", MetadataValue::F32(1e-5)),
        ("test.f64", MetadataValue::F64(0.1)),
        ("test.bool", MetadataValue::Bool(true)),
        ("general.name", MetadataValue::Text("small".to_owned())),
        ("test.array", MetadataValue::Array(ValueType::I32, numbers)),
    ] {
        assert_eq!(metadata.get(key), Some(&expected), "{key}");
    }
}

/// The FNV-1a hash of the bytes of values.
fn fingerprint(values: &[f32]) -> String {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn tensors_have_the_names_shapes_and_values_of_transformers() {
    let mut model = GgufModel::open(Cursor::new(SMALL)).unwrap();
    let expected = golden()["small.gguf"]["tensors"].as_object().unwrap().clone();
    assert_eq!(model.names().count(), expected.len());
    for (name, expected) in expected {
        let (shape, values) = model.read(&name).unwrap();
        assert_eq!(model.shape(&name), Some(shape.as_slice()));
        assert_eq!(json!([shape, fingerprint(&values)]), expected, "{name}");
    }
}

fn file(model: &GgufModel<Cursor<&[u8]>>, name: &str) -> String {
    model.files().unwrap().into_iter().find(|(found, _)| *found == name).unwrap().1
}

fn json_file(model: &GgufModel<Cursor<&[u8]>>, name: &str) -> Value {
    serde_json::from_str(&file(model, name)).unwrap()
}

#[test]
fn the_configuration_follows_from_the_metadata() {
    let model = GgufModel::open(Cursor::new(SMALL)).unwrap();
    let expected = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 256,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 64,
        "rms_norm_eps": f64::from(1e-5f32),
        "rope_theta": 10000.0,
        "tie_word_embeddings": true,
        "vocab_size": 15,
        "attention_bias": false,
        "mlp_bias": false,
        "bos_token_id": 0,
        "eos_token_id": 0,
    });
    assert_eq!(json_file(&model, "config.json"), expected);
    assert_eq!(json_file(&model, "generation_config.json")["eos_token_id"], json!([0, 1]));
    assert_eq!(file(&model, "chat_template.jinja"), "{{ messages[0].content }}");
}

#[test]
fn the_token_that_begins_a_text_is_written() {
    let model = GgufModel::open(Cursor::new(SMALL)).unwrap();
    let (config, mut tokenizer) =
        (json_file(&model, "config.json"), json_file(&model, "tokenizer.json"));
    let export = |tokenizer: &Value| {
        let tensors =
            model.names().map(|name| (name.to_owned(), model.shape(name).unwrap().to_vec()));
        let model = HuggingFaceModel {
            name: "small",
            config: &config,
            tokenizer,
            // The configuration does not say which token begins a text.
            special: SpecialTokens { bos: None, eos: Some(1), pad: None },
            chat_template: None,
            tensors: tensors.collect(),
        };
        export_model(&model, StoredType::from_name("f32").unwrap())
    };
    let metadata = export(&tokenizer).unwrap().metadata;
    for (key, expected) in [
        ("add_bos_token", MetadataValue::Bool(true)),
        ("add_eos_token", MetadataValue::Bool(false)),
        ("bos_token_id", MetadataValue::U32(0)),
        ("eos_token_id", MetadataValue::U32(1)),
    ] {
        assert_eq!(metadata.get(&format!("tokenizer.ggml.{key}")), Some(&expected), "{key}");
    }
    let parts = tokenizer["post_processor"]["single"].as_array_mut().unwrap();
    parts.reverse();
    let error = export(&tokenizer).unwrap_err().to_string();
    assert_eq!(
        error,
        "the tokenizer ends a text with another token than 1, which ends replies; GGUF has only one of them"
    );
}

#[test]
fn byte_level_tokenizers_have_all_parts() {
    let model = GgufModel::open(Cursor::new(SMALL)).unwrap();
    let tokenizer = json_file(&model, "tokenizer.json");
    assert_eq!(tokenizer["model"]["merges"], golden()["small.gguf"]["merges"]);
    assert_eq!(tokenizer["model"]["vocab"].as_object().unwrap().len(), 14, "without [PAD14]");
    assert_eq!(tokenizer["normalizer"]["type"], "NFC");
    assert_eq!(tokenizer["pre_tokenizer"]["pretokenizers"][0]["type"], "Split");
    let special = |id: usize| tokenizer["added_tokens"][id]["special"].clone();
    assert_eq!([special(0), special(1), special(2)], [json!(true), json!(false), Value::Null]);
    let first = &tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"];
    assert_eq!(*first, "<|endoftext|>");
    assert_eq!(json_file(&model, "tokenizer_config.json")["eos_token"], "<|endoftext|>");
}

#[test]
fn sentence_piece_vocabularies_have_the_merges_of_transformers() {
    let model = GgufModel::open(Cursor::new(PIECES)).unwrap();
    let tokenizer = json_file(&model, "tokenizer.json");
    assert_eq!(tokenizer["model"]["merges"], golden()["pieces.gguf"]["merges"]);
    assert_eq!(tokenizer["model"]["unk_token"], "<unk>");
    assert_eq!(tokenizer["pre_tokenizer"]["prepend_scheme"], "first");
    let added = tokenizer["added_tokens"].as_array().unwrap();
    assert_eq!(added.len(), 2, "<s> and </s>");
}
