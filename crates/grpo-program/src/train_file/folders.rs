//! Names of the hub in a section `[reward]`.

use grpo_rewards::RewardConfig;
use grpo_task::hub;
use grpo_task::task::Tasks;

/// Replaces names of the hub by folders in a reward.
///
/// # Errors
/// Returns an error if a model cannot be downloaded.
pub(super) fn with_folders(reward: RewardConfig, tasks: &Tasks) -> anyhow::Result<RewardConfig> {
    let mut table = reward.table().clone();
    match hub::find_models("reward", &mut table)? {
        true => Ok(tasks.rewards().parse(table).map_err(|fault| fault.below("reward"))?),
        false => Ok(reward),
    }
}
