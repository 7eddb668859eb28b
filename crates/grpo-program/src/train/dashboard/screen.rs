//! Screen layout. Sections that do not fit are omitted, starting at the bottom.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::{Marker, line};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, LineGauge, Paragraph, Wrap};

use crate::train::dashboard::state::{Curve, Sample, State, duration};

const COLORS: [Color; 4] = [Color::LightBlue, Color::Yellow, Color::Green, Color::Magenta];
const PHASES: [Color; 3] = [Color::Blue, Color::Yellow, Color::Green];

/// Draws the state as of `now`.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: Instant) {
    let area = frame.area();
    // A 24-line terminal leaves at least 13 lines for curves. A terminal with only a few lines
    // shows just the header.
    let most = if area.height >= 36 { 3 } else { 2 };
    let samples = rows_of(&state.best, area.width, most) + rows_of(&state.worst, area.width, most);
    let lines = u16::try_from(state.said().len()).unwrap_or(u16::MAX).min(area.height / 8 + 1);
    let [head, gauge, curves, phases, completions, said, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(3),
        Constraint::Length(if area.height >= 12 { 2 } else { 0 }),
        Constraint::Length(if area.height >= 18 { samples } else { 0 }),
        Constraint::Length(if area.height >= 22 { lines } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, state, now);
    draw_gauge(frame, gauge, state);
    draw_curves(frame, curves, state);
    draw_phases(frame, phases, state);
    draw_samples(frame, completions, state);
    draw_said(frame, said, state);
    let hint = if state.is_stopping {
        Line::from("stopping after this step; press Ctrl-C again to quit now").yellow()
    } else {
        Line::from("q: stop after this step; the run can be resumed").dark_gray()
    };
    frame.render_widget(hint, foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State, now: Instant) {
    let time = duration(now.saturating_duration_since(state.started));
    let pace = match state.step_time {
        0.0 => String::new(),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s/step · "),
        seconds => format!("{:.1} steps/s · ", 1.0 / seconds),
    };
    let left = state.left().map(|left| format!(" · {} left", duration(left))).unwrap_or_default();
    let right = format!("{pace}{time} elapsed{left}");
    let width = area.width.saturating_sub(right.chars().count() as u16 + 2);
    let [title, numbers] =
        Layout::horizontal([Constraint::Length(width), Constraint::Fill(1)]).areas(area);
    let text = with_end(&state.title, usize::from(width));
    frame.render_widget(Line::from(text).bold(), title);
    frame.render_widget(Line::from(right).alignment(Alignment::Right), numbers);
}

fn draw_gauge(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let ratio = state.done as f64 / state.steps.max(1) as f64;
    let gauge = LineGauge::default()
        .ratio(ratio.clamp(0.0, 1.0))
        .label(format!("step {} of {}", state.done, state.steps))
        .filled_symbol(line::THICK.horizontal)
        .unfilled_symbol(line::NORMAL.horizontal)
        .filled_style(Style::new().green())
        .unfilled_style(Style::new().dark_gray());
    frame.render_widget(gauge, area);
}

fn draw_curves(frame: &mut Frame<'_>, area: Rect, state: &State) {
    if area.height < 3 {
        return;
    }
    if state.curves.iter().all(|curve| curve.points.is_empty()) {
        let waiting = Paragraph::new("\nwaiting for the first step").alignment(Alignment::Center);
        return frame.render_widget(waiting.dark_gray(), area);
    }
    let rows: Vec<Rect> = if area.height >= 9 {
        let halves = Layout::vertical([Constraint::Fill(1); 2]).split(area);
        let columns =
            |row: Rect| Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).split(row);
        halves.iter().flat_map(|row| columns(*row).to_vec()).collect()
    } else {
        Layout::horizontal([Constraint::Fill(1); 4]).spacing(2).split(area).to_vec()
    };
    for ((curve, area), color) in state.curves.iter().zip(rows).zip(COLORS) {
        draw_curve(frame, area, curve, color);
    }
}

fn draw_curve(frame: &mut Frame<'_>, area: Rect, curve: &Curve, color: Color) {
    let [head, chart] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let value = curve.points.last().map_or("–".to_owned(), |point| number(point.1));
    let unit = if curve.points.is_empty() { "" } else { curve.unit };
    let name = curve.name.as_str().bold();
    let words = vec![name, "  ".into(), value.fg(color), " ".into(), unit.dark_gray()];
    frame.render_widget(Line::from(words), head);
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else { return };
    let values = curve.points.iter().map(|point| point.1);
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    // Center flat lines vertically.
    let air = if high > low { 0.0 } else { (0.1 * high.abs()).max(1e-3) };
    let bounds = [low - air, high + air];
    let end = last.0.max(first.0 + 1.0);
    let data = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(color))
        .data(&curve.points);
    let labels = bounds.map(|value| format!("{:>7}", number(value)).dark_gray());
    let axes = Chart::new(vec![data])
        .x_axis(Axis::default().bounds([first.0, end]))
        .y_axis(Axis::default().bounds(bounds).labels(labels).style(Style::new().dark_gray()));
    frame.render_widget(axes, chart);
}

/// Draws a full-width bar with the time spent in each phase of the last step.
fn draw_phases(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let all: f64 = state.phases.iter().map(|phase| phase.1).sum();
    if all <= 0.0 {
        return;
    }
    let mut words = vec![Span::from("last step  ").bold()];
    let mut bar = Vec::new();
    let mut drawn = 0;
    let mut sum = 0.0;
    for ((name, seconds), color) in state.phases.iter().zip(PHASES) {
        words.push("■ ".fg(color));
        words.push(format!("{name} {}  ", seconds_in_words(*seconds)).into());
        sum += seconds;
        let until = (sum / all * f64::from(area.width)).round() as usize;
        bar.push("▄".repeat(until.saturating_sub(drawn)).fg(color));
        drawn = until;
    }
    words.push(format!("{:.0} tokens/s", state.tokens_per_second).dark_gray());
    frame.render_widget(Text::from(vec![Line::from(words), Line::from(bar)]), area);
}

fn draw_samples(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = [&state.best, &state.worst].map(|sample| rows_of(sample, area.width, area.height));
    let areas: [Rect; 2] = Layout::vertical(rows.map(Constraint::Length)).areas(area);
    let samples = [("best", &state.best, Color::Green), ("worst", &state.worst, Color::Red)];
    for ((name, sample, color), area) in samples.into_iter().zip(areas) {
        let Some(Sample { reward, text }) = sample else { continue };
        let [head, body] =
            Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area);
        let words = vec![name.fg(color).bold(), format!("  {}", number(*reward)).fg(color)];
        frame.render_widget(Line::from(words), head);
        // Lines wrap between words, so they do not always fill the width.
        let room = usize::from(body.width) * usize::from(body.height);
        let room = if text.contains(' ') { room * 4 / 5 } else { room };
        let text = with_beginning(text, room);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), body);
    }
}

/// Width of the label to the left of a completion.
const LABEL: u16 = 14;

/// Returns the number of rows that a completion needs, at most `most`. Wrapped words do not always
/// fill a row.
fn rows_of(sample: &Option<Sample>, width: u16, most: u16) -> u16 {
    let Some(Sample { text, .. }) = sample else { return 1 };
    let width = usize::from(width.saturating_sub(LABEL).max(1));
    let width = if text.contains(' ') { (width * 4 / 5).max(1) } else { width };
    u16::try_from(text.chars().count().div_ceil(width)).unwrap_or(most).clamp(1, most.max(1))
}

/// Draws as many of the latest messages as fit.
fn draw_said(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let said = state.said();
    let from = said.len().saturating_sub(usize::from(area.height));
    let width = usize::from(area.width);
    let lines = said[from..].iter().map(|line| Line::from(with_beginning(line, width)).yellow());
    frame.render_widget(Text::from(lines.collect::<Vec<_>>()), area);
}

/// Truncates a long text at the end and adds an ellipsis.
fn with_beginning(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Truncates a long text at the beginning, so that the end of a path stays visible.
fn with_end(text: &str, most: usize) -> String {
    let length = text.chars().count();
    match length > most {
        true => {
            ['…'].into_iter().chain(text.chars().skip(length - most.saturating_sub(1))).collect()
        }
        false => text.to_owned(),
    }
}

/// Formats a duration, e.g. `0.25 s`, `18 ms` or `12.3 s`.
fn seconds_in_words(seconds: f64) -> String {
    match seconds {
        ..0.0995 => format!("{:.0} ms", 1000.0 * seconds),
        ..10.0 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.1} s"),
    }
}

/// Formats a number in at most seven characters if possible.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e5).contains(&size) {
        format!("{value:.1e}")
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(0, 4) as usize;
        format!("{value:.decimals$}")
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
