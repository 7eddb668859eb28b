//! `grpo adapter-layers`: what a LoRA adapter changes in each layer.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::statistics::{mean, population_variance};
use grpo_eval::{LowRankUpdate, UpdateSize};
use grpo_model::LoraMatrices;
use grpo_task::output::{FileInPlace, JSON, say, table};
use rayon::prelude::*;
use serde::Serialize;

/// Singular values that are reported.
const TOP: usize = 5;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo adapter-layers runs/replies/grpo/adapter
  grpo adapter-layers runs/replies/baseline/adapter runs/replies/grpo/adapter -o layers.json

The update of a layer is scale · B · A. Its effective rank is exp of the entropy of the singular values divided by their sum: 1 if one direction dominates, the adapter's rank if all directions are equally strong.")]
pub(crate) struct AdapterLayersArguments {
    /// Adapter folders (PEFT format); two are compared layer by layer
    #[arg(required = true, num_args = 1..=2, value_name = "FOLDER", help_heading = "Input")]
    adapters: Vec<PathBuf>,
    /// Write the analysis to this file (JSON)
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    force: bool,
}

/// The layers of an adapter.
#[derive(Debug, Serialize)]
struct Analysis {
    model_path: String,
    n_layers: usize,
    layers: Vec<Layer>,
}

#[derive(Debug, Serialize)]
struct Layer {
    layer: String,
    rank: usize,
    scale: f64,
    norm_a: f64,
    norm_b: f64,
    /// Frobenius norm of the update.
    norm: f64,
    effective_rank: f64,
    /// The largest ones, in descending order.
    top_singular_values: Vec<f64>,
}

/// Comparison of the layers that two adapters have in common.
#[derive(Debug, Serialize)]
struct Comparison {
    n_common_layers: usize,
    norms: [Norms; 2],
    /// Mean of the norms of the second adapter minus those of the first.
    mean_difference: f64,
    /// Number of layers in which the first, or the second, adapter has the larger norm.
    higher: [usize; 2],
}

#[derive(Debug, Serialize)]
struct Norms {
    mean: f64,
    std: f64,
    max: f64,
    max_layer: String,
}

#[derive(Debug, Serialize)]
struct Report {
    adapters: Vec<Analysis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

pub(crate) fn run(arguments: &AdapterLayersArguments) -> anyhow::Result<()> {
    let inputs: Vec<&Path> = arguments.adapters.iter().map(PathBuf::as_path).collect();
    let create = |path: &PathBuf| FileInPlace::create_beside(path, JSON, &inputs, arguments.force);
    let output = arguments.output.as_ref().map(create).transpose()?;
    let adapters = arguments.adapters.iter().map(|folder| Analysis::of(folder));
    let adapters = adapters.collect::<anyhow::Result<Vec<_>>>()?;
    let comparison = match &adapters[..] {
        [first, second] => Some(Comparison::of(first, second)?),
        _ => None,
    };
    let report = Report { adapters, comparison };
    if let Some(file) = output {
        let text = serde_json::to_string_pretty(&report).context("the numbers are finite")? + "\n";
        file.write_text(&text)?;
    }
    for analysis in &report.adapters {
        say(format_args!("{}", analysis.model_path));
        let header = ["layer", "rank", "norm", "effective rank", "largest singular values"];
        let row = |layer: &Layer| {
            let values: Vec<String> =
                layer.top_singular_values.iter().map(|value| format!("{value:.3}")).collect();
            [
                layer.layer.clone(),
                layer.rank.to_string(),
                format!("{:.4}", layer.norm),
                format!("{:.2}", layer.effective_rank),
                values.join(" "),
            ]
        };
        let rows: Vec<[String; 5]> = analysis.layers.iter().map(row).collect();
        say(format_args!("{}", table(header, rows, 1..4)));
    }
    if let Some(comparison) = &report.comparison {
        let [first, second] = &comparison.norms;
        say(format_args!(
            "{} common layers: mean norm {:.4} → {:.4}, larger in {} and smaller in {} layers of the second; its largest is {:.4} in {}",
            comparison.n_common_layers,
            first.mean,
            second.mean,
            comparison.higher[1],
            comparison.higher[0],
            second.max,
            second.max_layer
        ));
    }
    Ok(())
}

impl Analysis {
    fn of(folder: &Path) -> anyhow::Result<Self> {
        let matrices = LoraMatrices::read(folder)?;
        let layers = matrices.into_par_iter().map(Layer::of).collect::<anyhow::Result<Vec<_>>>();
        let layers = layers.with_context(|| folder.display().to_string())?;
        Ok(Self { model_path: folder.display().to_string(), n_layers: layers.len(), layers })
    }
}

impl Layer {
    fn of(matrices: LoraMatrices) -> anyhow::Result<Self> {
        let LoraMatrices { module, rank, scale, a, b } = matrices;
        let f64s = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        let update = LowRankUpdate { a: f64s(a), b: f64s(b), rank, scale };
        let UpdateSize { norm_a, norm_b, norm, effective_rank, mut singular_values } =
            update.size().with_context(|| module.clone())?;
        singular_values.truncate(TOP);
        let top_singular_values = singular_values;
        Ok(Self {
            layer: module,
            rank,
            scale,
            norm_a,
            norm_b,
            norm,
            effective_rank,
            top_singular_values,
        })
    }
}

impl Comparison {
    fn of(first: &Analysis, second: &Analysis) -> anyhow::Result<Self> {
        let other = |layer: &Layer| second.layers.iter().find(|other| other.layer == layer.layer);
        let pairs: Vec<(&Layer, &Layer)> =
            first.layers.iter().filter_map(|layer| Some((layer, other(layer)?))).collect();
        anyhow::ensure!(
            !pairs.is_empty(),
            "{} and {} have no layer in common; compare adapters of the same model",
            first.model_path,
            second.model_path
        );
        let differences: Vec<f64> = pairs.iter().map(|(a, b)| b.norm - a.norm).collect();
        let count = |sign: f64| differences.iter().filter(|value| **value * sign > 0.0).count();
        Ok(Self {
            n_common_layers: pairs.len(),
            norms: [
                Norms::of(pairs.iter().map(|(layer, _)| *layer)),
                Norms::of(pairs.iter().map(|(_, layer)| *layer)),
            ],
            mean_difference: mean(&differences),
            higher: [count(-1.0), count(1.0)],
        })
    }
}

impl Norms {
    /// `layers` must not be empty.
    fn of<'a>(layers: impl Iterator<Item = &'a Layer> + Clone) -> Self {
        let norms: Vec<f64> = layers.clone().map(|layer| layer.norm).collect();
        let largest = layers.max_by(|a, b| a.norm.total_cmp(&b.norm));
        Self {
            mean: mean(&norms),
            std: population_variance(&norms).sqrt(),
            max: largest.map_or(f64::NAN, |layer| layer.norm),
            max_layer: largest.map_or(String::new(), |layer| layer.layer.clone()),
        }
    }
}
