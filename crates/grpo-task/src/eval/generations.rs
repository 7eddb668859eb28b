//! Files of generated text: what `grpo sample` writes, recorded completions, and other programs'
//! outputs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{FileOrigin, STANDARD_INPUT, TSV_REMEDY, decimal_comma_remedy, short_text};
use grpo_run::RunFolder;
use serde_json::{Map, Value};
use toml::Table;

use super::records::{
    COMPLETIONS, PROMPTS, REFERENCES, Row, SCORES, as_text, number, read_csv, read_lines,
    read_objects, references, text_of,
};

/// A generated text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// The text.
    pub text: String,
    /// A score from the file, such as a reward.
    pub score: Option<f64>,
    /// Other values of the record (see [`super::Suite::keys`]).
    pub fields: Map<String, Value>,
}

/// A prompt and the texts generated for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptGenerations {
    /// The prompt as text, or as compact JSON if it is a conversation or a list of ids. Empty if the
    /// file contains no prompts.
    pub prompt: String,
    /// Reference texts.
    pub references: Vec<String>,
    /// The generated texts, in the order of the file.
    pub generations: Vec<Generation>,
}

/// The contents of a file of generated texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generations {
    /// Prompts in the order of their first record.
    pub prompts: Vec<PromptGenerations>,
    /// Ending of the file name, without that of a compression.
    pub ending: String,
    /// Key or column of the texts, if the file has any.
    pub column: Option<String>,
    /// Names of the files in the model folder, if the texts are from a run folder.
    pub model_files: Vec<String>,
}

/// Which keys or columns of a file to read. By default, common names are tried.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The completion.
    pub completion: Option<String>,
    /// The prompt.
    pub prompt: Option<String>,
    /// The reference or list of references.
    pub reference: Option<String>,
    /// The score.
    pub score: Option<String>,
    /// Other keys to keep in [`Generation::fields`].
    pub kept: Vec<&'static str>,
    /// Whether to keep all keys, as rewards need.
    pub whole: bool,
}

impl Columns {
    /// Returns the option that chose a key, if any did.
    fn chosen(&self) -> Option<&'static str> {
        let options = [
            ("--column", &self.completion),
            ("--prompt-column", &self.prompt),
            ("--reference-column", &self.reference),
            ("--score-column", &self.score),
        ];
        options.into_iter().find_map(|(option, name)| name.as_ref().map(|_| option))
    }
}

impl PromptGenerations {
    /// Returns the generated texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.generations.iter().map(|generation| generation.text.as_str())
    }
}

impl Generations {
    /// Reads a file: JSON lines or Parquet with an object per text, CSV, or one text per line (`.smi`,
    /// `.txt`). All but Parquet may be compressed with gzip. Of a run folder, the completions of the
    /// last recorded step are read.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged or empty, or if a record has no
    /// completion.
    pub fn read(path: &Path, columns: &Columns) -> anyhow::Result<Self> {
        if path.is_dir() {
            let (run, last) = last_recorded(path)?;
            return Self::of_step(&run, last, columns);
        }
        let mut all = Collected::default();
        let column = Self::read_each(path, columns, |prompt, references, generation| {
            all.push(prompt, references, generation);
        })?;
        anyhow::ensure!(
            !all.positions.contains_key(&None) || all.positions.len() == 1,
            "{}: some records have a prompt and others have none; add the missing ones",
            path.display()
        );
        let (_, ending) = FileOrigin::new(path);
        Ok(Self { prompts: all.prompts, ending, column, ..Self::default() })
    }

    /// Returns what [`Self::read`] would read of a JSON lines file `path` with these records, and the index
    /// of the prompt of each record.
    ///
    /// # Errors
    /// Returns an error if a record has no completion, or a value of another type than expected.
    pub fn of_records<'a>(
        path: &Path,
        records: impl IntoIterator<Item = &'a Map<String, Value>>,
        columns: &Columns,
    ) -> anyhow::Result<(Self, Vec<usize>)> {
        let mut all = Collected::default();
        let mut indices = Vec::new();
        for (line, fields) in (1..).zip(records) {
            let record = Record::parse(&Row { path, line, fields }, columns)?;
            indices.push(all.push(record.prompt, record.references, record.generation));
        }
        Ok((Self { prompts: all.prompts, ..Self::default() }, indices))
    }

    /// Passes each text of a file, in its order, to `take` with its prompt and references. Returns the
    /// key or column of the texts.
    ///
    /// # Errors
    /// Same as [`Self::read`].
    pub(crate) fn read_each(
        path: &Path,
        columns: &Columns,
        mut take: impl FnMut(Option<String>, Vec<String>, Generation),
    ) -> anyhow::Result<Option<String>> {
        RunFolder::check_completions(path)?;
        let (_, ending) = FileOrigin::new(path);
        let mut column = None;
        let mut is_empty = true;
        let add = |line: u64, fields: Map<String, Value>| {
            let record = Record::parse(&Row { path, line, fields: &fields }, columns)?;
            column.get_or_insert(record.key);
            is_empty = false;
            take(record.prompt, record.references, record.generation);
            Ok(())
        };
        match ending.as_str() {
            "csv" => read_csv(path, add)?,
            "jsonl" | "json" | "parquet" => read_objects(path, add)?,
            "smi" | "txt" if columns.chosen().is_some() => anyhow::bail!(
                "{}: lines of text have no keys or columns; remove {}",
                path.display(),
                columns.chosen().unwrap_or_default()
            ),
            "smi" | "txt" => read_lines(path, |text| {
                is_empty = false;
                let text = text.to_owned();
                take(None, Vec::new(), Generation { text, ..Generation::default() });
            })?,
            _ => {
                anyhow::ensure!(path != Path::new("-"), "{STANDARD_INPUT}");
                path.metadata().with_context(|| format!("cannot read {}", path.display()))?;
                anyhow::bail!(
                    "{}: unknown format; expected a name that ends in .jsonl, .json, .csv, .smi, .txt (all of them also with .gz) or .parquet{}",
                    path.display(),
                    if ending == "tsv" { TSV_REMEDY } else { "" }
                );
            }
        }
        anyhow::ensure!(!is_empty, "{} contains no texts", path.display());
        Ok(column)
    }

    /// Reads the recorded completions of a step.
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    pub fn of_step(run: &RunFolder, step: u64, columns: &Columns) -> anyhow::Result<Self> {
        let Self { model_files, .. } = Self::of_model_in(run.path());
        Ok(Self { model_files, ..Self::read(&run.completions_path(step), columns)? })
    }

    /// Returns no texts, with the names of the files of a run's model.
    pub fn of_model_in(run: &Path) -> Self {
        let configured = || -> Option<PathBuf> {
            let keys: Table = RunFolder::open(run).ok()?.read_config().ok()?.parse().ok()?;
            ["model", "start"].iter().find_map(|key| keys.get(*key)?.as_str().map(PathBuf::from))
        };
        let own = Some(run.join("model")).filter(|folder| folder.is_dir());
        let entries = own.or_else(configured).and_then(|folder| std::fs::read_dir(folder).ok());
        let names = entries.into_iter().flatten().flatten();
        let mut model_files: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        model_files.sort_unstable();
        Self { model_files, ..Self::default() }
    }

    /// Returns whether each text has a score that says only whether it is right: 0 or 1.
    pub fn are_judged(&self) -> bool {
        !self.is_empty()
            && self.all().all(|of| of.score.is_some_and(|score| [0.0, 1.0].contains(&score)))
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.generations.len()).sum()
    }

    /// Returns whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all texts, in the order of the prompts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.all().map(|generation| generation.text.as_str())
    }

    /// Returns all generations, in the order of the prompts.
    pub fn all(&self) -> impl Iterator<Item = &Generation> {
        self.prompts.iter().flat_map(|prompt| &prompt.generations)
    }

    /// Returns the texts of each prompt.
    pub fn groups(&self) -> Vec<Vec<&str>> {
        self.prompts.iter().map(|prompt| prompt.texts().collect()).collect()
    }
}

/// Returns a run with its last step whose completions were recorded.
///
/// # Errors
/// Returns an error if there is none.
pub(crate) fn last_recorded(path: &Path) -> anyhow::Result<(RunFolder, u64)> {
    let run = RunFolder::open(path)?;
    let last = run.completion_steps()?.pop().with_context(|| {
        format!(
            "{} has no recorded completions; train with a smaller save.completions_every",
            path.display()
        )
    })?;
    Ok((run, last))
}

/// Prompts that have been read so far.
#[derive(Default)]
struct Collected {
    prompts: Vec<PromptGenerations>,
    positions: HashMap<Option<String>, usize>,
}

impl Collected {
    /// Adds a text and returns the index of its prompt.
    fn push(
        &mut self,
        prompt: Option<String>,
        references: Vec<String>,
        generation: Generation,
    ) -> usize {
        let next = self.prompts.len();
        let text = prompt.clone().unwrap_or_default();
        let position = *self.positions.entry(prompt).or_insert(next);
        if position == next {
            self.prompts.push(PromptGenerations { prompt: text, ..PromptGenerations::default() });
        }
        let of_prompt = &mut self.prompts[position];
        for reference in references {
            if !of_prompt.references.contains(&reference) {
                of_prompt.references.push(reference);
            }
        }
        of_prompt.generations.push(generation);
        position
    }
}

/// What is read of a record.
struct Record {
    /// Key or column of the text.
    key: String,
    prompt: Option<String>,
    references: Vec<String>,
    generation: Generation,
}

impl Record {
    fn parse(row: &Row<'_>, columns: &Columns) -> anyhow::Result<Self> {
        let (key, completion) =
            row.find("--column", "completion", &COMPLETIONS, &columns.completion)?;
        let Some(key) = key else {
            anyhow::bail!(
                "{}: the record has no completion (expected {}; found {}); name its key with --column",
                row.place(),
                COMPLETIONS.join(", "),
                row.names()
            );
        };
        let text = match completion {
            // An empty cell of a table is an empty text.
            Value::Null if FileOrigin::new(row.path).1 == "csv" => String::new(),
            Value::Null => anyhow::bail!(
                "{}: `{key}` is null; write the completion, or \"\" if it is empty, or remove the record",
                row.place()
            ),
            value => text_of(value).with_context(|| {
                format!("{}: `{key}` is not a text or a list of messages", row.place())
            })?,
        };
        let (name, value) = row.find("--prompt-column", "prompt", &PROMPTS, &columns.prompt)?;
        let prompt = name.filter(|name| *name != key && !value.is_null()).map(|_| as_text(value));
        let (name, value) =
            row.find("--reference-column", "reference", &REFERENCES, &columns.reference)?;
        let references = references(value).with_context(|| {
            format!(
                "{}: `{}` is not a text or a list of texts",
                row.place(),
                name.unwrap_or_default()
            )
        })?;
        let (name, value) = row.find("--score-column", "score", &SCORES, &columns.score)?;
        let score = match value {
            Value::Null => None,
            value => Some(number(value).with_context(|| {
                let name = name.unwrap_or_default();
                format!(
                    "{}: `{name}` is {}; expected a number{}",
                    row.place(),
                    short_text(&as_text(value)),
                    decimal_comma_remedy(&as_text(value))
                )
            })?),
        };
        let kept = match columns.whole {
            true => row.fields.clone(),
            false => {
                let value = |key: &&str| Some(((*key).to_owned(), row.fields.get(*key)?.clone()));
                columns.kept.iter().filter_map(value).collect()
            }
        };
        let generation = Generation { text, score, fields: kept };
        Ok(Self { key: key.to_owned(), prompt, references, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::records::LONGEST_ROW;

    fn read(name: &str, contents: &str) -> anyhow::Result<Generations> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        let read = Generations::read(&path, &Columns::default());
        read.map_err(|error| {
            anyhow::anyhow!("{}", format!("{error:#}").replace(path.to_str().unwrap(), name))
        })
    }

    type Shown<'a> = (&'a str, &'a [String], Vec<(&'a str, Option<f64>)>);

    fn shown(of: &Generations) -> Vec<Shown<'_>> {
        of.prompts
            .iter()
            .map(|p| {
                let each = p.generations.iter().map(|g| (g.text.as_str(), g.score)).collect();
                (p.prompt.as_str(), p.references.as_slice(), each)
            })
            .collect()
    }

    #[test]
    fn objects_are_grouped_by_prompt() {
        let lines = r#"{"prompt": "a", "completion": "x", "reference": "r", "reward": 0.5}
{"prompt": "b", "completion": [{"role": "assistant", "content": "y"}]}
{"prompt": "a", "completion": "z", "references": ["r", "s"], "reward": null}
"#;
        let read = read("g.jsonl", lines).unwrap();
        let references = vec!["r".to_owned(), "s".to_owned()];
        assert_eq!(
            shown(&read),
            [
                ("a", references.as_slice(), vec![("x", Some(0.5)), ("z", None)]),
                ("b", &[], vec![("y", None)]),
            ]
        );
        assert_eq!(read.len(), 3);
        assert_eq!(read.groups(), [vec!["x", "z"], vec!["y"]]);
    }

    #[test]
    fn tables_and_lines_are_read() {
        let csv = read("r.csv", "SMILES,Score,SMILES_state\nCCO,0.25,1\nCC,,0\n").unwrap();
        assert_eq!(shown(&csv), [("", [].as_slice(), vec![("CCO", Some(0.25)), ("CC", None)])]);
        for separated in ["smiles;score\nCCO;0.25\nCC;\n", "smiles\tscore\nCCO\t0.25\nCC\t\n"] {
            let csv = read("r.csv", separated).unwrap();
            assert_eq!(shown(&csv), [("", [].as_slice(), vec![("CCO", Some(0.25)), ("CC", None)])]);
        }
        let smi = read("r.smi", "CCO ethanol\n\nCC\n").unwrap();
        // The suite of molecules takes names and headers apart.
        assert_eq!(smi.texts().collect::<Vec<_>>(), ["CCO ethanol", "", "CC"]);
        let txt = read("r.txt", "two words\n").unwrap();
        assert_eq!(txt.texts().collect::<Vec<_>>(), ["two words"]);
    }

    #[test]
    fn values_that_are_missing_are_not_texts() {
        let recorded = r#"{"prompt": 0, "prompt_text": "a", "text": "x", "reference": 5}
{"prompt": 1, "prompt_text": "b", "text": "y", "reference": [{"role": "assistant", "content": "z"}]}
"#;
        let read_ = read("c.jsonl", recorded).unwrap();
        assert_eq!(
            shown(&read_),
            [
                ("a", ["5".to_owned()].as_slice(), vec![("x", None)]),
                ("b", ["z".to_owned()].as_slice(), vec![("y", None)]),
            ]
        );
        let nulls = read("n.jsonl", "{\"prompt\": null, \"completion\": \"\"}\n").unwrap();
        assert_eq!(shown(&nulls), [("", [].as_slice(), vec![("", None)])]);
        let csv = read("e.csv", "SMILES,Score\n,0\n").unwrap();
        assert_eq!(shown(&csv), [("", [].as_slice(), vec![("", Some(0.0))])]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let fault = |name: &str, contents: &str| read(name, contents).unwrap_err().to_string();
        assert_eq!(fault("e.jsonl", ""), "e.jsonl contains no texts");
        assert_eq!(
            fault("k.jsonl", "{\"say\": 1}\n"),
            "k.jsonl:1: the record has no completion (expected filled, completion, completions, text, reply, response, output, smiles, SMILES, Smiles, canonical_smiles, molecule; found say); name its key with --column"
        );
        assert_eq!(
            fault("t.jsonl", "{\"text\": 1}\n"),
            "t.jsonl:1: `text` is not a text or a list of messages"
        );
        assert_eq!(
            fault("s.csv", "text,reward\na,much\n"),
            "s.csv:2: `reward` is much; expected a number"
        );
        assert!(fault("j.jsonl", "{\n").starts_with("j.jsonl:1: "));
        assert_eq!(
            fault("d.csv", "text,text\na,b\n"),
            "d.csv: two columns are named `text`; rename one"
        );
        assert_eq!(
            fault("p.jsonl", "{\"prompt\": \"a\", \"text\": \"b\"}\n{\"text\": \"c\"}\n"),
            "p.jsonl: some records have a prompt and others have none; add the missing ones"
        );
        for (null, line) in [
            ("{\"completion\": null}\n", 1),
            ("{\"prompt\": \"a\", \"reply\": \"b\"}\n{\"prompt\": \"a\", \"reply\": null}\n", 2),
        ] {
            let key = if line == 1 { "completion" } else { "reply" };
            assert_eq!(
                fault("n.jsonl", null),
                format!(
                    "n.jsonl:{line}: `{key}` is null; write the completion, or \"\" if it is empty, or remove the record"
                )
            );
        }
        let quote = format!("text\n\"{}", "a".repeat(LONGEST_ROW + (1 << 20)));
        assert!(fault("q.csv", &quote).contains("longer than 1 MiB"));
        for (length, is_accepted) in [(LONGEST_ROW - 8, true), (LONGEST_ROW + 1, false)] {
            let row = format!("text\n{}\nb\n", "a".repeat(length));
            assert_eq!(read("l.csv", &row).is_ok(), is_accepted, "{length}");
        }
        for (csv, expected) in [
            ("text\nabc\n\"def\nghi\n", "line 3 of `o.csv` has an unterminated quoted field"),
            ("text\n\"abc", "line 2 of `o.csv` has an unterminated quoted field"),
            ("text\n\"a\"b\n", "line 2 of `o.csv` has text after a quoted field"),
            ("text,reward\na\n", "line 2 of `o.csv` has 1 field, but the header has 2"),
            ("text\na,b\n", "line 2 of `o.csv` has 2 fields, but the header has 1"),
        ] {
            let found = fault("o.csv", csv);
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
