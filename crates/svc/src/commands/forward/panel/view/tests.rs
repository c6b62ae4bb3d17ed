use ratatui::{Terminal, backend::TestBackend};

use super::super::model::{Key, KeyPress, PanelInfo};
use super::*;

/// A model with every kind of content.
fn model(now: Instant) -> Model {
    let about = PanelInfo {
        target: "localhost:3000".to_owned(),
        engine: "engine.example.com:443".to_owned(),
        inspector: Some("http://127.0.0.1:4040".to_owned()),
        rows: Rows::Requests,
    };
    let mut model = Model::new(about, now);
    model.state = State::Online;
    model.url = Some("https://web.t.engine.example.com".to_owned());
    model.latency = Some(Duration::from_millis(23));
    for (id, method, path, status, millis) in [
        (1, "GET", "/", Some(200), 12),
        (2, "POST", "/api/orders?a=b", Some(201), 230),
        (3, "GET", "/nothing", Some(404), 3),
        (4, "DELETE", "/api/orders/17", Some(500), 61_000),
        (5, "GET", "/\u{1b}[2J", None, 0),
    ] {
        let row = Row {
            key: Key::Request(id),
            clock: format!("12:00:0{id}"),
            started_at: now,
            duration: status.map(|_| Duration::from_millis(millis)),
            method: method.into(),
            path: path.into(),
            status,
            source: "2001:db8::1".to_owned(),
            failed: false,
        };
        model.upsert_row(row, now);
    }
    model
}

fn drawn(model: &Model, width: u16, height: u16, now: Instant) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let paint = Paint { colours: true };
    terminal
        .draw(|frame| draw(frame, model, now, paint))
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_panel_on_a_usual_terminal() {
    let now = Instant::now();
    let model = model(now);
    insta::assert_snapshot!(drawn(&model, 80, 24, now + Duration::from_secs(10)));
}

#[test]
fn the_panel_on_the_smallest_terminal() {
    let now = Instant::now();
    let mut model = model(now);
    model.url = Some("https://a-name-that-is-long.t.engine.example.com".to_owned());
    insta::assert_snapshot!(drawn(&model, 40, 10, now + Duration::from_secs(10)));
}

#[test]
fn a_lost_connection_is_reported_with_the_remaining_time() {
    let now = Instant::now();
    let mut model = model(now);
    model.state = State::Disconnected {
        error: "cannot reach the engine: connection refused".into(),
        until: now + Duration::from_millis(3_400),
    };
    model.latency = None;
    model.show_notice("the service at localhost:3000 is not reachable: connection refused");
    insta::assert_snapshot!(drawn(&model, 60, 16, now));
}

#[test]
fn the_list_title_shows_pause_filter_and_scroll_position() {
    let now = Instant::now();
    let mut model = model(now);
    model.missed(7);
    for key in ['p', '/', 'a', 'p', 'i'] {
        model.press(KeyPress::Letter(key), now);
    }
    insta::assert_snapshot!("typing", drawn(&model, 80, 16, now));
    model.press(KeyPress::Enter, now);
    model.press(KeyPress::Down, now);
    model.state = State::Draining;
    insta::assert_snapshot!("scrolled", drawn(&model, 80, 16, now));
}

#[test]
fn streams_have_their_own_row_format() {
    let now = Instant::now();
    let about = PanelInfo {
        target: "localhost:22".to_owned(),
        engine: "engine.example.com:443".to_owned(),
        inspector: None,
        rows: Rows::Streams,
    };
    let mut model = Model::new(about, now);
    insta::assert_snapshot!("none", drawn(&model, 60, 16, now));
    for (id, path, took) in [("a", "closed", Some(7_500)), ("b", "open", None)] {
        let row = Row {
            key: Key::Stream(id.into()),
            clock: "12:00:00".to_owned(),
            started_at: now,
            duration: took.map(Duration::from_millis),
            method: "".into(),
            path: path.into(),
            status: None,
            source: "192.0.2.7".to_owned(),
            failed: false,
        };
        model.upsert_row(row, now);
    }
    insta::assert_snapshot!(
        "some",
        drawn(&model, 80, 18, now + Duration::from_secs(125))
    );
}

#[test]
fn windows_are_centred() {
    let now = Instant::now();
    let mut model = model(now);
    model.view.overlay = Some(Overlay::Help);
    insta::assert_snapshot!("help", drawn(&model, 80, 24, now));
    model.view.overlay = Some(Overlay::Code);
    insta::assert_snapshot!("code", drawn(&model, 60, 20, now));
    insta::assert_snapshot!("code_too_large", drawn(&model, 40, 10, now));
    model.view.overlay = Some(Overlay::Inspector);
    insta::assert_snapshot!("inspector", drawn(&model, 60, 16, now));
}

#[test]
fn no_size_is_too_small_to_draw() {
    let now = Instant::now();
    let mut model = model(now);
    for overlay in [None, Some(Overlay::Help), Some(Overlay::Code)] {
        model.view.overlay = overlay;
        for (width, height) in [(1, 1), (2, 3), (10, 2), (300, 1), (1, 100), (39, 9)] {
            drawn(&model, width, height, now);
        }
    }
}

#[test]
fn no_colours_are_used_if_disabled() {
    let now = Instant::now();
    let mut model = model(now);
    for overlay in [None, Some(Overlay::Help), Some(Overlay::Code)] {
        model.view.overlay = overlay;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let paint = Paint { colours: false };
        terminal
            .draw(|frame| draw(frame, &model, now, paint))
            .unwrap();
        for cell in terminal.backend().buffer().content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
    }
}

#[test]
fn times_are_short() {
    for (millis, text) in [
        (0, "0.0 ms"),
        (9, "9.0 ms"),
        (10, "10 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (99_900, "99.9 s"),
        (100_000, "1m 40s"),
        (5_999_000, "99m 59s"),
        (7_500_000, "2h 05m"),
    ] {
        assert_eq!(format_duration(Duration::from_millis(millis)), text);
    }
}
