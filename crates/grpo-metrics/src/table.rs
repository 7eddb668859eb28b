//! Tables of metrics.

use crate::MetricSpec;

/// Metrics that belong together, in the order in which they are documented.
#[derive(Clone, Copy, Debug)]
pub struct MetricGroup {
    /// Name by which the documentation places it, e.g. `rewards`. Several groups may have the same one.
    pub name: &'static str,
    /// The section of the configuration that runs with these metrics have, e.g. `train`; empty for the
    /// metrics of all supervised runs.
    pub section: &'static str,
    /// The metrics.
    pub metrics: &'static [MetricSpec],
}

/// The metrics that a program knows. The default is an empty table.
#[derive(Clone, Debug, Default)]
pub struct MetricTable {
    groups: Vec<MetricGroup>,
}

impl MetricTable {
    /// Creates a table.
    pub fn new(groups: impl IntoIterator<Item = MetricGroup>) -> Self {
        Self { groups: groups.into_iter().collect() }
    }

    /// Returns the table of a run whose configuration has the sections for which `has` returns true.
    /// Different kinds of runs may have metrics with the same name.
    #[must_use]
    pub fn of_run(&self, has: impl Fn(&str) -> bool) -> Self {
        let is_of_all = |group: &&MetricGroup| group.section.is_empty();
        let of_all = self.groups.iter().filter(is_of_all);
        let of_kind = self.groups.iter().filter(|group| !is_of_all(group) && has(group.section));
        Self::new(of_kind.chain(of_all).copied())
    }

    /// Returns the groups.
    pub fn groups(&self) -> &[MetricGroup] {
        &self.groups
    }

    /// Returns the metrics in order.
    pub fn specs(&self) -> impl Iterator<Item = &'static MetricSpec> {
        self.groups.iter().flat_map(|group| group.metrics)
    }

    /// Returns the first metric with this name.
    pub fn spec(&self, name: &str) -> Option<&'static MetricSpec> {
        self.specs().find(|spec| spec.is_named(name))
    }

    /// Returns whether a metric depends on the machine ([`MetricSpec::is_of_machine`]). Unknown ones do
    /// not.
    pub fn is_of_machine(&self, name: &str) -> bool {
        self.spec(name).is_some_and(|spec| spec.is_of_machine)
    }

    /// Returns the short name of a metric ([`MetricSpec::label`]).
    pub fn label(&self, name: &str) -> String {
        let labelled = |spec: &MetricSpec| {
            (!spec.label.is_empty()).then(|| spec.filled(spec.label, name)).flatten()
        };
        self.spec(name).and_then(labelled).unwrap_or_else(|| name.to_owned())
    }

    /// Describes a metric in plain text. Returns an empty text for unknown ones.
    pub fn description(&self, name: &str) -> String {
        self.spec(name).map_or_else(String::new, MetricSpec::description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OF_STEPS: [MetricSpec; 1] = [MetricSpec::new("grad_norm", "", "of a step")];
    static SUPERVISED: [MetricSpec; 2] = [
        MetricSpec::new("grad_norm", "", "of a batch"),
        MetricSpec::new("time", "", "").of_machine(),
    ];

    #[test]
    fn a_run_has_the_metrics_of_its_sections() {
        let table = MetricTable::new([
            MetricGroup { name: "all", section: "", metrics: &SUPERVISED },
            MetricGroup { name: "steps", section: "train", metrics: &OF_STEPS },
        ]);
        let of = |section: &str| table.of_run(|known| known == section);
        assert_eq!(of("train").description("grad_norm"), "of a step");
        assert_eq!(of("pretrain").description("grad_norm"), "of a batch");
        assert!(of("pretrain").is_of_machine("time") && !of("pretrain").is_of_machine("other"));
    }

    #[test]
    fn labels_are_short_names() {
        static METRICS: [MetricSpec; 2] = [
            MetricSpec::new("rewards/NAME/mean", "", "").label("NAME"),
            MetricSpec::new("entropy", "", ""),
        ];
        let table = MetricTable::new([MetricGroup { name: "", section: "", metrics: &METRICS }]);
        assert_eq!(table.label("rewards/valid/mean"), "valid");
        assert_eq!([table.label("entropy"), table.label("other")], ["entropy", "other"]);
    }
}
