//! The declaration of a metric.

/// Part of a name that stands for one or more characters, e.g. the name of a reward component.
const PLACEHOLDER: &str = "NAME";

/// A metric: a number in the lines of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Name in `metrics.jsonl`. `NAME` in it stands for one or more characters.
    pub name: &'static str,
    /// Short name for tables and screens of the terminal, with `NAME` as in [`Self::name`]. Empty if it is
    /// the name.
    pub label: &'static str,
    /// Unit or range, e.g. `nats per token` or `0 to 1`. Empty if there is none.
    pub unit: &'static str,
    /// What the number is, for users: Markdown without a full stop at the end, with links relative to `docs/`.
    pub meaning: &'static str,
    /// What a run needs in order to measure it, e.g. `a [combined] section`. Empty if each run of its
    /// kind does.
    pub requires: &'static str,
    /// Whether it is a measurement of time, speed or memory, or depends on when the run was resumed. All
    /// other metrics are reproducible with the same seed.
    pub is_of_machine: bool,
    /// Where a report shows it.
    pub panel: Panel,
    /// What it means for the run if a value is above the bound of a guard, or empty. `{bound}` stands for
    /// the bound, and `{e^bound}` for its exponential as a factor.
    pub above: &'static str,
    /// The same for values below the bound.
    pub below: &'static str,
}

/// Where a report shows a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    /// In a chart of its own, among those that few readers need.
    Own,
    /// In no chart: a counter, an index, or the sum of others.
    Hidden,
    /// In the chart with this title. `NAME` in it is what the same word in the metric's name stands for.
    Chart(&'static str, Role),
}

/// What a metric is in a chart with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A curve with this label.
    Curve(&'static str),
    /// The standard deviation of the first curve.
    Deviation,
    /// The minimum of what the first curve is the mean of.
    Minimum,
    /// The maximum of what the first curve is the mean of.
    Maximum,
    /// A layer with this label, on top of the ones before.
    Layer(&'static str),
    /// The sum of all layers.
    Total,
}

impl MetricSpec {
    /// Declares a metric that each run measures, with a chart of its own.
    pub const fn new(name: &'static str, unit: &'static str, meaning: &'static str) -> Self {
        Self {
            name,
            label: "",
            unit,
            meaning,
            requires: "",
            is_of_machine: false,
            panel: Panel::Own,
            above: "",
            below: "",
        }
    }

    /// Sets [`Self::label`].
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// Sets [`Self::requires`].
    #[must_use]
    pub const fn requires(mut self, requires: &'static str) -> Self {
        self.requires = requires;
        self
    }

    /// Declares that the metric depends on the machine ([`Self::is_of_machine`]).
    #[must_use]
    pub const fn of_machine(mut self) -> Self {
        self.is_of_machine = true;
        self
    }

    /// Shows the metric in no chart.
    #[must_use]
    pub const fn hidden(mut self) -> Self {
        self.panel = Panel::Hidden;
        self
    }

    /// Shows the metric in the chart with this title.
    #[must_use]
    pub const fn in_chart(mut self, title: &'static str, role: Role) -> Self {
        self.panel = Panel::Chart(title, role);
        self
    }

    /// Shows the metric as a curve in the chart with this title.
    #[must_use]
    pub const fn curve(self, title: &'static str, label: &'static str) -> Self {
        self.in_chart(title, Role::Curve(label))
    }

    /// Sets [`Self::above`].
    #[must_use]
    pub const fn above(mut self, meaning: &'static str) -> Self {
        self.above = meaning;
        self
    }

    /// Sets [`Self::below`].
    #[must_use]
    pub const fn below(mut self, meaning: &'static str) -> Self {
        self.below = meaning;
        self
    }

    /// Returns whether `name` is that of the metric.
    pub fn is_named(&self, name: &str) -> bool {
        self.captured(name).is_some()
    }

    /// Returns what `NAME` stands for in a name of the metric, which is empty if the metric has only one
    /// name. Returns `None` for other names.
    pub fn captured<'a>(&self, name: &'a str) -> Option<&'a str> {
        match self.name.split_once(PLACEHOLDER) {
            None => (self.name == name).then_some(""),
            Some((before, after)) => {
                let rest = name.strip_prefix(before)?.strip_suffix(after)?;
                (!rest.is_empty()).then_some(rest)
            }
        }
    }

    /// Returns the title of the chart that shows the metric of this name, if it is not one of its own.
    pub fn chart(&self, name: &str) -> Option<String> {
        let Panel::Chart(title, _) = self.panel else { return None };
        self.filled(title, name)
    }

    /// Returns a text with what `NAME` stands for in a name of the metric.
    pub(crate) fn filled(&self, text: &str, name: &str) -> Option<String> {
        Some(text.replace(PLACEHOLDER, self.captured(name)?))
    }

    /// Returns unit, meaning and requirement as one line of text without links.
    pub fn description(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) };
        format!("{}{unit}", without_links(&self.sentences()))
    }

    /// Returns meaning and requirement in Markdown.
    pub(crate) fn sentences(&self) -> String {
        match self.requires {
            "" => self.meaning.to_owned(),
            requires => format!("{}. Requires {requires}", self.meaning),
        }
    }
}

/// Replaces links of Markdown by their texts.
fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, (label, after))) = rest.split_once('[').and_then(|(before, link)| {
        let (label, target) = link.split_once("](")?;
        Some((before, (label, target.split_once(')')?.1)))
    }) {
        plain.extend([before, label]);
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        let mean = MetricSpec::new("rewards/NAME/mean", "", "");
        assert_eq!(mean.captured("rewards/my part/mean"), Some("my part"));
        for other in ["rewards//mean", "rewards/mean", "rewards/valid/std", ""] {
            assert_eq!(mean.captured(other), None, "{other}");
        }
        let kl = MetricSpec::new("kl", "", "");
        assert!(kl.is_named("kl") && !kl.is_named("Kl") && !kl.is_named("kl_p99"));
    }

    #[test]
    fn charts_are_named_after_what_a_pattern_stands_for() {
        let mean = MetricSpec::new("rewards/NAME/mean", "", "").curve("Component: NAME", "");
        assert_eq!(mean.chart("rewards/qed/mean").unwrap(), "Component: qed");
        assert_eq!(MetricSpec::new("kl", "", "").chart("kl"), None);
    }

    #[test]
    fn descriptions_are_plain_text() {
        let spec = MetricSpec::new("a", "0 to 1", "share [of some](x.md#y) and [z]").requires("b");
        assert_eq!(spec.description(), "share of some and [z]. Requires b (0 to 1)");
        assert_eq!(MetricSpec::new("a", "", "plain").description(), "plain");
    }
}
