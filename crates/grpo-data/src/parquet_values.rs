//! Single values of Parquet columns.

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Utc};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::record::Field;
use parquet::schema::types::Type;
use serde_json::{Value, json};

/// Maximum number of digits and bytes of a decimal number.
const LONGEST_DECIMAL: i32 = 1000;

/// How the values of a primitive column are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As they are stored.
    Plain,
    /// Nothing but null.
    Null,
    /// Days since 1970-01-01.
    Date,
    /// Units since midnight.
    Time(Unit),
    /// Units since 1970-01-01. The first flag tells whether they are in UTC.
    Timestamp(Unit, bool),
    /// Decimal numbers.
    Decimal,
    /// 16 bytes.
    Uuid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    fn of(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::MILLIS => Self::Millis,
            TimeUnit::MICROS => Self::Micros,
            TimeUnit::NANOS => Self::Nanos,
        }
    }

    /// Splits a number of units into seconds and nanoseconds.
    fn split(self, value: i64) -> (i64, u32) {
        let (per_second, nanoseconds) = match self {
            Self::Millis => (1_000, 1_000_000),
            Self::Micros => (1_000_000, 1_000),
            Self::Nanos => (1_000_000_000, 1),
        };
        let rest = value.rem_euclid(per_second) * nanoseconds;
        (value.div_euclid(per_second), u32::try_from(rest).unwrap_or(0))
    }

    /// Returns the format of the fraction of a second.
    fn fraction(self) -> &'static str {
        match self {
            Self::Millis => "%.3f",
            Self::Micros => "%.6f",
            Self::Nanos => "%.9f",
        }
    }
}

impl Kind {
    /// Returns the kind of a primitive column.
    ///
    /// # Errors
    /// Returns an error if the type is not supported.
    pub(crate) fn new(field: &Type) -> Result<Self, String> {
        let info = field.get_basic_info();
        let unsupported =
            |name: &str| Err(format!("is of the type {name}, which is not supported"));
        match info.logical_type_ref() {
            Some(LogicalType::Unknown) => return Ok(Self::Null),
            Some(LogicalType::Date) => return Ok(Self::Date),
            Some(LogicalType::Time(time)) => return Ok(Self::Time(Unit::of(time.unit))),
            Some(LogicalType::Timestamp(time)) => {
                return Ok(Self::Timestamp(Unit::of(time.unit), time.is_adjusted_to_u_t_c));
            }
            Some(LogicalType::Uuid) => return Ok(Self::Uuid),
            Some(LogicalType::Geometry(_)) => return unsupported("geometry"),
            Some(LogicalType::Geography(_)) => return unsupported("geography"),
            Some(LogicalType::Variant(_)) => return unsupported("variant"),
            Some(LogicalType::_Unknown { .. }) => return unsupported("unknown"),
            _ => {}
        }
        if field.get_physical_type() == Physical::INT96 {
            return Ok(Self::Timestamp(Unit::Millis, true));
        }
        Ok(match info.converted_type() {
            ConvertedType::DATE => Self::Date,
            ConvertedType::TIME_MILLIS => Self::Time(Unit::Millis),
            ConvertedType::TIME_MICROS => Self::Time(Unit::Micros),
            ConvertedType::TIMESTAMP_MILLIS => Self::Timestamp(Unit::Millis, true),
            ConvertedType::TIMESTAMP_MICROS => Self::Timestamp(Unit::Micros, true),
            ConvertedType::INTERVAL => return unsupported("interval"),
            ConvertedType::DECIMAL if field.get_precision() > LONGEST_DECIMAL => {
                return Err(format!("has decimals of more than {LONGEST_DECIMAL} digits"));
            }
            ConvertedType::DECIMAL => Self::Decimal,
            _ => Self::Plain,
        })
    }
}

/// Converts a value.
///
/// # Errors
/// Returns an error if the value is not valid for its type.
pub(crate) fn json_of(kind: Kind, field: &Field) -> Result<Value, String> {
    let whole = match field {
        Field::Null => return Ok(Value::Null),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => i64::from(*value),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => *value,
        _ => 0,
    };
    match (kind, field) {
        (Kind::Null, _) => Err("a column without a type has a value".to_owned()),
        (Kind::Date, _) => date(whole),
        (Kind::Time(unit), _) => time(unit, whole),
        (Kind::Timestamp(unit, is_utc), _) => timestamp(unit, is_utc, whole),
        (Kind::Uuid, Field::Bytes(bytes)) => Ok(uuid(bytes.data()).into()),
        (_, Field::Decimal(value)) if value.data().len() > LONGEST_DECIMAL as usize => {
            Err(format!("a decimal number has more than {LONGEST_DECIMAL} bytes"))
        }
        (_, Field::Decimal(_)) => {
            // An integer is written with a point at its end.
            Ok(field.to_string().trim_end_matches('.').into())
        }
        _ => Ok(plain(field)),
    }
}

fn date(days: i64) -> Result<Value, String> {
    let date = i32::try_from(days).ok().and_then(NaiveDate::from_epoch_days);
    let date = date.filter(|date| (1..=9999).contains(&date.year()));
    let date = date.ok_or_else(|| {
        format!("the date {days} days after 1970-01-01 is not within the years 1 to 9999")
    })?;
    Ok(date.format("%Y-%m-%d").to_string().into())
}

fn time(unit: Unit, value: i64) -> Result<Value, String> {
    let (seconds, nanoseconds) = unit.split(value);
    let time = u32::try_from(seconds).ok();
    let time = time.and_then(|at| NaiveTime::from_num_seconds_from_midnight_opt(at, nanoseconds));
    let time = time
        .ok_or_else(|| format!("the time {seconds} seconds after midnight is not within a day"))?;
    Ok(time.format(&format!("%H:%M:%S{}", unit.fraction())).to_string().into())
}

fn timestamp(unit: Unit, is_utc: bool, value: i64) -> Result<Value, String> {
    let (seconds, nanoseconds) = unit.split(value);
    let time: Option<DateTime<Utc>> = DateTime::from_timestamp(seconds, nanoseconds);
    let time = time.filter(|time| (1..=9999).contains(&time.year()));
    let time = time.ok_or_else(|| {
        format!("the time {seconds} seconds after 1970-01-01 is not within the years 1 to 9999")
    })?;
    let zone = if is_utc { " %:z" } else { "" };
    Ok(time.format(&format!("%Y-%m-%d %H:%M:%S{}{zone}", unit.fraction())).to_string().into())
}

fn uuid(bytes: &[u8]) -> String {
    let digits = hexadecimal(bytes);
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, digits.len())].join("-")
}

fn plain(field: &Field) -> Value {
    match field {
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float16(value) => number(value.to_f64()),
        Field::Float(value) => number(f64::from(*value)),
        Field::Double(value) => number(*value),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => match str::from_utf8(bytes.data()) {
            // Some writers don't annotate text columns as UTF-8.
            Ok(text) => text.into(),
            Err(_) => json!({ "bytes": hexadecimal(bytes.data()) }),
        },
        _ => Value::Null,
    }
}

/// Converts a number to JSON, which supports neither NaN nor infinity. NaN often marks missing
/// values in tables and becomes null. Infinity becomes a string, which is rejected if a number is
/// expected.
fn number(value: f64) -> Value {
    if value.is_infinite() { value.to_string().into() } else { value.into() }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
