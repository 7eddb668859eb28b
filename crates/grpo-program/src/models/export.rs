//! `grpo export`: writes a model or an adapter as a GGUF file for llama.cpp and Ollama.

mod source;

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use grpo_data::{ChatOptions, Codec, OwnFolder, PromptSource};
use grpo_gguf::{
    Adapter, Exported, GgufError, HuggingFaceModel, Modelfile, SpecialTokens, export_adapter,
    export_model,
};
use grpo_model::{LoraMatrices, StoredTensors, WeightPrecision};
use grpo_task::device;
use grpo_task::models::{Loaded, Trained, load, write_folder};
use grpo_task::output::say_aside;
use grpo_task::phase::Phase;
use grpo_task::recorded_folders::{is_exported_folder, refuse_inside};
use grpo_task::task::Tasks;
use serde_json::{Value, json};

use self::source::Source;
use super::card::{Base, Card, Contents, TrainedBy};
use super::merge::Replaced;
use crate::args::ExportArguments;

pub(crate) fn run(arguments: &ExportArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let run = &arguments.run;
    let source = Source::find(run)?;
    anyhow::ensure!(
        !arguments.adapter_only || source.adapter.is_some(),
        "{} has no adapter; remove --adapter-only",
        run.display()
    );
    let kind = if arguments.adapter_only { "adapter" } else { "model" };
    let file = format!("{kind}-{}.gguf", arguments.gguf.1);
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => {
            source::default_output(run, file.trim_start_matches("model-").trim_end_matches(".gguf"))
        }
    };
    refuse_inside(&output, "-o")?;
    let existing =
        Replaced { command: "export", kind: "an exported folder", is_kind: is_exported_folder };
    let around = source.model.parent().unwrap_or(&source.model);
    let existing = existing.check(
        &output,
        arguments.force,
        &[run.as_path(), source.model.as_path(), around],
    )?;
    let trained = Trained::argument(source.adapter.as_deref());
    let (precision, device) = (WeightPrecision::F32, device::device()?);
    let loaded = load(&source.model, &tasks.formats(), trained, precision, &device)?;
    let export = Export { arguments, source: &source, loaded: &loaded, file: &file };
    let phase = Phase::begin(format!("writing {}", output.display()));
    let card = export.card()?.to_string();
    write_folder(&output, existing, Some(&card), |folder| export.fill(folder))
        .with_context(|| format!("cannot export {}", run.display()))?;
    drop(phase);
    say_aside(format_args!("written      {}", output.display()));
    Ok(())
}

struct Export<'a> {
    arguments: &'a ExportArguments,
    source: &'a Source,
    loaded: &'a Loaded,
    /// Name of the GGUF file.
    file: &'a str,
}

impl Export<'_> {
    fn card(&self) -> anyhow::Result<Card<'_>> {
        let Source { model, adapter, base, name } = self.source;
        Ok(Card {
            name,
            base: base.as_deref().map(Base::of),
            trained_by: TrainedBy::of(adapter.as_ref().unwrap_or(model)),
            contents: match self.arguments.adapter_only {
                true => Contents::GgufAdapter(self.file),
                false => Contents::Gguf(self.file),
            },
            has_chat: self.loaded.spec.codec.has_chat_template(),
        })
    }

    fn fill(&self, folder: &Path) -> anyhow::Result<()> {
        let folder = OwnFolder::open(folder)?;
        let template = chat_template(&self.loaded.spec.codec)?;
        let writer = BufWriter::new(folder.create_file(Path::new(self.file))?);
        let from = match (&self.source.adapter, self.arguments.adapter_only) {
            (Some(adapter), true) => {
                self.write_adapter(adapter, writer)?;
                self.source.absolute_model()?
            }
            _ => {
                self.write_model(template.as_deref(), writer)?;
                format!("./{}", self.file)
            }
        };
        let codec = &self.loaded.spec.codec;
        let stops: Vec<String> =
            codec.end_ids().iter().map(|id| codec.decode_all(&[*id])).collect();
        let adapter = format!("./{}", self.file);
        let user = PromptSource::User("x".to_owned());
        let conversation = match codec.has_chat_template() {
            // A template that refuses it adds no system message.
            true => codec.prompt(&user, &ChatOptions::for_answer(None)).ok(),
            false => None,
        };
        let conversation = conversation.map(|ids| codec.decode_all(&ids));
        let modelfile = Modelfile {
            from: &from,
            adapter: self.arguments.adapter_only.then_some(&adapter),
            chat_template: template.as_deref(),
            conversation: conversation.as_deref(),
            stops: &stops.iter().map(String::as_str).collect::<Vec<_>>(),
            ..Modelfile::default()
        };
        let mut file = folder.create_file(Path::new("Modelfile"))?;
        file.write_all(modelfile.to_string().as_bytes())?;
        Ok(())
    }

    fn write_model(&self, template: Option<&str>, writer: impl Write) -> anyhow::Result<()> {
        let spec = &self.loaded.spec;
        let tokenizer = json_file(&spec.codec, "tokenizer.json")?.context(
            "it has no tokenizer.json, which a GGUF file needs; add the tokenizer of the model",
        )?;
        let (base, adapter) = self.loaded.policy.parts();
        let merged = adapter.map(|adapter| base.merged(adapter));
        let written = merged.as_ref().unwrap_or(base);
        let config = Value::Object(spec.config_of(written)?.json().clone());
        let tensors = StoredTensors::of(written);
        let shapes = tensors.shapes().map(|(name, shape)| (name.to_owned(), shape.to_vec()));
        let model = HuggingFaceModel {
            name: &self.source.name,
            config: &config,
            tokenizer: &tokenizer,
            special: SpecialTokens {
                bos: spec.codec.begin_id(),
                eos: spec.codec.learned_end()?,
                pad: config["pad_token_id"].as_u64().and_then(|id| u32::try_from(id).ok()),
            },
            chat_template: template,
            tensors: shapes.collect(),
        };
        let exported = export_model(&model, self.arguments.gguf.0)?;
        let read = |name: &str| -> Result<Vec<f32>, GgufError> {
            Ok(tensors.values(name).expect("the export asks for tensors of the model"))
        };
        exported.write(writer, read)?.flush()?;
        Ok(())
    }

    fn write_adapter(&self, folder: &Path, writer: impl Write) -> anyhow::Result<()> {
        let config = Value::Object(self.loaded.spec.config.json().clone());
        let matrices = Matrices(LoraMatrices::read(folder)?);
        let adapter = Adapter {
            adapter_config: &json!({"lora_alpha": matrices.alpha()}),
            base_config: &config,
            tensors: matrices.shapes(),
        };
        let exported: Exported = export_adapter(&adapter, self.arguments.gguf.0)?;
        let read = |name: &str| -> Result<Vec<f32>, GgufError> {
            Ok(matrices.values(name).expect("the export asks for matrices of the adapter"))
        };
        exported.write(writer, read)?.flush()?;
        Ok(())
    }
}

/// The matrices of an adapter under their names in PEFT.
struct Matrices(Vec<LoraMatrices>);

impl Matrices {
    /// Returns the only α of the file, which llama.cpp divides by the rank of each layer. Factors of layers with
    /// another scale become part of their matrices B.
    fn alpha(&self) -> f64 {
        self.0.first().map_or(1.0, LoraMatrices::alpha)
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let of_module = |matrices: &LoraMatrices| {
            let LoraMatrices { module, rank, a, b, .. } = matrices;
            [
                (format!("{module}.lora_A.weight"), vec![*rank, a.len() / rank]),
                (format!("{module}.lora_B.weight"), vec![b.len() / rank, *rank]),
            ]
        };
        self.0.iter().flat_map(of_module).collect()
    }

    fn values(&self, name: &str) -> Option<Vec<f32>> {
        let found = |module: &str| self.0.iter().find(|matrices| matrices.module == module);
        if let Some(module) = name.strip_suffix(".lora_A.weight") {
            return Some(found(module)?.a.clone());
        }
        let matrices = found(name.strip_suffix(".lora_B.weight")?)?;
        let factor = (matrices.alpha() / self.alpha()) as f32;
        Some(matrices.b.iter().map(|value| factor * value).collect())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_layers_are_those_of_the_adapter() {
        let of = |module: &str, rank, scale| LoraMatrices {
            module: module.to_owned(),
            rank,
            scale,
            a: vec![1.0; 3 * rank],
            b: vec![2.0; 2 * rank],
        };
        let matrices = Matrices(vec![of("x", 4, 2.0), of("y", 2, 1.0)]);
        assert_eq!(matrices.alpha(), 8.0);
        // llama.cpp multiplies B·A by α / rank: 8 / 2 · 0.25 = 1.
        assert_eq!(matrices.values("x.lora_B.weight").unwrap(), vec![2.0; 8]);
        assert_eq!(matrices.values("y.lora_B.weight").unwrap(), vec![0.5; 4]);
        assert_eq!(matrices.values("y.lora_A.weight").unwrap(), vec![1.0; 6]);
        assert_eq!(matrices.values("z.lora_A.weight"), None);
        let shapes = matrices.shapes();
        assert_eq!(shapes[0], ("x.lora_A.weight".to_owned(), vec![4, 3]));
        assert_eq!(shapes[3], ("y.lora_B.weight".to_owned(), vec![2, 2]));
    }
}
