//! The data displayed on the live screen.

use std::time::{Duration, Instant};

use grpo_train::{MetricTable, Metrics, StepReport, step_metrics};
use serde_json::{Map, Value};

/// Everything that the screen displays.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) title: String,
    pub(super) steps: u64,
    pub(super) done: u64,
    pub(super) started: Instant,
    /// Time at which the last step ended.
    pub(super) at: Option<Instant>,
    pub(super) curves: [Curve; 4],
    /// Duration of rollout, reward and update in the last step, in seconds.
    pub(super) phases: [(&'static str, f64); 3],
    pub(super) tokens_per_second: f64,
    /// Moving average of the step time in seconds.
    pub(super) step_time: f64,
    pub(super) best: Option<Sample>,
    pub(super) worst: Option<Sample>,
    pub(super) said: Vec<String>,
    pub(super) is_stopping: bool,
}

/// A metric as a function of the step.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    metric: &'static str,
    pub(super) unit: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// A completion of the last step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) reward: f64,
    pub(super) text: String,
}

/// Maximum number of points per curve. No terminal has more columns.
const POINTS: usize = 2000;
/// Maximum number of stored messages.
const SAID: usize = 1000;
/// Maximum number of stored characters per completion.
const TEXT: usize = 2000;

impl State {
    pub(super) fn new(title: &str, steps: u64) -> Self {
        let table = MetricTable::new(step_metrics());
        let curve = |metric| Curve {
            name: table.label(metric),
            metric,
            unit: table.spec(metric).map_or("", |spec| spec.unit),
            points: Vec::new(),
        };
        Self {
            title: printable(title),
            steps,
            done: 0,
            started: Instant::now(),
            at: None,
            curves: [
                curve("reward"),
                curve("kl"),
                curve("entropy"),
                curve("completions/mean_length"),
            ],
            phases: [("rollout", 0.0), ("reward", 0.0), ("update", 0.0)],
            tokens_per_second: 0.0,
            step_time: 0.0,
            best: None,
            worst: None,
            said: Vec::new(),
            is_stopping: false,
        }
    }

    pub(super) fn step(&mut self, report: &StepReport, metrics: &Metrics) {
        self.metrics(&|name| metrics.get(name));
        self.samples(report.samples().map(|sample| (&*sample.text, sample.reward())));
    }

    /// Updates the state with the metrics of a step.
    pub(super) fn metrics(&mut self, metric: &dyn Fn(&str) -> Option<f64>) {
        let value = |name: &str| metric(name).unwrap_or(f64::NAN);
        self.done = metric("step").map_or(self.done + 1, |step| step as u64);
        self.at = Some(Instant::now());
        for curve in &mut self.curves {
            let value = value(curve.metric);
            if value.is_finite() {
                curve.points.push((self.done as f64, value));
            }
            if curve.points.len() > POINTS {
                let mut place = 0;
                curve.points.retain(|_| {
                    place += 1;
                    place % 2 == 0
                });
            }
        }
        for (name, seconds) in &mut self.phases {
            *seconds = metric(&format!("time/{name}")).unwrap_or(0.0);
        }
        self.tokens_per_second = value("tokens_per_second");
        let time = value("step_time");
        // Averages over about ten steps.
        let weight = if self.step_time == 0.0 { 1.0 } else { 0.1 };
        self.step_time += weight * (time - self.step_time);
    }

    /// Resets the curves to the `done` completed steps and clears the timings and completions.
    pub(super) fn begin_at(&mut self, done: u64, lines: &[Map<String, Value>]) {
        self.curves.iter_mut().for_each(|curve| curve.points.clear());
        for line in lines {
            self.metrics(&|name| line.get(name).and_then(Value::as_f64));
        }
        self.done = done;
        (self.at, self.step_time) = (None, 0.0);
        self.phases.iter_mut().for_each(|phase| phase.1 = 0.0);
        (self.best, self.worst) = (None, None);
    }

    /// Selects the best and the worst completion among those with a reward.
    pub(super) fn samples<'a>(&mut self, samples: impl Iterator<Item = (&'a str, Option<f64>)>) {
        let scored: Vec<(&str, f64)> =
            samples.filter_map(|(text, reward)| Some((text, reward?))).collect();
        let sample = |&(text, reward): &(&str, f64)| Sample {
            reward,
            text: printable(&text.chars().take(TEXT).collect::<String>()),
        };
        let by = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
        self.best = scored.iter().max_by(by).map(sample);
        self.worst = scored.iter().min_by(by).map(sample);
    }

    pub(super) fn say(&mut self, line: &str) {
        if self.said.len() < SAID {
            self.said.push(printable(line));
        }
    }

    pub(super) fn said(&self) -> &[String] {
        &self.said
    }

    /// Estimates the remaining time from the average step time.
    pub(super) fn left(&self) -> Option<Duration> {
        let steps = self.steps.saturating_sub(self.done) as f64;
        let seconds = steps * self.step_time;
        (self.at.is_some() && seconds.is_finite()).then(|| Duration::from_secs_f64(seconds))
    }
}

/// Replaces control characters, which could move the cursor or ring the bell.
fn printable(text: &str) -> String {
    let shown = |c: char| {
        if c == '\n' {
            '⏎'
        } else if c.is_control() {
            ' '
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}

/// Formats a duration, e.g. `1 h 02 min`, `3 min 04 s` or `5 s`.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}
