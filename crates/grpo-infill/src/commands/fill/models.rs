//! Loads judges and critics for `grpo fill`.

use std::path::Path;

use crate::Characters;
use crate::Critic;
use crate::Judge;
use anyhow::Context;
use grpo_model::LanguageModel;

use super::texts::Text;
use crate::sections::LoadedInfiller;
use grpo_task::device;
use grpo_task::models::{check_folder, warn_about};

/// Loads a judge, and checks that it can read any completion of `texts` by the infiller.
pub(super) fn judge(folder: &Path, infiller: &Characters, texts: &[Text]) -> anyhow::Result<Judge> {
    check_folder(folder, "judge", "config.json, characters.json and model.safetensors")?;
    let judge = Judge::load(folder, &device::device()?)?;
    warn_about(folder, judge.model());
    let known = judge.characters();
    let unknown = infiller.characters().iter().find(|&&c| known.id(c).is_none());
    anyhow::ensure!(
        unknown.is_none(),
        "the judge {} does not know {:?}, which the model can produce; use a judge trained for this model",
        folder.display(),
        unknown.unwrap_or(&' ')
    );
    let longest = judge.longest_text();
    if let Some(text) = texts.iter().find(|text| text.ids.len() > longest) {
        anyhow::bail!(
            "{}: the text has {} characters, but the context of the judge {} is {longest}; shorten it",
            text.place,
            text.ids.len(),
            folder.display()
        );
    }
    Ok(judge)
}

/// Loads the critic that decides which characters to refill, if one is requested.
pub(super) fn critic(
    how: &str,
    infiller: &LoadedInfiller,
    texts: &[Text],
) -> anyhow::Result<Option<Critic>> {
    let folder = match how {
        "probability" => return Ok(None),
        "critic" => {
            return Ok(Some(Critic::new(&infiller.model).context("--remask critic")?));
        }
        folder => Path::new(folder),
    };
    let other = LoadedInfiller::load(folder, &device::device()?).context("--remask")?;
    anyhow::ensure!(
        other.characters() == infiller.characters(),
        "--remask: {} and the model have different vocabularies; use one trained on the same text",
        folder.display()
    );
    let context = other.model.context_length();
    if let Some(text) = texts.iter().find(|text| text.ids.len() > context) {
        anyhow::bail!(
            "{}: the text has {} characters, but the context of {} (--remask) is {context}; shorten it",
            text.place,
            text.ids.len(),
            folder.display()
        );
    }
    let critic = Critic::new(&other.model);
    Ok(Some(critic.with_context(|| format!("--remask {}", folder.display()))?))
}
