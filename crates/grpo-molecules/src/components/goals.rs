//! Goals and typical ranges of properties, for components that do not set them.

use grpo_rewards::Goal;

/// Returns the goal of a property if it is the same for all users, or `None` otherwise.
pub(super) fn default_goal(property: &str) -> Option<Goal> {
    match property {
        "qed" | "similarity" | "substructure" | "scaffold" | "novelty" | "formula" | "external" => {
            Some(Goal::High)
        }
        "sa" | "alerts" | "custom_alerts" => Some(Goal::Low),
        _ => None,
    }
}

/// Returns the range of values that are typical of drug-like molecules. It is used by the default
/// transform.
pub(super) fn typical_range(property: &str) -> (f64, f64) {
    match property {
        "sa" => (1.0, 10.0),
        "logp" => (-1.0, 5.0),
        "mw" => (100.0, 600.0),
        "tpsa" => (0.0, 140.0),
        "heavy_atoms" => (5.0, 50.0),
        "hba" | "rotatable" => (0.0, 10.0),
        "hetero_atoms" => (0.0, 15.0),
        "sp2_atoms" | "sp3_atoms" | "graph_length" => (0.0, 20.0),
        "hbd" => (0.0, 5.0),
        "rings" | "largest_ring" | "stereo_centers" => (0.0, 6.0),
        "aromatic_rings" | "aliphatic_rings" | "sp_atoms" => (0.0, 4.0),
        "alerts" | "substructure_count" => (0.0, 3.0),
        "charge" => (-1.0, 1.0),
        // Fractions, similarities, matches, and values of the user's own.
        _ => (0.0, 1.0),
    }
}
