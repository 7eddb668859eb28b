//! Prints the report as tables.

use comfy_table::ContentArrangement;
use grpo_task::output::{say, table};

use super::draft::Report;

/// Prints the non-empty parts of the report.
pub(super) fn print(report: &Report) {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    let rows: Vec<[String; 4]> = report
        .taken
        .iter()
        .map(|one| [one.trl.clone(), one.value.clone(), or_dash(&one.here), one.note.clone()])
        .collect();
    show("Converted:", ["TRL", "value", "here", "note"], &rows);
    let rows: Vec<[String; 5]> = report
        .other_defaults
        .iter()
        .map(|one| {
            let [theirs, ours] = [&one.default_of_trl, &one.default_here].map(Clone::clone);
            [one.trl.clone(), theirs, ours, or_dash(&one.written), one.note.clone()]
        })
        .collect();
    let header = ["TRL", "TRL default", "default here", "written", "note"];
    show("Not set, with a different default here:", header, &rows);
    for (changes_training, title) in [
        (true, "Without a counterpart; training differs:"),
        (false, "Without a counterpart; training is the same:"),
    ] {
        let of_kind = report
            .without_counterpart
            .iter()
            .filter(|one| one.changes_training == changes_training);
        let rows: Vec<[String; 3]> = of_kind
            .map(|one| [one.trl.join(", "), one.value.clone(), one.remedy.clone()])
            .collect();
        show(title, ["TRL", "value", "reason or remedy"], &rows);
    }
    if !report.to_do.is_empty() {
        say(format_args!("Before the first run:"));
        report.to_do.iter().for_each(|sentence| say(format_args!("- {sentence}")));
    }
}

fn show<const N: usize>(title: &str, header: [&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let mut table = table(header, rows.iter().cloned(), 0..0);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    say(format_args!("{title}\n{table}\n"));
}
