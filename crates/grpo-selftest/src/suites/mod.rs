//! Test suites. Each suite evaluates a number of cases and compares the results with a reference.

mod advantages;
mod first_update;
mod generated_losses;
mod golden_advantages;
mod golden_embedder;
mod golden_losses;
mod golden_models;
mod golden_texts;
mod golden_training;
mod gradients;
mod losses;
mod products;
mod scores;

use std::path::Path;

use burn::tensor::Device;
use grpo_data::regular_file;
use grpo_kernels::{Half, computes_in};

use crate::golden::{
    Expected, GoldenAdvantages, GoldenLoss, GoldenModel, read_advantages, read_losses, read_models,
};
use crate::tensors::Precision;
use crate::{Options, Report, SelftestError, Suite};

/// Runs all suites.
///
/// # Errors
/// Returns an error if a golden folder or file is invalid. A wrong result is not an error, see
/// [`Report::passed`].
pub fn run(options: &Options) -> Result<Report, SelftestError> {
    let models = match &options.golden {
        Some(folder) => read_models(checked(folder)?)?,
        None => Vec::new(),
    };
    let (advantages, advantages_source) =
        load(options, "advantages.json", BUILT_IN_ADVANTAGES, read_advantages)?;
    let (losses, losses_source) = load(options, "losses.json", BUILT_IN_LOSSES, read_losses)?;
    let device = &options.device;
    let mut suites = of_advantages(&advantages, &advantages_source);
    suites.extend(of_losses(&losses, &losses_source, device));
    suites.extend(of_scores(device));
    suites.extend([Half::Bf16, Half::F16].map(|format| products::suite(format, device)));
    for golden in &models {
        suites.push(of_model(golden, options)?);
    }
    Ok(Report { suites })
}

fn of_advantages(golden: &[GoldenAdvantages], source: &str) -> Vec<Suite> {
    vec![golden_advantages::suite(golden, source), advantages::suite()]
}

fn of_losses(golden: &[GoldenLoss], source: &str, device: &Device) -> Vec<Suite> {
    vec![
        golden_losses::of_oracle(golden, source),
        on(device, Precision::F64, golden_losses::start(source, Precision::F64), |suite| {
            golden_losses::fill(suite, golden, device);
        }),
        on(device, Precision::F32, golden_losses::start(source, Precision::F32), |suite| {
            golden_losses::fill(suite, golden, device);
        }),
        on(device, Precision::F64, losses::start(), |suite| losses::fill(suite, device)),
        on(device, Precision::F64, gradients::start(), |suite| gradients::fill(suite, device)),
        on(device, Precision::F64, first_update::start(Precision::F64), |suite| {
            first_update::fill(suite, device);
        }),
        on(device, Precision::F32, first_update::start(Precision::F32), |suite| {
            first_update::fill(suite, device);
        }),
    ]
}

fn of_scores(device: &Device) -> Vec<Suite> {
    let ways = [true, false].into_iter().flat_map(|fused| {
        [Precision::F64, Precision::F32].into_iter().map(move |precision| (fused, precision))
    });
    let values = ways.map(|(fused, precision)| {
        on(device, precision, scores::start(fused, precision), |suite| {
            scores::fill(suite, fused, device);
        })
    });
    let gradients = [Precision::F64, Precision::F32].map(|precision| {
        on(device, precision, scores::start_gradients(precision), |suite| {
            scores::fill_gradients(suite, device);
        })
    });
    values.chain(gradients).collect()
}

fn of_model(golden: &GoldenModel, options: &Options) -> Result<Suite, SelftestError> {
    match &golden.expected {
        Expected::Policy(sequences) => golden_models::policy(golden, sequences, options),
        Expected::Encoder(sentences) => golden_models::encoder(golden, sentences, options),
        Expected::Embedder(texts) => golden_embedder::suite(golden, texts, &options.device),
        Expected::Infiller(texts) => golden_texts::infiller(golden, texts, options),
        Expected::Scorer(texts) => golden_texts::scorer(golden, texts, options),
        Expected::Adapter(expected) => golden_models::adapter(golden, expected, options),
        Expected::Training(expected) => golden_training::suite(golden, expected, options),
    }
}

/// Runs a suite, or skips it if the device does not support the precision.
fn on(device: &Device, precision: Precision, suite: Suite, fill: impl Fn(&mut Suite)) -> Suite {
    if !computes_in(device, precision.dtype()) {
        return suite.left_out("the device does not compute in this precision");
    }
    let mut suite = suite;
    fill(&mut suite);
    suite
}

const BUILT_IN_ADVANTAGES: &str = include_str!("../../fixtures/advantages.json");
const BUILT_IN_LOSSES: &str = include_str!("../../fixtures/losses.json");

/// Reads the cases in the file `name`. Also returns a description of their source.
fn load<Case>(
    options: &Options,
    name: &str,
    built_in: &str,
    read: impl Fn(&str, &str) -> Result<Vec<Case>, SelftestError>,
) -> Result<(Vec<Case>, String), SelftestError> {
    let path = match &options.golden {
        Some(folder) => Some(checked(folder)?.join(name)).filter(|path| path.exists()),
        None => None,
    };
    let Some(path) = path else {
        return Ok((read(built_in, name)?, "TRL, built in".to_owned()));
    };
    let text = regular_file::read_to_string(&path).map_err(SelftestError::read(&path))?;
    let shown = path.display().to_string();
    Ok((read(&text, &shown)?, format!("TRL, {shown}")))
}

fn checked(folder: &Path) -> Result<&Path, SelftestError> {
    if !folder.is_dir() {
        return Err(SelftestError::Golden(format!(
            "`{}` is not a folder; expected one with advantages.json, losses.json or model folders with an expected.json",
            folder.display()
        )));
    }
    let holds = |folder: &Path, names: &[&str]| names.iter().any(|name| folder.join(name).exists());
    let is_model = |entry: std::fs::DirEntry| holds(&entry.path(), &["expected.json"]);
    let models = std::fs::read_dir(folder).into_iter().flatten().flatten().any(is_model);
    if !models && !holds(folder, &["advantages.json", "losses.json", "expected.json"]) {
        return Err(SelftestError::Golden(format!(
            "`{}` contains neither advantages.json nor losses.json nor a model folder with an expected.json",
            folder.display()
        )));
    }
    Ok(folder)
}
