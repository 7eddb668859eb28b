//! Tests that render pages of invented comparisons.

use std::collections::BTreeMap;

use super::*;

/// Creates a method whose numbers depend on `index` alone.
fn method(name: &str, index: usize) -> ComparedMethod {
    let level = 0.05 * index as f64;
    let value = |mean: f64, interval: bool| MetricValue {
        mean,
        deviation: Some(0.0125),
        interval: interval.then_some([mean - 0.03, mean + 0.04]),
    };
    let passes = [(1, 0.25), (5, 0.5), (10, 0.625)]
        .map(|(k, pass)| (format!("pass_at_{k}"), value(pass + level, true)));
    let others = [("distinct_2", 0.8 - level), ("self_bleu", 0.2 + level), ("prompts", 120.0)];
    let others = others.map(|(metric, mean)| (metric.to_owned(), value(mean, false)));
    let test = |difference: f64, is_better, significance| BaselineTest {
        difference,
        interval: Some([difference - 0.02, difference + 0.02]),
        p_value: 0.00625,
        effect: Some(0.5),
        significance,
        is_better: Some(is_better),
    };
    let tests = [
        ("pass_at_1", test(level, true, Significance::Significant)),
        ("pass_at_5", test(level, true, Significance::NotSignificant)),
        ("pass_at_10", test(level, true, Significance::SignificantSmall)),
        ("self_bleu", test(level, false, Significance::Significant)),
    ];
    let tests = tests.map(|(metric, test)| (metric.to_owned(), test));
    let curve = |seed: usize, from: f64, slope: f64| -> Vec<(u64, f64)> {
        let wave = |step: u64| 0.01 * (step as f64 * (1 + seed) as f64).sin();
        (0..=20).map(|i| (50 * i, from + slope * i as f64 + wave(i))).collect()
    };
    let run = |seed: usize| {
        let steepness = index as f64 / 1000.0;
        BTreeMap::from([
            ("self_bleu".to_owned(), curve(seed, 0.2, 0.002 + steepness)),
            ("distinct_2".to_owned(), curve(seed, 0.8, -0.002 - steepness)),
        ])
    };
    let spread = |center: f64, width: f64| -> Vec<f64> {
        let quantile = |i: usize| ((i as f64 + 0.5) / 300.0 - 0.5) * 2.0;
        (0..300).map(|i| center + width * quantile(i).powi(3)).collect()
    };
    ComparedMethod {
        name: name.to_owned(),
        files: (1..=3).map(|seed| format!("outputs/{name}-{seed}.jsonl")).collect(),
        metrics: passes.into_iter().chain(others).collect(),
        tests: if index == 0 { BTreeMap::new() } else { tests.into() },
        properties: BTreeMap::from([
            ("logp".to_owned(), spread(2.0 + level * 4.0, 1.5)),
            ("qed".to_owned(), spread(0.6 + level, 0.25)),
        ]),
        dynamics: (0..3).map(run).collect(),
    }
}

/// Creates a comparison of methods with these names.
fn example(names: &[&str]) -> ComparisonPage {
    let directions = ["pass_at_1", "pass_at_5", "pass_at_10", "distinct_2"]
        .map(|metric| (metric.to_owned(), MetricDirection::HigherIsBetter));
    let lower = [("self_bleu".to_owned(), MetricDirection::LowerIsBetter)];
    ComparisonPage {
        command: "grpo compare base=b1.jsonl,b2.jsonl".to_owned(),
        suite: "text".to_owned(),
        prompts: Some(120),
        methods: names.iter().enumerate().map(|(index, name)| method(name, index)).collect(),
        directions: directions.into_iter().chain(lower).collect(),
        interval: "95 % bootstrap interval over prompts".to_owned(),
        test: "Wilcoxon signed-rank test, p < 0.05 after Holm's correction".to_owned(),
        front: Some(FrontChart {
            objectives: ["pass_at_1".to_owned(), "distinct_2".to_owned()],
            optimal: (0..names.len()).collect(),
        }),
        phases: vec![PhaseBoundary { step: 400, label: "GRPO begins".to_owned() }],
    }
}

/// Renders a page and returns what follows the style sheet, with slashes, which the template engine
/// escapes as well, restored.
fn render(page: &ComparisonPage) -> String {
    let page = render_comparison(page).unwrap();
    let (_, body) = page.split_once("</style>").unwrap();
    body.replace("&#x2f;", "/")
}

/// Returns the titles of all charts.
fn titles(page: &ComparisonPage) -> Vec<String> {
    comparison_charts(page).unwrap().into_iter().map(|chart| chart.title).collect()
}

#[test]
fn a_page_has_methods_metrics_charts_and_tests() {
    let page = render(&example(&["base", "sft", "grpo"]));
    for words in [
        "<h1>base · sft · grpo</h1>",
        "<dt>baseline</dt><dd>base</dd>",
        "<code>grpo compare base=b1.jsonl,b2.jsonl</code>",
        "<code>outputs/grpo-3.jsonl</code>",
        "<span class=\"good\">2 better</span>, <span class=\"bad\">1 worse</span>, 1 not significant",
        "<b>0.2500</b><span>± 0.0125</span></td>",
        "<b>0.3500</b><span>± 0.0125</span><span class=\"good\" title=\"significantly better than the baseline\">+0.1000 ▲</span>",
        "<span class=\"bad\" title=\"significantly worse than the baseline\">+0.1000 ▼</span>",
        "+0.1000 (▲)</span>",
        "title=\"not significant\">+0.1000 ≈</span>",
        // Not tested, and not better or worse in any direction.
        "<b>0.7000</b><span>± 0.0125</span><span class=\"\">-0.1000</span>",
        "<b>120</b><span>± 0.0125</span><span class=\"\">0</span>",
        "<code>self_bleu</code> ↓</th>",
        "<code>distinct_2</code> ↑</th>",
        "<code>prompts</code></th>",
        "<dt>▼</dt><dd>worse: Wilcoxon signed-rank test, p &lt; 0.05 after Holm&#x27;s correction</dd>",
        "<dt>≈</dt><dd>tested, not significant</dd>",
        "<td class=\"words\">sft</td><td>+0.0500</td><td>[0.0300, 0.0700]</td><td>0.00625</td><td>0.5</td>",
        "<td class=\"words bad\">▼ significantly worse than the baseline</td>",
    ] {
        assert!(page.contains(words), "{words:?} is not in {page}");
    }
    assert_eq!(page.matches("<svg class=\"plot\"").count(), 6);
    assert!(!page.contains("NaN") && !page.contains("<script"));
    // Two methods with four tests each.
    assert_eq!(page.split("id=\"tests\"").nth(1).unwrap().matches("<tr><td>").count(), 8);
    let order = ["pass_at_1<", "pass_at_5<", "pass_at_10<"].map(|name| page.find(name).unwrap());
    assert!(order.is_sorted());
}

#[test]
fn the_legend_explains_what_is_there_and_nothing_else() {
    let mut page = example(&["base", "grpo"]);
    let symbols = |page: &ComparisonPage| -> Vec<&str> {
        table::legend(page).into_iter().map(|(symbol, _)| symbol).collect()
    };
    assert_eq!(symbols(&page), ["±", "+ −", "▲", "▼", "(▲)", "≈", "no mark", "↑", "↓"]);
    page.directions.clear();
    page.methods[1].tests.values_mut().for_each(|test| test.is_better = None);
    assert_eq!(symbols(&page), ["±", "+ −", "≠", "(≠)", "≈", "no mark"]);
    page.methods[1].tests.clear();
    page.methods[1].metrics.remove("prompts");
    for method in &mut page.methods {
        method.metrics.values_mut().for_each(|value| value.deviation = None);
    }
    assert_eq!(symbols(&page), ["[…]", "+ −", "–"]);
}

#[test]
fn charts_without_data_are_left_out() {
    let mut page = example(&["base", "grpo"]);
    let all = [
        "Pass@k",
        "Pareto front of pass_at_1 and distinct_2",
        "distinct_2 during training",
        "self_bleu during training",
        "Distribution of logp",
        "Distribution of qed",
    ];
    assert_eq!(titles(&page), all);
    for method in &mut page.methods {
        method.metrics.remove("pass_at_5");
        method.metrics.remove("pass_at_10");
        method.properties.clear();
        method.dynamics.clear();
    }
    assert_eq!(titles(&page), all[1..2], "a single k is not a curve");
    page.front = None;
    assert!(titles(&page).is_empty());
    assert!(!render(&page).contains("id=\"charts\""));
    let bare = ComparisonPage {
        methods: vec![ComparedMethod { name: "base".to_owned(), ..ComparedMethod::default() }],
        ..ComparisonPage::default()
    };
    assert!(!render(&bare).contains("id=\"metrics\""));
}

#[test]
fn absent_and_undefined_numbers_are_dashes_and_not_drawn() {
    let mut page = example(&["base", "grpo"]);
    let grpo = &mut page.methods[1];
    grpo.metrics.get_mut("pass_at_5").unwrap().mean = f64::NAN;
    grpo.metrics.get_mut("pass_at_10").unwrap().interval = Some([f64::NAN, 1.0]);
    grpo.metrics.remove("distinct_2");
    grpo.tests.get_mut("self_bleu").unwrap().p_value = f64::NAN;
    grpo.properties.insert("qed".to_owned(), vec![f64::NAN, f64::INFINITY, 0.5]);
    grpo.dynamics[0].insert("self_bleu".to_owned(), vec![(50, f64::NAN), (100, 0.5)]);
    let text = render(&page);
    assert_eq!(text.matches("<td><b>–</b></td>").count(), 2, "{text}");
    assert!(text.contains("<td>–</td><td>0.5</td>"));
    for (text, name) in comparison_charts(&page)
        .unwrap()
        .iter()
        .map(|chart| (&chart.svg, chart.title.as_str()))
        .chain([(&text, "page")])
    {
        assert!(!text.contains("NaN") && !text.contains("inf\""), "{name}: {text}");
    }
    // The method has no place in the Pareto chart.
    let front = &comparison_charts(&page).unwrap()[1].svg;
    assert_eq!(front.matches("<circle").count(), 1);
    page.methods.iter_mut().for_each(|of| {
        of.metrics.values_mut().for_each(|value| value.mean = f64::INFINITY);
    });
    assert!(!titles(&page).iter().any(|title| title.starts_with("Pa")), "{:?}", titles(&page));
}

#[test]
fn names_are_escaped_and_cannot_change_files_or_colours() {
    let evil = "<script>alert(1)</script>\"' \u{1b}&/../ fill=\"#010101\"";
    let mut page = example(&["base", evil]);
    page.command = evil.to_owned();
    page.phases[0].label = evil.to_owned();
    let value = page.methods[0].metrics["distinct_2"];
    for method in &mut page.methods {
        method.metrics.insert(evil.to_owned(), value);
        method.properties.insert(evil.to_owned(), vec![1.0, 2.0]);
        let run = &mut method.dynamics[0];
        run.insert(evil.to_owned(), vec![(0, 1.0), (1, 2.0)]);
        run.insert(evil.replace('/', "+"), vec![(0, 1.0), (1, 2.0)]);
    }
    page.front.as_mut().unwrap().objectives[1] = evil.to_owned();
    let text = render(&page);
    let charts = comparison_charts(&page).unwrap();
    for text in charts.iter().map(|chart| &chart.svg).chain([&text]) {
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
    // The page loads nothing. The only URLs are XML namespaces.
    let namespaces = text.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
    assert_eq!((text.matches("http").count(), text.contains("src=\"")), (namespaces, false));
    let head = render_comparison(&page).unwrap();
    assert!(head.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    let mut files: Vec<&str> = charts.iter().map(|chart| chart.file_name.as_str()).collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    assert!(files.iter().all(|file| file.chars().all(is_plain) && !file.contains("..")));
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), charts.len(), "{files:?}");
    assert!(charts.iter().all(|chart| !chart.svg.contains("=\"#010101\"")));
}

#[test]
fn a_chart_is_a_document_with_its_title_names_and_axes() {
    let charts = comparison_charts(&example(&["base", "sft", "grpo"])).unwrap();
    let chart = |file: &str| &charts.iter().find(|chart| chart.file_name == file).unwrap().svg;
    for chart in &charts {
        assert!(chart.svg.starts_with("<svg width=\"560\" height=\""), "{}", chart.svg);
        assert!(chart.svg.trim_end().ends_with("</svg>"));
        for words in [chart.title.as_str(), "base\n", "sft\n", "grpo\n"] {
            assert!(chart.svg.contains(&format!(">\n{}\n", words.trim())), "{words}");
        }
    }
    let passes = chart("pass_at_k.svg");
    // A band, a line and three points per method. Labels are the values of k.
    assert_eq!(passes.matches("<polygon").count(), 3);
    assert_eq!(passes.matches("<circle").count(), 9);
    for k in ["1", "5", "10", "k (logarithmic)"] {
        assert!(passes.contains(&format!(">\n{k}\n</text>")), "{k}");
    }
    let training = chart("training_self_bleu.svg");
    assert!(training.contains(">\nGRPO begins\n</text>"));
    assert_eq!(training.matches("stroke-dasharray").count(), 1);
    assert!(chart("pareto_front.svg").contains("distinct_2 (higher is better)"));
    assert_eq!(chart("distribution_logp.svg").matches("<polygon").count(), 3);
}

#[test]
fn the_pareto_front_is_the_border_of_what_is_dominated() {
    let corner = |objectives: [&str; 2]| {
        let mut page = example(&["a", "b"]);
        page.front.as_mut().unwrap().objectives = objectives.map(str::to_owned);
        let figures = charts::figures(&page);
        figures[1].chart.guides[0].clone()
    };
    let [a, b] = [0.25, 0.25 + 0.05];
    let [high, low] = [0.8, 0.8 - 0.05];
    // Both are better if they are higher: the corner has the lower values.
    assert_eq!(corner(["pass_at_1", "distinct_2"]), [(a, high), (a, low), (b, low)]);
    // A lower self-BLEU is better: the corner has the higher one.
    let bleu = [0.2, 0.2 + 0.05];
    let expected = [(a, bleu[0]), (a, bleu[1]), (b, bleu[1])];
    assert_eq!(corner(["pass_at_1", "self_bleu"]), expected);
}

#[test]
fn curves_are_means_over_seeds_at_their_common_steps() {
    let mut page = example(&["base", "grpo"]);
    let run = |values: &[(u64, f64)]| BTreeMap::from([("entropy".to_owned(), values.to_vec())]);
    page.methods[0].dynamics =
        vec![run(&[(0, 1.0), (10, 2.0), (20, 9.0)]), run(&[(0, 3.0), (10, 6.0)])];
    page.methods[1].dynamics = vec![run(&[(0, 1.0)]), run(&[(5, 1.0)])];
    let figures = charts::figures(&page);
    let figure = figures.iter().find(|figure| figure.title == "entropy during training").unwrap();
    assert_eq!(figure.chart.curves.len(), 1);
    assert_eq!(figure.chart.curves[0].line, [(0.0, 2.0), (10.0, 4.0)]);
    assert_eq!(figure.chart.bands[0].lower, [(0.0, 1.0), (10.0, 2.0)]);
    assert_eq!(figure.chart.bands[0].upper, [(0.0, 3.0), (10.0, 6.0)]);
    assert!(figure.caption.contains("Without common steps and not drawn: grpo."));
}

#[test]
fn an_outlier_does_not_squeeze_a_histogram() {
    let mut page = example(&["base", "grpo"]);
    page.methods[0].properties.get_mut("qed").unwrap().push(1e6);
    let figures = charts::figures(&page);
    let figure = figures.iter().find(|figure| figure.title == "Distribution of qed").unwrap();
    assert!(figure.caption.contains(" values are outside of the axis."), "{}", figure.caption);
    let highest = figure.chart.curves[0].line.iter().map(|point| point.0).fold(0.0, f64::max);
    assert!(highest < 2.0, "{highest}");
    // The shares of the bins are those of all values, also of the ones that are not drawn.
    for (curve, method) in figure.chart.curves.iter().zip(&page.methods) {
        let (low, high) = (curve.line[0].0, curve.line.last().unwrap().0);
        let values = &method.properties["qed"];
        let inside = values.iter().filter(|value| (low..=high).contains(*value)).count();
        let bins = curve.line[1..curve.line.len() - 1].chunks(2).map(|pair| pair[0].1);
        let (sum, expected) = (bins.sum::<f64>(), inside as f64 / values.len() as f64);
        assert!((sum - expected).abs() < 1e-12, "{sum} instead of {expected}");
    }
    // Equal values have a bin as well.
    for method in &mut page.methods {
        method.properties = BTreeMap::from([("logp".to_owned(), vec![2.0; 5])]);
    }
    assert!(titles(&page).contains(&"Distribution of logp".to_owned()));
}

#[test]
fn twelve_methods_differ_in_colour_or_dashes() {
    let names: Vec<String> =
        (0..12).map(|i| format!("a method with quite a long name, variant {i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let page = example(&names);
    let text = render(&page);
    assert!(text.contains("<h1>a method with quite a long name, variant 0 and 11 other methods"));
    let legend = text.split("<p class=\"legend\">").nth(1).unwrap().split("</p>").next().unwrap();
    let mut keys: Vec<&str> = legend.split("<span>").skip(1).map(|key| &key[..60]).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 12);
    // Names in the chart are shortened in the middle, where they are equal.
    let front = &comparison_charts(&page).unwrap()[1].svg;
    assert!(front.contains(">\na method wit… variant 11\n"), "{front}");
}

#[test]
fn numbers_of_any_size_are_drawn_or_left_out() {
    for values in
        [[1e300, -1e300], [1e99, -1e99], [1e-300, 2e-300], [1e15, 1e15 + 0.25], [-1e9, 0.5]]
    {
        let mut page = example(&["base", "grpo"]);
        for (method, value) in page.methods.iter_mut().zip(values) {
            method.metrics.values_mut().for_each(|of| of.mean = value);
            let run = [(0, value), (1 << 49, value), (u64::MAX, value)];
            method.dynamics = vec![BTreeMap::from([("self_bleu".to_owned(), run.to_vec())])];
            method.properties = BTreeMap::from([("logp".to_owned(), values.to_vec())]);
            let pass = MetricValue { mean: value, deviation: None, interval: Some(values) };
            method.metrics.insert(format!("pass_at_{}", u32::MAX), pass);
        }
        page.phases[0].step = u64::MAX;
        let figures = charts::figures(&page);
        let of_training = figures.iter().find(|figure| figure.file == "training_self_bleu");
        for curve in of_training.iter().flat_map(|figure| &figure.chart.curves) {
            assert_eq!(curve.line.len(), 2, "the last step is implausible");
        }
        let text = render(&page);
        assert!(!text.contains("NaN") && !text.contains("inf\""), "{values:?}: {text}");
        for chart in comparison_charts(&page).unwrap() {
            assert!(!chart.svg.contains("NaN"), "{values:?}: {}", chart.svg);
        }
    }
    // Means that differ by rounding alone are equal.
    let mut page = example(&["base", "grpo"]);
    page.methods[0].metrics.get_mut("prompts").unwrap().mean = 0.1 + 0.2;
    page.methods[1].metrics.get_mut("prompts").unwrap().mean = 0.3;
    assert!(render(&page).contains("<b>0.3000</b><span>± 0.0125</span><span class=\"\">0</span>"));
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let error = |page: &ComparisonPage| render_comparison(page).unwrap_err().to_string();
    assert_eq!(
        error(&ComparisonPage::default()),
        "cannot draw the comparison: the list of methods is empty; add at least one"
    );
    let mut page = example(&["base", "base"]);
    assert_eq!(
        error(&page),
        "cannot draw the comparison: two methods are named `base`; rename one"
    );
    page.methods[1].name = "grpo".to_owned();
    page.front.as_mut().unwrap().optimal = vec![2];
    assert_eq!(
        error(&page),
        "cannot draw the comparison: the Pareto front contains method 2, but there are 2; count from 0"
    );
    assert!(comparison_charts(&page).is_err());
}

#[test]
fn the_same_comparison_gives_the_same_page() {
    let page = || render_comparison(&example(&["base", "grpo"])).unwrap();
    assert_eq!(page(), page());
}
