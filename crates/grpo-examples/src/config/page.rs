//! Tables of keys in docs/configuration.md, which stand between two comments.

use std::fmt::Write;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::reference::{File, Key, Reference, Section};

/// Begins the tables of a section and of the sections below it that no other comment names. The file, the
/// section and, if it has forms, the form follow, e.g. `<!-- keys train reward type=molecule -->`. The top
/// level is called `.`. Several forms, separated by commas, stand for the keys that they share.
const BEGIN: &str = "<!-- keys ";
const END_OF_BEGIN: &str = " -->";
const END: &str = "<!-- end of keys -->";

/// Returns a page with up-to-date tables. `schemas` are those of all files, with their names.
///
/// # Errors
/// Returns an error if a comment is wrong, or if a section belongs to none.
pub fn with_keys(page: &str, schemas: Vec<(String, Value)>) -> anyhow::Result<String> {
    let files = schemas.into_iter().map(|(name, schema)| File::new(name, schema)).collect();
    let reference = Reference::new(files);
    let blocks: Vec<Block<'_>> =
        page.lines().filter_map(Block::of_line).collect::<anyhow::Result<_>>()?;
    let owners = owners(&reference, &blocks)?;
    let (mut new, mut next) = (String::new(), 0);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        writeln!(new, "{line}")?;
        if Block::of_line(line).is_none() {
            continue;
        }
        ensure!(lines.any(|line| line == END), "`{line}` is not closed");
        let block = &blocks[next];
        match &block.shared[..] {
            [] => tables(&mut new, &reference, (&blocks, next), &owners)?,
            shared => table(&mut new, &shared_keys(&reference, block, shared), &[])?,
        }
        writeln!(new, "\n{END}")?;
        next += 1;
    }
    Ok(new)
}

/// What a comment asks for.
struct Block<'a> {
    text: &'a str,
    file: &'a str,
    section: &'a str,
    form: Option<&'a str>,
    /// The forms, if there are several.
    shared: Vec<&'a str>,
}

impl<'a> Block<'a> {
    fn of_line(line: &'a str) -> Option<anyhow::Result<Self>> {
        let text = line.strip_prefix(BEGIN)?.strip_suffix(END_OF_BEGIN)?;
        Some(Self::parse(text).with_context(|| format!("`{text}` is not FILE SECTION [TAG=VALUE]")))
    }

    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (file, section) = (words.next()?, words.next()?.trim_matches('.'));
        let form =
            words.next().map(|form| form.split_once('=')).map(|form| form.map(|(_, form)| form));
        let forms: Vec<&str> = match form {
            Some(forms) => forms?.split(',').collect(),
            None => Vec::new(),
        };
        let block = Self { text, file, section, form: None, shared: Vec::new() };
        Some(match forms.len() {
            0 => block,
            1 => Self { form: Some(forms[0]), ..block },
            _ => Self { shared: forms, ..block },
        })
    }

    fn is_of(&self, reference: &Reference, section: &Section) -> bool {
        reference.files[section.kind].name == self.file && self.shared.is_empty()
    }

    /// Returns whether the block names the section.
    fn names(&self, reference: &Reference, section: &Section) -> bool {
        let form = section.form.as_ref().map(|(_, value)| value.as_str());
        self.is_of(reference, section)
            && self.section == section.path
            && (self.form.is_none() || self.form == form)
    }

    /// Returns whether the section is below that of the block.
    fn is_above(&self, reference: &Reference, section: &Section) -> bool {
        let below = section.path.strip_prefix(self.section);
        self.is_of(reference, section)
            && self.form.is_none()
            && (self.section.is_empty() || below.is_some_and(|below| below.starts_with('.')))
    }
}

/// Returns the index of the block in which each section stands.
fn owners(reference: &Reference, blocks: &[Block<'_>]) -> anyhow::Result<Vec<usize>> {
    let mut owners = Vec::new();
    for section in &reference.sections {
        let all = || blocks.iter().enumerate();
        let mut named = all().filter(|(_, block)| block.names(reference, section));
        let own = named.next();
        if let (Some(_), Some((_, twice))) = (own, named.next()) {
            bail!("`{}` stands twice", twice.text);
        }
        let above = all().filter(|(_, block)| block.is_above(reference, section));
        let above = above.max_by_key(|(_, block)| block.section.len());
        let (owner, _) = own.or(above).with_context(|| {
            let name = described(reference, section);
            format!(
                "the page has no place for the section `{name}`; add {BEGIN}{name}{END_OF_BEGIN}"
            )
        })?;
        owners.push(owner);
    }
    let is_empty = |index: &usize| blocks[*index].shared.is_empty() && !owners.contains(index);
    if let Some(empty) = (0..blocks.len()).find(is_empty) {
        let known = reference.sections.iter().map(|section| described(reference, section));
        let known = known.collect::<Vec<_>>().join("\n");
        bail!("`{}` names no section; there are:\n{known}", blocks[empty].text);
    }
    Ok(owners)
}

fn described(reference: &Reference, section: &Section) -> String {
    let path = if section.path.is_empty() { "." } else { &section.path };
    let form = match &section.form {
        Some((tag, value)) => format!(" {tag}={value}"),
        None => String::new(),
    };
    format!("{} {path}{form}", reference.files[section.kind].name)
}

/// Returns the keys that all `forms` of a section have, with the same meaning.
fn shared_keys<'a>(reference: &'a Reference, block: &Block<'_>, forms: &[&str]) -> Vec<&'a Key> {
    let sections: Vec<&Section> = reference
        .sections
        .iter()
        .filter(|section| {
            let form = section.form.as_ref().map(|(_, value)| value.as_str());
            reference.files[section.kind].name == block.file
                && section.path == block.section
                && form.is_some_and(|form| forms.contains(&form))
        })
        .collect();
    let Some((first, others)) = sections.split_first() else { return Vec::new() };
    let is_shared = |key: &&Key| {
        let same = |other: &Key| other.name == key.name && other.meaning == key.meaning;
        others.iter().all(|section| section.keys.iter().any(same))
    };
    first.keys.iter().filter(is_shared).collect()
}

/// Writes the tables of the block at an index: those of the sections that belong to it.
fn tables(
    page: &mut String,
    reference: &Reference,
    (blocks, index): (&[Block<'_>], usize),
    owners: &[usize],
) -> anyhow::Result<()> {
    let block = &blocks[index];
    let own = reference.sections.iter().zip(owners).filter(|(_, owner)| **owner == index);
    for (section, _) in own {
        if section.keys.is_empty() && section.form.is_none() && section.same_as.is_none() {
            continue;
        }
        let meaning = cell(&section.meaning);
        let form = section.form.as_ref();
        let form = form.map(|(tag, value)| format!("`{tag} = \"{value}\"`")).unwrap_or_default();
        let brackets = if section.is_list { ["[[", "]]"] } else { ["[", "]"] };
        let name = format!("`{}{}{}`", brackets[0], section.path, brackets[1]);
        if !block.names(reference, section) {
            let form = if form.is_empty() { form } else { format!(" with {form}") };
            writeln!(page, "\n{}", format!("**{name}**{form}. {meaning}").trim_end())?;
        } else if !form.is_empty() && block.form.is_none() {
            writeln!(page, "\n{}", format!("**{form}** {meaning}").trim_end())?;
        }
        if let Some(first) = &section.same_as {
            writeln!(page, "\nThe keys are those of `[{first}]`.")?;
        }
        let form = section.form.as_ref().map(|(_, value)| value.as_str());
        let shared = blocks.iter().filter(|block| {
            block.section == section.path && form.is_some_and(|form| block.shared.contains(&form))
        });
        let shared: Vec<&str> = shared
            .flat_map(|block| shared_keys(reference, block, &block.shared))
            .map(|key| key.name.as_str())
            .collect();
        table(page, &section.keys.iter().collect::<Vec<_>>(), &shared)?;
    }
    Ok(())
}

/// Writes a table of `keys` without those in `others`. Basic keys are first.
fn table(page: &mut String, keys: &[&Key], others: &[&str]) -> anyhow::Result<()> {
    let own = keys.iter().filter(|key| !others.contains(&key.name.as_str()));
    let (basic, advanced): (Vec<&&Key>, Vec<_>) = own.partition(|key| key.is_basic);
    if basic.is_empty() && advanced.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n| key | type | default | range | meaning |\n|---|---|---|---|---|")?;
    basic.into_iter().chain(advanced).try_for_each(|key| row(page, key))
}

fn row(page: &mut String, key: &Key) -> anyhow::Result<()> {
    let name = format!("`{}`", key.name);
    let name = if key.is_basic { format!("**{name}**") } else { name };
    let default = match (key.is_required, key.default.is_empty()) {
        (true, _) => "required".to_owned(),
        (_, true) => String::new(),
        _ => cell(&format!("`{}`", key.default)),
    };
    let choices: Vec<String> = key.choices.iter().map(|(value, _)| format!("`{value}`")).collect();
    let range = if choices.is_empty() { key.range.clone() } else { choices.join(", ") };
    let meaning = cell(&key.meaning);
    writeln!(page, "| {name} | {} | {default} | {range} | {meaning} |", key.type_name)?;
    Ok(())
}

/// Returns a text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schemas() -> Vec<(String, Value)> {
        let train = json!({
            "type": "object",
            "properties": {
                "steps": { "type": "integer", "minimum": 1, "maximum": 10, "default": 2, "x-basic": true, "description": "How many." },
            },
        });
        let root = json!({
            "title": "grpo train",
            "properties": {
                "seed": { "type": "integer", "description": "Random numbers | seed." },
                "train": { "$ref": "#/definitions/Train" },
            },
            "definitions": { "Train": train },
            "then": { "required": ["seed"] },
        });
        vec![("train".to_owned(), root)]
    }

    #[track_caller]
    fn check(page: &str, expect: &str) {
        let found = with_keys(page, schemas()).unwrap_or_else(|error| format!("{error:#}"));
        assert_eq!(found, expect);
        if expect.ends_with("-->\n") {
            assert_eq!(with_keys(&found, schemas()).unwrap(), expect, "a page that is up to date");
        }
    }

    const HEADER: &str = "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
    const STEPS: &str = "| **`steps`** | integer | `2` | 1 to 10 | How many. |\n";
    const SEED: &str = "| `seed` | integer | required |  | Random numbers \\| seed. |\n";

    #[test]
    fn tables_are_replaced() {
        const OF_TRAIN: &str = "<!-- keys train train -->\n";
        const TOP: &str = "<!-- keys train . -->\n";
        const END: &str = "<!-- end of keys -->\n";
        check(
            &format!("# A\n{TOP}old\n{END}b\n{OF_TRAIN}{END}"),
            &format!("# A\n{TOP}\n{HEADER}{SEED}\n{END}b\n{OF_TRAIN}\n{HEADER}{STEPS}\n{END}"),
        );
        // A section without a place of its own stands below the one above it.
        check(
            &format!("{TOP}{END}"),
            &format!("{TOP}\n{HEADER}{SEED}\n**`[train]`**.\n\n{HEADER}{STEPS}\n{END}"),
        );
    }

    #[test]
    fn comments_without_a_section_and_sections_without_an_end_are_refused() {
        let top = "<!-- keys train . -->\n<!-- end of keys -->\n";
        check(&top.repeat(2), "`train .` stands twice");
        check(
            &format!("{top}<!-- keys train loss -->\n<!-- end of keys -->\n"),
            "`train loss` names no section; there are:\ntrain .\ntrain train",
        );
        check(
            "<!-- keys train train -->\n<!-- end of keys -->\n",
            "the page has no place for the section `train .`; add <!-- keys train . -->",
        );
        check("<!-- keys train . -->\n", "`<!-- keys train . -->` is not closed");
    }
}
