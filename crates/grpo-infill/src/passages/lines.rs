//! Encoded lines, and the positions at which a passage can start.

use super::options::{PassageOptions, PassageReport, PassageUnit};
use super::source::Source;
use crate::Characters;
use grpo_data::DataError;
use std::collections::BTreeSet;
use std::path::Path;

/// A line retained from the file.
pub(super) struct Kept<'a> {
    /// Text of the line, including its line ending if passages contain line endings.
    pub(super) text: &'a str,
    /// Line number in the file, starting at 1.
    number: u64,
    /// Whether a passage can start with this line.
    begins: bool,
}

/// Concatenated lines, encoded as IDs.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(super) ids: Vec<u32>,
    /// Start of each line in [`Self::ids`], followed by the end of the last line.
    bounds: Vec<usize>,
    /// Indices of lines that can start a passage, in ascending order.
    beginnings: Vec<usize>,
}

/// Selects the lines that can be part of passages, and counts the dropped ones.
pub(super) fn kept<'a>(
    source: &'a Source,
    options: &PassageOptions,
    report: &mut PassageReport,
) -> Vec<Kept<'a>> {
    let mut kept = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, line) in source.text.split_inclusive('\n').enumerate() {
        report.lines += 1;
        let number = source.number(index);
        let content = line.strip_suffix('\n').unwrap_or(line);
        let begins = content.trim().chars().nth(1).is_some();
        if options.unit != PassageUnit::Line {
            kept.push(Kept { text: line, number, begins });
        } else if !begins {
            report.too_short += 1;
        } else if content.chars().nth(options.length).is_some() {
            report.too_long += 1;
        } else if !seen.insert(content) {
            report.duplicates += 1;
        } else {
            kept.push(Kept { text: content, number, begins });
        }
    }
    kept
}

impl Lines {
    pub(super) fn encode(
        kept: &[Kept<'_>],
        characters: &Characters,
        path: &Path,
    ) -> Result<Self, DataError> {
        let mut lines = Self { ids: Vec::new(), bounds: vec![0], beginnings: Vec::new() };
        for (index, line) in kept.iter().enumerate() {
            let ids = characters.encode(line.text);
            lines.ids.extend(ids.map_err(|error| error.at_line(path, line.number))?);
            lines.bounds.push(lines.ids.len());
            if line.begins {
                lines.beginnings.push(index);
            }
        }
        Ok(lines)
    }

    /// Splits the lines into training and validation lines. Both have at least one passage.
    pub(super) fn split(
        mut self,
        options: &PassageOptions,
        path: &Path,
        report: &PassageReport,
    ) -> Result<(Self, Self), DataError> {
        let part = |len: usize| ((1.0 - options.validation_fraction) * len as f64).round() as usize;
        let length = options.length;
        let short = |part, found| {
            DataError::Invalid(format!(
                "the {part} text of `{}` has only {found} characters, but a passage needs {length} (`length`); use a longer text or a smaller `length`",
                path.display()
            ))
        };
        if options.unit == PassageUnit::Window {
            let rest = self.ids.split_off(part(self.ids.len()));
            for (ids, name) in [(&self.ids, "training"), (&rest, "validation")] {
                if ids.len() < length {
                    return Err(short(name, ids.len()));
                }
            }
            let window = |ids| Self { ids, bounds: Vec::new(), beginnings: Vec::new() };
            return Ok((window(self.ids), window(rest)));
        }
        if self.beginnings.len() < 2 {
            return Err(DataError::Invalid(format!(
                "`{}` has {} lines that can start a passage of at most {length} characters, but at least 2 are required, one of them held out ({report}); use a file with more lines of 2 or more characters",
                path.display(),
                self.beginnings.len()
            )));
        }
        if options.unit == PassageUnit::Lines && self.ids.len() < length {
            return Err(short("whole", self.ids.len()));
        }
        // Split at a line that can start a passage, with at least one on each side.
        let at = part(self.beginnings.len()).clamp(1, self.beginnings.len() - 1);
        let line = self.beginnings[at];
        let cut = self.bounds[line];
        let rest = Self {
            ids: self.ids.split_off(cut),
            bounds: self.bounds[line..].iter().map(|bound| bound - cut).collect(),
            beginnings: self.beginnings.split_off(at).into_iter().map(|one| one - line).collect(),
        };
        self.bounds.truncate(line + 1);
        Ok((self, rest))
    }

    /// Returns the number of positions at which a passage can start.
    pub(crate) fn places(&self, options: &PassageOptions) -> usize {
        match options.unit {
            PassageUnit::Lines | PassageUnit::Line => self.beginnings.len(),
            PassageUnit::Window => self.ids.len() - options.length + 1,
        }
    }

    /// Returns the passage at a position below [`Self::places`].
    pub(super) fn passage(&self, place: usize, options: &PassageOptions) -> Vec<u32> {
        let length = options.length;
        match options.unit {
            PassageUnit::Window => self.ids[place..place + length].to_vec(),
            PassageUnit::Line => self.line(place).to_vec(),
            PassageUnit::Lines => {
                let first = self.line(place);
                if first.len() > length {
                    let end = first[first.len() - 1];
                    return [&first[..length - 1], &[end]].concat();
                }
                let begin = self.bounds[self.beginnings[place]];
                let fit = self.bounds.partition_point(|bound| *bound <= begin + length);
                self.ids[begin..self.bounds[fit - 1]].to_vec()
            }
        }
    }

    /// Returns the line at a position below [`Self::places`]. It includes its line ending if
    /// passages contain line endings.
    pub(crate) fn line(&self, place: usize) -> &[u32] {
        let line = self.beginnings[place];
        &self.ids[self.bounds[line]..self.bounds[line + 1]]
    }
}
