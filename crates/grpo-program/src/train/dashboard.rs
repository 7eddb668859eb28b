//! Live screen of `grpo train`, with curves, timings, completions and events.
//!
//! A separate thread redraws the screen several times per second, so training never waits for the
//! terminal. [`Monitor`] is the interface for training code. Without a suitable terminal, it prints
//! plain lines instead.

mod screen;
mod state;
pub(crate) mod terminal;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grpo_data::counted;
use grpo_task::interrupt;
use grpo_task::output::{Progress, say, say_aside};
use grpo_train::{Metrics, StepReport};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::disable_raw_mode;
use serde_json::{Map, Value};

use crate::train::dashboard::state::State;
use crate::train::dashboard::terminal::{hold_panics_back, next_event, open, restore};

/// Displays the progress of a training run.
pub(crate) struct Monitor {
    shown: Shown,
    /// Statistics for the plain lines and the final summary.
    summary: Summary,
}

enum Shown {
    Lines(Progress),
    Screen(Dashboard),
}

/// Where [`announce`] shows messages while there is a monitor.
static MESSAGES: Mutex<Option<Messages>> = Mutex::new(None);

enum Messages {
    Lines(Progress),
    Screen(Arc<Mutex<State>>),
}

/// Shows a message on the monitor, or prints it if there is none. Can be called on any thread.
pub(crate) fn announce(line: &str) {
    match &*lock(&MESSAGES) {
        Some(Messages::Lines(progress)) => progress.say(line),
        Some(Messages::Screen(state)) => lock(state).say(line),
        None => say(format_args!("{line}")),
    }
}

impl Monitor {
    /// Uses the live screen if standard error is a suitable terminal, otherwise plain lines.
    /// Pressing `q` or Ctrl-C on the screen sets `stop`, which training checks after each step.
    pub(crate) fn new(title: &str, steps: u64, plain: bool, stop: Arc<AtomicBool>) -> Self {
        let screen = if plain || !is_terminal() {
            None
        } else {
            Dashboard::new(State::new(title, steps), stop)
        };
        let shown = screen.map_or_else(|| Shown::Lines(Progress::new(steps)), Shown::Screen);
        *lock(&MESSAGES) = Some(match &shown {
            Shown::Lines(progress) => Messages::Lines(progress.clone()),
            Shown::Screen(dashboard) => Messages::Screen(Arc::clone(&dashboard.state)),
        });
        Self { shown, summary: Summary::new(steps) }
    }

    /// Continues the display after `done` steps of a resumed or rolled-back run. `lines` holds the
    /// `metrics.jsonl` lines of these steps.
    pub(crate) fn begin_at(&mut self, done: u64, lines: &[Map<String, Value>]) {
        let mut rewards = lines.iter().filter_map(|line| line.get("reward")?.as_f64());
        self.summary.first_reward = rewards.next();
        self.summary.done = done;
        match &self.shown {
            Shown::Lines(progress) => progress.begin_at(done),
            Shown::Screen(dashboard) => dashboard.state().begin_at(done, lines),
        }
    }

    /// Records a completed step.
    pub(crate) fn step(&mut self, report: &StepReport, metrics: &Metrics) {
        self.summary.step(metrics);
        match &self.shown {
            Shown::Lines(progress) => progress.step(line(metrics)),
            Shown::Screen(dashboard) => dashboard.state().step(report, metrics),
        }
    }

    /// Shows a message. On the live screen, it is listed among the events and printed again after
    /// the screen has closed.
    pub(crate) fn say(&mut self, line: &str) {
        match &self.shown {
            Shown::Lines(progress) => progress.say(line),
            Shown::Screen(dashboard) => dashboard.state().say(line),
        }
    }

    /// Restores the terminal, then prints the messages and a one-line summary. Further calls have
    /// no effect.
    pub(crate) fn finish(&mut self) {
        *lock(&MESSAGES) = None;
        match &mut self.shown {
            Shown::Lines(progress) => progress.finish(),
            Shown::Screen(dashboard) => {
                if dashboard.close() {
                    dashboard.state().said().iter().for_each(|line| say(format_args!("{line}")));
                    say_aside(format_args!("{}", self.summary.line()));
                }
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Formats a step on one line.
fn line(metrics: &Metrics) -> String {
    let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
    let valid = metrics.get("rewards/valid/mean").map(|valid| format!("  valid {valid:.2}"));
    let kl = metrics.get("kl").map(|kl| format!("  KL {kl:.3}"));
    format!(
        "{}{}{}  {:.0} tokens/s",
        reward(metrics),
        valid.unwrap_or_default(),
        kl.unwrap_or_default(),
        value("tokens_per_second"),
    )
}

/// Describes the mean reward, or why there is none.
fn reward(metrics: &Metrics) -> String {
    if let Some(reward) = metrics.get("reward").filter(|reward| reward.is_finite()) {
        return format!("reward {reward:.3}");
    }
    let counts = [("abstained", "rewards/abstained"), ("failed", "rewards/failed")];
    let words = counts.iter().filter_map(|(word, name)| {
        metrics.get(name).filter(|count| *count > 0.0).map(|count| format!("{count} {word}"))
    });
    format!("no reward ({})", words.collect::<Vec<_>>().join(", "))
}

/// Summary of a training run.
struct Summary {
    steps: u64,
    done: u64,
    started: Instant,
    first_reward: Option<f64>,
    last: String,
}

impl Summary {
    fn new(steps: u64) -> Self {
        Self { steps, done: 0, started: Instant::now(), first_reward: None, last: String::new() }
    }

    fn step(&mut self, metrics: &Metrics) {
        self.done = metrics.get("step").map_or(self.done + 1, |step| step as u64);
        self.first_reward = self.first_reward.or(metrics.get("reward"));
        self.last = line(metrics);
    }

    fn line(&self) -> String {
        let time = state::duration(self.started.elapsed());
        let Some(first) = self.first_reward else {
            return format!("no step of {} completed in {time}", self.steps);
        };
        let Self { steps, done, last, .. } = self;
        let steps = counted(*steps, "step");
        format!("{done} of {steps} in {time}: {last} (first reward {first:.3})")
    }
}

/// Returns whether a live screen can be drawn. Terminals with `TERM=dumb` cannot move the cursor.
fn is_terminal() -> bool {
    use io::IsTerminal;
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

/// The live screen and its drawing thread.
struct Dashboard {
    state: Arc<Mutex<State>>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Minimum time between two frames.
const FRAME: Duration = Duration::from_millis(250);
/// Time to draw the last frame.
const CLOSING: Duration = Duration::from_secs(2);

impl Dashboard {
    /// Opens the screen. Returns `None` if the terminal does not support it.
    fn new(state: State, stop: Arc<AtomicBool>) -> Option<Self> {
        let state = Arc::new(Mutex::new(state));
        let closing = Arc::new(AtomicBool::new(false));
        hold_panics_back();
        open().ok()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stderr()));
        let Ok(terminal) = terminal else {
            restore();
            return None;
        };
        let (of_thread, is_closing) = (Arc::clone(&state), Arc::clone(&closing));
        let thread = thread::Builder::new().name("dashboard".to_owned());
        let thread = thread.spawn(move || draw_until(terminal, &of_thread, &is_closing, &stop));
        let Ok(thread) = thread else {
            restore();
            return None;
        };
        Some(Self { state, closing, thread: Some(thread) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Closes the screen and returns whether it was still open.
    fn close(&mut self) -> bool {
        let Some(thread) = self.thread.take() else { return false };
        self.closing.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        // A thread that waits for a terminal that was closed meanwhile ends with the process.
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < CLOSING {
            thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // If the thread panicked, its message is among those that `restore` prints.
            let _drawn = thread.join();
        }
        restore();
        true
    }
}

/// Locks a value, ignoring poisoning. It stays consistent if a thread panics.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws frames and handles keys until `closing` is set. Stops if drawing fails, e.g. because the
/// terminal was closed.
fn draw_until<B: ratatui::backend::Backend>(
    mut terminal: Terminal<B>,
    state: &Mutex<State>,
    closing: &AtomicBool,
    stop: &AtomicBool,
) {
    let mut can_read = true;
    while !closing.load(Ordering::Relaxed) {
        let frame = {
            let mut state = lock(state);
            state.is_stopping = stop.load(Ordering::Relaxed);
            // Draws a copy so that training never waits for a slow terminal.
            state.clone()
        };
        if terminal.draw(|area| screen::draw(area, &frame, Instant::now())).is_err() {
            return;
        }
        let until = Instant::now() + FRAME;
        while can_read && !closing.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            match next_event(left.min(FRAME / 5)) {
                Ok(Some(event)) if asks_to_stop(&event) => {
                    if stop.swap(true, Ordering::Relaxed) && is_ctrl_c(&event) {
                        // The user has already asked once and does not want to wait for the
                        // step to end.
                        interrupt::end_process();
                    }
                    break;
                }
                Ok(Some(Event::Resize(..))) => break,
                Ok(_) if left.is_zero() => break,
                Ok(_) => {}
                Err(_) => can_read = false,
            }
        }
        if !can_read {
            // If key events cannot be read, the terminal has to handle Ctrl-C again.
            let _cooked = disable_raw_mode();
            thread::park_timeout(FRAME);
        }
    }
}

fn is_ctrl_c(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

fn asks_to_stop(event: &Event) -> bool {
    let is_q = matches!(event, Event::Key(key)
        if key.kind == KeyEventKind::Press && matches!(key.code, KeyCode::Char('q' | 'Q')));
    is_q || is_ctrl_c(event)
}
