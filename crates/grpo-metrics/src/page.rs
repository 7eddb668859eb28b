//! Tables of metrics in a Markdown page.

use std::fmt::Write;

use crate::MetricTable;

/// Begins a table. The names of its groups follow.
const BEGIN: &str = "<!-- metrics ";
const END_OF_BEGIN: &str = " -->";
const END: &str = "<!-- end of metrics -->";

/// Returns a page with up-to-date tables. Each stands between a comment such as `<!-- metrics loss combined -->`,
/// with the names of its groups, and `<!-- end of metrics -->`.
///
/// # Errors
/// Returns a sentence if a comment is not closed, or if a group has no place on the page or several.
pub fn with_metrics(page: &str, table: &MetricTable) -> Result<String, String> {
    let (mut new, mut placed) = (String::new(), Vec::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        new.extend([line, "\n"]);
        let Some(names) = line.strip_prefix(BEGIN).and_then(|it| it.strip_suffix(END_OF_BEGIN))
        else {
            continue;
        };
        if !lines.any(|line| line == END) {
            return Err(format!("`{line}` is not closed; add {END}"));
        }
        let names: Vec<&str> = names.split(' ').collect();
        new.push_str("\n| name | meaning | unit or range |\n|---|---|---|\n");
        for name in &names {
            let groups = table.groups().iter().filter(|group| group.name == *name);
            for spec in groups.flat_map(|group| group.metrics) {
                let machine = if spec.is_of_machine { " ⏱" } else { "" };
                let (name, meaning) = (spec.name, spec.sentences().replace('|', "\\|"));
                let unit = spec.unit;
                // Writing to a string cannot fail.
                let _ = writeln!(new, "| `{name}`{machine} | {meaning} | {unit} |");
            }
        }
        new.extend(["\n", END, "\n"]);
        placed.extend(names);
    }
    for group in table.groups() {
        let name = group.name;
        match placed.iter().filter(|placed| **placed == name).count() {
            1 => {}
            0 => {
                let comment = format!("{BEGIN}{name}{END_OF_BEGIN}");
                return Err(format!(
                    "the page has no place for the metrics `{name}`; add {comment}"
                ));
            }
            _ => return Err(format!("the metrics `{name}` stand twice on the page; remove one")),
        }
    }
    match placed.iter().find(|name| table.groups().iter().all(|group| group.name != **name)) {
        Some(name) => Err(format!("there are no metrics `{name}`; remove them from the page")),
        None => Ok(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MetricGroup, MetricSpec};

    static TIMES: [MetricSpec; 2] = [
        MetricSpec::new("step_time", "seconds", "duration |of a step|").of_machine(),
        MetricSpec::new("kl", "", "divergence").requires("a reference"),
    ];

    #[test]
    fn tables_are_written() {
        let table = MetricTable::new([MetricGroup { name: "times", section: "", metrics: &TIMES }]);
        let page = "# Title\n<!-- metrics times -->\nold\n<!-- end of metrics -->\nrest\n";
        let new = "# Title\n<!-- metrics times -->\n\n| name | meaning | unit or range |\n|---|---|---|\n| `step_time` ⏱ | duration \\|of a step\\| | seconds |\n| `kl` | divergence. Requires a reference |  |\n\n<!-- end of metrics -->\nrest\n";
        assert_eq!(with_metrics(page, &table).unwrap(), new);
        assert_eq!(with_metrics(new, &table).unwrap(), new);
        for (page, expected) in [
            ("", "the page has no place for the metrics `times`; add <!-- metrics times -->"),
            (
                "<!-- metrics times -->",
                "`<!-- metrics times -->` is not closed; add <!-- end of metrics -->",
            ),
            (&format!("{new}{new}"), "the metrics `times` stand twice on the page; remove one"),
            (
                &new.replace("metrics times", "metrics times tmes"),
                "there are no metrics `tmes`; remove them from the page",
            ),
        ] {
            assert_eq!(with_metrics(page, &table).unwrap_err(), expected);
        }
    }
}
