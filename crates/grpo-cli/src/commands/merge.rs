//! `grpo merge`: a model with an adapter added into its weights.

use anyhow::Context;
use grpo_run::{Existing, write_folder_atomically, write_manifest};

use crate::args::MergeArguments;
use crate::device;
use crate::models::{Trained, load};

pub(crate) fn run(arguments: &MergeArguments) -> anyhow::Result<()> {
    let trained = Trained::Adapter(&arguments.adapter);
    let loaded = load(&arguments.model, trained, Default::default(), &device::device())?;
    let (base, adapter) = loaded.policy.parts();
    let merged = base.merged(adapter.context("a merge needs an adapter")?);
    write_folder_atomically(&arguments.output, Existing::Refuse, |folder| {
        loaded.spec.write(folder, &merged, arguments.dtype)?;
        anyhow::Ok(write_manifest(folder)?)
    })
}
