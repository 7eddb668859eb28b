//! `grpo train` on a terminal: curves, times, completions and events, drawn by a thread of its own a few times a second.
//!
//! The training hands over numbers and goes on; it never waits for the terminal. [`Monitor`] is what it knows: on a terminal
//! that is this screen, elsewhere plain lines.

mod screen;
mod state;
pub(crate) mod terminal;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grpo_train::{Metrics, StepReport};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::disable_raw_mode;
use serde_json::{Map, Value};

use crate::dashboard::state::State;
use crate::dashboard::terminal::{hold_panics_back, open, restore};
use crate::interrupt;
use crate::output::{Progress, say, say_aside};

/// Where a training shows how it goes.
pub(crate) struct Monitor {
    shown: Shown,
    /// Of the plain lines, and of the sentence that is left in the end.
    summary: Summary,
}

enum Shown {
    Lines(Progress),
    Screen(Dashboard),
}

impl Monitor {
    /// A screen where standard error is a terminal that can show one, else lines. Whoever presses `q` or Ctrl-C on the
    /// screen sets `stop`, which the training looks at after each step.
    pub(crate) fn new(title: &str, steps: u64, plain: bool, stop: Arc<AtomicBool>) -> Self {
        let screen = if plain || !is_terminal() {
            None
        } else {
            Dashboard::new(State::new(title, steps), stop)
        };
        let shown = screen.map_or_else(|| Shown::Lines(Progress::new(steps)), Shown::Screen);
        Self { shown, summary: Summary::new(steps) }
    }

    /// The run goes on after `done` steps, whose lines of `metrics.jsonl` are given: it was taken up again, or went back.
    pub(crate) fn begin_at(&mut self, done: u64, lines: &[Map<String, Value>]) {
        let mut rewards = lines.iter().filter_map(|line| line.get("reward")?.as_f64());
        self.summary.first_reward = rewards.next();
        self.summary.done = done;
        match &self.shown {
            Shown::Lines(progress) => progress.begin_at(done),
            Shown::Screen(dashboard) => dashboard.state().begin_at(done, lines),
        }
    }

    /// A step is done.
    pub(crate) fn step(&mut self, report: &StepReport, metrics: &Metrics) {
        self.summary.step(metrics);
        match &self.shown {
            Shown::Lines(progress) => progress.step(line(metrics)),
            Shown::Screen(dashboard) => dashboard.state().step(report, metrics),
        }
    }

    /// A line for whoever looks on; on the screen among the events, and below it once it is gone.
    pub(crate) fn say(&mut self, line: &str) {
        match &self.shown {
            Shown::Lines(progress) => progress.say(line),
            Shown::Screen(dashboard) => dashboard.state().say(line),
        }
    }

    /// Gives the terminal back, with what was said and a summary in one line. A second call does nothing.
    pub(crate) fn finish(&mut self) {
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

/// A step in one line.
fn line(metrics: &Metrics) -> String {
    let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
    let valid = metrics.get("rewards/valid/mean").map(|valid| format!("  valid {valid:.2}"));
    format!(
        "reward {:.3}{}  KL {:.3}  {:.0} tokens/s",
        value("reward"),
        valid.unwrap_or_default(),
        value("kl"),
        value("tokens_per_second"),
    )
}

/// What a training came to.
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
        format!("{done} of {steps} steps in {time}: {last} (first reward {first:.3})")
    }
}

/// Whether a screen can be drawn. A terminal that says of itself that it is dumb moves no cursor.
fn is_terminal() -> bool {
    use io::IsTerminal;
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

/// The screen, and the thread that draws it.
struct Dashboard {
    state: Arc<Mutex<State>>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Between two drawings, at least.
const FRAME: Duration = Duration::from_millis(250);

impl Dashboard {
    /// `None` where the terminal refuses.
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

    /// Whether it was still open.
    fn close(&mut self) -> bool {
        let Some(thread) = self.thread.take() else { return false };
        self.closing.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        // If it panicked, the message is among those held back.
        let _drawn = thread.join();
        restore();
        true
    }
}

/// Numbers are whole even where a thread died with them.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws, and reads keys, until it is told to end. A terminal that went away is not drawn to again.
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
            // Drawn from a copy: the training never waits for a slow terminal.
            state.clone()
        };
        if terminal.draw(|area| screen::draw(area, &frame, Instant::now())).is_err() {
            return;
        }
        let until = Instant::now() + FRAME;
        while can_read && !closing.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            match event::poll(left.min(FRAME / 5)) {
                Ok(true) => match event::read() {
                    Ok(event) if asks_to_stop(&event) => {
                        if stop.swap(true, Ordering::Relaxed) && is_ctrl_c(&event) {
                            // Asked before, and not willing to wait for the end of the step.
                            interrupt::end_process();
                        }
                        break;
                    }
                    Ok(Event::Resize(..)) => break,
                    Ok(_) => {}
                    Err(_) => can_read = false,
                },
                Ok(false) if left.is_zero() => break,
                Ok(false) => {}
                Err(_) => can_read = false,
            }
        }
        if !can_read {
            // Without keys Ctrl-C has to be the terminal's again.
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
