//! `grpo attention`: attention maps of a text.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::{ChatOptions, PromptSource, counted};
use grpo_model::WeightPrecision;
use grpo_report::AttentionMaps;
use grpo_task::device;
use grpo_task::models::{Trained, read, warn_about};
use grpo_task::output::{FileInPlace, Formats, say_aside};
use grpo_task::task::Tasks;
use serde_json::json;

/// Longest sequence. The maps grow with the square of the length.
const LONGEST: usize = 256;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo attention 'CC(=O)Nc1ccc(O)cc1' -o attention.svg
  grpo attention 'What a day!' --model data/replies/model --adapter runs/replies/grpo/adapter -o maps.json

Each layer has a row of maps, the mean over its heads first. A row of a map is a token, and its cells show how much it attends to each earlier token.")]
pub(crate) struct AttentionArguments {
    /// Text: a SMILES for molecule models
    #[arg(value_name = "TEXT", help_heading = "Input")]
    text: String,
    /// Model folder, GGUF file, or a name of the Hugging Face hub (org/name)
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub(crate) model: PathBuf,
    /// Adapter folder (PEFT format)
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub(crate) adapter: Option<PathBuf>,
    /// File to write: a picture (.svg) or all weights (.json)
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    force: bool,
}

const FORMATS: Formats = Formats { written: "a picture or JSON", endings: &["svg", "json"] };

pub(crate) fn run(arguments: &AttentionArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let path = &arguments.output;
    let ending = FORMATS.require("-o", path)?;
    let inputs: Vec<&Path> =
        std::iter::once(&arguments.model).chain(&arguments.adapter).map(PathBuf::as_path).collect();
    let file = FileInPlace::create_beside(path, FORMATS, &inputs, arguments.force)?;
    let trained = Trained::argument(arguments.adapter.as_deref());
    let precision = WeightPrecision::F32;
    let loaded = read(&arguments.model, &tasks.formats(), trained, precision, &device::device()?)?;
    let codec = &loaded.spec.codec;
    let text = PromptSource::Text(arguments.text.clone());
    let ids = codec.prompt(&text, &ChatOptions::default()).context("the text")?;
    warn_about(&arguments.model, loaded.policy.parts().0);
    let (base, adapter) = loaded.policy.effective();
    let longest = LONGEST.min(base.description().context);
    anyhow::ensure!(
        (1..=longest).contains(&ids.len()),
        "the text has {}; expected 1 to {longest}",
        counted(ids.len(), "token")
    );
    let layers = base.attention_weights(&ids, adapter);
    // Begin tokens have no text.
    let label = |id: &u32| match codec.decode(&[*id]) {
        text if text.is_empty() => "begin".to_owned(),
        text => text,
    };
    let maps = AttentionMaps { tokens: ids.iter().map(label).collect(), layers };
    let text = match ending {
        "svg" => maps.svg(),
        _ => {
            let n = maps.tokens.len();
            let rows = |head: &Vec<f32>| head.chunks(n).map(<[f32]>::to_vec).collect::<Vec<_>>();
            let layers: Vec<Vec<Vec<Vec<f32>>>> =
                maps.layers.iter().map(|heads| heads.iter().map(rows).collect()).collect();
            let all = json!({"tokens": maps.tokens, "ids": ids, "attention": layers});
            serde_json::to_string(&all).context("attention weights are finite")? + "\n"
        }
    };
    file.write_text(&text)?;
    say_aside(format_args!(
        "{}: {}, {}",
        path.display(),
        counted(maps.layers.len(), "layer"),
        counted(maps.tokens.len(), "token")
    ));
    Ok(())
}
