//! The names of properties.

use grpo_chem::Descriptor;
use grpo_data::{ConfigFault, short_text};
use grpo_task::config::nearest;

/// Names of all properties other than descriptors.
const OTHER_NAMES: [&str; 9] = [
    "similarity",
    "substructure",
    "substructure_count",
    "custom_alerts",
    "scaffold",
    "novelty",
    "formula",
    "external",
    "expression",
];

/// Returns an error if no property has this name.
pub(super) fn check_name(name: &str) -> Result<(), ConfigFault> {
    match OTHER_NAMES.contains(&name) {
        true => Ok(()),
        false => descriptor(name).map(drop),
    }
}

/// Returns the descriptor with this name.
pub(super) fn descriptor(name: &str) -> Result<Descriptor, ConfigFault> {
    Descriptor::parse(name).ok_or_else(|| unknown_property(name))
}

/// Returns the error for a name that no property has, with the nearest one.
fn unknown_property(name: &str) -> ConfigFault {
    let known = Descriptor::ALL.iter().map(|descriptor| descriptor.name());
    let known: Vec<String> = known.chain(OTHER_NAMES).map(str::to_owned).collect();
    let all = known.join(", ");
    let remedy = match nearest(&known, &name.to_lowercase()) {
        Some(near) => format!("did you mean '{near}'? All properties: {all}"),
        None => format!("expected one of {all}"),
    };
    ConfigFault::new("property", format!("unknown property '{}'", short_text(name)), remedy)
}
