//! The table with the best completions of a run.

use grpo_run::{BestSample, BestTable};
use serde::Serialize;

use crate::RunData;
use crate::numbers::number;

/// The best completions of all steps.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BestRows {
    /// Name of the column with the completions.
    column: String,
    parts: Vec<String>,
    /// Whether any completion has a drawing.
    is_drawn: bool,
    rows: Vec<BestRow>,
    /// Number of completions that do not fit in the table.
    left_out: usize,
}

#[derive(Clone, Debug, Serialize)]
struct BestRow {
    rank: usize,
    drawing: String,
    reward: String,
    step: u32,
    parts: Vec<String>,
    text: String,
}

/// Maximum number of rows.
const ROWS: usize = 100;

impl BestRows {
    /// Creates the table. Returns `None` if the run has no best completions.
    pub(crate) fn new(run: &RunData) -> Option<Self> {
        let BestTable { column, parts, samples } = run.best.as_ref()?;
        // A component with the same value everywhere, such as `valid`, is not informative.
        let is_shown = |name: &&String| {
            let values = || samples.iter().map(|sample| sample.parts.get(*name));
            values().any(|value| value != values().next().flatten())
        };
        let parts: Vec<&String> = parts.iter().filter(is_shown).collect();
        let row = |(index, sample): (usize, &BestSample)| BestRow {
            rank: index + 1,
            drawing: run.drawing.and_then(|of| (of.draw)(&sample.text)).unwrap_or_default(),
            reward: number(sample.reward),
            step: sample.step,
            parts: (parts.iter())
                .map(|name| sample.parts.get(*name).map_or_else(String::new, |v| number(*v)))
                .collect(),
            text: sample.text.clone(),
        };
        let rows: Vec<BestRow> = samples.iter().take(ROWS).enumerate().map(row).collect();
        (!rows.is_empty()).then(|| Self {
            column: column.clone(),
            parts: parts.iter().map(|name| (*name).clone()).collect(),
            is_drawn: rows.iter().any(|row| !row.drawing.is_empty()),
            left_out: samples.len() - rows.len(),
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{render, run};

    #[test]
    fn the_best_completions_are_a_table_with_drawings() {
        let sample = |text: &str, reward: f64| BestSample {
            text: text.to_owned(),
            step: 3,
            reward,
            parts: [("valid".to_owned(), 1.0), ("qed".to_owned(), reward)].into(),
        };
        let table = BestTable {
            column: "smiles".to_owned(),
            parts: vec!["valid".to_owned(), "qed".to_owned()],
            samples: vec![sample("CC<O", 0.75), sample("C", 0.5)],
        };
        let page = render(&[RunData { best: Some(table), ..run("a", 2) }]);
        assert_eq!(page.matches("<td class=\"structure\"><svg").count(), 2);
        assert!(page.contains("<th data-kind=\"number\">qed</th>"), "{page}");
        // All molecules are valid.
        assert!(!page.contains("<th data-kind=\"number\">valid</th>"));
        assert!(page.contains("<td class=\"text\">CC&lt;O</td>"));
        assert!(!page.contains(">0 more are in"));
        assert_eq!(page.matches("<tr><td>1</td>").count(), 1);
    }
}
