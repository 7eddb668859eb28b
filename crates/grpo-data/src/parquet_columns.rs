//! The types of Parquet columns, and the conversion of their values to JSON.

use crate::parquet_values::{Kind, json_of};
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};
use serde_json::{Map, Value};

/// Maximum number of nested structs, lists and maps.
pub(crate) const DEEPEST: usize = 64;

/// A column or a field of a struct.
pub(crate) struct ParquetColumn {
    pub(crate) name: String,
    shape: Shape,
}

/// The structure of a value, as the record reader of the `parquet` crate assembles it.
enum Shape {
    Value(Kind),
    Struct(Vec<ParquetColumn>),
    List(Box<Shape>),
    /// A list whose repeated field is the element. The reader puts the elements into a second list.
    OldList(Box<Shape>),
    Map(Box<(Shape, Shape)>),
}

/// Returns the columns of a file.
///
/// # Errors
/// Returns an error with the name of the column if its type is not supported.
pub(crate) fn columns_of(fields: &[TypePtr]) -> Result<Vec<ParquetColumn>, String> {
    let column = |field: &TypePtr| {
        let shape =
            Shape::new(field, 0).map_err(|fault| format!("column `{}` {fault}", field.name()))?;
        Ok(ParquetColumn { name: field.name().to_owned(), shape })
    };
    fields.iter().map(column).collect()
}

impl ParquetColumn {
    /// Converts a value of this column.
    ///
    /// # Errors
    /// Returns an error with the name of the column if the value is not valid for its type.
    pub(crate) fn json(&self, field: &Field) -> Result<Value, String> {
        self.shape.json(field).map_err(|fault| format!("column `{}`: {fault}", self.name))
    }
}

impl Shape {
    fn new(field: &Type, depth: usize) -> Result<Self, String> {
        if depth > DEEPEST {
            return Err(format!("has more than {DEEPEST} nested levels"));
        }
        let info = field.get_basic_info();
        let is_repeated = info.has_repetition() && info.repetition() == Repetition::REPEATED;
        if field.is_primitive() {
            let value = Self::Value(Kind::new(field)?);
            return Ok(if is_repeated { Self::List(Box::new(value)) } else { value });
        }
        match info.converted_type() {
            ConvertedType::LIST => Self::list(field, depth),
            ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => Self::map(field, depth),
            _ => {
                let shape = Self::structure(field, depth)?;
                Ok(if is_repeated { Self::List(Box::new(shape)) } else { shape })
            }
        }
    }

    fn structure(field: &Type, depth: usize) -> Result<Self, String> {
        let unsupported =
            |name: &str| Err(format!("is of the type {name}, which is not supported"));
        match field.get_basic_info().logical_type_ref() {
            None => {}
            Some(LogicalType::Variant(_)) => return unsupported("variant"),
            Some(LogicalType::File) => return unsupported("file"),
            Some(_) => return unsupported("unknown"),
        }
        if field.get_fields().is_empty() {
            return Err("is a struct without fields".to_owned());
        }
        let child = |child: &TypePtr| {
            Ok(ParquetColumn { name: child.name().to_owned(), shape: Self::new(child, depth + 1)? })
        };
        Ok(Self::Struct(field.get_fields().iter().map(child).collect::<Result<_, String>>()?))
    }

    fn list(field: &Type, depth: usize) -> Result<Self, String> {
        let repeated = repeated_child(field).ok_or("is not a valid list")?;
        if is_element(repeated) {
            return Ok(Self::OldList(Box::new(Self::new(repeated, depth + 1)?)));
        }
        let element = repeated.get_fields().first().ok_or("is not a valid list")?;
        Ok(Self::List(Box::new(Self::new(element, depth + 1)?)))
    }

    fn map(field: &Type, depth: usize) -> Result<Self, String> {
        let entry = repeated_child(field).filter(|entry| entry.is_group());
        let entry = entry.ok_or("is not a valid map")?;
        match entry.get_fields() {
            // A map without values is a list of its keys.
            [key] => Ok(Self::List(Box::new(Self::new(key, depth + 1)?))),
            [key, value] => {
                let both = (Self::new(key, depth + 1)?, Self::new(value, depth + 1)?);
                Ok(Self::Map(Box::new(both)))
            }
            _ => Err("is not a valid map".to_owned()),
        }
    }

    fn json(&self, field: &Field) -> Result<Value, String> {
        match (self, field) {
            (_, Field::Null) => Ok(Value::Null),
            (Self::Value(kind), field) => json_of(*kind, field),
            (Self::Struct(columns), Field::Group(row)) => {
                let fields = columns.iter().zip(row.get_column_iter());
                let entry = |(column, (name, field)): (&ParquetColumn, (&String, &Field))| {
                    let value = column.shape.json(field);
                    Ok((name.clone(), value.map_err(|fault| format!("field `{name}`: {fault}"))?))
                };
                Ok(Value::Object(fields.map(entry).collect::<Result<Map<_, _>, String>>()?))
            }
            (Self::List(of), Field::ListInternal(list)) => {
                list.elements().iter().map(|element| of.json(element)).collect()
            }
            (Self::OldList(of), Field::ListInternal(list)) => {
                let lists = list.elements().iter().map(|element| of.json(element));
                let mut all = Vec::new();
                for inner in lists {
                    match inner? {
                        Value::Array(elements) => all.extend(elements),
                        other => all.push(other),
                    }
                }
                Ok(all.into())
            }
            (Self::Map(of), Field::MapInternal(map)) => {
                let entry = |(key, value): &(Field, Field)| {
                    Ok((name_of(of.0.json(key)?), of.1.json(value)?))
                };
                let entries = map.entries().iter().map(entry);
                Ok(Value::Object(entries.collect::<Result<Map<_, _>, String>>()?))
            }
            _ => Err("the value does not have the type of the column".to_owned()),
        }
    }
}

/// Returns the only child, if it is repeated.
fn repeated_child(field: &Type) -> Option<&Type> {
    match field.get_fields() {
        [child] if is_repeated(child) => Some(child),
        _ => None,
    }
}

fn is_repeated(field: &Type) -> bool {
    let info = field.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::REPEATED
}

/// Returns whether the repeated field of a list is its element and not a struct around it. These are
/// the rules of the format for lists of old writers, as the `parquet` crate applies them.
fn is_element(repeated: &Type) -> bool {
    if repeated.is_primitive() {
        return true;
    }
    let is_list = repeated.get_basic_info().converted_type() == ConvertedType::LIST;
    if is_list || repeated_child(repeated).is_some() {
        return false;
    }
    repeated.get_fields().len() > 1
        || repeated.name() == "array"
        || repeated.name().ends_with("_tuple")
}

/// Converts a map key to a JSON object key.
fn name_of(key: Value) -> String {
    match key {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
