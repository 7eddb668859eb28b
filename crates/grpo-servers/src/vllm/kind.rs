//! The engine as one that configurations select.

use std::error::Error;
use std::iter::successors;
use std::path::Path;
use std::sync::Arc;

use grpo_data::{ConfigFault, OneOrSeveral};
use grpo_model::{AdapterConfig, Frozen, Policy, WeightPrecision};
use grpo_rollout::{
    EngineConfig, EngineContext, EngineFactory, EngineKind, EngineRun, RolloutError,
};
use grpo_run::{Existing, write_folder_atomically};
use tempfile::TempDir;
use toml::Table;

use super::{OnServers, Servers, Tolerance, VllmConfig, VllmError, WriteAdapter};

/// `rollout.engine = "vllm"`.
pub const VLLM: EngineKind = EngineKind::from_settings::<VllmConfig>("vllm", "vLLM servers");

/// Largest mean difference between the log-probabilities of a server and the trainer in runs that
/// correct differences. Servers in bf16 have about 0.01, other models several nats (docs/LOG.md).
const MEAN_TOLERANCE: f64 = 0.1;

impl EngineConfig for VllmConfig {
    fn settings(&self) -> Table {
        Table::try_from(self).expect("parsed settings can be written as TOML")
    }

    fn check(&self, run: &EngineRun<'_>) -> Result<(), ConfigFault> {
        self.check_settings()?;
        let refused = |reason: &str, remedy: &str| {
            let message = format!("rollout.engine = \"vllm\" {reason}");
            let remedy = format!("{remedy}, or use rollout.engine = \"local\"");
            Err(ConfigFault::new("engine", message, &remedy))
        };
        if !run.prompt_sections.is_empty() {
            let reason = "continues prompts of token ids, but this task samples in another way";
            return refused(reason, &format!("remove [{}]", run.prompt_sections.join("] and [")));
        }
        if !run.is_adapter {
            let reason = "sends the policy as a LoRA adapter, but this run trains all weights";
            return refused(reason, "add [lora] or `adapter`");
        }
        if run.weights != WeightPrecision::F32 {
            let reason = "samples with the weights of the servers";
            return refused(reason, "remove sampling.weights");
        }
        Ok(())
    }

    fn build(
        &self,
        context: EngineContext<'_>,
    ) -> Result<Arc<dyn EngineFactory<Policy>>, RolloutError> {
        let adapter = context.adapter.expect("`check` requires an adapter");
        // A folder of this run alone, which is removed when the run ends.
        let parent = self.adapters.clone().unwrap_or_else(std::env::temp_dir);
        let unusable = |error: std::io::Error| {
            let (parent, source) = (parent.clone(), Arc::new(error));
            VllmError::Folder { parent, source }
        };
        let folder = new_folder(&parent).map_err(unusable)?;
        let path = (context.remove_at_exit)(std::path::absolute(folder.path()).map_err(unusable)?);
        if path.to_str().is_none() {
            return Err(RolloutError::Unfit(format!(
                "rollout.adapters: the path {} is not UTF-8; use another folder",
                path.display()
            )));
        }
        let tolerance = match context.corrects_differences {
            true => Tolerance::Mean(MEAN_TOLERANCE),
            false => Tolerance::Each(context.tolerance),
        };
        let write = write_into(folder, adapter);
        let servers = Servers::new(self, path, write, tolerance, context.notify)?;
        Ok(Arc::new(OnServers::new(servers, context.codec.end_ids().to_vec())))
    }

    fn with_urls(&self, urls: &[String]) -> Option<Arc<dyn EngineConfig>> {
        Some(Arc::new(Self { url: OneOrSeveral::Several(urls.to_vec()), ..self.clone() }))
    }

    /// A server may round differently each time.
    fn repeats(&self) -> bool {
        false
    }

    fn supports_ranks(&self) -> bool {
        false
    }

    fn samples_here(&self) -> bool {
        false
    }

    fn summary(&self) -> Option<String> {
        Some(format!("vLLM servers: {}", self.url.as_slice().join(", ")))
    }
}

/// Writes adapters in PEFT's format. Keeps `folder` as long as there may be other adapters.
fn write_into(folder: TempDir, adapter: AdapterConfig) -> WriteAdapter {
    Arc::new(move |target: &Path, policy: &Frozen<Policy>| {
        let _is_kept = &folder;
        let fill = |folder: &Path| Ok(policy.write_adapter(&adapter, folder)?);
        let written = write_folder_atomically::<Box<dyn Error>>(target, Existing::Refuse, fill);
        written.map_err(|error| {
            let first: &(dyn Error + 'static) = &*error;
            let causes = successors(Some(first), |&error| error.source());
            causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
        })
    })
}

/// Creates a folder that servers of other users can read too.
fn new_folder(parent: &Path) -> std::io::Result<TempDir> {
    std::fs::create_dir_all(parent)?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755));
    builder.prefix("grpo-").tempdir_in(parent)
}
