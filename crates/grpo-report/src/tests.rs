//! Tests that render pages of constructed runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use grpo_data::{Finish, TokenColumns};
use grpo_metrics::{MetricGroup, MetricSpec, MetricTable, Role};
use grpo_run::{
    ComparedSample, Comparison, CompletionRecord, DiversityScale, Event, EventKind, Measure,
    RecordedOutcome, RunInfo,
};
use serde_json::{Map, Value, json};

use crate::run_data::{RewardsOfStep, rewards_of};
use crate::{Drawing, RunData, SuccessCriteria};

/// Creates a run with `steps` steps. Completions of the first and the last step are recorded.
pub(crate) fn run(name: &str, steps: u64) -> RunData {
    let config = "model = \"prior\"\nseed = 1\n[train]\nsteps = 40\n[reward]\ntype = \"molecule\"\n[loss]\npreset = \"grpo\"\n";
    RunData {
        path: PathBuf::from("runs").join(name),
        name: name.to_owned(),
        info: RunInfo {
            config_sha256: String::new(),
            command: vec!["grpo".to_owned()],
            started: "2026-01-31T12:00:00Z".to_owned(),
            versions: BTreeMap::from([("grpo".to_owned(), "0.1.0".to_owned())]),
            git_revision: None,
            seed: 1,
            device: "cpu".to_owned(),
            gpu: None,
            threads: 4,
            chained: false,
            data: Vec::new(),
        },
        config: config.parse().unwrap(),
        metrics: (1..=steps).map(metrics).collect(),
        events: Vec::new(),
        rewards: [1, steps]
            .map(|step| RewardsOfStep { step, quantiles: [0.1, 0.4, 0.5, 0.6, 0.9] })
            .into(),
        samples: vec![
            (1, vec![completion(1, "CCO", 0.3), completion(1, "c1ccccc1", 0.7)]),
            (steps, vec![completion(steps, "C1CC", 0.0)]),
        ],
        validation_samples: Vec::new(),
        comparison: None,
        criteria: SuccessCriteria::default(),
        best: None,
        transforms: Vec::new(),
        table: MetricTable::new([MetricGroup { name: "", section: "", metrics: &METRICS }]),
        drawing: Some(Drawing { draw, canonical: |text| Some(text.to_uppercase()) }),
        audit: Vec::new(),
    }
}

static METRICS: [MetricSpec; 21] = [
    MetricSpec::new("step", "", "").hidden(),
    MetricSpec::new("train_step", "", "").hidden(),
    MetricSpec::new("reward", "", "").curve("Reward", "training"),
    MetricSpec::new("reward_std", "", "").in_chart("Reward", Role::Deviation),
    MetricSpec::new("rewards/NAME/mean", "", "").curve("Reward component: NAME", "training"),
    MetricSpec::new("rewards/NAME/std", "", "").hidden(),
    MetricSpec::new("eval_reward", "", "").curve("Reward", "held out"),
    MetricSpec::new("kl", "", "").curve("KL to the reference", "training"),
    MetricSpec::new("entropy", "", "").curve("Entropy", "training"),
    MetricSpec::new("frac_reward_zero_std", "", "").curve("Groups without signal", ""),
    MetricSpec::new("clip_ratio/low_mean", "", "").curve("Clipped tokens", "below"),
    MetricSpec::new("step_time", "", "").in_chart("Step time", Role::Total),
    MetricSpec::new("time/rollout", "", "").in_chart("Step time", Role::Layer("rollout")),
    MetricSpec::new("time/reward", "", "").in_chart("Step time", Role::Layer("reward")),
    MetricSpec::new("time/update", "", "").in_chart("Step time", Role::Layer("update")),
    MetricSpec::new("time/reward_item/p50", "", "").curve("External reward time", "median"),
    MetricSpec::new("time/reward_item/max", "", "").curve("External reward time", "slowest"),
    MetricSpec::new("time/reward_item/slowest_prompt", "index", "").hidden(),
    MetricSpec::new("time/reward_item/slowest_sample", "index", "").hidden(),
    MetricSpec::new("step_train_loss", "", "").curve("Supervised loss", "training"),
    MetricSpec::new("eval_loss", "", "").curve("Supervised loss", "validation"),
];

fn metrics(step: u64) -> Map<String, Value> {
    let line = json!({
        "step": step, "reward": 0.5 + 0.01 * step as f64, "reward_std": 0.1, "kl": 0.001 * step as f64,
        "entropy": null, "frac_reward_zero_std": 0, "rewards/valid/mean": 0.9 + 0.001 * step as f64,
        "time/rollout": 0.2, "time/reward": 0.1, "time/update": 0.5, "step_time": 0.8,
        "clip_ratio/low_mean": 0, "sampling/entropy": 0.1 * step as f64,
    });
    line.as_object().unwrap().clone()
}

pub(crate) fn completion(step: u64, text: &str, reward: f64) -> CompletionRecord {
    CompletionRecord {
        step,
        prompt: 0,
        prompt_text: None,
        prompt_ids: vec![],
        sample: 0,
        text: text.to_owned(),
        reward: Some(reward),
        bonus: None,
        outcome: RecordedOutcome::Scored,
        reason: None,
        info: None,
        parts: BTreeMap::from([("qed".to_owned(), 0.25)]),
        advantage: -1.5,
        actions: 3,
        finish: Finish::EndToken,
        policy_version: 0,
        completion_ids: Vec::new(),
        sampling_logprobs: Vec::new(),
        tokens: TokenColumns::default(),
        outcomes: Vec::new(),
    }
}

/// Draws all texts but an unclosed ring.
fn draw(text: &str) -> Option<String> {
    (text != "C1CC").then(|| "<svg class=\"molecule\"></svg>".to_owned())
}

/// Renders a page.
fn page(runs: &[RunData]) -> String {
    crate::render(runs)
}

/// Renders a page and returns the part between style sheet and script. Slashes, which the template
/// engine escapes as well, are restored.
pub(crate) fn render(runs: &[RunData]) -> String {
    let page = crate::tests::page(runs);
    let (_, body) = page.split_once("</style>").unwrap();
    let (body, _) = body.rsplit_once("<script>").unwrap();
    body.replace("&#x2f;", "/")
}

/// Returns the titles of all charts.
fn charts(page: &str) -> Vec<&str> {
    page.split("<figure>\n<h3>").skip(1).map(|rest| rest.split("</h3>").next().unwrap()).collect()
}

/// Metrics without a declaration have charts of their own; those with one share charts and are explained.
#[test]
fn charts_follow_the_table() {
    static OWN: [MetricSpec; 2] = [
        MetricSpec::new("kl", "nats", "distance from the start").curve("Memory", ""),
        MetricSpec::new("sampling/entropy", "nats", "mean [surprise](a.md)"),
    ];
    let group = MetricGroup { name: "own", section: "train", metrics: &OWN };
    let mut run = run("molecules", 30);
    run.describe(&MetricTable::new([group]));
    let page = render(std::slice::from_ref(&run));
    assert!(charts(&page).starts_with(&["Memory"]), "{page}");
    for words in [
        "<h3 title=\"mean surprise (nats)\">sampling/entropy</h3>",
        "<td title=\"distance from the start (nats)\"><code>kl</code></td>",
        "<h3>reward</h3>",
    ] {
        assert!(page.contains(words), "{words:?} is not in the page");
    }
    run.config.remove("train");
    run.describe(&MetricTable::new([group]));
    assert!(!render(&[run]).contains("Memory"), "the metrics belong to other runs");
}

#[test]
fn the_slowest_reward_is_named() {
    let mut run = run("molecules", 3);
    for (line, (seconds, sample)) in run.metrics.iter_mut().zip([(0.5, 1), (2.25, 3), (1.0, 0)]) {
        let of_step = [("p50", 0.25), ("max", seconds), ("slowest_prompt", 7.0)];
        for (name, value) in of_step.into_iter().chain([("slowest_sample", f64::from(sample))]) {
            line.insert(format!("time/reward_item/{name}"), json!(value));
        }
    }
    let page = render(&[run]);
    assert!(page.contains("s: step 2, prompt 7, sample 3"), "{page}");
    assert!(charts(&page).contains(&"External reward time"));
    assert!(!page.contains("slowest_prompt"));
}

#[test]
fn a_page_has_what_the_run_has_and_no_empty_chart() {
    let page = render(&[run("molecules", 30)]);
    assert_eq!(
        charts(&page),
        [
            "Reward",
            "KL to the reference",
            "Reward component: valid",
            "Rewards of individual completions",
            "Step time",
            "sampling/entropy"
        ]
    );
    assert_eq!(page.matches("<svg class=\"plot\"").count(), 6);
    for words in [
        "<h1>molecules</h1>",
        "<b>steps</b> 30 of 40",
        "<b>time spent in steps</b> 24.0 s",
        "<p class=\"word\">Reward improved so far; not finished</p>",
        "Mean reward rose from 0.530 in the first 5 steps to 0.780 in the last 5 (+0.250 ± 0.010).",
        "The KL to the reference reached 0.030 nats per token.",
        "from 0.5300 in the first 5 steps to 0.7800 in the last 5",
        "<code>clip_ratio/low_mean</code> 0",
        "Lines are exponential moving averages",
        "<h2>Completions of step 1</h2>",
        "<h2>Completions of step 30</h2>",
        "<h2>Best completions of step 30</h2>",
        "<span>qed 0.250</span>",
        "<td>-1.5</td>",
        "All recorded completions of steps 1 and 30.",
        "<th data-kind=\"number\">qed</th>",
    ] {
        assert!(page.contains(words), "{words:?} is not in the page");
    }
    // Ethanol and benzene are drawn. The molecule with an unclosed ring is not.
    assert_eq!(page.matches("<svg class=\"molecule\"").count(), 2);
    assert_eq!(page.matches("<tr data-step=").count(), 3);
    assert!(!page.contains("<h2 id=\"events\">") && !page.contains("<h2>Configuration</h2>"));
    assert!(!page.contains("NaN"));
    // The summary precedes the samples, and the samples precede the curves.
    let order = [
        "id=\"summary\"",
        "id=\"samples\"",
        "id=\"curves\"",
        "id=\"completions\"",
        "id=\"details\"",
    ];
    let positions = order.map(|id| page.find(id).unwrap_or_else(|| panic!("no {id}")));
    assert!(positions.is_sorted());
}

fn finished(step: u64) -> Event {
    Event {
        step,
        at: "2026-01-31T12:34:56Z".to_owned(),
        what: EventKind::Finished { ended_by: None },
    }
}

/// Creates a comparison in which the scaffold diversity drops from 0.86 to `scaffolds`.
fn comparison(scaffolds: f64) -> Comparison {
    let measure = |name: &str, before: f64, after: f64| Measure {
        name: name.to_owned(),
        before: Some(before),
        after: Some(after),
        error: None,
        diversity: None,
    };
    let sample = |text: &str, reward: f64| ComparedSample {
        text: text.to_owned(),
        reward: Some(reward),
        parts: BTreeMap::from([("qed".to_owned(), 0.5)]),
        prompt: None,
    };
    Comparison {
        step: 40,
        samples: "molecules".to_owned(),
        count: 1000,
        reward: Some(Measure { error: Some(0.007), ..measure("mean reward", 0.6917, 0.8484) }),
        measures: vec![
            measure("validity", 0.93, 0.98),
            Measure {
                diversity: Some(DiversityScale::HigherIsDiverse),
                ..measure("scaffolds", 0.86, scaffolds)
            },
        ],
        before: vec![sample("CCC", 0.1), sample("C1CC", 0.4)],
        after: vec![sample("CCN", 0.2), sample("CCS", 0.5)],
        best: vec![sample("CCF", 0.9)],
        parts: Vec::new(),
    }
}

#[test]
fn lost_diversity_is_a_price_that_the_verdict_knows() {
    let mut run = run("molecules", 40);
    run.events.push(finished(40));
    run.comparison = Some(comparison(0.8));
    assert!(render(std::slice::from_ref(&run)).contains("<p class=\"word\">Success</p>"));
    run.comparison = Some(comparison(0.39));
    let page = render(&[run]);
    for words in [
        "<p class=\"word\">Reward improved, with trade-offs</p>",
        "Mean reward rose from 0.692 to 0.848 (+0.157 ± 0.007) on 1000 molecules",
        "The price: scaffolds fell from 0.860 to 0.390.",
        "Missed criterion: Diversity is kept.",
        "<h2>Before and after</h2>",
        "<tr class=\"bad\"><td>scaffolds</td><td>0.8600</td><td>0.3900</td><td>-0.4700</td></tr>",
        "<td>mean reward</td><td>0.6917</td><td>0.8484</td><td>+0.1567 ± 0.0070</td>",
        "<h2>Molecules before training</h2>",
        "<h2>Molecules after step 40</h2>",
        "<h2>Best molecules after step 40</h2>",
    ] {
        assert!(page.contains(words), "{words:?} is not in the page");
    }
    assert_eq!(page.matches("<svg class=\"molecule\"").count(), 4, "the open ring is not drawn");
}

#[test]
fn a_supervised_run_has_its_validations_and_samples() {
    let mut run = run("prior", 30);
    run.config = "[pretrain]\nepochs = 2\n".parse().unwrap();
    run.samples.clear();
    run.rewards.clear();
    let line = |step: u64, key: &str, loss: f64, best: bool| {
        let line = json!({"train_step": step, key: loss, "best": best, "eval_accuracy": 0.5});
        line.as_object().unwrap().clone()
    };
    run.metrics = (1..=30)
        .flat_map(|step| {
            let mut lines = vec![line(step, "step_train_loss", 3.0 - 0.05 * step as f64, false)];
            let loss =
                [2.5, 1.5, 1.75].get(step.div_ceil(10) as usize - 1).filter(|_| step % 10 == 0);
            lines.extend(loss.map(|loss| line(step, "eval_loss", *loss, step < 30)));
            lines
        })
        .collect();
    let sample =
        json!({"train_step": 20, "prompt": "How?", "generated": "So.", "ground_truth": "Thus."});
    run.validation_samples = vec![sample.as_object().unwrap().clone()];
    let page = render(&[run]);
    for words in [
        "The validation loss fell from 2.5 after step 10 to 1.5 after step 20, the lowest of 3 validations.",
        "The last validation, after step 30, has a loss of 1.75. The model from step 20 was kept.",
        "<th>kept (step 20)</th>",
        "<td>eval_loss</td><td>2.5</td><td>1.5</td><td>1.75</td>",
        "<h2>Completions after step 20</h2>",
        "<p class=\"text\">Thus.</p>",
    ] {
        assert!(page.contains(words), "{words:?} is not in the page");
    }
}

#[test]
fn the_same_runs_give_the_same_page() {
    let runs = || vec![run("a", 30), run("b", 20)];
    assert_eq!(page(&runs()), page(&runs()));
}

#[test]
fn the_page_forbids_itself_to_load_anything() {
    let page = crate::tests::page(&[run("a", 30)]);
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-";
    assert!(page.split("<style>").next().unwrap().contains(policy));
    // The head contains no untrusted text except the title.
    let evil = crate::tests::page(&[run("</title><script>", 30)]);
    assert!(!evil.contains("</title><script>"));
}

#[test]
fn all_text_of_a_run_is_escaped() {
    let evil = "<script>alert(1)</script>\"'&";
    let mut run = run(evil, 30);
    run.samples[0].1[0].text = evil.to_owned();
    run.samples[0].1[0].reason = Some(evil.to_owned());
    run.samples[0].1[0].prompt_text = Some(evil.to_owned());
    run.samples[0].1[0].parts = BTreeMap::from([(evil.to_owned(), 0.5)]);
    run.config.insert("model".to_owned(), evil.into());
    run.info.device = evil.to_owned();
    run.metrics.iter_mut().for_each(|line| {
        let value = line["kl"].clone();
        line.insert(evil.to_owned(), value.clone());
        line.insert(format!("rewards/{evil}/mean"), value);
    });
    run.events.push(Event {
        step: 3,
        at: evil.to_owned(),
        what: EventKind::Stopped { reason: evil.to_owned() },
    });
    let mut other = run.clone();
    other.name = format!("{evil} 2");
    other.config.insert("seed".to_owned(), evil.into());
    for page in [render(std::slice::from_ref(&run)), render(&[run, other])] {
        assert!(!page.contains("<script"), "a foreign script is in the page");
        assert!(page.matches("&lt;script&gt;").count() >= 5);
        // The page has no external resources. The only URLs are XML namespaces.
        let namespaces = page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
        assert_eq!(page.matches("http").count(), namespaces);
        assert!(!page.contains("src=\""));
        assert_eq!(page.matches("href=").count(), page.matches("href=\"#").count());
    }
}

#[test]
fn control_characters_are_pictures() {
    let mut run = run("molecules", 3);
    run.name = "a\u{1b}]0;title\u{7}\u{9b}b".to_owned();
    let page = render(&[run]);
    assert!(page.contains("a␛]0;title␇\u{fffd}b"));
    assert!(!page.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
}

#[test]
fn events_are_a_table_and_marks() {
    let mut run = run("molecules", 30);
    let marks = |page: &str| page.matches("stroke=\"#030303\"").count();
    let before = render(std::slice::from_ref(&run));
    assert_eq!(marks(&before), 0);
    let event = |step, what| Event { step, at: "2026-01-31T12:34:56Z".to_owned(), what };
    run.events = vec![
        event(
            7,
            EventKind::Guard {
                watch: "kl".to_owned(),
                value: Some(0.4),
                bound: Some(0.3),
                steps: 2,
                action: "roll_back".to_owned(),
                message: "kl = 0.4 is above 0.3".to_owned(),
            },
        ),
        event(10, EventKind::Checkpoint { best: true }),
        event(20, EventKind::Checkpoint { best: false }),
        event(30, EventKind::Finished { ended_by: None }),
    ];
    let page = render(&[run]);
    // Each chart over steps has one mark. Checkpoints are not marked.
    assert_eq!(marks(&page), charts(&page).len());
    assert!(page.contains("<tr class=\"guard\"><td>7</td><td>2026-01-31T12:34:56Z</td><td>guard</td><td>kl = 0.4 is above 0.3 (roll back)</td></tr>"));
    assert!(page.contains("The best held-out reward so far.") && !page.contains("<td>20</td>"));
}

#[test]
fn a_run_that_finished_is_a_success() {
    let mut run = run("molecules", 40);
    run.events = vec![finished(40)];
    let headline = "<p class=\"word\">Reward improved; diversity was not measured</p>";
    assert!(render(&[run]).contains(headline));
}

#[test]
fn several_runs_are_overlaid_and_compared() {
    let mut other = run("other", 20);
    other.config.insert("seed".to_owned(), 2.into());
    let page = render(&[run("molecules", 30), other]);
    assert!(page.contains("<h1>molecules · other</h1>"));
    assert!(page.contains("<tr><td><code>seed</code></td><td>1</td><td>2</td></tr>"));
    assert!(!page.contains("<code>loss.preset</code>"), "the same in both");
    assert!(!page.contains("id=\"completions\""), "completions belong to one run");
    // Each chart has a legend with two entries.
    assert_eq!(page.matches("</i>other</span>").count(), charts(&page).len());
    assert_eq!(
        page.matches("<p class=\"word\">Reward improved so far; not finished</p>").count(),
        2
    );
}

#[test]
fn a_run_of_one_step_is_shown() {
    let mut run = run("short", 1);
    run.rewards.truncate(1);
    let page = render(&[run]);
    assert!(charts(&page).starts_with(&["Reward", "KL to the reference"]));
    assert!(page.contains("<p class=\"word\">Not finished</p>"));
    assert!(page.contains("<code>reward</code> was measured in 1 step"));
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn nothing_finite_is_no_chart() {
    let mut run = run("broken", 3);
    run.samples.clear();
    run.rewards.clear();
    for line in &mut run.metrics {
        line.values_mut().for_each(|value| *value = Value::Null);
    }
    let page = render(&[run]);
    assert!(charts(&page).is_empty(), "{:?}", charts(&page));
    assert!(page.contains("not a finite number in step 1"));
}

#[test]
fn numbers_of_any_size_are_shown_or_left_out() {
    for values in [
        [1e300, -1e300, 1e308],
        [1e99, -1e99, 0.0],
        [1e-300, 2e-300, -1e-300],
        [1e15, 1e15 + 0.25, 1e15],
        [-1e9, 0.5, 0.5],
        [-1e9, -1e9, -1.0],
    ] {
        let mut run = run("extreme", 3);
        for (line, value) in run.metrics.iter_mut().zip(values) {
            let names = ["reward", "kl", "time/rollout", "time/reward", "time/update", "grad_norm"];
            for name in names {
                line.insert(name.to_owned(), value.into());
            }
        }
        assert!(!render(&[run]).contains("NaN"), "{values:?}");
    }
    let of = |rewards: &[f64]| {
        let records: Vec<_> = rewards.iter().map(|reward| completion(1, "C", *reward)).collect();
        rewards_of(1, &records)
    };
    assert_eq!(of(&[1e308, -1e308]), None);
    assert_eq!(of(&[4.0, 1e308, 0.0]).unwrap().quantiles[2], 2.0);
}
