//! JSON schema of sections that are rewards.

use grpo_data::schema::reference;
use schemars::{Schema, SchemaGenerator};

/// Returns a reference to the schema of all reward types.
pub fn any_reward(_: &mut SchemaGenerator) -> Schema {
    reference("Reward")
}
