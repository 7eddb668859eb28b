//! Model cards: the `README.md` of merged and exported folders.
//!
//! A card contains what files say: the run, its configuration and its metrics, the path of the base model, and
//! the licence in its folder. What they do not say is left out. All texts are escaped, because a name of a metric or
//! a licence comes from files of others.

mod base;
mod rows;
mod run;

use std::fmt;

use crate::markdown::{markdown_text, yaml_text};

pub(crate) use self::base::Base;
use self::rows::Rows;
pub(crate) use self::run::{TrainedBy, run_of};

/// What a folder contains.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents<'a> {
    /// A model folder. transformers can load it if it knows the family.
    Model { is_in_transformers: bool },
    /// A model in a GGUF file of this name.
    Gguf(&'a str),
    /// An adapter in a GGUF file of this name.
    GgufAdapter(&'a str),
}

/// A model card.
#[derive(Debug)]
pub(crate) struct Card<'a> {
    /// The heading.
    pub(crate) name: &'a str,
    /// The model from which training started, or that was converted.
    pub(crate) base: Option<Base>,
    /// The run that trained the model or adapter.
    pub(crate) trained_by: Option<TrainedBy>,
    /// What the folder contains.
    pub(crate) contents: Contents<'a>,
    /// Whether the model has a chat template.
    pub(crate) has_chat: bool,
}

impl fmt::Display for Card<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.front_matter(f)?;
        writeln!(f, "# {}\n", markdown_text(self.name))?;
        let mut rows = Rows::default();
        if let Some(base) = &self.base {
            let title =
                if self.relation() == "quantized" { "Converted from" } else { "Base model" };
            base.add_to(title, &mut rows);
        }
        if let Some(run) = &self.trained_by {
            run.add_to(&mut rows, self.base.as_ref().is_none_or(|base| base.commit.is_none()));
        }
        f.write_str(&rows.table(&["", ""]))?;
        if let Some(run) = &self.trained_by {
            f.write_str(&run.evaluation())?;
            f.write_str(&run.checks())?;
        }
        self.usage(f)
    }
}

impl Card<'_> {
    /// Returns how the model is related to its base, in the words of the Hugging Face hub.
    fn relation(&self) -> &'static str {
        match (self.contents, &self.trained_by) {
            (Contents::GgufAdapter(_), _) => "adapter",
            (Contents::Gguf(_), None) => "quantized",
            _ => "finetune",
        }
    }

    /// Writes the metadata that the Hugging Face hub reads.
    fn front_matter(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("---\n")?;
        if let Some(base) = &self.base {
            if let Some(id) = &base.id {
                writeln!(f, "base_model: {}", yaml_text(id))?;
                writeln!(f, "base_model_relation: {}", self.relation())?;
            }
            f.write_str(&base.license.front_matter())?;
        }
        let (library, kinds): (_, &[&str]) = match self.contents {
            Contents::Model { is_in_transformers: true } => (Some("transformers"), &[]),
            Contents::Model { is_in_transformers: false } => (None, &[]),
            Contents::Gguf(_) => (Some("gguf"), &["gguf"]),
            Contents::GgufAdapter(_) => (Some("gguf"), &["gguf", "lora"]),
        };
        if let Some(library) = library {
            writeln!(f, "library_name: {library}")?;
        }
        let is_grpo = self.trained_by.as_ref().is_some_and(TrainedBy::is_grpo);
        let tags: Vec<&str> = is_grpo.then_some("grpo").into_iter().chain(kinds.to_vec()).collect();
        if !tags.is_empty() {
            writeln!(f, "tags:\n- {}", tags.join("\n- "))?;
        }
        f.write_str("---\n\n")
    }

    /// Writes how to load the model.
    fn usage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("## How to load it\n\nThe commands run in this folder.\n\n")?;
        let sample = |f: &mut fmt::Formatter<'_>, model: &str| {
            let chat = if self.has_chat { " --chat" } else { "" };
            writeln!(f, "grpo sample --model {model} --prompt TEXT{chat}")
        };
        match self.contents {
            Contents::Model { is_in_transformers: true } => {
                f.write_str("```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\nmodel = AutoModelForCausalLM.from_pretrained(\".\")\ntokenizer = AutoTokenizer.from_pretrained(\".\")\n```\n\n```sh\n")?;
                sample(f, ".")?;
            }
            Contents::Model { is_in_transformers: false } => {
                f.write_str("```sh\ngrpo sample --model .\n")?;
            }
            Contents::Gguf(file) => {
                writeln!(f, "```sh\nllama-cli -m {file}\nollama create NAME -f Modelfile")?;
                sample(f, file)?;
            }
            Contents::GgufAdapter(file) => {
                f.write_str(
                    "BASE.gguf is the base model, for example as `grpo export` writes it.\n\n",
                )?;
                writeln!(
                    f,
                    "```sh\nllama-cli -m BASE.gguf --lora {file}\nollama create NAME -f Modelfile"
                )?;
            }
        }
        f.write_str("```\n")
    }
}

#[cfg(test)]
mod tests;
