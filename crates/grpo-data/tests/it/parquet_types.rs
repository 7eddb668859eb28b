//! Each type of a Parquet column is read, or refused with the file, the column and the row.

use crate::prompts::results;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::sync::Arc;

/// A value as it is stored.
#[derive(Clone)]
enum Stored {
    Bool(bool),
    Int(i32),
    Long(i64),
    Days(u32, u64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
}

/// Writes a file with a prompt and a column `x` of the given type, whose second row has `value`.
fn file(kind: &str, value: &Stored, levels: (&[i16], &[i16])) -> Vec<u8> {
    let schema = format!("message row {{ required binary prompt (UTF8); {kind} }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    let mut is_first = true;
    while let Some(mut column) = rows.next_column().unwrap() {
        if is_first {
            let prompts = ["a", "b"].map(ByteArray::from);
            column.typed::<parquet::data_type::ByteArrayType>().write_batch(&prompts, None, None)
        } else {
            write(column.untyped(), value, levels)
        }
        .unwrap();
        is_first = false;
        column.close().unwrap();
    }
    rows.close().unwrap();
    writer.close().unwrap();
    bytes
}

fn write(
    column: &mut ColumnWriter<'_>,
    value: &Stored,
    (definition, repetition): (&[i16], &[i16]),
) -> parquet::errors::Result<usize> {
    let levels = (Some(definition), Some(repetition));
    let (d, r) = if repetition.is_empty() { (levels.0, None) } else { levels };
    match (column, value.clone()) {
        (ColumnWriter::BoolColumnWriter(to), Stored::Bool(v)) => to.write_batch(&[v], d, r),
        (ColumnWriter::Int32ColumnWriter(to), Stored::Int(v)) => to.write_batch(&[v], d, r),
        (ColumnWriter::Int64ColumnWriter(to), Stored::Long(v)) => to.write_batch(&[v], d, r),
        (ColumnWriter::Int96ColumnWriter(to), Stored::Days(day, nanoseconds)) => {
            let mut v = Int96::new();
            v.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, day);
            to.write_batch(&[v], d, r)
        }
        (ColumnWriter::FloatColumnWriter(to), Stored::Float(v)) => to.write_batch(&[v], d, r),
        (ColumnWriter::DoubleColumnWriter(to), Stored::Double(v)) => to.write_batch(&[v], d, r),
        (ColumnWriter::ByteArrayColumnWriter(to), Stored::Bytes(v)) => {
            to.write_batch(&[ByteArray::from(v)], d, r)
        }
        (ColumnWriter::FixedLenByteArrayColumnWriter(to), Stored::Bytes(v)) => {
            to.write_batch(&[FixedLenByteArray::from(v)], d, r)
        }
        _ => panic!("the column has another type"),
    }
}

/// Reads the column of the second row, or returns the error.
fn read(kind: &str, value: &Stored) -> Result<Value, String> {
    let mut records = results("p.parquet", &file(kind, value, (&[0, 1], &[])));
    let last = records.pop().unwrap()?;
    assert_eq!(records.len(), 1, "{kind}");
    Ok(last.fields["x"].clone())
}

#[test]
fn each_type_is_read() {
    use Stored::{Bool, Bytes, Days, Double, Float, Int, Long};
    for (kind, value, expected) in [
        ("boolean x", Bool(true), json!(true)),
        ("int32 x", Int(-5), json!(-5)),
        ("int32 x (INTEGER(8,true))", Int(-5), json!(-5)),
        ("int32 x (INTEGER(8,false))", Int(200), json!(200)),
        ("int32 x (INTEGER(16,false))", Int(60_000), json!(60_000)),
        ("int32 x (INTEGER(32,false))", Int(-1), json!(u32::MAX)),
        ("int64 x", Long(i64::MIN), json!(i64::MIN)),
        ("int64 x (INTEGER(64,false))", Long(-1), json!(u64::MAX)),
        ("float x", Float(0.5), json!(0.5)),
        ("double x", Double(f64::INFINITY), json!("inf")),
        ("double x", Double(f64::NAN), json!(null)),
        ("binary x", Bytes(b"\xff".to_vec()), json!({"bytes": "ff"})),
        ("binary x (UTF8)", Bytes(b"text".to_vec()), json!("text")),
        ("binary x (JSON)", Bytes(b"{}".to_vec()), json!("{}")),
        ("binary x (BSON)", Bytes(b"\xff\x00".to_vec()), json!({"bytes": "ff00"})),
        ("binary x (ENUM)", Bytes(b"RED".to_vec()), json!("RED")),
        ("int32 x (DATE)", Int(-719_162), json!("0001-01-01")),
        ("int32 x (DATE)", Int(2_932_896), json!("9999-12-31")),
        ("int32 x (TIME(MILLIS,true))", Int(86_399_999), json!("23:59:59.999")),
        ("int64 x (TIME(MICROS,true))", Long(1), json!("00:00:00.000001")),
        ("int64 x (TIME(NANOS,false))", Long(1), json!("00:00:00.000000001")),
        ("int64 x (TIMESTAMP(MILLIS,true))", Long(-1), json!("1969-12-31 23:59:59.999 +00:00")),
        ("int64 x (TIMESTAMP(MILLIS,false))", Long(0), json!("1970-01-01 00:00:00.000")),
        ("int64 x (TIMESTAMP(MICROS,true))", Long(1), json!("1970-01-01 00:00:00.000001 +00:00")),
        ("int64 x (TIMESTAMP(NANOS,false))", Long(1), json!("1970-01-01 00:00:00.000000001")),
        ("int64 x (TIMESTAMP_MILLIS)", Long(0), json!("1970-01-01 00:00:00.000 +00:00")),
        ("int96 x", Days(2_440_588, 1_000_000), json!("1970-01-01 00:00:00.001 +00:00")),
        ("int32 x (DECIMAL(9,2))", Int(-5), json!("-0.05")),
        ("int64 x (DECIMAL(18,0))", Long(5), json!("5")),
        ("binary x (DECIMAL(1000,1000))", Bytes(vec![1]), json!(format!("0.{}1", "0".repeat(999)))),
        ("binary x (DECIMAL(10,1))", Bytes(vec![0xff]), json!("-0.1")),
        (
            "fixed_len_byte_array(16) x (UUID)",
            Bytes((0..16).collect()),
            json!("00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ),
        ("fixed_len_byte_array(2) x (FLOAT16)", Bytes(vec![0, 0x3c]), json!(1.0)),
        ("fixed_len_byte_array(3) x", Bytes(b"abc".to_vec()), json!("abc")),
    ] {
        assert_eq!(read(&format!("optional {kind};"), &value), Ok(expected), "{kind}");
    }
}

#[test]
fn values_outside_of_their_type_are_refused_with_row_and_column() {
    use Stored::{Bytes, Days, Int, Long};
    let date = "is not within the years 1 to 9999; correct the value";
    let day = "is not within a day; correct the value";
    for (kind, value, expected) in [
        ("int32 x (DATE)", Int(i32::MAX), date),
        ("int32 x (DATE)", Int(i32::MIN), date),
        ("int32 x (DATE)", Int(2_932_897), date),
        ("int64 x (TIMESTAMP(MILLIS,true))", Long(i64::MAX), date),
        ("int64 x (TIMESTAMP(MILLIS,false))", Long(i64::MIN), date),
        ("int64 x (TIMESTAMP(MICROS,true))", Long(i64::MIN), date),
        ("int64 x (TIMESTAMP(MICROS,false))", Long(i64::MAX), date),
        ("int64 x (TIMESTAMP_MILLIS)", Long(i64::MAX), date),
        ("int96 x", Days(u32::MAX, u64::MAX), date),
        ("int96 x", Days(0x7fff_ffff, 0), date),
        ("int32 x (TIME(MILLIS,true))", Int(86_400_000), day),
        ("int32 x (TIME(MILLIS,true))", Int(-1), day),
        ("int64 x (TIME(MICROS,false))", Long(i64::MAX), day),
        ("int64 x (TIME(NANOS,true))", Long(i64::MIN), day),
        ("binary x (DECIMAL(9,2))", Bytes(vec![1; 1001]), "has more than 1000 bytes"),
    ] {
        let error = read(&format!("optional {kind};"), &value).unwrap_err();
        assert!(error.starts_with("p.parquet:2: column `x`: "), "{kind}: {error}");
        assert!(error.contains(expected), "{kind}: {error}");
    }
    let text = read("optional binary x (UTF8);", &Bytes(vec![0xff])).unwrap_err();
    let expected = "`p.parquet` cannot be read as Parquet after row 1: column `x`: a text is not UTF-8; write the file again";
    assert_eq!(text, expected);
}

#[test]
fn types_without_a_counterpart_are_refused_with_the_column() {
    for (kind, size, expected) in [
        ("fixed_len_byte_array(12) x (INTERVAL)", 12, "is of the type interval"),
        ("binary x (DECIMAL(2147483647,2147483647))", 1, "has decimals of more than 1000 digits"),
        ("binary x (GEOMETRY)", 1, "is of the type geometry"),
        ("binary x (GEOGRAPHY)", 1, "is of the type geography"),
    ] {
        let error = read(&format!("optional {kind};"), &Stored::Bytes(vec![1; size])).unwrap_err();
        let start =
            format!("`p.parquet` cannot be read as Parquet after row 0: column `x` {expected}");
        assert!(error.starts_with(&start), "{kind}: {error}");
    }
}

#[test]
fn lists_of_old_writers_are_lists() {
    let list = "optional group x (LIST) { repeated int32 element; }";
    let bytes = file(list, &Stored::Int(7), (&[1, 2], &[0, 0]));
    let found: Vec<Value> = results("p.parquet", &bytes)
        .into_iter()
        .map(|row| row.unwrap().fields["x"].clone())
        .collect();
    assert_eq!(found, [json!([]), json!([7])]);
    let structs = "optional group x (LIST) { repeated group array { required int32 a; } }";
    let bytes = file(structs, &Stored::Int(7), (&[0, 2], &[0, 0]));
    let found: Vec<Value> = results("p.parquet", &bytes)
        .into_iter()
        .map(|row| row.unwrap().fields["x"].clone())
        .collect();
    assert_eq!(found, [json!(null), json!([{"a": 7}])]);
}

/// A footer with a deep schema, in Thrift's compact protocol.
#[test]
fn a_deep_schema_does_not_overflow_the_stack() {
    for depth in [60_usize, 200_000] {
        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        varint(&mut footer, depth + 2);
        let element = |footer: &mut Vec<u8>, kind: Option<u8>, children: Option<u8>| {
            let mut last = 0;
            let mut field = |id: u8, of: u8, bytes: &[u8]| {
                footer.push((id - last) << 4 | of);
                footer.extend(bytes);
                last = id;
            };
            if let Some(kind) = kind {
                field(1, 5, &[2 * kind]);
            }
            field(3, 5, &[0]);
            field(4, 8, &[1, b'a']);
            if let Some(children) = children {
                field(5, 5, &[2 * children]);
            }
            footer.push(0);
        };
        for _ in 0..=depth {
            element(&mut footer, None, Some(1));
        }
        element(&mut footer, Some(1), None);
        footer.extend([0x16, 0, 0x19, 0x0c, 0]);
        let mut bytes = b"PAR1".to_vec();
        bytes.extend(&footer);
        bytes.extend(u32::try_from(footer.len()).unwrap().to_le_bytes());
        bytes.extend(b"PAR1");
        let found = results("p.parquet", &bytes).pop();
        let is_deep = format!("{found:?}").contains("more than 64 nested levels");
        assert_eq!(is_deep, depth > 64, "{found:?}");
    }
}

fn varint(bytes: &mut Vec<u8>, mut value: usize) {
    while value > 127 {
        bytes.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}
