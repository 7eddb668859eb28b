//! Files of generated text: what `grpo sample` writes, recorded completions, and other programs'
//! outputs.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use grpo_data::{FileOrigin, LineReader, ObjectReader, open_file, short_text};
use serde_json::{Map, Value};

/// Longest line of a text file, in bytes.
const LONGEST_LINE: usize = 16 << 20;

/// Keys and columns for completions, in order of preference. The names are those of this program,
/// TRL and REINVENT 4.
const COMPLETIONS: [&str; 8] =
    ["completion", "completions", "text", "reply", "response", "output", "smiles", "SMILES"];
/// Keys and columns for prompts.
const PROMPTS: [&str; 6] = ["prompt", "prompts", "prompt_text", "messages", "tweet", "blanked"];
/// Keys and columns for references.
const REFERENCES: [&str; 4] = ["reference", "references", "answer", "target"];
/// Keys and columns for scores.
const SCORES: [&str; 4] = ["reward", "score", "Score", "total_score"];

/// A generated text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// The text.
    pub text: String,
    /// A score from the file, such as a reward.
    pub score: Option<f64>,
    /// All keys or columns of the record.
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
}

impl PromptGenerations {
    /// Returns the generated texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.generations.iter().map(|generation| generation.text.as_str())
    }
}

impl Generations {
    /// Reads a file: JSON lines or Parquet with an object per text, CSV, or one text per line (`.smi`,
    /// `.txt`). All but Parquet may be compressed with gzip.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged or empty, or if a record has no
    /// completion.
    pub fn read(path: &Path, columns: &Columns) -> anyhow::Result<Self> {
        let (_, ending) = FileOrigin::new(path);
        let mut all = Collected::default();
        match ending.as_str() {
            "csv" => read_csv(path, |line, row| all.add(path, line, row, columns))?,
            "smi" | "txt" => read_lines(path, |text| all.push(String::new(), vec![], text))?,
            _ => read_objects(path, |line, row| all.add(path, line, row, columns))?,
        }
        anyhow::ensure!(!all.prompts.is_empty(), "{} contains no texts", path.display());
        Ok(Self { prompts: all.prompts })
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

/// Prompts that have been read so far.
#[derive(Default)]
struct Collected {
    prompts: Vec<PromptGenerations>,
    positions: HashMap<String, usize>,
}

impl Collected {
    fn push(&mut self, prompt: String, references: Vec<String>, generation: Generation) {
        let next = self.prompts.len();
        let position = *self.positions.entry(prompt.clone()).or_insert(next);
        if position == next {
            self.prompts.push(PromptGenerations { prompt, ..PromptGenerations::default() });
        }
        let of_prompt = &mut self.prompts[position];
        for reference in references {
            if !of_prompt.references.contains(&reference) {
                of_prompt.references.push(reference);
            }
        }
        of_prompt.generations.push(generation);
    }

    fn add(
        &mut self,
        path: &Path,
        line: u64,
        fields: Map<String, Value>,
        columns: &Columns,
    ) -> anyhow::Result<()> {
        let place = || format!("{}:{line}", path.display());
        let find = |names: &[&str], chosen: &Option<String>| match chosen {
            Some(name) => fields.get_key_value(name.as_str()),
            None => names.iter().find_map(|name| fields.get_key_value(*name)),
        };
        let Some((key, completion)) = find(&COMPLETIONS, &columns.completion) else {
            let expected = columns.completion.clone().unwrap_or_else(|| COMPLETIONS.join(", "));
            let found = fields.keys().cloned().collect::<Vec<_>>().join(", ");
            anyhow::bail!(
                "{}: the record has no completion (expected {expected}; found {}); name its key with --column",
                place(),
                short_text(&found)
            );
        };
        let text = last_content(completion)
            .with_context(|| format!("{}: `{key}` is not a text or a list of messages", place()))?;
        let prompt = find(&PROMPTS, &columns.prompt).filter(|(name, _)| *name != key);
        let prompt = prompt.map(|(_, value)| as_text(value)).unwrap_or_default();
        let references = match find(&REFERENCES, &columns.reference) {
            Some((_, Value::Array(values))) => values.iter().map(as_text).collect(),
            Some((_, Value::Null)) | None => Vec::new(),
            Some((_, value)) => vec![as_text(value)],
        };
        let score = match find(&SCORES, &columns.score) {
            None | Some((_, Value::Null)) => None,
            Some((key, value)) => Some(number(value).with_context(|| {
                format!(
                    "{}: `{key}` is {}; expected a number",
                    place(),
                    short_text(&as_text(value))
                )
            })?),
        };
        self.push(prompt, references, Generation { text, score, fields: fields.clone() });
        Ok(())
    }
}

/// Returns a finite number, also from the text of a CSV cell.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    number.filter(|number: &f64| number.is_finite())
}

/// Returns a string as it is, and any other value as compact JSON.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns a text, or the text of the last message of a conversation.
fn last_content(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(messages) => Some(messages.last()?.get("content")?.as_str()?.to_owned()),
        _ => None,
    }
}

fn read_objects(
    path: &Path,
    mut add: impl FnMut(u64, Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut reader = ObjectReader::open(path)?;
    while let Some(row) = reader.next_row()? {
        let place = || format!("{}:{}", path.display(), row.line);
        let object = row.object.map_err(|fault| anyhow::anyhow!("{}: {fault}", place()));
        add(row.line, object?.1)?;
    }
    Ok(())
}

fn read_lines(path: &Path, mut add: impl FnMut(Generation)) -> anyhow::Result<()> {
    let (origin, ending) = FileOrigin::new(path);
    let mut lines = LineReader::new(origin.decoded(open_file(path)?), LONGEST_LINE);
    while let Some((line, bytes)) = lines.next_line(&origin)? {
        let text = origin.text(bytes, line)?.trim_end_matches(['\n', '\r']);
        // A SMILES ends at the first blank and can be followed by a name.
        let text = match ending.as_str() {
            "smi" => text.split([' ', '\t']).next().unwrap_or_default(),
            _ => text,
        };
        if !text.is_empty() {
            add(Generation { text: text.to_owned(), ..Generation::default() });
        }
    }
    Ok(())
}

fn read_csv(
    path: &Path,
    mut add: impl FnMut(u64, Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (origin, _) = FileOrigin::new(path);
    let mut reader = csv::Reader::from_reader(origin.decoded(open_file(path)?));
    let context = || path.display().to_string();
    let header: Vec<String> =
        reader.headers().with_context(context)?.iter().map(|name| name.trim().to_owned()).collect();
    for row in reader.records() {
        let row = row.with_context(context)?;
        let line = row.position().map_or(0, csv::Position::line);
        let cells = row.iter().map(|cell| match cell.is_empty() {
            true => Value::Null,
            false => Value::String(cell.to_owned()),
        });
        add(line, header.iter().cloned().zip(cells).collect())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let smi = read("r.smi", "CCO ethanol\n\nCC\n").unwrap();
        assert_eq!(smi.texts().collect::<Vec<_>>(), ["CCO", "CC"]);
        let txt = read("r.txt", "two words\n").unwrap();
        assert_eq!(txt.texts().collect::<Vec<_>>(), ["two words"]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let fault = |name: &str, contents: &str| read(name, contents).unwrap_err().to_string();
        assert_eq!(fault("e.jsonl", ""), "e.jsonl contains no texts");
        assert_eq!(
            fault("k.jsonl", "{\"say\": 1}\n"),
            "k.jsonl:1: the record has no completion (expected completion, completions, text, reply, response, output, smiles, SMILES; found say); name its key with --column"
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
    }
}
