//! `grpo export`: writes a model as a GGUF file for llama.cpp and Ollama.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{Codec, OwnFolder, regular_file};
use grpo_gguf::{GgufError, HuggingFaceModel, Modelfile, SpecialTokens, export_model};
use grpo_model::{ModelSpec, StoredTensors, Transformer, WeightPrecision};
use grpo_run::{Existing, write_folder_atomically};
use grpo_task::device;
use grpo_task::models::{Trained, load};
use grpo_task::output::say_aside;
use grpo_task::phase::Phase;
use grpo_task::recorded_folders::refuse_inside;
use grpo_task::task::Tasks;
use serde_json::Value;

use crate::args::ExportArguments;

pub(crate) fn run(arguments: &ExportArguments, tasks: &Tasks) -> anyhow::Result<()> {
    refuse_inside(&arguments.output, "-o")?;
    let (model, adapter) = folders(&arguments.run)?;
    let trained = Trained::argument(adapter.as_deref());
    let (precision, device) = (WeightPrecision::F32, device::device()?);
    let loaded = load(&model, &tasks.formats(), trained, precision, &device)?;
    let (base, adapter) = loaded.policy.parts();
    let merged = adapter.map(|adapter| base.merged(adapter));
    let phase = Phase::begin(format!("writing {}", arguments.output.display()));
    let fill =
        |folder: &Path| fill(folder, arguments, &loaded.spec, merged.as_ref().unwrap_or(base));
    write_folder_atomically(&arguments.output, Existing::Refuse, fill)
        .with_context(|| format!("cannot export {}", arguments.run.display()))?;
    drop(phase);
    say_aside(format_args!("written      {}", arguments.output.display()));
    Ok(())
}

/// Returns the folders of the model and the adapter in a run folder. Any other folder is a model.
fn folders(run: &Path) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
    let [model, adapter] = ["model", "adapter"].map(|name| run.join(name));
    if !run.join("run.json").exists() || model.is_dir() {
        return Ok((if model.is_dir() { model } else { run.to_owned() }, None));
    }
    let path = adapter.join("adapter_config.json");
    let text = regular_file::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let config: Value = serde_json::from_str(&text)
        .with_context(|| format!("{} is not valid JSON", path.display()))?;
    let base = config["base_model_name_or_path"].as_str().with_context(|| {
        format!("{} does not name its base model; merge the adapter with `grpo merge` and export the result", path.display())
    })?;
    Ok((PathBuf::from(base), Some(adapter)))
}

fn fill(
    folder: &Path,
    arguments: &ExportArguments,
    spec: &ModelSpec,
    model: &Transformer,
) -> anyhow::Result<()> {
    let config = Value::Object(spec.config_of(model)?.json().clone());
    let tokenizer = json_file(&spec.codec, "tokenizer.json")?.context(
        "it has no tokenizer.json, which a GGUF file needs; add the tokenizer of the model",
    )?;
    let template = chat_template(&spec.codec)?;
    let tensors = StoredTensors::of(model);
    let exported = export_model(
        &HuggingFaceModel {
            name: &name(&arguments.run),
            config: &config,
            tokenizer: &tokenizer,
            special: SpecialTokens {
                bos: spec.codec.begin_id(),
                eos: spec.codec.learned_end()?,
                pad: config["pad_token_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
            },
            chat_template: template.as_deref(),
            tensors: tensors
                .shapes()
                .map(|(name, shape)| (name.to_owned(), shape.to_vec()))
                .collect(),
        },
        arguments.gguf.0,
    )?;
    let file_name = format!("model-{}.gguf", arguments.gguf.1);
    let folder = OwnFolder::open(folder)?;
    let file = folder.create_file(Path::new(&file_name))?;
    let read = |name: &str| -> Result<Vec<f32>, GgufError> {
        Ok(tensors.values(name).expect("the export asks for tensors of the model"))
    };
    exported.write(BufWriter::new(file), read)?;
    let stops: Vec<String> =
        spec.codec.end_ids().iter().map(|id| spec.codec.decode_all(&[*id])).collect();
    let modelfile = Modelfile {
        from: &format!("./{file_name}"),
        chat_template: template.as_deref(),
        stops: &stops.iter().map(String::as_str).collect::<Vec<_>>(),
        ..Modelfile::default()
    };
    let mut file = folder.create_file(Path::new("Modelfile"))?;
    std::io::Write::write_all(&mut file, modelfile.to_string().as_bytes())?;
    Ok(())
}

/// Returns the name that programs show: that of the folder.
fn name(run: &Path) -> String {
    let place = run.canonicalize().unwrap_or_else(|_| run.to_owned());
    place.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn json_file(codec: &Codec, name: &str) -> anyhow::Result<Option<Value>> {
    let found = codec.files().iter().find(|(found, _)| found == name);
    let parse = |(_, bytes): &(String, Vec<u8>)| serde_json::from_slice(bytes);
    found.map(parse).transpose().with_context(|| format!("{name} is not valid JSON"))
}

/// Returns the chat template, which is in a file of its own or in `tokenizer_config.json`.
fn chat_template(codec: &Codec) -> anyhow::Result<Option<String>> {
    let own = codec.files().iter().find(|(name, _)| name == "chat_template.jinja");
    if let Some((_, bytes)) = own {
        return Ok(Some(String::from_utf8_lossy(bytes).into_owned()));
    }
    let config = json_file(codec, "tokenizer_config.json")?.unwrap_or_default();
    Ok(config["chat_template"].as_str().map(str::to_owned))
}
