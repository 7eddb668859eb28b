//! Sampling on vLLM servers, as configured by `[rollout]`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use grpo_data::Codec;
use grpo_model::{AdapterConfig, Frozen, Policy};
use grpo_run::{Existing, write_folder_atomically};
use grpo_train::{AboveTolerance, Actions};
use grpo_vllm::{OnServers, Servers, Tolerance, VllmConfig, WriteAdapter};
use tempfile::TempDir;

use crate::dashboard::announce;
use crate::output::remove_at_exit;
use crate::train_file::TrainFile;

/// Largest mean difference between the log-probabilities of a server and the trainer in runs that
/// correct differences. Servers in bf16 have about 0.01, other models several nats (docs/LOG.md).
const MEAN_TOLERANCE: f64 = 0.1;

/// Returns the actions of a policy that is sampled on servers. Adapters are written in PEFT's format,
/// with the configuration `adapter`.
pub(crate) fn on_servers(
    file: &TrainFile,
    rollout: &VllmConfig,
    adapter: AdapterConfig,
    codec: &Codec,
) -> anyhow::Result<Arc<dyn Actions<Policy>>> {
    // A folder of this run alone, which is removed when the run ends.
    let parent = rollout.adapters.clone().unwrap_or_else(std::env::temp_dir);
    let folder = new_folder(&parent).with_context(|| {
        format!("rollout.adapters: no folder in {} can be created", parent.display())
    })?;
    let path = remove_at_exit(std::path::absolute(folder.path())?);
    anyhow::ensure!(
        path.to_str().is_some(),
        "rollout.adapters: the path {} is not UTF-8; use another folder",
        path.display()
    );
    let write: WriteAdapter = Arc::new(move |target, policy: &Frozen<Policy>| {
        let _is_kept = &folder;
        let fill = |folder: &_| anyhow::Ok(policy.write_adapter(&adapter, folder)?);
        let written = write_folder_atomically(target, Existing::Refuse, fill);
        written.map_err(|error| format!("{error:#}"))
    });
    let sampler_check = file.sampler_check.resolved(file.loss.resolve()?.mismatch);
    let tolerance = match sampler_check.above {
        Some(AboveTolerance::Correct) => Tolerance::Mean(MEAN_TOLERANCE),
        Some(AboveTolerance::Stop) | None => Tolerance::Each(sampler_check.tolerance),
    };
    let notify = Arc::new(|message: &str| announce(&format!("warning      {message}")));
    let servers = Servers::new(rollout, path, write, tolerance, notify)?;
    Ok(Arc::new(OnServers::new(servers, codec.end_ids().to_vec())))
}

/// Creates a folder that servers of other users can read too.
fn new_folder(parent: &Path) -> std::io::Result<TempDir> {
    std::fs::create_dir_all(parent)?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755));
    builder.prefix("grpo-").tempdir_in(parent)
}
