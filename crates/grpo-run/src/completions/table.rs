//! Writes completion records to Parquet.

use super::record::CompletionRecord;
use grpo_data::Finish;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use std::io::Write;
use std::sync::Arc;

/// Column names.
pub(super) const IDS: &str = "completion_ids";
/// Missing in files written by older versions.
pub(super) const PROMPT_IDS: &str = "prompt_ids";
pub(super) const SAMPLED: &str = "sampling_logprobs";
pub(super) const OUTCOMES: &str = "outcomes";
/// Name of [`OUTCOMES`] in files written by older versions.
pub(super) const OUTCOMES_BEFORE: &str = "fates";
/// Missing in files written by older versions.
pub(super) const BONUS: &str = "bonus";
/// Missing in files written by older versions.
pub(super) const INFO: &str = "info";
pub(super) const PART: &str = "rewards/";
/// Numbers per token that every file has ([`CompletionRecord::tokens`]).
pub(super) const TOKENS: [&str; 5] =
    ["logprobs", "ref_logprobs", "entropies", "gradients", "surrogate_gradients"];

/// Encodes the records as a Parquet file.
pub(super) fn file(records: &[CompletionRecord], parts: &[&str]) -> Vec<u8> {
    let columns = columns(records, parts);
    let mut bytes = Vec::new();
    write(&columns, &mut bytes).expect("writing a known schema to memory cannot fail");
    bytes
}

/// Returns the names of the columns that every file must contain.
pub(super) fn required_columns() -> impl Iterator<Item = String> {
    columns(&[], &[])
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| ![BONUS, INFO, PROMPT_IDS].contains(&name.as_str()))
}

/// Returns the name of a finish reason as used in files.
pub(super) fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::EndToken => "end_token",
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Filled => "filled",
    }
}

/// The values of a column.
pub(crate) enum Values {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
    Ints(Vec<Vec<i32>>),
    Floats(Vec<Vec<f32>>),
    Texts(Vec<Vec<String>>),
}

fn columns(records: &[CompletionRecord], parts: &[&str]) -> Vec<(String, Values)> {
    use Values::{Floats, Int, Ints, Long, Number, Text, Texts};
    type Of<'a, T> = &'a dyn Fn(&CompletionRecord) -> T;
    let long = |of: Of<'_, u64>| Long(records.iter().map(|r| of(r) as i64).collect());
    let int = |of: Of<'_, u32>| Int(records.iter().map(|r| of(r) as i32).collect());
    let number = |of: Of<'_, Option<f64>>| Number(records.iter().map(of).collect());
    let text = |of: Of<'_, Option<String>>| Text(records.iter().map(of).collect());
    let ids = |of: fn(&CompletionRecord) -> &Vec<u32>| {
        let ids = |record| of(record).iter().map(|&id| id as i32).collect();
        Ints(records.iter().map(ids).collect())
    };
    let mut columns = vec![
        ("step", long(&|record| record.step)),
        ("prompt", int(&|record| record.prompt)),
        ("prompt_text", text(&|record| record.prompt_text.clone())),
        (PROMPT_IDS, ids(|record| &record.prompt_ids)),
        ("sample", int(&|record| record.sample)),
        ("text", text(&|record| Some(record.text.clone()))),
        ("reward", number(&|record| record.reward)),
        (BONUS, number(&|record| record.bonus)),
        ("outcome", text(&|record| Some(record.outcome.name().to_owned()))),
        ("reason", text(&|record| record.reason.clone())),
        (INFO, text(&|record| record.info.clone())),
        ("advantage", number(&|record| Some(record.advantage))),
        ("actions", int(&|record| record.actions)),
        ("finish", text(&|record| Some(finish_name(record.finish).to_owned()))),
        ("policy_version", long(&|record| record.policy_version)),
        (IDS, ids(|record| &record.completion_ids)),
        (SAMPLED, Floats(records.iter().map(|record| record.sampling_logprobs.clone()).collect())),
    ];
    let tokens = columns.split_off(11);
    let part =
        |name: &&str| (format!("{PART}{name}"), number(&|record| record.parts.get(*name).copied()));
    let named = |(name, values): (&str, Values)| (name.to_owned(), values);
    let unknown = records.iter().flat_map(|record| record.parts.keys());
    for name in unknown {
        assert!(parts.contains(&name.as_str()), "part `{name}` is not one of {parts:?}");
    }
    let outcomes = Texts(records.iter().map(|record| record.outcomes.clone()).collect());
    columns
        .into_iter()
        .map(named)
        .chain(parts.iter().map(part))
        .chain(tokens.into_iter().map(named))
        .chain(token_columns(records))
        .chain([named((OUTCOMES, outcomes))])
        .collect()
}

/// Returns the numbers per token. All records of a step have the same ones.
fn token_columns(records: &[CompletionRecord]) -> impl Iterator<Item = (String, Values)> {
    let traced = records.iter().take(1).flat_map(|first| first.tokens.iter().map(|(name, _)| name));
    let further = traced.filter(|name| !TOKENS.contains(name));
    TOKENS.into_iter().chain(further).map(|name| {
        let of_record =
            |record: &CompletionRecord| record.tokens.get(name).unwrap_or_default().to_vec();
        (name.to_owned(), Values::Floats(records.iter().map(of_record).collect()))
    })
}

impl Values {
    /// Returns the physical and logical Parquet types.
    fn kind(&self) -> (Physical, Option<LogicalType>) {
        match self {
            Self::Long(_) => (Physical::INT64, None),
            Self::Int(_) | Self::Ints(_) => (Physical::INT32, None),
            Self::Number(_) => (Physical::DOUBLE, None),
            Self::Floats(_) => (Physical::FLOAT, None),
            Self::Text(_) | Self::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        }
    }

    fn schema(&self, name: &str) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = self.kind();
        let primitive = |name: &str, repetition| {
            let builder = Type::primitive_type_builder(name, physical);
            builder.with_repetition(repetition).with_logical_type(logical.clone()).build()
        };
        match self {
            Self::Long(_) | Self::Int(_) => Ok(Arc::new(primitive(name, Repetition::REQUIRED)?)),
            Self::Number(_) | Self::Text(_) => Ok(Arc::new(primitive(name, Repetition::OPTIONAL)?)),
            Self::Ints(_) | Self::Floats(_) | Self::Texts(_) => {
                let element = Arc::new(primitive("element", Repetition::REQUIRED)?);
                let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
                let list = Arc::new(list.with_fields(vec![element]).build()?);
                let outer = Type::group_type_builder(name)
                    .with_repetition(Repetition::REQUIRED)
                    .with_logical_type(Some(LogicalType::List))
                    .with_fields(vec![list]);
                Ok(Arc::new(outer.build()?))
            }
        }
    }
}

fn write(columns: &[(String, Values)], bytes: &mut Vec<u8>) -> Result<(), ParquetError> {
    let mut writer = writer("completion", columns, bytes)?;
    write_rows(&mut writer, columns)?;
    writer.close()?;
    Ok(())
}

/// Creates a Parquet writer for the given columns. `name` is the name of the schema.
pub(crate) fn writer<W: Write + Send>(
    name: &str,
    columns: &[(String, Values)],
    sink: W,
) -> Result<SerializedFileWriter<W>, ParquetError> {
    let fields = columns.iter().map(|(name, values)| values.schema(name));
    let fields = fields.collect::<Result<Vec<TypePtr>, _>>()?;
    let schema = Arc::new(Type::group_type_builder(name).with_fields(fields).build()?);
    let level = ZstdLevel::try_new(3)?;
    let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    for (name, values) in columns {
        if let Values::Floats(_) = values {
            // Values rarely repeat. Splitting their bytes into separate streams compresses better
            // than a dictionary.
            let path = ColumnPath::new(vec![name.clone(), "list".into(), "element".into()]);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT);
        }
    }
    SerializedFileWriter::new(sink, schema, Arc::new(properties.build()))
}

/// Writes the rows in `columns` as a new row group.
pub(crate) fn write_rows<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[(String, Values)],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for (_, values) in columns {
        write_column(values, &mut group)?;
    }
    group.close()?;
    Ok(())
}

fn write_column<W: Write + Send>(
    values: &Values,
    group: &mut SerializedRowGroupWriter<'_, W>,
) -> Result<(), ParquetError> {
    let bytes = |text: &String| ByteArray::from(text.as_str());
    match values {
        Values::Long(values) => one_column::<Int64Type, W>(group, values, None, None),
        Values::Int(values) => one_column::<Int32Type, W>(group, values, None, None),
        Values::Number(values) => {
            let (there, levels) = optional(values, |&value| value);
            one_column::<DoubleType, W>(group, &there, Some(&levels), None)
        }
        Values::Text(values) => {
            let (there, levels) = optional(values, bytes);
            one_column::<ByteArrayType, W>(group, &there, Some(&levels), None)
        }
        Values::Ints(values) => {
            let (definition, repetition) = list_levels(values);
            let all = values.concat();
            one_column::<Int32Type, W>(group, &all, Some(&definition), Some(&repetition))
        }
        Values::Floats(values) => {
            let (definition, repetition) = list_levels(values);
            let all = values.concat();
            one_column::<FloatType, W>(group, &all, Some(&definition), Some(&repetition))
        }
        Values::Texts(values) => {
            let (definition, repetition) = list_levels(values);
            let all: Vec<ByteArray> = values.iter().flatten().map(bytes).collect();
            one_column::<ByteArrayType, W>(group, &all, Some(&definition), Some(&repetition))
        }
    }
}

fn one_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    definition: Option<&[i16]>,
    repetition: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("the schema has one column per list of values");
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

/// Returns the values that are present and the definition level of each row.
fn optional<T, U>(values: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<U>, Vec<i16>) {
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.iter().flatten().map(of).collect(), levels)
}

/// Returns the definition and repetition levels of a list column. Each element has one entry, and
/// so does each empty list.
fn list_levels<T>(lists: &[Vec<T>]) -> (Vec<i16>, Vec<i16>) {
    let levels = lists.iter().flat_map(|list| {
        let is_there = i16::from(!list.is_empty());
        (0..list.len().max(1)).map(move |i| (is_there, i16::from(i > 0)))
    });
    levels.unzip()
}
