//! Converts a model between GGUF and a Hugging Face folder.
//!
//! ```sh
//! cargo run -p grpo-gguf --example convert -- to-folder MODEL.gguf FOLDER
//! cargo run -p grpo-gguf --example convert -- to-gguf FOLDER MODEL.gguf q8_0
//! cargo run -p grpo-gguf --example convert -- adapter BASE_FOLDER ADAPTER_FOLDER ADAPTER.gguf f16
//! ```
#![allow(clippy::disallowed_methods, reason = "an example opens its own files")]

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use grpo_gguf::{
    Adapter, Exported, GgufError, GgufModel, HuggingFaceModel, SpecialTokens, StoredType,
    export_adapter, export_model,
};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["to-folder", file, folder] => to_folder(Path::new(file), Path::new(folder)),
        ["to-gguf", folder, file, stored] => to_gguf(Path::new(folder), file, stored),
        ["adapter", base, folder, file, stored] => {
            adapter(Path::new(base), Path::new(folder), file, stored)
        }
        _ => Err("expected to-folder, to-gguf or adapter with their paths".into()),
    }
}

fn to_folder(file: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut model = GgufModel::open(File::open(file)?)?;
    fs::create_dir_all(folder)?;
    for (name, content) in model.files()? {
        fs::write(folder.join(name), content)?;
    }
    let mut tensors = Vec::new();
    for name in model.names().map(str::to_owned).collect::<Vec<_>>() {
        let (shape, values) = model.read(&name)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        tensors.push((name, shape, bytes));
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
    });
    let views = views.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors"))?;
    Ok(())
}

fn json(path: &Path) -> Result<Value, Box<dyn Error>> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

type Tensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

fn weights(path: &Path) -> Result<Tensors, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let mut tensors = HashMap::new();
    for (name, view) in SafeTensors::deserialize(&bytes)?.iter() {
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => numbers(view.data(), |[a, b, c, d]| f32::from_le_bytes([a, b, c, d])),
            Dtype::BF16 => numbers(view.data(), |[a, b]| f32::from_le_bytes([0, 0, a, b])),
            other => return Err(format!("{name} has values of type {other:?}").into()),
        };
        tensors.insert(name.to_owned(), (view.shape().to_vec(), values));
    }
    Ok(tensors)
}

fn numbers<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes
        .chunks_exact(N)
        .map(|bytes| read(bytes.try_into().expect("chunks have N bytes")))
        .collect()
}

fn shapes(tensors: &Tensors) -> Vec<(String, Vec<usize>)> {
    let mut shapes: Vec<_> =
        tensors.iter().map(|(name, (shape, _))| (name.clone(), shape.clone())).collect();
    shapes.sort();
    shapes
}

fn write(exported: Exported, tensors: &Tensors, file: &str) -> Result<(), Box<dyn Error>> {
    let read = |name: &str| Ok::<_, GgufError>(tensors[name].1.clone());
    exported.write(BufWriter::new(File::create(file)?), read)?;
    Ok(())
}

fn stored_type(name: &str) -> Result<StoredType, Box<dyn Error>> {
    StoredType::from_name(name).ok_or_else(|| format!("{name} is not a type").into())
}

fn to_gguf(folder: &Path, file: &str, stored: &str) -> Result<(), Box<dyn Error>> {
    let config = json(&folder.join("config.json"))?;
    let tokenizer = json(&folder.join("tokenizer.json"))?;
    let tensors = weights(&folder.join("model.safetensors"))?;
    let template = fs::read_to_string(folder.join("chat_template.jinja")).ok();
    let id = |key: &str| config[key].as_u64().map(|id| id as u32);
    let model = HuggingFaceModel {
        name: "converted",
        config: &config,
        tokenizer: &tokenizer,
        special: SpecialTokens {
            bos: id("bos_token_id"),
            eos: id("eos_token_id"),
            pad: id("pad_token_id"),
        },
        chat_template: template.as_deref(),
        tensors: shapes(&tensors),
    };
    write(export_model(&model, stored_type(stored)?)?, &tensors, file)
}

fn adapter(base: &Path, folder: &Path, file: &str, stored: &str) -> Result<(), Box<dyn Error>> {
    let base_config = json(&base.join("config.json"))?;
    let adapter_config = json(&folder.join("adapter_config.json"))?;
    let tensors = weights(&folder.join("adapter_model.safetensors"))?;
    let adapter = Adapter {
        adapter_config: &adapter_config,
        base_config: &base_config,
        tensors: shapes(&tensors),
    };
    write(export_adapter(&adapter, stored_type(stored)?)?, &tensors, file)
}
