//! Tests for reading pairs from files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_replies::{MOST_LISTED, PairFile, PairRecord, RepeatedPair, read_pairs};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use tempfile::TempDir;

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

pub(crate) fn read(content: impl AsRef<[u8]>) -> PairFile {
    let folder = TempDir::new().unwrap();
    read_pairs(&write(folder.path(), "pairs.jsonl", content)).unwrap()
}

/// Returns the line number and reason of each skipped line.
fn skipped(read: &PairFile) -> Vec<String> {
    read.skipped.iter().map(|line| format!("{}: {}", line.line, line.reason)).collect()
}

#[test]
fn a_record_has_its_fields_and_keeps_the_others() {
    let line = json!({
        "tweet_id": 1234567890123456789_u64, "tweet": "Rain again", "reply": "Same here",
        "reply_likes": 12.0, "reply_author": "ann", "tweet_author": "bob", "tweet_likes": 48,
        "tweet_retweets": 3, "tweet_created_at": "2024-01-02", "reply_id": "77",
        "reply_author_followers": 900, "reply_retweets": 2, "reply_created_at": 1704153600,
        "reply_time_diff_seconds": 600.5, "lang": "en", "empty": null,
    });
    let found = read(format!("\n{line}\n"));
    let pair = &found.pairs[0];
    let expected = PairRecord {
        tweet_id: "1234567890123456789".into(),
        tweet: "Rain again".into(),
        reply: "Same here".into(),
        reply_likes: Some(12),
        reply_author: Some("ann".into()),
        tweet_author: Some("bob".into()),
        tweet_likes: Some(48),
        tweet_retweets: Some(3),
        tweet_created_at: Some("2024-01-02".into()),
        reply_id: Some("77".into()),
        reply_author_followers: Some(900),
        reply_retweets: Some(2),
        reply_created_at: Some("1704153600".into()),
        reply_time_diff_seconds: Some(600.5),
        file: pair.file.clone(),
        line: 2,
        fields: json!({"lang": "en", "empty": null}).as_object().unwrap().clone(),
    };
    assert_eq!(*pair, expected);
    assert_eq!((pair.engagement(), found.unsaid()), (0.25, None));
    let again = read(Value::Object(pair.object()).to_string());
    assert_eq!(PairRecord { file: pair.file.clone(), line: 2, ..again.pairs[0].clone() }, expected);
}

#[test]
fn what_a_record_does_not_say_has_a_default() {
    let pair = &read(r#"{"tweet_id":"a","tweet":"t","reply":"r","reply_likes":null}"#).pairs[0];
    assert_eq!((pair.reply_likes(), pair.tweet_likes(), pair.reply_author()), (0, 1, "unknown"));
    // Default values are not written to the output.
    assert_eq!(Value::Object(pair.object()), json!({"tweet_id": "a", "tweet": "t", "reply": "r"}));
    let liked = PairRecord { reply_likes: Some(3), tweet_likes: Some(0), ..PairRecord::default() };
    assert_eq!(liked.engagement(), 3.0);
}

#[test]
fn reports_why_each_line_is_not_a_pair() {
    let good = r#"{"tweet_id":"a","tweet":"t","reply":"r"}"#;
    let lines: [&[u8]; 13] = [
        good.as_bytes(),
        b"{\"tweet_id\": \"b\", \"tweet\": ",
        b"[1, 2]",
        b"{\"tweet_id\":\"b\",\"tweet\":\"\xff\",\"reply\":\"r\"}",
        b"",
        br#"{"tweet_id":"b","tweet":"t"}"#,
        br#"{"tweet_id":"b","tweet":"t","reply":7}"#,
        br#"{"tweet_id":"b","tweet":"t","reply":" \n"}"#,
        br#"{"tweet_id":"b","tweet":"t","reply":"r","reply_likes":-1}"#,
        br#"{"tweet_id":"b","tweet":"t","reply":"r","tweet_likes":"many"}"#,
        br#"{"tweet_id":"b","tweet":"t","reply":"r","reply":"s"}"#,
        br#"{"tweet_id":1.5e18,"tweet":"t","reply":"r"}"#,
        br#"{"tweet_id":"a","tweet":"another","reply":"r"}"#,
    ];
    let found = read(lines.join(&b'\n'));
    assert_eq!(found.pairs.len(), 1);
    assert_eq!(found.texts, [good]);
    let file = found.pairs[0].file.display();
    let reasons = skipped(&found);
    assert!(
        reasons[0].starts_with("2: the line is not a JSON object: unexpected end of input"),
        "{reasons:?}"
    );
    assert!(reasons[1].starts_with("3: the line is not a JSON object: found "), "{reasons:?}");
    let expected = [
        "4: the line is not UTF-8 text".to_owned(),
        "6: missing `reply`".to_owned(),
        "7: `reply` is the value 7; expected a text".to_owned(),
        "8: `reply` is empty".to_owned(),
        "9: `reply_likes` is the value -1; expected a non-negative integer".to_owned(),
        "10: `tweet_likes` is the string \"many\"; expected a non-negative integer".to_owned(),
        "11: duplicate key `reply`".to_owned(),
        "12: `tweet_id` is the value 1.5e+18; expected a string or an integer".to_owned(),
        format!("13: tweet a has different text on line 1 of {file}"),
    ];
    assert_eq!(reasons[2..], expected);
    // All 13 lines are accounted for, one of which is empty.
    assert_eq!(found.pairs.len() + found.skipped.len(), 12);
    let text = found.to_string();
    assert!(text.starts_with("1 pair from 1 tweet, 11 lines skipped (") && text.ends_with("; …)"));
}

#[test]
fn gzip_and_folders_are_read_and_files_without_a_pair_are_refused() {
    let folder = TempDir::new().unwrap();
    let line =
        |id: &str| format!("{{\"tweet_id\":\"{id}\",\"tweet\":\"{id}\",\"reply\":\"r\"}}\r\n");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(format!("\u{feff}{}", line("z")).as_bytes()).unwrap();
    write(folder.path(), "b.jsonl.gz", gzip.finish().unwrap());
    write(folder.path(), "a.jsonl", line("x") + &line("y"));
    write(folder.path(), "notes.txt", "no pairs");
    let found = read_pairs(folder.path()).unwrap();
    let ids: Vec<&str> = found.pairs.iter().map(|pair| pair.tweet_id.as_str()).collect();
    assert_eq!(ids, ["x", "y", "z"]);
    assert_eq!(found.texts[2], line("z").trim_end());
    assert_eq!(found.files.len(), 2);

    let bad = write(folder.path(), "c.jsonl", "{\"a\":1}\n");
    let error = read_pairs(folder.path()).unwrap_err().to_string();
    let expected = format!(
        "`{0}` has no valid pairs: 1 line was skipped (first: {0}:1: missing `tweet_id`, `tweet` or `reply`); write one object per line with `tweet_id`, `tweet` and `reply`",
        bad.display()
    );
    assert_eq!(error, expected);
    let cut = write(folder.path(), "d.jsonl.gz", [0x1f, 0x8b, 8, 0]);
    let refused = |path: &Path, expected: &str| {
        let error = read_pairs(path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&cut, "cannot be decompressed after line 0");
    let empty = TempDir::new().unwrap();
    refused(empty.path(), "has no .jsonl, .jsonl.gz or .parquet files");
    let none = write(empty.path(), "e.jsonl", "");
    refused(&none, "has no valid pairs: it has no lines; write");
    refused(&empty.path().join("f.jsonl"), "does not exist");
    let other = write(empty.path(), "g.csv", "");
    refused(&other, "`; each record requires `tweet_id`, `tweet` and `reply`");
    // A line of text is not a pair.
    let text = write(empty.path(), "h.txt", "");
    refused(&text, "or `.parquet`; each record requires `tweet_id`, `tweet` and `reply`");
}

/// Creates a text column with null values.
fn texts(values: &[Option<&str>]) -> (Vec<ByteArray>, Vec<i16>) {
    let there = values.iter().flatten().map(|text| ByteArray::from(*text)).collect();
    (there, values.iter().map(|value| i16::from(value.is_some())).collect())
}

#[test]
fn reads_parquet_and_reports_rows() {
    let schema = parse_message_type(
        "message pairs {
            optional binary tweet_id (UTF8); optional binary tweet (UTF8); optional binary reply;
            optional double reply_likes;
        }",
    );
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("pairs.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema.unwrap()), Arc::default()).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    for column in [
        [Some("a"), Some("b"), Some("b"), Some("b"), Some("b"), Some("b")],
        [Some("one"), Some("two"), Some("two"), Some("two "), Some("two"), Some("two")],
        [Some("r"), None, Some("s"), Some("t"), Some("u"), Some("no text")],
    ] {
        let (mut values, levels) = texts(&column);
        if column[5] == Some("no text") {
            *values.last_mut().unwrap() = ByteArray::from(vec![0xff, 0]);
        }
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
    }
    let mut column = rows.next_column().unwrap().unwrap();
    let likes = [4.0, 1.0, f64::NAN, f64::INFINITY, 3.0];
    column.typed::<DoubleType>().write_batch(&likes, Some(&[1, 1, 0, 1, 1, 1]), None).unwrap();
    column.close().unwrap();
    rows.close().unwrap();
    writer.close().unwrap();

    let found = read_pairs(&path).unwrap();
    let expected = [
        "2: missing `reply`",
        "5: `reply_likes` is the string \"inf\"; expected a non-negative integer",
        "6: `reply` is invalid UTF-8; expected a text",
    ];
    assert_eq!(skipped(&found), expected);
    // Leading and trailing whitespace does not make a tweet distinct.
    let told: Vec<_> = found.pairs.iter().map(|pair| (pair.line, pair.reply_likes())).collect();
    assert_eq!(told, [(1, 4), (3, 0), (4, 0)]);
    let unsaid =
        "3 pairs are missing `tweet_likes` (using 1); 2 pairs are missing `reply_likes` (using 0)";
    assert_eq!(found.unsaid().unwrap(), unsaid);
    // The text of a row can be read again and results in the same pair.
    let again = read(&found.texts[0]);
    assert_eq!(PairRecord { file: path.clone(), ..again.pairs[0].clone() }, found.pairs[0]);
    std::fs::write(&path, b"PAR1 and nothing else").unwrap();
    let error = read_pairs(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be read as Parquet after row 0"), "{error}");
}

#[test]
fn pairs_that_stand_there_twice_are_known() {
    let line =
        |reply: &str| format!("{{\"tweet_id\":\"a\",\"tweet\":\"t\",\"reply\":\"{reply}\"}}\n");
    let found = read(line("one") + &line("two") + &line("one ") + &line("one"));
    assert_eq!(found.duplicates(), [2, 3].map(|pair| RepeatedPair { pair, first: 0 }));
}

#[test]
fn only_the_first_invalid_lines_are_kept() {
    let file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    let pair = r#"{"tweet_id": "1", "tweet": "a", "reply": "b"}"#;
    std::fs::write(&file, format!("{pair}\n{}", "x\n".repeat(MOST_LISTED + 5))).unwrap();
    let read = read_pairs(file.path()).unwrap();
    assert_eq!((read.pairs.len(), read.skipped.len()), (1, MOST_LISTED));
    assert_eq!(read.invalid, MOST_LISTED + 5);
    assert!(read.to_string().starts_with("1 pair from 1 tweet, 100005 lines skipped ("));
}
