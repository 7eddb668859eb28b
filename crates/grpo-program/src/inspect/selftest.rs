//! `grpo selftest`: checks the program's mathematics against reference computations and values from
//! TRL.

use std::time::Instant;

use comfy_table::{ContentArrangement, Table};
use grpo_selftest::{Miss, Options, Report, Suite};
use grpo_task::device;
use grpo_task::output::{say, say_data, table};
use grpo_task::task::Tasks;
use serde_json::{Value, json};

use crate::args::SelftestArguments;

pub(crate) fn run(arguments: &SelftestArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let device = device::device()?;
    let begin = Instant::now();
    let golden = arguments.golden.clone();
    let report = grpo_selftest::run(&Options { golden, device, families: tasks.families() })?;
    if arguments.json {
        say_data(format_args!("{:#}", json_of(&report)));
    } else {
        show(&report);
    }
    let of_all = |count: fn(&Suite) -> usize| report.suites.iter().map(count).sum::<usize>();
    let (cases, missed) = (of_all(|suite| suite.cases), of_all(|suite| suite.missed_cases));
    let seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(report.passed(), "{missed} of {cases} cases are out of tolerance");
    if !arguments.json {
        say(format_args!("{cases} cases, all within tolerance, in {seconds:.1} s"));
    }
    Ok(())
}

/// Returns the report as JSON.
fn json_of(report: &Report) -> Value {
    let suite = |suite: &Suite| {
        json!({
            "suite": suite.name,
            "against": suite.against,
            "numbers": suite.precision.to_string(),
            "cases": suite.cases,
            "missed_cases": suite.missed_cases,
            "rounded_cases": suite.rounded_cases,
            "largest_absolute_error": suite.worst_absolute,
            "largest_relative_error": suite.worst_relative,
            "left_out": suite.left_out,
        })
    };
    json!({
        "passed": report.passed(),
        "suites": report.suites.iter().map(suite).collect::<Vec<_>>(),
    })
}

fn show(report: &Report) {
    say(format_args!("{}", table_of(report)));
    for suite in report.suites.iter().filter(|suite| !suite.misses.is_empty()) {
        say(format_args!("\n{}, {}, against {}:", suite.name, suite.precision, suite.against));
        for miss in &suite.misses {
            say(format_args!("  {}", sentence(miss)));
        }
        let more = suite.missed_cases - suite.misses.len();
        if more > 0 {
            say(format_args!("  … and {more} more cases"));
        }
    }
    if report.suites.iter().any(|suite| suite.rounded_cases > 0) {
        say(format_args!(
            "by rounding: TRL used f64 inputs; rounding them to f32 alone changes the result of the f64 loops by more than the tolerance"
        ));
    }
}

fn table_of(report: &Report) -> Table {
    let header = ["suite", "against", "numbers", "cases", "largest error", "relative", "verdict"];
    let mut table = table(header, report.suites.iter().map(row), 3..=5);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table
}

fn row(suite: &Suite) -> [String; 7] {
    let (name, against) = (suite.name.to_owned(), suite.against.clone());
    let numbers = suite.precision.to_string();
    if let Some(why) = suite.left_out {
        let [none, nothing, neither] = ["–"; 3].map(str::to_owned);
        return [name, against, numbers, none, nothing, neither, format!("left out: {why}")];
    }
    let verdict = match (suite.missed_cases, suite.rounded_cases) {
        (0, 0) => "pass".to_owned(),
        (0, rounded) => format!("pass, {rounded} by rounding"),
        (missed, _) => format!("{missed} MISSED"),
    };
    [
        name,
        against,
        numbers,
        suite.cases.to_string(),
        format!("{:.1e}", suite.worst_absolute),
        format!("{:.1e}", suite.worst_relative),
        verdict,
    ]
}

fn sentence(miss: &Miss) -> String {
    let Miss { case, label, what, expected, got, tolerance } = miss;
    let value = |value: f64| match value.is_nan() {
        true => "none".to_owned(),
        false => value.to_string(),
    };
    format!(
        "case {case} ({label}): {what} is {}, expected {} (within {tolerance:.1e})",
        value(*got),
        value(*expected)
    )
}
