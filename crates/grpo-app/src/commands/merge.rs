//! `grpo merge`: merges an adapter into the weights of its model.

use anyhow::Context;
use grpo_model::WeightPrecision;

use crate::args::MergeArguments;
use crate::device;
use crate::models::{Trained, read, write_new_model};
use crate::recorded_folders::refuse_inside;
use crate::task::Tasks;

pub(crate) fn run(arguments: &MergeArguments, tasks: &Tasks) -> anyhow::Result<()> {
    refuse_inside(&arguments.output, "-o")?;
    let trained = Trained::Adapter(&arguments.adapter);
    let precision = WeightPrecision::F32;
    let loaded = read(&arguments.model, &tasks.codecs(), trained, precision, &device::device()?)?;
    let (base, adapter) = loaded.policy.parts();
    let merged = base.merged(adapter.context("merging requires an adapter")?);
    write_new_model(&arguments.output, &loaded.spec, &merged, arguments.dtype)
}
