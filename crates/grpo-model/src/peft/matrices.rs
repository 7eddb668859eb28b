//! The matrices of an adapter folder, read without its base model.

use std::collections::BTreeMap;
use std::path::Path;

use grpo_data::{parse_model_json, regular_file};
use serde_json::{Map, Value};

use super::scales::{PREFIX, Scales};
use super::{CONFIG_FILE, weights};
use crate::ModelError;
use crate::lora::scale;

/// The update `scale · B · A` of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraMatrices {
    /// Path of the module, as in the checkpoint of the base model.
    pub module: String,
    /// The rank r.
    pub rank: usize,
    /// α / r, or α / √r for rank-stabilised LoRA.
    pub scale: f64,
    /// A by rows, `[rank, in]`.
    pub a: Vec<f32>,
    /// B by rows, `[out, rank]`.
    pub b: Vec<f32>,
}

impl LoraMatrices {
    /// Returns the number that divided by the rank is the scale.
    pub fn alpha(&self) -> f64 {
        self.scale * self.rank as f64
    }

    /// Reads all matrices of an adapter folder in PEFT format, in the natural order of their
    /// modules: `layers.2` comes before `layers.10`.
    ///
    /// # Errors
    /// Returns an error if a file is unreadable or damaged, if the adapter is not plain LoRA, or if
    /// a matrix has no counterpart of the same rank.
    pub fn read(folder: &Path) -> Result<Vec<Self>, ModelError> {
        let path = folder.join(CONFIG_FILE);
        if !path.exists() {
            let problem = " is not an adapter folder (no adapter_config.json); an adapter of a run is in its folder `adapter`";
            return Err(ModelError::file(folder, problem));
        }
        let text = regular_file::read_to_string(&path)
            .map_err(|source| ModelError::Read { path: path.clone(), source })?;
        let broken = |message: String| ModelError::in_file(&path, message);
        let json: Map<String, Value> = parse_model_json(&text).map_err(broken)?;
        let scales = Scales::of(&json).map_err(broken)?;
        let mut weights = weights(folder)?;
        let names: Vec<String> = weights.names().map(str::to_owned).collect();
        let mut modules: BTreeMap<Vec<Part>, String> = BTreeMap::new();
        for name in &names {
            let module = name.strip_prefix(PREFIX).unwrap_or(name);
            let module = [".lora_A.weight", ".lora_B.weight"]
                .into_iter()
                .find_map(|ending| module.strip_suffix(ending));
            let Some(module) = module else {
                let problem = format!("'{name}' is not a matrix of plain LoRA");
                return Err(ModelError::in_file(weights.path(), problem));
            };
            modules.insert(parts(module), module.to_owned());
        }
        if modules.is_empty() {
            return Err(ModelError::file(weights.path(), " has no LoRA matrices"));
        }
        let read = |module: String| {
            let (rank, alpha) = scales.of_layer(&module);
            let prefix = if names[0].starts_with(PREFIX) { PREFIX } else { "" };
            let a = weights.take(&format!("{prefix}{module}.lora_A.weight"))?;
            let b = weights.take(&format!("{prefix}{module}.lora_B.weight"))?;
            if a.shape.first() != Some(&rank) || b.shape.get(1) != Some(&rank) {
                let problem = format!(
                    "the matrices of {module} have shapes {:?} and {:?}, but adapter_config.json says that their rank is {rank}",
                    a.shape, b.shape
                );
                return Err(ModelError::in_file(weights.path(), problem));
            }
            let scale = scale(alpha, rank, scales.rslora);
            Ok(Self { module, rank, scale, a: a.values, b: b.values })
        };
        modules.into_values().map(read).collect()
    }
}

/// Part of a path. Numbers are ordered by value.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Name(String),
}

fn parts(path: &str) -> Vec<Part> {
    let part = |part: &str| match part.parse() {
        Ok(number) => Part::Number(number),
        Err(_) => Part::Name(part.to_owned()),
    };
    path.split('.').map(part).collect()
}
