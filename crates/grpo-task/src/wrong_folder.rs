//! Detects run, model and adapter folders that are passed in the wrong place.

use std::path::Path;

/// Rejects run folders, model folders in place of adapter folders, and vice versa. `role` is what the
/// folder is expected to contain, e.g. `model`.
pub(crate) fn refuse_wrong_folder(path: &Path, role: &str) -> anyhow::Result<()> {
    let has = |name: &str| path.join(name).exists();
    let is_model = has("config.json") && !has("adapter_config.json");
    let is_adapter = has("adapter_config.json") && !has("config.json");
    let shown = path.display();
    if has("run.json") && !has("config.json") && !has("adapter_config.json") {
        match (role, has("model"), has("adapter")) {
            ("adapter", _, true) => {
                anyhow::bail!("{shown} is a run folder; its adapter is in {shown}/adapter")
            }
            ("model", false, true) => anyhow::bail!(
                "{shown} is a run folder with an adapter; use the base model and the adapter {shown}/adapter"
            ),
            (role, true, _) if role != "adapter" => {
                anyhow::bail!("{shown} is a run folder; its {role} is in {shown}/model")
            }
            _ => anyhow::bail!("{shown} is a run folder without a trained {role}"),
        }
    }
    anyhow::ensure!(
        role != "model" || !is_adapter,
        "{shown} is an adapter folder, not a model folder; pass the base model as the model and this folder as the adapter"
    );
    anyhow::ensure!(
        role != "adapter" || !is_model,
        "{shown} is a model folder, not an adapter folder; an adapter folder contains adapter_config.json and adapter_model.safetensors"
    );
    Ok(())
}
