//! `grpo import-molgpt`: converts a checkpoint of MolGPT's PyTorch code to a model folder.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use grpo_data::Codec;
use grpo_model::{ModelSpec, StoredAs};
use grpo_task::device;
use grpo_task::models::{check_new_model, write_new_model};
use grpo_task::output::{say, say_aside};
use grpo_task::phase::Phase;
use grpo_task::task::{CommandGroup, TaskCommand};
use serde_json::{Value, json};

use crate::{MolGptImport, Vocabulary};

#[derive(Debug, Args)]
struct ImportArguments {
    /// Checkpoint written by torch.save (.pt or .pth)
    checkpoint: PathBuf,
    /// Vocabulary that the model was trained with, such as moses2_stoi.json
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    vocabulary: PathBuf,
    /// Number of attention heads, which cannot be inferred from the weights
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Input")]
    n_head: u16,
    /// Properties that a conditional model was trained with, in this order, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Input")]
    properties: Vec<String>,
    /// Token that begins each molecule: `C` in MolGPT's code, `<` in models trained with this
    /// program
    #[arg(long, value_name = "TOKEN", default_value = "C", help_heading = "Input")]
    start: String,
    /// Context length, only for checkpoints without position embeddings
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..), help_heading = "Input")]
    block_size: Option<u16>,
    /// Model folder to create; must not exist
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    output: PathBuf,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Convert a PyTorch checkpoint of MolGPT to a model folder",
        "Reads a state dict of MolGPT's own class or of a model built on PyTorch's TransformerEncoder. All sizes except the number of heads are inferred from the weights. The file is treated as data: no code in it is run, and a file that refers to anything but tensors is rejected.",
    ];
    TaskCommand::new("import-molgpt", &about, CommandGroup::Use, |_, arguments| run(arguments))
        .with_examples(
            "Examples:
  grpo import-molgpt unconditional_moses.pt --vocabulary moses2_stoi.json -o models/moses
  grpo sample --model models/moses -n 1000 --distinct
  grpo import-molgpt moses_logp.pt --vocabulary moses2_stoi.json --properties logp -o models/logp
  grpo import-molgpt encoder.pt --vocabulary moses2_stoi.json --block-size 54 -o models/encoder",
        )
}

fn run(arguments: &ImportArguments) -> anyhow::Result<()> {
    check_new_model(&arguments.output)?;
    let vocabulary = Vocabulary::from_json_file(&arguments.vocabulary)?;
    let vocabulary = vocabulary.starting_with(&arguments.start).context("--start")?;
    let path = &arguments.checkpoint;
    let import = MolGptImport {
        n_head: arguments.n_head.into(),
        block_size: arguments.block_size.map(usize::from),
        conditions: conditions(&arguments.properties),
    };
    let phase = Phase::begin(format!("reading {}", path.display()));
    let imported = import.read(path, &device::device()?)?;
    drop(phase);
    let (rows, tokens) = (imported.config.description().vocabulary, vocabulary.len());
    anyhow::ensure!(
        rows == tokens,
        "{} has embeddings of {rows} tokens, but {} has {tokens}; use the vocabulary that the model was trained with",
        path.display(),
        arguments.vocabulary.display()
    );
    let count = imported.config.json().get("num_props").and_then(Value::as_u64).unwrap_or(0);
    anyhow::ensure!(
        count == arguments.properties.len() as u64,
        "{} takes {count} properties, but --properties lists {}; list them in the order used for training, for example --properties logp,tpsa",
        path.display(),
        arguments.properties.len()
    );
    let spec = ModelSpec { config: imported.config, codec: Codec::from_text_codec(vocabulary) };
    write_new_model(&arguments.output, &spec, &imported.model, StoredAs::F32)?;
    for note in &imported.notes {
        say_aside(format_args!("note: {note}"));
    }
    say(format_args!("model        {}", arguments.output.display()));
    Ok(())
}

/// Returns the `conditions` of the model's `config.json`. MolGPT's code does not scale properties.
fn conditions(properties: &[String]) -> Option<Value> {
    let property = |name: &String| json!({"name": name, "mean": 0.0, "deviation": 1.0});
    let properties: Vec<Value> = properties.iter().map(property).collect();
    (!properties.is_empty()).then(|| json!({ "properties": properties }))
}
