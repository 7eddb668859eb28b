//! Comparisons as Markdown and LaTeX tables.

use grpo_eval::stats::Conclusion;

use super::comparison::{Compared, MethodResult};

/// A cell: the mean, its spread and the mark of a test.
struct Cell {
    mean: f64,
    /// Sample standard deviation over seeds.
    deviation: Option<f64>,
    conclusion: Option<Conclusion>,
    is_better: bool,
}

impl Cell {
    fn new(of: &MethodResult, metric: &str) -> Option<Self> {
        let summary = of.metrics.get(metric)?;
        let test = of.test(metric);
        Some(Self {
            mean: summary.mean,
            deviation: summary.sample_std,
            conclusion: test.map(|test| test.conclusion),
            is_better: test.is_some_and(|test| {
                test.direction.oriented(test.new_mean) > test.direction.oriented(test.baseline_mean)
            }),
        })
    }

    /// Returns ▲ or ▼ for a significant difference, small ones in parentheses.
    fn mark(&self) -> &'static str {
        match (self.conclusion, self.is_better) {
            (Some(Conclusion::Significant), true) => " ▲",
            (Some(Conclusion::Significant), false) => " ▼",
            (Some(Conclusion::SignificantSmall), true) => " (▲)",
            (Some(Conclusion::SignificantSmall), false) => " (▼)",
            _ => "",
        }
    }

    fn text(&self, plus_minus: &str) -> String {
        let mean = number(self.mean);
        match self.deviation {
            Some(deviation) => format!("{mean}{plus_minus}{}", number(deviation)),
            None => mean,
        }
    }
}

fn number(value: f64) -> String {
    match value.fract() == 0.0 && value.abs() < 1e15 {
        true => format!("{value}"),
        false => format!("{value:.4}"),
    }
}

/// Explains the marks of a table.
const MARKS: &str = "▲ better and ▼ worse than the first method: Wilcoxon signed-rank test over prompts, p < 0.05 after Holm's correction; in parentheses if |d| < 0.3.";
/// Explains the spread.
const SPREAD: &str = "± is the standard deviation over seeds.";

impl Compared {
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
                let cell = Cell::new(of, name);
                cell.map_or_else(String::new, |cell| cell.text(" ± ") + cell.mark())
            });
            std::iter::once((*name).to_owned()).chain(cells).collect()
        };
        (header, self.metrics().iter().map(row).collect())
    }

    /// Returns a Markdown table with a legend.
    pub(crate) fn markdown(&self) -> String {
        let (header, rows) = self.rows();
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = format!("|---|{}\n", "---:|".repeat(header.len() - 1));
        let body: String = rows.iter().map(|row| line(row)).collect();
        format!("{}{rule}{body}\n{}\n{}", line(&header), self.legend(), self.front())
    }

    /// Explains the marks and the spread, if the table has any.
    pub(crate) fn legend(&self) -> String {
        let has_tests = self.methods.iter().any(|of| !of.tests.is_empty());
        let has_seeds = self.methods.iter().any(|of| of.seeds > 1);
        let parts = [(has_tests, MARKS), (has_seeds, SPREAD)];
        let parts: Vec<&str> =
            parts.into_iter().filter(|(has, _)| *has).map(|(_, text)| text).collect();
        parts.join(" ")
    }

    /// Returns a sentence about the Pareto front.
    pub(crate) fn front(&self) -> String {
        let (Some([one, other]), Some(front)) = (&self.objectives, &self.pareto) else {
            return String::new();
        };
        let names: Vec<&str> =
            front.optimal.iter().map(|index| self.methods[*index].name.as_str()).collect();
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
                let Some(cell) = Cell::new(of, name) else { return String::new() };
                let value = format!("${}$", cell.text(" \\pm "));
                match cell.conclusion {
                    Some(Conclusion::Significant | Conclusion::SignificantSmall) => {
                        let star = if cell.is_better { "+" } else { "-" };
                        format!("{value}$^{{{star}}}$")
                    }
                    _ => value,
                }
            });
            let cells: Vec<String> = cells.collect();
            text += &format!("{} & {} \\\\\n", escaped(name), cells.join(" & "));
        }
        text + "\\bottomrule\n\\end{tabular}\n"
    }
}

/// Escapes LaTeX's special characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', c]),
            _ => escaped.push(c),
        }
    }
    escaped
}
