//! Comparisons as Markdown and LaTeX tables.

use grpo_eval::stats::Conclusion;
use grpo_task::output::four_decimals;

use super::comparison::{Compared, MethodResult, TestKind};
use crate::markdown::{markdown_text, one_line};

/// A cell: the mean, its spread and the mark of a test.
struct Cell {
    mean: String,
    /// Sample standard deviation over seeds.
    deviation: Option<String>,
    conclusion: Option<Conclusion>,
    is_better: Option<bool>,
}

impl Cell {
    fn new(compared: &Compared, of: &MethodResult, metric: &str) -> Option<Self> {
        let summary = of.metrics.get(metric)?;
        let test = of.test(metric);
        // Means over seeds are no longer counts. All cells of a row have the same format.
        let shown = |value: f64| match compared.has_seeds() {
            true => four_decimals(value),
            false => compared.suite.shown(metric, value),
        };
        Some(Self {
            mean: shown(summary.mean),
            deviation: summary.sample_std.map(shown),
            conclusion: test.map(|test| test.conclusion),
            is_better: test.and_then(|test| test.is_better),
        })
    }

    /// Returns a mark for a tested difference: significant, small in parentheses, or not significant.
    fn mark(&self) -> String {
        let mark = match self.is_better {
            Some(true) => "▲",
            Some(false) => "▼",
            None => "≠",
        };
        match self.conclusion {
            Some(Conclusion::Significant) => format!(" {mark}"),
            Some(Conclusion::SignificantSmall) => format!(" ({mark})"),
            Some(Conclusion::NotSignificant) => " ≈".to_owned(),
            None => String::new(),
        }
    }

    fn text(&self, plus_minus: &str) -> String {
        match &self.deviation {
            Some(deviation) => format!("{}{plus_minus}{deviation}", self.mean),
            None => self.mean.clone(),
        }
    }
}

/// Explains the marks of a table.
const MARKS: &str =
    "▲ better, ▼ worse, ≠ different from the first method, ≈ no significant difference";
/// Explains the marks of a LaTeX table.
const LATEX_MARKS: &str = "$+$ better, $-$ worse, $\\neq$ different from the first method, $\\approx$ no significant difference";
/// Explains what makes a difference significant.
const DECISION: &str = "p < 0.05 after Holm's correction; in parentheses if |d| < 0.3";
/// Explains cells without a mark.
const UNMARKED: &str = "Metrics without a mark were not tested.";
/// In place of the explanation of marks, if there are none.
const UNTESTED: &str =
    "No difference was tested, because no metric has several values in each method.";
/// Explains the spread.
const SPREAD: &str = "± is the standard deviation over seeds.";

impl Compared {
    /// Returns whether a method has several seeds.
    fn has_seeds(&self) -> bool {
        self.methods.iter().any(|of| of.seeds > 1)
    }

    /// Returns the names of all metrics.
    pub(crate) fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.methods.iter().flat_map(|of| of.metrics.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns a header and a row per metric.
    pub(crate) fn rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let header = std::iter::once("metric".to_owned());
        let header = header.chain(self.methods.iter().map(|of| of.name.clone())).collect();
        let row = |name: &&str| {
            let cells = self.methods.iter().map(|of| {
                let cell = Cell::new(self, of, name);
                cell.map_or_else(String::new, |cell| cell.text(" ± ") + &cell.mark())
            });
            std::iter::once((*name).to_owned()).chain(cells).collect()
        };
        (header, self.metrics().iter().map(row).collect())
    }

    /// Returns a Markdown table with a legend.
    pub(crate) fn markdown(&self) -> String {
        let (header, rows) = self.rows();
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| markdown_text(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = format!("|---|{}\n", "---:|".repeat(header.len() - 1));
        let body: String = rows.iter().map(|row| line(row)).collect();
        let front = self.front_with(markdown_text);
        format!("{}{rule}{body}\n{}\n{front}", line(&header), self.legend())
    }

    /// Explains the marks and the spread.
    pub(crate) fn legend(&self) -> String {
        self.legend_with(MARKS)
    }

    fn legend_with(&self, marks: &str) -> String {
        let tests = self.decision().map(|decision| format!("{marks}: {decision}. {UNMARKED}"));
        let seeds = self.has_seeds().then(|| SPREAD.to_owned());
        let tests = tests.unwrap_or_else(|| UNTESTED.to_owned());
        std::iter::once(tests).chain(seeds).collect::<Vec<String>>().join(" ")
    }

    /// Returns which test decides, and when, or `None` without tests.
    pub(crate) fn decision(&self) -> Option<String> {
        let tests: Vec<TestKind> =
            self.methods.iter().flat_map(|of| &of.tests).map(|test| test.test).collect();
        let names = [
            (TestKind::WilcoxonSignedRank, "Wilcoxon signed-rank test over prompts"),
            (TestKind::MannWhitney, "Mann–Whitney test over the texts of all seeds"),
        ];
        let used = names.into_iter().filter(|(kind, _)| tests.contains(kind));
        let used: Vec<&str> = used.map(|(_, name)| name).collect();
        (!used.is_empty()).then(|| format!("{}, {DECISION}", used.join(" or ")))
    }

    /// Returns a sentence about the Pareto front.
    pub(crate) fn front(&self) -> String {
        self.front_with(str::to_owned)
    }

    /// Like [`Self::front`], with names that `escape` has passed.
    fn front_with(&self, escape: fn(&str) -> String) -> String {
        let (Some([one, other]), Some(front)) = (&self.objectives, &self.pareto) else {
            return String::new();
        };
        let names = front.optimal.iter().map(|index| escape(&self.methods[*index].name));
        let names: Vec<String> = names.collect();
        let [one, other] = [one, other].map(|name| escape(name));
        format!("\nPareto front of {one} and {other}: {}.\n", names.join(", "))
    }

    /// Returns a LaTeX table in the style of `booktabs`.
    pub(crate) fn latex(&self) -> String {
        let columns = "r".repeat(self.methods.len());
        let names: Vec<String> = self.methods.iter().map(|of| escaped(&of.name)).collect();
        let mut text = format!(
            "\\begin{{tabular}}{{l{columns}}}\n\\toprule\nmetric & {} \\\\\n\\midrule\n",
            names.join(" & ")
        );
        for name in self.metrics() {
            let cells = self.methods.iter().map(|of| {
                let Some(cell) = Cell::new(self, of, name) else { return String::new() };
                let value = format!("${}$", cell.text(" \\pm "));
                let signs = [('▲', "+"), ('▼', "-"), ('≠', "\\neq"), ('≈', "\\approx")];
                let mark = cell.mark().trim().to_owned();
                let mark = signs.into_iter().fold(mark, |mark, (from, to)| mark.replace(from, to));
                match mark.is_empty() {
                    true => value,
                    false => format!("{}^{{{mark}}}$", value.trim_end_matches('$')),
                }
            });
            let cells: Vec<String> = cells.collect();
            text += &format!("{} & {} \\\\\n", escaped(name), cells.join(" & "));
        }
        text += "\\bottomrule\n\\end{tabular}\n";
        text + &format!("\n{}\n", latex_text(&self.legend_with(LATEX_MARKS)))
    }
}

/// Sets the formulas of a legend in math mode.
fn latex_text(legend: &str) -> String {
    let formulas = [("p < 0.05", "$p < 0.05$"), ("|d| < 0.3", "$|d| < 0.3$"), ("±", "$\\pm$")];
    let text = formulas.iter().fold(legend.to_owned(), |text, (from, to)| text.replace(from, to));
    text.replace('–', "--")
}

/// Escapes LaTeX's special characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in one_line(text).chars() {
        match c {
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '<' => escaped += "\\textless{}",
            '>' => escaped += "\\textgreater{}",
            '|' => escaped += "\\textbar{}",
            '^' => escaped += "\\textasciicircum{}",
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_stays_in_its_row() {
        assert_eq!(escaped("a\n& b"), "a \\& b");
        for name in ["x\n\n# h", "a\rb", "\u{1b}[2J"] {
            let error = super::super::comparison::Method::parse(&format!("{name}=g.jsonl"));
            assert!(error.unwrap_err().to_string().contains("control character"), "{name:?}");
        }
        assert!(super::super::comparison::Method::parse("a b=g.jsonl").is_ok());
    }
}
