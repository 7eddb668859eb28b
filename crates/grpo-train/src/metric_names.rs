//! Metric names. Time and memory measurements are not included: they are not reproducible from the
//! seed, so decisions must not depend on them.

use std::collections::BTreeSet;

use grpo_core::TokenStatistics;

/// Metrics that require the log-probabilities of the reference.
pub(crate) const OF_REFERENCE: [&str; 4] = ["kl", "kl_p99", "kl_max", "kl_sequence"];

/// Metrics in addition to [`TokenStatistics`]. `*` matches one or more characters.
const KNOWN: &[&str] = &[
    "reward",
    "reward_std",
    "reward_min",
    "reward_max",
    "reward_dominance",
    "reward_share/*",
    "reward_kl",
    "frac_reward_zero_std",
    "advantage_max",
    "rewards/*/mean",
    "rewards/*/std",
    "rewards/abstained",
    "rewards/failed",
    "kl_coef",
    "reference_age",
    "entropy_coef",
    "sampling/corrected",
    "loss",
    "policy_loss",
    "kl_penalty",
    "grad_norm",
    "learning_rate",
    "completions/mean_length",
    "completions/min_length",
    "completions/max_length",
    "completions/mean_terminated_length",
    "completions/min_terminated_length",
    "completions/max_terminated_length",
    "completions/clipped_ratio",
    "completions/mean_characters",
    "completions/unique_ratio",
    "completions/collapsed_groups",
    "num_tokens",
    // Only present in steps with an evaluation.
    "eval_*",
];

fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().copied().chain(TokenStatistics::metric_names())
}

/// Returns whether a metric with this name can occur.
pub(crate) fn is_known(name: &str) -> bool {
    known().any(|known| match known.split_once('*') {
        None => known == name,
        Some((before, after)) => {
            let rest = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            rest.is_some_and(|rest| !rest.is_empty())
        }
    })
}

/// Returns whether the metric is a measurement of time, speed or memory, or depends on when the run
/// was resumed.
pub(crate) fn is_of_machine(name: &str) -> bool {
    ["step_time", "tokens_per_second"].contains(&name)
        || name.starts_with("time/")
        || name.starts_with("memory/")
        // A resumed run starts with an empty cache.
        || name == "reward_cache/hits"
}

/// Returns whether the metric depends on which components the reward has.
pub(crate) fn is_of_reward(name: &str) -> bool {
    let name = name.strip_prefix("eval_").unwrap_or(name);
    let is_component =
        name.starts_with("rewards/") && !["rewards/abstained", "rewards/failed"].contains(&name);
    is_component || name == "reward_dominance" || name.starts_with("reward_share/")
}

/// Returns whether the metric is only present in some steps.
pub(crate) fn is_occasional(name: &str) -> bool {
    name.starts_with("eval_")
}

/// Returns the name in `among` that is most similar to `name`.
pub(crate) fn nearest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &&str| strsim::jaro_winkler(known, name);
    among.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// Returns the known metric, or the one of extensions, whose name is most similar to `name`.
pub(crate) fn nearest_known<'a>(name: &str, of_extensions: &'a BTreeSet<String>) -> &'a str {
    let known = known().map(|name| -> &'a str { name });
    nearest(name, known.chain(of_extensions.iter().map(String::as_str))).expect("there are names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        for name in
            ["kl", "rewards/valid/mean", "rewards/my part/std", "eval_reward", "reward_share/qed"]
        {
            assert!(is_known(name), "{name}");
        }
        for name in
            ["Kl", "rewards//mean", "rewards/mean", "eval_", "step_time", "time/rollout", ""]
        {
            assert!(!is_known(name), "{name}");
        }
    }

    #[test]
    fn suggests_the_nearest_name() {
        for (slip, meant) in [
            ("ratio_p99", "ratio/p99"),
            ("klp99", "kl_p99"),
            ("completion/unique_ratio", "completions/unique_ratio"),
            ("entrpy", "entropy"),
        ] {
            assert_eq!(nearest_known(slip, &BTreeSet::new()), meant);
        }
    }
}
