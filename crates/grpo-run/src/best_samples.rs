//! `best.csv`: the completions of a run with the highest rewards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use grpo_data::{number_cell, regular_file};
use serde::{Deserialize, Serialize};

use crate::{RunError, RunFolder};

/// A valid completion with its reward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestSample {
    /// The canonical form of the completion, e.g. its canonical SMILES.
    pub text: String,
    /// The step that sampled it first, starting at 1.
    pub step: u32,
    /// The reward without a bonus.
    pub reward: f64,
    /// The reward components.
    pub parts: BTreeMap<String, f64>,
}

/// The contents of `best.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct BestTable {
    /// Name of the column with the completions, e.g. `smiles`.
    pub column: String,
    /// Names of the reward components, in display order.
    pub parts: Vec<String>,
    /// The completions, from best to worst.
    pub samples: Vec<BestSample>,
}

impl RunFolder {
    /// Returns the path of `best.csv`, which may not exist.
    pub fn best_path(&self) -> PathBuf {
        self.path().join(BEST)
    }

    /// Writes `best.csv` atomically, replacing an existing file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_best(&self, table: &BestTable) -> Result<(), RunError> {
        self.write_file(BEST, &table.to_csv())
    }

    /// Reads `best.csv`. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or was not written by this program.
    pub fn read_best(&self) -> Result<Option<BestTable>, RunError> {
        if !self.has(BEST)? {
            return Ok(None);
        }
        let path = self.best_path();
        let bytes = self.folder.open_file(BEST).and_then(regular_file::read_data_from);
        BestTable::from_csv(&bytes.map_err(RunError::read(&path))?, &path).map(Some)
    }
}

impl BestTable {
    /// Encodes the table as CSV, with six decimals. Missing components are empty cells.
    pub fn to_csv(&self) -> Vec<u8> {
        self.encoded(number_cell)
    }

    /// Encodes the table as CSV with these numbers.
    fn encoded(&self, cell: fn(f64) -> String) -> Vec<u8> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let own = self.own_columns();
        let parts = self.parts.iter().map(|part| column_of_part(part, &own));
        let header = own.iter().map(|name| (*name).to_owned()).chain(parts).collect();
        let mut write = |row: Vec<String>| {
            writer.write_record(row).expect("writing to a vector cannot fail");
        };
        write(header);
        for BestSample { text, step, reward, parts } in &self.samples {
            let first = [text.clone(), cell(*reward), step.to_string()].into_iter();
            let value =
                |name: &String| parts.get(name).map_or_else(String::new, |value| cell(*value));
            write(first.chain(self.parts.iter().map(value)).collect());
        }
        writer.into_inner().expect("writing to a vector cannot fail")
    }

    fn own_columns(&self) -> [&str; 3] {
        [&self.column, "reward", "step"]
    }

    /// Reads a table written by [`Self::to_csv`].
    fn from_csv(bytes: &[u8], path: &Path) -> Result<Self, RunError> {
        let damaged = |line: usize, reason: &str| RunError::BadLine {
            path: path.to_owned(),
            line: line as u64,
            reason: reason.to_owned(),
        };
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(bytes);
        let mut rows = reader.records().enumerate().map(|(index, row)| {
            row.map_err(|_| damaged(index + 1, "not a row of this table"))
                .map(|row| row.iter().map(str::to_owned).collect::<Vec<String>>())
        });
        let header = rows.next().unwrap_or_else(|| Err(damaged(1, "no column names")))?;
        let after_first = header.get(1..).unwrap_or_default();
        if let Some(name) =
            ["reward", "step"].iter().find(|name| !after_first.iter().any(|found| found == *name))
        {
            return Err(damaged(1, &format!("column `{name}` is missing")));
        }
        let [column, reward, step, parts @ ..] = header.as_slice() else {
            return Err(damaged(1, "fewer than three columns"));
        };
        if [reward.as_str(), step.as_str()] != ["reward", "step"] {
            return Err(damaged(1, "the second and third columns are not `reward` and `step`"));
        }
        let own = [column.as_str(), "reward", "step"];
        let part = |name: &String| match name.strip_prefix(PREFIX) {
            Some(part) if own.contains(&part) => part.to_owned(),
            _ => name.clone(),
        };
        let parts: Vec<String> = parts.iter().map(part).collect();
        let sample = |(index, row): (usize, Result<Vec<String>, RunError>)| {
            let row = row?;
            let number = |cell: &str| {
                let value = cell.parse::<f64>().ok().filter(|value| value.is_finite());
                value.ok_or_else(|| damaged(index + 2, "a cell is not a number"))
            };
            let cells = parts.iter().zip(&row[3..]).filter(|(_, cell)| !cell.is_empty());
            let cells = cells.map(|(name, cell)| Ok((name.clone(), number(cell)?)));
            let step = row[2].parse().map_err(|_| damaged(index + 2, "invalid step"))?;
            Ok(BestSample {
                text: row[0].clone(),
                reward: number(&row[1])?,
                step,
                parts: cells.collect::<Result<_, RunError>>()?,
            })
        };
        let samples = rows.enumerate().map(sample).collect::<Result<_, RunError>>()?;
        let table = Self { column: column.clone(), parts, samples };
        // Earlier versions wrote all digits.
        let forms = [table.to_csv(), table.encoded(|value| value.to_string())];
        if forms.iter().any(|form| form == bytes) {
            return Ok(table);
        }
        let same = |form: &Vec<u8>| {
            let lines = bytes.split(|byte| *byte == b'\n');
            let lines = lines.zip(form.split(|byte| *byte == b'\n'));
            lines.take_while(|(one, other)| one == other).count()
        };
        let same = forms.iter().map(same).max().unwrap_or(0);
        Err(damaged(same + 1, "it is not in the form that this program writes"))
    }
}

/// Returns the column of a reward component in a table whose own columns are `own`.
pub fn column_of_part(part: &str, own: &[&str]) -> String {
    if own.contains(&part) { format!("{PREFIX}{part}") } else { part.to_owned() }
}

/// Prefix for components that share their name with another column.
const PREFIX: &str = "rewards/";

const BEST: &str = "best.csv";

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BestTable {
        let sample = |text: &str, reward: f64, parts: &[(&str, f64)]| BestSample {
            text: text.to_owned(),
            step: 7,
            reward,
            parts: parts.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        };
        BestTable {
            column: "smiles".to_owned(),
            parts: vec!["valid".to_owned(), "qed".to_owned()],
            samples: vec![
                sample("CC,\"O", 0.300004, &[("valid", 1.0), ("qed", 1e6)]),
                sample("C", -0.5, &[("valid", 1.0)]),
            ],
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let read = BestTable::from_csv(&table().to_csv(), Path::new("best.csv")).unwrap();
        assert_eq!(read, table());
        let text = String::from_utf8(table().to_csv()).unwrap();
        assert!(text.starts_with("smiles,reward,step,valid,qed\n"), "{text}");
        assert!(text.ends_with("C,-0.500000,7,1.000000,\n"), "{text}");
        // As earlier versions wrote it.
        let earlier = b"smiles,reward,step,qed\nC,0.30000000000000004,7,1\n";
        let read = BestTable::from_csv(earlier, Path::new("best.csv")).unwrap();
        assert_eq!(read.samples[0].reward, 0.1 + 0.2);
        assert!(read.to_csv().ends_with(b"C,0.300000,7,1.000000\n"));
    }

    #[test]
    fn components_may_have_the_name_of_a_column() {
        let mut table = table();
        table.parts.push("reward".to_owned());
        table.samples[0].parts.insert("reward".to_owned(), 0.25);
        let bytes = table.to_csv();
        assert!(bytes.starts_with(b"smiles,reward,step,valid,qed,rewards/reward\n"));
        assert_eq!(BestTable::from_csv(&bytes, Path::new("best.csv")).unwrap(), table);
    }

    #[test]
    fn a_damaged_table_is_refused_with_its_line() {
        for (text, words) in [
            ("", "line 1 of `best.csv` is damaged: no column names"),
            ("smiles,step,reward\n", "the second"),
            ("smiles,reward,steps\n", "line 1 of `best.csv` is damaged: column `step` is missing"),
            ("reward,step\n", "column `reward` is missing"),
            ("smiles,reward,step\nC,1\n", "not a row"),
            ("smiles,reward,step\nC,x,1\n", "a cell is not a number"),
            (
                "smiles,reward,step\nC,1,1\nC,1,-1\n",
                "line 3 of `best.csv` is damaged: invalid step",
            ),
            ("smiles,reward,step\nC,inf,1\n", "a cell is not a number"),
            (
                "smiles,reward,step\nC,1,1\n\"CC\"O,1,1\n",
                "line 3 of `best.csv` is damaged: it is not in the form",
            ),
        ] {
            let error = BestTable::from_csv(text.as_bytes(), Path::new("best.csv")).unwrap_err();
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }
}
