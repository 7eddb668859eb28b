use crate::prompts::results;
use grpo_data::{CompletionSource, Message, PromptReader, PromptRecord, PromptSource};
use parquet::data_type::ByteArrayType;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn read(name: &str) -> Vec<PromptRecord> {
    PromptReader::open(&fixture(name)).unwrap().map(Result::unwrap).collect()
}

/// The `n`-th record written by tests/fixtures/make_parquet.py.
fn expected(n: u64) -> PromptRecord {
    let message = |role: &str, content: String| Message::new(role, content);
    let mut messages = vec![message("user", format!("{n} + {n} = ? é🦀"))];
    if n % 2 == 1 {
        messages.insert(0, message("system", "be brief".into()));
    }
    let tags = [json!(["a", null, "b"]), json!([]), json!(null)];
    let fields = json!({
        "answer": 2 * n,
        "level": if n < 4 { "easy" } else { "hard" },
        "score": if n == 1 { json!(null) } else { json!(n as f64 / 4.0) },
        "day": format!("2024-02-{}", 28 + n % 2),
        "time": "2024-01-02 03:04:05.678",
        "price": format!("-{n}.05"),
        "tags": tags[n as usize % 3],
        "nested": {"deep": [[1, n], []], "flag": n > 3},
        "map": {"x": n},
        "raw": if n == 0 { json!({"bytes": "ff00"}) } else { json!("text") },
    });
    PromptRecord {
        line: n + 1,
        prompt: PromptSource::Messages(messages),
        is_text: false,
        completion: (n != 2).then(|| CompletionSource::Text((2 * n).to_string())),
        shape: None,
        tools: Vec::new(),
        has_answer: true,
        fields: fields.as_object().unwrap().clone(),
    }
}

#[test]
fn every_codec_gives_the_rows_that_were_written() {
    let expect: Vec<PromptRecord> = (0..6).map(expected).collect();
    for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"] {
        assert_eq!(read(&format!("prompts-{codec}.parquet")), expect, "{codec}");
    }
}

#[test]
fn lists_of_numbers_are_ids() {
    let records = read("ids.parquet");
    let found: Vec<_> = records.into_iter().map(|r| (r.prompt, r.completion)).collect();
    assert_eq!(
        found,
        [
            (PromptSource::Ids(vec![1, 2, 3]), Some(CompletionSource::Ids(vec![5]))),
            (PromptSource::Ids(vec![4]), Some(CompletionSource::Ids(vec![]))),
        ]
    );
}

#[test]
fn damaged_files_are_named() {
    let whole = std::fs::read(fixture("prompts-none.parquet")).unwrap();
    let error = |bytes: &[u8]| results("p.parquet", bytes).pop().unwrap().unwrap_err();
    let start = "`p.parquet` cannot be read as Parquet after row 0: ";
    for bytes in [&whole[..0], &whole[..100], &whole[..whole.len() - 1], b"{\"prompt\": \"q\"}"] {
        let error = error(bytes);
        assert!(error.starts_with(start) && error.ends_with("; write the file again"), "{error}");
    }
    let mut flipped = whole.clone();
    let at = whole.windows(4).position(|bytes| bytes == &"é🦀".as_bytes()[..4]).unwrap();
    flipped[at] ^= 1; // inside a page that has a checksum
    assert!(error(&flipped).contains("checksum"), "{}", error(&flipped));
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let schema = "message row { required binary prompt (UTF8); required binary prompt (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    while let Some(mut column) = rows.next_column().unwrap() {
        column.typed::<ByteArrayType>().write_batch(&["text".into()], None, None).unwrap();
        column.close().unwrap();
    }
    rows.close().unwrap();
    writer.close().unwrap();
    assert_eq!(
        results("p.parquet", &bytes).pop().unwrap().unwrap_err(),
        "`p.parquet` cannot be read as Parquet after row 0: duplicate column `prompt`; write the file again"
    );
}

#[test]
fn panics_of_the_parquet_crate_are_errors_in_plain_words() {
    let whole = std::fs::read(fixture("ids.parquet")).unwrap();
    let mut panics = 0;
    for at in 0..whole.len() {
        for byte in [0, 0x15, 0xff, whole[at] ^ 1] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if let Some(Err(error)) = results("p.parquet", &bytes).last() {
                panics += usize::from(error.contains("its content is inconsistent or damaged"));
                let words = ["panicked", "External", "Parquet error", "EOF", "usize", "Some("];
                assert!(words.iter().all(|word| !error.contains(word)), "{error}");
            }
        }
    }
    assert!(panics > 0, "the crate panics no more: caught.rs may have lost its reason");
}

static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let names = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"];
    let mut files: Vec<_> = names
        .iter()
        .map(|name| std::fs::read(fixture(&format!("prompts-{name}.parquet"))).unwrap())
        .collect();
    files.push(std::fs::read(fixture("ids.parquet")).unwrap());
    files
});

proptest! {
    #[test]
    fn damaged_files_never_panic(
        file: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = file.get(&FILES).clone();
        for (at, byte) in damage {
            // Most failure modes are in the Thrift metadata of the footer, near the end of the
            // file.
            let from = bytes.len() / 2;
            let at = from + at.index(bytes.len() - from);
            bytes[at] = byte;
        }
        let found = results("p.parquet", &bytes);
        let errors = found.iter().filter(|result| result.is_err()).count();
        prop_assert!(errors == 0 || (errors == 1 && found.last().unwrap().is_err()));
    }
}

/// Writes a table with one text column. Each text (`Some(length)` or null) is repeated.
fn written(texts: &[(Option<usize>, usize)]) -> tempfile::NamedTempFile {
    let schema = parquet::schema::parser::parse_message_type(
        "message table { optional binary prompt (UTF8); }",
    );
    let file = tempfile::Builder::new().suffix(".parquet").tempfile().unwrap();
    let compression = parquet::basic::Compression::SNAPPY;
    let properties =
        parquet::file::properties::WriterProperties::builder().set_compression(compression).build();
    let mut writer = parquet::file::writer::SerializedFileWriter::new(
        file.reopen().unwrap(),
        schema.unwrap().into(),
        properties.into(),
    )
    .unwrap();
    for &(length, times) in texts {
        let mut rows = writer.next_row_group().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        let values: Vec<parquet::data_type::ByteArray> = match length {
            Some(length) => vec!["a".repeat(length).as_str().into(); times],
            None => Vec::new(),
        };
        let levels = vec![i16::from(length.is_some()); times];
        let typed = column.typed::<parquet::data_type::ByteArrayType>();
        typed.write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        rows.close().unwrap();
    }
    writer.close().unwrap();
    file
}

#[track_caller]
fn assert_bomb(file: &tempfile::NamedTempFile) {
    let fault = match PromptReader::open(file.path()) {
        Err(fault) => fault,
        Ok(mut reader) => reader.find_map(Result::err).expect("a fault"),
    };
    assert!(fault.to_string().contains("more than 100 times larger than the file"), "{fault}");
}

#[test]
fn a_file_whose_rows_are_out_of_proportion_is_refused() {
    assert_bomb(&written(&[(None, 9 << 20)]));
    assert_bomb(&written(&[(Some(1 << 19), 400)]));
    let honest = written(&[(Some(20), 1000)]);
    assert_eq!(PromptReader::open(honest.path()).unwrap().map(Result::unwrap).count(), 1000);
}
