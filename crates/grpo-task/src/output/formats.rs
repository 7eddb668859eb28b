//! Formats of output files and the endings of their names.

use std::path::Path;

use anyhow::Context;
use grpo_data::FileOrigin;

use super::device::is_device;

/// The formats that a command can write to a file.
#[derive(Clone, Copy, Debug)]
pub struct Formats {
    /// What is written, e.g. `a CSV table`.
    pub written: &'static str,
    /// Endings of names, the usual one first.
    pub endings: &'static [&'static str],
}

/// A table.
pub const CSV: Formats = Formats { written: "a CSV table", endings: &["csv"] };
/// A single JSON value.
pub const JSON: Formats = Formats { written: "JSON", endings: &["json"] };
/// A JSON object per line. All commands read files with both endings in the same way.
pub const JSON_LINES: Formats = Formats { written: "JSON lines", endings: &["jsonl", "json"] };
/// A picture.
pub const SVG: Formats = Formats { written: "an SVG picture", endings: &["svg"] };

/// Endings of names that stand for a format or a compression. Others say nothing about the contents.
const KNOWN: [&str; 37] = [
    "arrow", "bz2", "csv", "doc", "docx", "feather", "htm", "html", "jpeg", "jpg", "json", "jsonl",
    "md", "mol", "mol2", "ndjson", "npy", "npz", "ods", "parquet", "pdf", "pkl", "png", "sdf",
    "smi", "smiles", "svg", "tex", "toml", "tsv", "txt", "xls", "xlsx", "xz", "yaml", "zip", "zst",
];

impl Formats {
    /// Returns an error if the ending of the name stands for another format, whose readers would not
    /// find what they expect. `option` is the option that sets the path.
    ///
    /// # Errors
    /// Returns an error that names the formats that can be written.
    pub fn check(self, option: &str, path: &Path) -> anyhow::Result<()> {
        let (_, ending) = FileOrigin::new(path);
        let is_known = KNOWN.contains(&ending.as_str());
        anyhow::ensure!(
            is_device(path) || !is_known || self.endings.contains(&ending.as_str()),
            self.fault(option, path)
        );
        Ok(())
    }

    /// Returns the ending of a name that selects one of these formats. `option` is the option that sets
    /// the path.
    ///
    /// # Errors
    /// Returns an error that names the formats if the name has another ending.
    pub fn require(self, option: &str, path: &Path) -> anyhow::Result<&'static str> {
        let is_own = |own: &&&str| path.extension().is_some_and(|it| it.eq_ignore_ascii_case(own));
        self.endings.iter().find(is_own).copied().with_context(|| self.fault(option, path))
    }

    fn fault(self, option: &str, path: &Path) -> String {
        let (path, written) = (path.display(), self.written);
        format!(
            "{option} {path}: the output is {written}; use a name that ends in {}",
            self.names()
        )
    }

    /// Returns the endings as a list in words.
    fn names(self) -> String {
        let names: Vec<String> = self.endings.iter().map(|ending| format!(".{ending}")).collect();
        match names.as_slice() {
            [others @ .., before, last] => {
                [others, &[format!("{before} or {last}")]].concat().join(", ")
            }
            _ => names.concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_of_other_formats_are_refused() {
        for name in ["a.csv", "a.CSV.gz", "a", "a.out", "a.1", "a.gz", "csv", "/dev/null", ".csv"] {
            assert!(CSV.check("-o", Path::new(name)).is_ok(), "{name}");
        }
        for name in ["a.parquet", "a.csv.zip", "a.json.gz", "a.b.XLSX", "a.txt", "a.csv.zst"] {
            let said = CSV.check("-o", Path::new(name)).unwrap_err().to_string();
            let expected =
                format!("-o {name}: the output is a CSV table; use a name that ends in .csv");
            assert_eq!(said, expected);
        }
        assert!(JSON_LINES.check("-o", Path::new("a.json")).is_ok());
        let said = JSON_LINES.check("-o", Path::new("a.csv")).unwrap_err().to_string();
        assert!(
            said.ends_with("the output is JSON lines; use a name that ends in .jsonl or .json")
        );
    }

    #[test]
    fn an_ending_selects_a_format() {
        let formats = Formats { written: "a table", endings: &["md", "tex", "html"] };
        for (name, ending) in [("a.md", "md"), ("a.b/c.TEX", "tex"), (".x.html", "html")] {
            assert_eq!(formats.require("-o", Path::new(name)).unwrap(), ending, "{name}");
        }
        for name in ["a", "md", "a.md.gz", "a.json", ".md", "/dev/null", "a."] {
            let said = formats.require("-o", Path::new(name)).unwrap_err().to_string();
            let expected = format!(
                "-o {name}: the output is a table; use a name that ends in .md, .tex or .html"
            );
            assert_eq!(said, expected);
        }
    }
}
