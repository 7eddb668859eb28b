//! Renders the screen to a text buffer.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;

/// Creates the state of an 80-step run after `steps` steps.
fn state(steps: u32) -> State {
    let mut state = State::new("grpo train  runs/molecules", 80);
    for step in 1..=steps {
        let metric = |name: &str| {
            let step = f64::from(step);
            Some(match name {
                "step" => step,
                "reward" => 0.6 + 0.01 * step,
                "kl" => 0.002 * step,
                "entropy" => 0.6,
                "completions/mean_length" => 33.25,
                "time/rollout" => 0.25,
                "time/reward" => 0.05,
                "time/update" => 0.7,
                "step_time" => 1.0,
                "tokens_per_second" => 6541.4,
                _ => return None,
            })
        };
        state.metrics(&metric);
        let samples =
            [("CCO", Some(0.4)), ("c1ccccc1", Some(0.9)), ("C", None), ("N\x1b[2J\nO", Some(0.0))];
        state.samples(samples.into_iter());
    }
    state
}

/// Renders the screen 1.5 seconds after the start and returns its lines.
fn lines(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now = state.started + Duration::from_millis(1500);
    terminal.draw(|frame| draw(frame, state, now)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

/// Returns the first line of an 80-column terminal.
fn head(right: &str) -> String {
    let width = 80 - right.chars().count();
    format!("{:<width$}{right}", "grpo train  runs/molecules")
}

#[track_caller]
fn find<'a>(lines: &'a [String], words: &str) -> &'a str {
    let found = lines.iter().find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("no line has {words:?}:\n{}", lines.join("\n")))
}

#[test]
fn a_small_terminal_shows_everything() {
    let mut state = state(12);
    state.say("guard kl: 0.4 is above 0.3");
    let lines = lines(&state, 80, 24);
    let right = "1.0 s/step · 1 s elapsed · 1 min 08 s left";
    assert_eq!(lines[0], head(right));
    assert!(lines[1].starts_with("step 12 of 80 ━━"), "{}", lines[1]);
    // 66 columns remain after the label; 12/80 of them are 9.9.
    assert_eq!(lines[1].chars().filter(|c| *c == '━').count(), 9);
    for (name, value) in
        [("reward", "0.7200"), ("KL", "0.0240"), ("entropy", "0.6000"), ("length", "33.25")]
    {
        find(&lines, &format!("{name}  {value}"));
    }
    assert!(
        find(&lines, "last step")
            .contains("■ rollout 0.25 s  ■ reward 50 ms  ■ update 0.70 s  6541 tokens/s")
    );
    assert_eq!(find(&lines, "best"), "best  0.9000  c1ccccc1");
    // Control characters in a completion are replaced.
    assert_eq!(find(&lines, "worst"), "worst  0      N [2J⏎O");
    find(&lines, "guard kl: 0.4 is above 0.3");
    assert_eq!(lines[23], "q: stop after this step; the run can be resumed");
    // The reward increases: the first column of its curve is low and the last one is high.
    let braille = |line: &String| line.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
    assert!(lines.iter().filter(|line| braille(line)).count() >= 6, "{}", lines.join("\n"));
}

#[test]
fn before_the_first_step_there_is_no_empty_chart() {
    let lines = lines(&state(0), 80, 24);
    find(&lines, "waiting for the first step");
    assert_eq!(lines[0], head("1 s elapsed"));
    assert!(!lines.iter().any(|line| line.contains(" left") || line.contains("best")));
}

#[test]
fn reports_the_end_of_a_run() {
    let state = State { is_stopping: true, ..state(3) };
    assert_eq!(
        lines(&state, 80, 24)[23],
        "stopping after this step; press Ctrl-C again to quit now"
    );
}

#[test]
fn what_does_not_fit_is_cut_with_a_mark() {
    let mut state = state(2);
    state.title = format!("grpo train  runs/{}/molecules", "long".repeat(20));
    state.samples([("C".repeat(200).as_str(), Some(0.9))].into_iter());
    state.say(&"a guard has much to say ".repeat(8));
    let lines = lines(&state, 80, 24);
    assert!(lines[0].starts_with('…') && lines[0].contains("long/molecules  "), "{}", lines[0]);
    assert!(find(&lines, "a guard has").ends_with('…'));
    assert!(lines.iter().any(|line| line.ends_with("CC…")), "{}", lines.join("\n"));
}

#[test]
fn any_size_is_drawn() {
    for state in [state(0), state(1), state(80)] {
        for width in [1, 2, 7, 20, 41, 80, 200] {
            for height in [1, 2, 3, 5, 9, 12, 18, 22, 36, 60] {
                let lines = lines(&state, width, height);
                assert_eq!(lines.len(), usize::from(height));
            }
        }
    }
}

#[test]
fn what_is_not_finite_is_no_point_and_no_panic() {
    let mut state = state(2);
    state.metrics(&|name| (name == "step").then_some(3.0));
    assert_eq!(state.curves[0].points.len(), 2);
    assert_eq!(state.left(), None);
    lines(&state, 80, 24);
}

#[test]
fn a_long_run_keeps_its_shape_in_few_points() {
    let state = state(9000);
    for curve in &state.curves {
        assert!((900..=2000).contains(&curve.points.len()), "{}", curve.points.len());
        assert!(curve.points.is_sorted_by(|a, b| a.0 < b.0));
    }
    lines(&state, 80, 24);
}

#[test]
fn a_run_that_goes_on_has_its_curves_and_no_pace_yet() {
    // Rolled back from step 12 to step 2.
    let mut state = state(12);
    let line = |step: u32| json!({ "step": step, "reward": 0.25 * f64::from(step), "kl": null, "step_time": 1.5 });
    let lines_of_run = [1, 2].map(|step| line(step).as_object().unwrap().clone());
    state.begin_at(2, &lines_of_run);
    assert_eq!(state.curves[0].points, [(1.0, 0.25), (2.0, 0.5)]);
    assert!(state.curves[1].points.is_empty());
    let lines = lines(&state, 80, 24);
    find(&lines, "step 2 of 80");
    find(&lines, "reward  0.5000");
    assert!(
        !lines
            .iter()
            .any(|line| ["left", "last step", "best"].iter().any(|words| line.contains(words)))
    );
}
