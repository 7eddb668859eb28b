//! Input texts of `grpo fill`.

use crate::{PassageOptions, Passages, Split};
use std::path::Path;

use crate::{BLANK, Characters, MASKING};
use anyhow::Context;
use grpo_data::{CounterRng, Purpose, regular_file};
use serde::Deserialize;

use super::arguments::FillArguments;

/// A text with blanks to fill.
#[derive(Debug)]
pub(super) struct Text {
    /// Where the text comes from, for messages.
    pub(super) place: String,
    /// Token IDs with MASK at each blank. There is at least one blank.
    pub(super) ids: Vec<u32>,
    /// IDs of the original text, if known.
    pub(super) truth: Option<Vec<u32>>,
}

/// Characters suggested as markers for blanks.
const BLANKS: [char; 8] = ['_', '~', '^', '?', '*', '#', '|', BLANK];

/// Default value of `--validation-fraction`.
const HELD_OUT: f64 = 0.1;
/// Largest number of completions of held-out passages, so that a typo does not run for days.
const MOST_COMPLETIONS: u64 = 1_000_000;
/// Default of `--passages`.
const PASSAGES: u32 = 5;

/// Returns the texts specified by the arguments, in order.
pub(super) fn texts(
    arguments: &FillArguments,
    characters: &Characters,
    longest: usize,
) -> anyhow::Result<Vec<Text>> {
    let blanks = Blanks {
        characters,
        blank: arguments.blank,
        random: arguments.random,
        seed: arguments.seed,
        longest,
    };
    if let Some(ratio) = arguments.random {
        anyhow::ensure!(
            ratio > 0.0 && ratio <= 1.0,
            "--random {ratio} is out of range; expected a fraction of the text, above 0 and at most 1"
        );
    }
    if let Some(path) = &arguments.held_out {
        return held_out(path, arguments, &blanks);
    }
    let given: Vec<(String, Given)> = match &arguments.file {
        Some(path) => of_file(path)?,
        None => {
            let texts = arguments.text.iter().cloned().map(Given::Text);
            match arguments.text.len() {
                1 => texts.map(|text| ("--text".to_owned(), text)).collect(),
                _ => texts.zip(1..).map(|(text, i)| (format!("--text {i}"), text)).collect(),
            }
        }
    };
    anyhow::ensure!(
        !given.is_empty(),
        "nothing to fill: provide a text with --text TEXT, or a file of texts with --file FILE"
    );
    let read = given.into_iter().zip(0..).map(|((place, given), index)| {
        let (ids, truth) = blanks.read(given, index).with_context(|| place.clone())?;
        Ok(Text { place, ids, truth })
    });
    read.collect()
}

/// An input text before encoding.
enum Given {
    /// Text that contains blanks, or in which to create some.
    Text(String),
    /// Text that contains blanks, and the original if it is known.
    Blanked(String, Option<String>),
}

#[derive(Deserialize)]
struct Line {
    text: Option<String>,
    blanked: Option<String>,
}

/// Reads the non-empty lines of a file along with their locations.
fn of_file(path: &Path) -> anyhow::Result<Vec<(String, Given)>> {
    let bytes =
        regular_file::read_data(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| anyhow::anyhow!("{} is not UTF-8 text", path.display()))?;
    let is_json = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("jsonl"));
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let read = lines.map(|(line, number)| {
        let place = format!("{}:{number}", path.display());
        let given = if is_json {
            of_json(line).with_context(|| place.clone())?
        } else {
            Given::Text(line.to_owned())
        };
        Ok((place, given))
    });
    let read: Vec<_> = read.collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(!read.is_empty(), "{} has no texts", path.display());
    Ok(read)
}

fn of_json(line: &str) -> anyhow::Result<Given> {
    match serde_json::from_str(line)? {
        Line { blanked: Some(blanked), text } => Ok(Given::Blanked(blanked, text)),
        Line { blanked: None, text: Some(text) } => Ok(Given::Text(text)),
        Line { blanked: None, text: None } => anyhow::bail!(
            "a line requires `blanked` (text with blanks) or `text` (text with blanks, or text for --random to blank)"
        ),
    }
}

/// Reads held-out passages from a file.
fn held_out(
    path: &Path,
    arguments: &FillArguments,
    blanks: &Blanks<'_>,
) -> anyhow::Result<Vec<Text>> {
    let count = arguments.passages.unwrap_or(PASSAGES);
    anyhow::ensure!(
        (1..=100_000).contains(&count),
        "--passages {count} is out of range; expected 1 to 100000"
    );
    let completions = u64::from(count) * u64::from(arguments.number);
    anyhow::ensure!(
        completions <= MOST_COMPLETIONS,
        "--passages {count} with -n {} is {completions} completions; expected at most {MOST_COMPLETIONS}",
        arguments.number
    );
    let length = arguments.length.unwrap_or(blanks.longest);
    anyhow::ensure!(
        (1..=blanks.longest).contains(&length),
        "--length {length} is out of range; expected 1 to {}, the model's context",
        blanks.longest
    );
    let options = PassageOptions {
        file: path.to_owned(),
        length,
        unit: arguments.unit.unwrap_or_default(),
        validation_fraction: arguments.validation_fraction.unwrap_or(HELD_OUT),
    };
    let passages = Passages::read(&options, Some(blanks.characters))?;
    let rng = CounterRng::new(arguments.seed, Purpose::DATA_ORDER);
    let texts = (0..count).map(|index| {
        let truth = passages.passage(Split::Validation, &rng, [index, 0]);
        let ids = blanks.blank_some(&truth, index);
        Text { place: format!("passage {index}"), ids, truth: Some(truth) }
    });
    Ok(texts.collect())
}

/// Encodes texts and creates blanks.
struct Blanks<'a> {
    characters: &'a Characters,
    blank: char,
    random: Option<f64>,
    seed: u64,
    longest: usize,
}

type Ids = (Vec<u32>, Option<Vec<u32>>);

impl Blanks<'_> {
    /// Encodes a text. Returns the IDs with blanks and, if known, the original IDs.
    fn read(&self, given: Given, index: u32) -> anyhow::Result<Ids> {
        let (ids, truth) = match (given, self.random) {
            (Given::Text(text), Some(_)) => {
                let truth = self.characters.encode(&text)?;
                anyhow::ensure!(
                    !truth.is_empty(),
                    "the text is empty, so there is nothing to blank"
                );
                (self.blank_some(&truth, index), Some(truth))
            }
            (Given::Blanked(..), Some(_)) => anyhow::bail!(
                "--random requires texts without blanks, but this line has `blanked`; remove one of them"
            ),
            (Given::Text(blanked), None) => (self.encode(&blanked)?, None),
            (Given::Blanked(blanked, None), None) => (self.encode(&blanked)?, None),
            (Given::Blanked(blanked, Some(text)), None) => {
                let (ids, truth) = (self.encode(&blanked)?, self.characters.encode(&text)?);
                let mask = self.characters.mask_id();
                let fits = ids.len() == truth.len()
                    && ids.iter().zip(&truth).all(|(id, truth)| *id == mask || id == truth);
                anyhow::ensure!(fits, "`blanked` is not `text` with some characters blanked");
                (ids, Some(truth))
            }
        };
        let length = ids.len();
        anyhow::ensure!(
            length <= self.longest,
            "the text has {length} characters, but the model's context is {}; shorten it",
            self.longest
        );
        Ok((ids, truth))
    }

    /// Encodes a text that contains blanks.
    fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let Self { blank, characters, .. } = *self;
        if characters.id(blank).is_some() && text.contains(blank) {
            let free = |other: &char| *other != blank && characters.id(*other).is_none();
            let other = BLANKS.into_iter().find(free).unwrap_or(BLANK);
            anyhow::bail!(
                "{blank:?} is a character of the model and cannot mark a blank; use another character for blanks, for example --blank '{other}'"
            );
        }
        let marked = text.replace(blank, BLANK.encode_utf8(&mut [0; 4]));
        let ids = characters.encode_blanks(&marked, BLANK)?;
        anyhow::ensure!(
            ids.contains(&characters.mask_id()),
            "the text has no blank; write {blank:?} for each missing character, or use --random RATIO"
        );
        Ok(ids)
    }

    /// Blanks a fraction of the characters, but at least one.
    fn blank_some(&self, truth: &[u32], index: u32) -> Vec<u32> {
        let ratio = self.random.unwrap_or(0.0);
        let count = ((truth.len() as f64 * ratio).round() as usize).max(1);
        let rng = CounterRng::new(self.seed, MASKING);
        let mut places: Vec<usize> = (0..truth.len()).collect();
        let draw = |place: usize| rng.bits([place as u32, index, 0, 0]);
        places.sort_by_cached_key(|&place| draw(place));
        let mut ids = truth.to_vec();
        places.iter().take(count).for_each(|&place| ids[place] = self.characters.mask_id());
        ids
    }
}
