//! Settings that name one data file, or several with weights.

use std::fmt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ConfigFault;

/// A data file, or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum DataFiles {
    /// A path.
    One(PathBuf),
    /// A list of paths, each alone or in a table with its weight.
    Several(Vec<ListedFile>),
}

/// An entry of a list of data files.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ListedFile {
    /// A path. The weight of the file is 1.
    Path(PathBuf),
    /// A path with a weight.
    Weighted(WeightedFile),
}

/// A data file and how often its records are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedFile {
    /// Path of the file.
    pub file: PathBuf,
    /// How often each record is used per epoch, on average.
    #[serde(default = "one")]
    #[schemars(range(min = 0.001, max = 1000))]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// Smallest and largest weight of a file.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

impl ListedFile {
    /// Returns the path.
    pub fn path(&self) -> &PathBuf {
        match self {
            Self::Path(path) | Self::Weighted(WeightedFile { file: path, .. }) => path,
        }
    }

    /// Returns the weight, which is 1 unless the entry has another one.
    pub fn weight(&self) -> f64 {
        match self {
            Self::Path(_) => 1.0,
            Self::Weighted(WeightedFile { weight, .. }) => *weight,
        }
    }

    /// Returns an entry with the same weight for another path.
    #[must_use]
    pub fn with_path(&self, file: PathBuf) -> Self {
        match *self {
            Self::Path(_) => Self::Path(file),
            Self::Weighted(WeightedFile { weight, .. }) => {
                Self::Weighted(WeightedFile { file, weight })
            }
        }
    }
}

impl DataFiles {
    /// Returns the paths in the order of the list.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let none: &[ListedFile] = &[];
        let (one, several) = match self {
            Self::One(path) => (Some(path), none),
            Self::Several(files) => (None, files.as_slice()),
        };
        one.into_iter().chain(several.iter().map(ListedFile::path))
    }

    /// Returns the files in the order of the list.
    pub fn listed(&self) -> Vec<ListedFile> {
        match self {
            Self::One(path) => vec![ListedFile::Path(path.clone())],
            Self::Several(files) => files.clone(),
        }
    }

    /// Replaces each path by those that `find` returns for it, which get its weight.
    ///
    /// # Errors
    /// Returns the first error of `find`.
    pub fn replaced<E>(
        &self,
        mut find: impl FnMut(&Path) -> Result<Vec<PathBuf>, E>,
    ) -> Result<Self, E> {
        let mut files = Vec::new();
        for file in self.listed() {
            files.extend(find(file.path())?.into_iter().map(|path| file.with_path(path)));
        }
        Ok(match <[ListedFile; 1]>::try_from(files) {
            Ok([ListedFile::Path(path)]) => Self::One(path),
            Ok([file]) => Self::Several(vec![file]),
            Err(files) => Self::Several(files),
        })
    }

    /// Checks that there is a file, and the range of the weights. `key` is the name of the setting.
    ///
    /// # Errors
    /// Returns an error for an empty list and for a weight out of range.
    pub fn check(&self, key: &str) -> Result<(), ConfigFault> {
        if matches!(self, Self::Several(files) if files.is_empty()) {
            let fault = format!("{key} is an empty list");
            return Err(ConfigFault::new(key, fault, "name at least one file"));
        }
        self.listed().iter().enumerate().try_for_each(|(index, file)| {
            crate::in_range(&format!("{key}[{index}].weight"), file.weight(), WEIGHTS)
        })
    }
}

impl fmt::Display for DataFiles {
    /// Writes the path, or the first one and the number of the others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut paths = self.paths();
        let Some(first) = paths.next() else { return Ok(()) };
        write!(f, "{}", first.display())?;
        match paths.count() {
            0 => Ok(()),
            1 => f.write_str(" and 1 other file"),
            more => write!(f, " and {more} other files"),
        }
    }
}

/// Unlike a derived implementation, says what is expected if the value is something else.
impl<'de> Deserialize<'de> for DataFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Files;

        impl<'de> Visitor<'de> for Files {
            type Value = DataFiles;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path or a list of paths")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<DataFiles, E> {
                Ok(DataFiles::One(path.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DataFiles, A::Error> {
                let mut files = Vec::new();
                while let Some(file) = list.next_element()? {
                    files.push(file);
                }
                Ok(DataFiles::Several(files))
            }
        }

        deserializer.deserialize_any(Files)
    }
}

impl<'de> Deserialize<'de> for ListedFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct File;

        impl<'de> Visitor<'de> for File {
            type Value = ListedFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path or a table { file, weight }")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<ListedFile, E> {
                Ok(ListedFile::Path(path.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListedFile, A::Error> {
                let file = WeightedFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ListedFile::Weighted(file))
            }
        }

        deserializer.deserialize_any(File)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deserialize_settings;
    use toml::Table;

    #[derive(Debug, Serialize, Deserialize)]
    struct Section {
        file: DataFiles,
    }

    fn read(text: &str) -> Result<DataFiles, String> {
        let section = deserialize_settings::<Section>(toml::from_str(text).unwrap());
        let fault = |fault: ConfigFault| format!("{}: {fault}", fault.key);
        let files = section.map_err(fault)?.file;
        files.check("file").map_err(fault)?;
        Ok(files)
    }

    #[test]
    fn paths_and_weights() {
        let check = |text: &str, expect: &[(&str, f64)]| {
            let files = read(text).unwrap();
            let listed = files.listed();
            let found: Vec<(&str, f64)> =
                listed.iter().map(|file| (file.path().to_str().unwrap(), file.weight())).collect();
            assert_eq!(found, expect, "{text}");
            // What is written is what was read.
            let written = toml::to_string(&Section { file: files.clone() }).unwrap();
            assert_eq!(read(&written).unwrap(), files, "{written}");
            let table = Table::try_from(Section { file: files.clone() }).unwrap();
            assert_eq!(read(&table.to_string()).unwrap(), files, "{table}");
        };
        check("file = 'a'", &[("a", 1.0)]);
        check("file = ['a']", &[("a", 1.0)]);
        check(
            "file = ['a', { file = 'b', weight = 2 }, { file = 'c' }]",
            &[("a", 1.0), ("b", 2.0), ("c", 1.0)],
        );
        check(
            "[[file]]\nfile = 'a'\nweight = 0.5\n[[file]]\nfile = 'b'",
            &[("a", 0.5), ("b", 1.0)],
        );
        let file = read("file = 'a'").unwrap();
        assert_eq!(toml::to_string(&Section { file }).unwrap(), "file = \"a\"\n");
    }

    #[test]
    fn what_is_refused() {
        for (text, expected) in [
            ("file = 3", "file: found 3; expected a path or a list of paths"),
            ("file = { file = 'a' }", "file: found a table; expected a path or a list of paths"),
            ("file = []", "file: file is an empty list; name at least one file"),
            ("file = ['a', 3]", "file[1]: found 3; expected a path or a table { file, weight }"),
            (
                "file = [{ file = 'a', weight = 0 }]",
                "file[0].weight: file[0].weight = 0 is out of range; expected 0.001 to 1000",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        }
        let unknown = read("file = [{ file = 'a', wieght = 2 }]").unwrap_err();
        assert!(unknown.contains("wieght"), "{unknown}");
    }

    #[test]
    fn several_files_of_a_pattern_have_its_weight() {
        let find = |path: &Path| -> Result<Vec<PathBuf>, String> {
            let names: &[&str] = match path.to_str() {
                Some("*") => &["x", "y"],
                Some("none") => return Err("none".to_owned()),
                _ => return Ok(vec![path.to_owned()]),
            };
            Ok(names.iter().map(PathBuf::from).collect())
        };
        let check = |text: &str, expect: &str| {
            let expect = read(expect).unwrap();
            assert_eq!(read(text).unwrap().replaced(find).unwrap(), expect, "{text}");
        };
        check("file = 'a'", "file = 'a'");
        check("file = ['a']", "file = 'a'");
        check("file = '*'", "file = ['x', 'y']");
        check(
            "file = [{ file = '*', weight = 2 }, 'a']",
            "file = [{ file = 'x', weight = 2 }, { file = 'y', weight = 2 }, 'a']",
        );
        assert_eq!(read("file = ['a', 'none']").unwrap().replaced(find), Err("none".to_owned()));
        assert_eq!(read("file = ['a', 'b', 'c']").unwrap().to_string(), "a and 2 other files");
    }
}
