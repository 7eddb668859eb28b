//! Pages of runs that were made by hand.

use std::collections::BTreeMap;
use std::path::PathBuf;

use grpo_data::Finish;
use grpo_run::{CompletionRecord, Event, EventKind, RecordedOutcome, RunInfo};
use serde_json::{Map, Value, json};

use crate::run_data::{RewardsOfStep, rewards_of};
use crate::{RunData, SuccessCriteria};

/// A run of `steps` steps, of which the first and the last were recorded.
fn run(name: &str, steps: u64) -> RunData {
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
            device: "flex".to_owned(),
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
        criteria: SuccessCriteria::default(),
        audit: None,
    }
}

fn metrics(step: u64) -> Map<String, Value> {
    let line = json!({
        "step": step, "reward": 0.5 + 0.01 * step as f64, "reward_std": 0.1, "kl": 0.001 * step as f64,
        "entropy": null, "frac_reward_zero_std": 0, "rewards/valid/mean": 0.9 + 0.001 * step as f64,
        "time/rollout": 0.2, "time/reward": 0.1, "time/update": 0.5, "step_time": 0.8,
        "clip_ratio/low_mean": 0, "sampling/entropy": 0.1 * step as f64,
    });
    line.as_object().unwrap().clone()
}

fn completion(step: u64, text: &str, reward: f64) -> CompletionRecord {
    CompletionRecord {
        step,
        prompt: 0,
        prompt_text: None,
        sample: 0,
        text: text.to_owned(),
        reward: Some(reward),
        bonus: None,
        outcome: RecordedOutcome::Scored,
        reason: None,
        parts: BTreeMap::from([("qed".to_owned(), 0.25)]),
        advantage: -1.5,
        actions: 3,
        finish: Finish::EndToken,
        policy_version: 0,
        completion_ids: Vec::new(),
        sampling_logprobs: Vec::new(),
        logprobs: Vec::new(),
        ref_logprobs: Vec::new(),
        entropies: Vec::new(),
        gradients: Vec::new(),
        surrogate_gradients: Vec::new(),
        fates: Vec::new(),
    }
}

/// A page on which a ring that is not closed is not drawn.
fn page(runs: &[RunData]) -> String {
    crate::render(runs, &|reward| {
        (reward == "molecule").then_some(|text: &str| {
            (text != "C1CC").then(|| "<svg class=\"molecule\"></svg>".to_owned())
        })
    })
}

/// The page behind its style sheet, with slashes as they are: the template engine escapes them too.
fn render(runs: &[RunData]) -> String {
    let page = crate::tests::page(runs);
    let (_, body) = page.split_once("</style>").unwrap();
    body.replace("&#x2f;", "/")
}

/// Titles of the charts.
fn charts(page: &str) -> Vec<&str> {
    page.split("<h3>").skip(1).map(|rest| rest.split("</h3>").next().unwrap()).collect()
}

#[test]
fn a_page_has_what_the_run_has_and_no_empty_chart() {
    let page = render(&[run("molecules", 30)]);
    assert_eq!(
        charts(&page),
        [
            "Reward",
            "KL to the reference",
            "Reward part: valid",
            "Rewards of single completions",
            "Time of a step",
            "sampling/entropy"
        ]
    );
    assert_eq!(page.matches("<svg class=\"plot\"").count(), 6);
    for words in [
        "<h1>molecules</h1>",
        "<b>steps</b> 30 of 40",
        "<b>time in steps</b> 24.0 s",
        "<p class=\"word\">Not judged</p>",
        "from 0.5300 to 0.7800 between the first and the last 5 steps",
        "<code>clip_ratio/low_mean</code> 0",
        "Lines are exponential moving averages",
        "<h2>Completions of step 1</h2>",
        "<h2>Completions of step 30</h2>",
        "<span>qed 0.25</span>",
        "advantage -1.5",
    ] {
        assert!(page.contains(words), "{words:?} is not in the page");
    }
    // Ethanol and benzene are drawn, the ring that is not closed is not.
    assert_eq!(page.matches("<svg class=\"molecule\"").count(), 2);
    assert!(!page.contains("<h2>Events</h2>") && !page.contains("<h2>Configuration</h2>"));
    assert!(!page.contains("NaN"));
}

#[test]
fn the_same_runs_give_the_same_page() {
    let runs = || vec![run("a", 30), run("b", 20)];
    assert_eq!(page(&runs()), page(&runs()));
}

#[test]
fn the_page_forbids_itself_to_load_anything() {
    let page = crate::tests::page(&[run("a", 30)]);
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";
    assert!(page.split("<style>").next().unwrap().contains(policy));
    // The head is the template's own, but for the title.
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
        assert!(!page.contains("<script"), "a script is in the page");
        assert!(page.matches("&lt;script&gt;").count() >= 5);
        // Nothing is loaded: the only addresses are names of namespaces.
        let namespaces = page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count();
        assert_eq!(page.matches("http").count(), namespaces);
        assert!(!page.contains("src=\"") && !page.contains("href="));
    }
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
        event(30, EventKind::Finished {}),
    ];
    let page = render(&[run]);
    // One for each chart over steps; a checkpoint is none.
    assert_eq!(marks(&page), charts(&page).len());
    assert!(page.contains("<tr class=\"guard\"><td>7</td><td>2026-01-31T12:34:56Z</td><td>guard</td><td>kl = 0.4 is above 0.3 (roll back)</td></tr>"));
    assert!(page.contains("The best held-out reward so far.") && !page.contains("<td>20</td>"));
}

#[test]
fn a_run_that_finished_is_a_success() {
    let mut run = run("molecules", 40);
    let what = EventKind::Finished {};
    run.events = vec![Event { step: 40, at: "2026-01-31T12:34:56Z".to_owned(), what }];
    assert!(render(&[run]).contains("<p class=\"word\">Success</p>"));
}

#[test]
fn several_runs_are_overlaid_and_compared() {
    let mut other = run("other", 20);
    other.config.insert("seed".to_owned(), 2.into());
    let page = render(&[run("molecules", 30), other]);
    assert!(page.contains("<h1>molecules · other</h1>"));
    assert!(page.contains("<tr><td><code>seed</code></td><td>1</td><td>2</td></tr>"));
    assert!(!page.contains("<code>loss.preset</code>"), "the same in both");
    assert!(!page.contains("<h2>Completions"), "completions belong to one run");
    // Each chart has a legend of two.
    assert_eq!(page.matches("</i>other</span>").count(), charts(&page).len());
    assert_eq!(page.matches("<p class=\"word\">Not judged</p>").count(), 2);
}

#[test]
fn a_run_of_one_step_is_shown() {
    let mut run = run("short", 1);
    run.rewards.truncate(1);
    let page = render(&[run]);
    assert!(charts(&page).starts_with(&["Reward", "KL to the reference"]));
    assert!(page.contains("<p class=\"word\">Not judged</p>"));
    assert!(page.contains("`reward` was measured in 1 steps"));
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
    assert!(page.contains("in step 1 it was no finite number"));
}

#[test]
fn numbers_of_any_size_are_shown_or_left_out() {
    for values in [
        [1e300, -1e300, 1e308],
        [1e99, -1e99, 0.0],
        [1e-300, 2e-300, -1e-300],
        [1e15, 1e15 + 0.25, 1e15],
    ] {
        let mut run = run("extreme", 3);
        for (line, value) in run.metrics.iter_mut().zip(values) {
            for name in ["reward", "kl", "time/update", "grad_norm"] {
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
