//! Sampling on vLLM servers, as configured by `[rollout]`.

use std::sync::Arc;

use anyhow::Context;
use grpo_data::Codec;
use grpo_model::{AdapterConfig, Frozen, Policy};
use grpo_run::{Existing, write_folder_atomically};
use grpo_train::{AboveTolerance, Actions};
use grpo_vllm::{OnServers, Servers, Tolerance, VllmConfig, WriteAdapter};

use crate::dashboard::announce;
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
    let (folder, temporary) = match &rollout.adapters {
        Some(folder) => (std::path::absolute(folder), None),
        None => {
            // Removed when the run ends.
            let temporary = tempfile::Builder::new().prefix("grpo-adapters-").tempdir()?;
            (Ok(temporary.path().to_owned()), Some(temporary))
        }
    };
    let folder = folder.context("rollout.adapters")?;
    let write: WriteAdapter = Arc::new(move |folder, policy: &Frozen<Policy>| {
        let _is_kept = &temporary;
        let fill = |folder: &_| anyhow::Ok(policy.write_adapter(&adapter, folder)?);
        let written = write_folder_atomically(folder, Existing::Refuse, fill);
        written.map_err(|error| format!("{error:#}"))
    });
    let sampler_check = file.sampler_check.resolved(file.loss.resolve()?.mismatch);
    let tolerance = match sampler_check.above {
        Some(AboveTolerance::Correct) => Tolerance::Mean(MEAN_TOLERANCE),
        Some(AboveTolerance::Stop) | None => Tolerance::Each(sampler_check.tolerance),
    };
    let notify = Arc::new(|message: &str| announce(&format!("warning: {message}")));
    let servers = Servers::new(rollout, folder, write, notify)?;
    Ok(Arc::new(OnServers::new(servers, codec.end_ids().to_vec(), tolerance)))
}
