//! The HTML page.

use serde::Serialize;

use super::charts;
use super::data::ComparisonPage;
use super::methods::{self, MethodRow};
use super::table::{self, MetricRow, TestRow};
use crate::figure::Figure;
use crate::html;
use crate::panels::Panel;

/// Template variables.
#[derive(Serialize)]
struct Page<'a> {
    title: String,
    style: String,
    suite: &'a str,
    prompts: Option<usize>,
    command: &'a str,
    /// First words of the command line.
    program: String,
    baseline: &'a str,
    has_baseline: bool,
    methods: Vec<MethodRow>,
    has_counts: bool,
    rows: Vec<MetricRow>,
    legend: Vec<(&'static str, String)>,
    panels: Vec<Panel>,
    tests: Vec<TestRow>,
    test: &'a str,
}

/// Renders the page of a valid comparison.
pub(super) fn render(page: &ComparisonPage) -> String {
    let tests = table::tests(page);
    let variables = Page {
        title: title(page),
        style: [html::STYLE, STYLE].concat(),
        suite: &page.suite,
        prompts: page.prompts,
        command: &page.command,
        program: page.command.split(' ').take(2).collect::<Vec<_>>().join(" "),
        baseline: &page.methods[0].name,
        has_baseline: page.methods.len() > 1,
        methods: methods::rows(page),
        has_counts: !tests.is_empty(),
        rows: table::rows(page),
        legend: table::legend(page),
        panels: charts::figures(page).iter().map(Figure::panel).collect(),
        tests,
        test: &page.test,
    };
    html::render(TEMPLATE, variables)
}

const TEMPLATE: &str = include_str!("comparison.html.j2");
const STYLE: &str = include_str!("comparison.css");

/// Names up to three methods.
fn title(page: &ComparisonPage) -> String {
    let names: Vec<&str> = page.methods.iter().map(|method| method.name.as_str()).collect();
    match names.len() {
        1..=3 => names.join(" · "),
        count => format!("{} and {} other methods", names[0], count - 1),
    }
}
