//! `grpo merge`: merges an adapter into the weights of its model.

use std::path::Path;

use anyhow::Context;
use grpo_model::WeightPrecision;

use crate::args::MergeArguments;
use crate::device;
use crate::models::{Trained, read, write_new_model};
use crate::task::Tasks;

pub(crate) fn run(arguments: &MergeArguments, tasks: &Tasks) -> anyhow::Result<()> {
    for folder in [&arguments.model, &arguments.adapter] {
        // An additional file would invalidate the manifest of the model or adapter.
        anyhow::ensure!(
            !is_inside(&arguments.output, folder),
            "{} is inside {}, which is read; give -o another place",
            arguments.output.display(),
            folder.display()
        );
    }
    let trained = Trained::Adapter(&arguments.adapter);
    let precision = WeightPrecision::F32;
    let loaded = read(&arguments.model, &tasks.codecs(), trained, precision, &device::device())?;
    let (base, adapter) = loaded.policy.parts();
    let merged = base.merged(adapter.context("a merge needs an adapter")?);
    write_new_model(&arguments.output, &loaded.spec, &merged, arguments.dtype)
}

/// Returns whether `path` is inside `folder`. `path` does not have to exist.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let (Ok(path), Ok(folder)) = (std::path::absolute(path), folder.canonicalize()) else {
        return false;
    };
    // `folder` itself is rejected later because it already exists.
    let above = path.ancestors().skip(1).find_map(|above| above.canonicalize().ok());
    above.is_some_and(|above| above.starts_with(&folder))
}
