//! Drawing of the panel: a function of model, time and size.

use std::time::{Duration, Instant};

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Clear, Padding, Paragraph, Row as Cells, Table},
};

use super::model::{Model, Overlay, Row, Rows, State};
use crate::commands::forward::qr::{BLACK, Qr, WHITE};

/// Draws the whole panel.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, now: Instant, paint: Paint) {
    let area = frame.area();
    let head = head_lines(model, now, area, paint);
    let foot = foot_lines(model, area, paint);
    let [top, list, bottom] = Layout::vertical([
        Constraint::Length(lines(&head)),
        Constraint::Fill(1),
        Constraint::Length(lines(&foot)),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), top);
    rows(frame, model, now, list, paint);
    frame.render_widget(Paragraph::new(foot), bottom);
    match model.view.overlay {
        Some(Overlay::Help) => draw_window(frame, "keys", &help(), paint.bold()),
        Some(Overlay::Inspector) => {
            draw_window(frame, "inspector", &inspector(model), paint.bold());
        }
        Some(Overlay::Code) => code(frame, model, paint),
        None => {}
    }
}

/// Colour setting. The colours come from the terminal's theme, so they are readable on dark and
/// light backgrounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    pub(crate) colours: bool,
}

impl Paint {
    fn of(self, color: Color) -> Style {
        if self.colours {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    fn good(self) -> Style {
        self.of(Color::Green)
    }

    fn warning(self) -> Style {
        self.of(Color::Yellow)
    }

    fn error(self) -> Style {
        self.of(Color::Red)
    }

    #[expect(clippy::unused_self, reason = "same signature as its siblings")]
    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    #[expect(clippy::unused_self, reason = "same signature as its siblings")]
    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn status(self, row: &Row) -> Style {
        match row.status {
            _ if row.failed => self.error(),
            Some(500..) => self.error(),
            Some(400..) => self.warning(),
            Some(200..300) => self.good(),
            _ => Style::new(),
        }
    }
}

/// State, address, target and counters, in as many lines as fit.
fn head_lines(model: &Model, now: Instant, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let is_low = area.height < LOW;
    let mut lines = state(model, now, width, if is_low { 1 } else { 2 }, paint);
    let url = model.url.clone().unwrap_or_default();
    // The full address is shown if possible, because users copy it.
    let room = if is_low { 1 } else { 3 };
    lines.extend(
        wrapped(&url, width, room)
            .into_iter()
            .map(|part| Line::styled(part, paint.bold())),
    );
    if !is_low {
        let mut engine = model.about.engine.clone();
        if let Some(latency) = model.latency {
            engine = format!("{engine}, {}", format_duration(latency));
        }
        lines.push(field("target", &model.about.target, paint));
        lines.push(field("engine", &engine, paint));
        if let Some(address) = &model.about.inspector {
            lines.push(field("inspector", address, paint));
        }
        lines.push(Line::default());
    }
    let counters = packed(&counters(model, now), ", ", width);
    let room = if is_low { 2 } else { 3 };
    lines.extend(counters.into_iter().take(room).map(Line::raw));
    if !is_low {
        lines.push(Line::default());
    }
    lines
}

fn state(
    model: &Model,
    now: Instant,
    width: usize,
    room: usize,
    paint: Paint,
) -> Vec<Line<'static>> {
    let (style, text) = match &model.state {
        State::Connecting => (paint.warning(), "connecting".to_owned()),
        State::Online => (paint.good(), "online".to_owned()),
        State::Disconnected { error, until } => {
            let left = until.saturating_duration_since(now).as_secs_f64().ceil();
            let text = format!("disconnected, retry in {left} s: {error}");
            (paint.error(), text)
        }
        State::Draining => {
            let open = model.open();
            let text = format!("draining, {open} open; q stops immediately");
            (paint.warning(), text)
        }
    };
    let parts = wrapped_words(&plain(&text), width.saturating_sub(2), room);
    let signed = |(index, part): (usize, String)| {
        let sign = if index == 0 { "● " } else { "  " };
        Line::from(vec![
            Span::styled(sign, style),
            Span::styled(part, style.add_modifier(Modifier::BOLD)),
        ])
    };
    parts.into_iter().enumerate().map(signed).collect()
}

fn field(name: &'static str, value: &str, paint: Paint) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{name:<11}"), paint.dim()),
        Span::raw(plain(value)),
    ])
}

fn counters(model: &Model, now: Instant) -> Vec<String> {
    let (one, five) = model.rates(now);
    let (p50, p90) = model.times();
    let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), format_duration);
    let failed = (model.failed > 0).then(|| format!("{} failed", model.failed));
    let counts = [
        format!("{} total", model.total),
        format!("{} open", model.open()),
    ];
    let times = [
        format!("{one:.2}/s in 1 min"),
        format!("{five:.2}/s in 5 min"),
        format!("p50 {}", time(p50)),
        format!("p90 {}", time(p90)),
    ];
    counts.into_iter().chain(failed).chain(times).collect()
}

/// The list with its title line.
fn rows(frame: &mut Frame<'_>, model: &Model, now: Instant, area: Rect, paint: Paint) {
    let [title, list] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(list_title(model, paint)), title);
    let shown = model.visible_rows();
    if shown.is_empty() {
        let nothing = match (model.view.filter.is_empty(), model.about.rows) {
            (false, _) => "nothing matches the filter",
            (true, Rows::Requests) => "no requests yet",
            (true, Rows::Streams) => "no streams yet",
        };
        frame.render_widget(Paragraph::new(nothing).style(paint.dim()), list);
        return;
    }
    let is_wide = area.width >= WIDE;
    let visible = shown
        .into_iter()
        .skip(model.view.scroll)
        .take(usize::from(list.height));
    let lines = visible.map(|row| cells(row, model.about.rows, is_wide, now, paint));
    let columns: &[Constraint] = match (model.about.rows, is_wide) {
        (Rows::Requests, true) => &[CLOCK, METHOD, REST, ADDRESS, STATUS, TOOK],
        (Rows::Requests, false) => &[METHOD, REST, STATUS, TOOK],
        (Rows::Streams, true) => &[CLOCK, ADDRESS, REST, TOOK],
        (Rows::Streams, false) => &[ADDRESS, REST, TOOK],
    };
    frame.render_widget(Table::new(lines, columns.iter().copied()), list);
}

fn list_title(model: &Model, paint: Paint) -> Line<'static> {
    let name = match model.about.rows {
        Rows::Requests => "requests",
        Rows::Streams => "streams",
    };
    let mut parts = vec![name.to_owned()];
    if model.is_paused() {
        parts.push("paused".to_owned());
    }
    if !model.view.filter.is_empty() {
        parts.push(format!("with \"{}\"", plain(&model.view.filter)));
    }
    if model.view.scroll > 0 {
        parts.push(format!("from {}", model.view.scroll + 1));
    }
    if model.missed > 0 {
        parts.push(format!("{} missed", model.missed));
    }
    Line::styled(parts.join(", "), paint.dim())
}

fn cells(row: &Row, kind: Rows, is_wide: bool, now: Instant, paint: Paint) -> Cells<'static> {
    let status = match row.status {
        Some(status) => status.to_string(),
        None if row.failed => "-".to_owned(),
        None => "...".to_owned(),
    };
    let time = match row.duration {
        Some(time) => format_duration(time),
        None => format_duration(now.saturating_duration_since(row.started_at)),
    };
    let clock = Span::styled(row.clock.clone(), paint.dim());
    let source = Span::styled(plain(&row.source), paint.dim());
    let path = Span::raw(plain(&row.path));
    let status = Span::styled(status, paint.status(row));
    let time = Line::from(time).alignment(Alignment::Right);
    let method = Span::raw(plain(&row.method));
    match (kind, is_wide) {
        (Rows::Requests, true) => Cells::new([
            clock.into(),
            method.into(),
            path.into(),
            source.into(),
            status.into(),
            time,
        ]),
        (Rows::Requests, false) => Cells::new([method.into(), path.into(), status.into(), time]),
        (Rows::Streams, is_wide) => {
            let path = path.style(paint.status(row));
            let mut cells: Vec<Line<'static>> = vec![source.into(), path.into(), time];
            if is_wide {
                cells.insert(0, clock.into());
            }
            Cells::new(cells)
        }
    }
}

/// The current message and the key help.
fn foot_lines(model: &Model, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let mut lines = Vec::new();
    if let Some(notice) = &model.notice {
        let room = if area.height < LOW { 1 } else { 3 };
        let parts = wrapped_words(&plain(&notice.text), width, room);
        lines.extend(
            parts
                .into_iter()
                .map(|part| Line::styled(part, paint.warning())),
        );
    }
    if model.view.typing {
        let typed = format!("/{}_", plain(&model.view.filter));
        lines.push(Line::styled(typed, paint.bold()));
        return lines;
    }
    let mut keys = vec![
        "q stop", "? keys", "c copy", "p pause", "/ filter", "Q code",
    ];
    if model.about.inspector.is_some() {
        keys.push("i inspector");
    }
    let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    let keys = packed(&keys, "  ", width).into_iter().next();
    lines.push(Line::styled(keys.unwrap_or_default(), paint.dim()));
    lines
}

fn help() -> Vec<String> {
    [
        "q, ctrl-c  finish open requests and stop",
        "           again: stop immediately",
        "c          copy the address",
        "Q          the address as a QR code",
        "i          the inspector's address",
        "p          pause or resume the list",
        "/          filter the list",
        "esc        clear the filter",
        "up, down   scroll; also page, home, end",
        "ctrl-z     suspend; `fg` resumes",
        "?          these keys",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn inspector(model: &Model) -> Vec<String> {
    let none = || "the inspector is not running".to_owned();
    vec![model.about.inspector.clone().unwrap_or_else(none)]
}

/// Draws a centred box of the size of its text, limited by the screen.
fn draw_window(frame: &mut Frame<'_>, title: &'static str, text: &[String], style: Style) {
    let room = usize::from(frame.area().width).saturating_sub(FRAME);
    let text: Vec<Line<'static>> = text
        .iter()
        .flat_map(|line| wrapped(line, room, MAX_WRAPPED))
        .map(Line::raw)
        .collect();
    let width = text.iter().map(Line::width).max().unwrap_or(0) + FRAME;
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    let area = frame.area().centered(
        Constraint::Length(width),
        Constraint::Length(lines(&text).saturating_add(2)),
    );
    let block = Block::bordered()
        .title(Span::styled(format!(" {title} "), style))
        .padding(Padding::horizontal(1));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// Draws the address as a QR code, if it fits.
fn code(frame: &mut Frame<'_>, model: &Model, paint: Paint) {
    let Some(qr) = model.url.as_deref().and_then(Qr::of) else {
        let text = "no address is assigned yet".to_owned();
        return draw_window(frame, "code", &[text], paint.bold());
    };
    let (width, area) = (qr.width(), frame.area());
    let height = width.div_ceil(2);
    if usize::from(area.width) < width || usize::from(area.height) < height {
        let text = format!("it needs {width} columns, {height} rows");
        return draw_window(frame, "code", &[text], paint.bold());
    }
    let (drawn, style) = if paint.colours {
        let ink = Style::new().fg(Color::Indexed(BLACK));
        (qr.lines(), ink.bg(Color::Indexed(WHITE)))
    } else {
        (qr.inverse(), Style::new())
    };
    let length = |of: usize| Constraint::Length(u16::try_from(of).unwrap_or(u16::MAX));
    let area = area.centered(length(width), length(height));
    let text: Vec<Line<'static>> = drawn.into_iter().map(Line::raw).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).style(style), area);
}

/// Joins parts with a separator, in lines up to the given width.
fn packed(parts: &[String], separator: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if length(line) + separator.len() + length(part) <= width => {
                line.push_str(separator);
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Wraps a text at the width. Text beyond `room` lines is replaced by an ellipsis.
fn wrapped(text: &str, width: usize, room: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let mut lines: Vec<String> = letters
        .chunks(width.max(1))
        .map(String::from_iter)
        .collect();
    if lines.len() > room {
        lines.truncate(room);
        if let Some(last) = lines.last_mut() {
            last.pop();
            last.push('…');
        }
    }
    lines
}

/// Like [`wrapped`], but breaks between words.
fn wrapped_words(text: &str, width: usize, room: usize) -> Vec<String> {
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let pieces: Vec<String> = words
        .iter()
        .flat_map(|word| wrapped(word, width, MAX_WRAPPED))
        .collect();
    let mut lines = packed(&pieces, " ", width);
    if lines.len() > room {
        lines.truncate(room);
        if let Some(last) = lines.last_mut() {
            if last.chars().count() >= width {
                last.pop();
            }
            last.push('…');
        }
    }
    lines
}

/// Formats a duration in at most seven characters.
pub(crate) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.as_micros() < 9_950 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        0 => format!("{} ms", time.as_millis()),
        1..100 => format!("{:.1} s", time.as_secs_f64()),
        100..6_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Removes control characters, so that foreign text cannot move the cursor.
fn plain(text: &str) -> String {
    crate::output::plain(text)
}

fn lines(text: &[Line<'_>]) -> u16 {
    u16::try_from(text.len()).unwrap_or(u16::MAX)
}

/// Width of a box border: a line and a space on each side.
const FRAME: usize = 4;

/// Line limit for foreign text. Our own texts are shorter.
const MAX_WRAPPED: usize = 16;

/// Below this height only the most important lines are shown.
const LOW: u16 = 16;

/// From this width on the time of day and the visitor's address are shown.
const WIDE: u16 = 78;

const CLOCK: Constraint = Constraint::Length(8);
const METHOD: Constraint = Constraint::Length(7);
const REST: Constraint = Constraint::Fill(1);
const ADDRESS: Constraint = Constraint::Length(15);
const STATUS: Constraint = Constraint::Length(3);
const TOOK: Constraint = Constraint::Length(8);

#[cfg(test)]
mod tests;
