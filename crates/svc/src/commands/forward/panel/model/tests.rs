use super::*;

fn model(now: Instant) -> Model {
    let about = PanelInfo {
        target: "localhost:3000".to_owned(),
        engine: "engine.test:443".to_owned(),
        inspector: None,
        rows: Rows::Requests,
    };
    Model::new(about, now)
}

fn row(id: u64, path: &str, status: Option<u16>, now: Instant) -> Row {
    Row {
        key: Key::Request(id),
        clock: "12:00:00".to_owned(),
        started_at: now,
        duration: status.map(|_| Duration::from_millis(id)),
        method: "GET".into(),
        path: path.into(),
        status,
        source: "192.0.2.1".to_owned(),
        failed: false,
    }
}

fn paths(model: &Model) -> Vec<&str> {
    model.visible_rows().iter().map(|row| &*row.path).collect()
}

fn letters(model: &mut Model, text: &str, now: Instant) {
    for letter in text.chars() {
        assert_eq!(model.press(KeyPress::Letter(letter), now), None);
    }
}

#[test]
fn a_request_is_counted_once_from_start_to_end() {
    let now = Instant::now();
    let mut model = model(now);
    model.upsert_row(row(1, "/a", None, now), now);
    model.upsert_row(row(2, "/b", None, now), now);
    assert_eq!(
        (model.total, model.open(), model.times()),
        (2, 2, (None, None))
    );
    model.upsert_row(row(1, "/a", Some(200), now), now);
    // A repeated update changes nothing.
    model.upsert_row(row(1, "/a", Some(200), now), now);
    assert_eq!((model.total, model.open()), (2, 1));
    let took = Some(Duration::from_millis(1));
    assert_eq!(model.times(), (took, took));
    model.upsert_row(row(3, "/c", Some(404), now), now);
    assert_eq!((model.total, model.open()), (3, 1));
    assert_eq!(paths(&model), ["/c", "/b", "/a"]);
    assert!(model.rates(now).0 > 2.9);
}

#[test]
fn an_open_request_is_counted_after_it_left_the_list() {
    let now = Instant::now();
    let mut model = model(now);
    model.upsert_row(row(0, "/long", None, now), now);
    for id in 1..=600 {
        model.upsert_row(row(id, "/short", Some(200), now), now);
    }
    assert_eq!((model.visible_rows().len(), model.open()), (MAX_ROWS, 1));
    model.upsert_row(row(0, "/long", Some(200), now), now);
    assert_eq!((model.total, model.open()), (601, 0));
    assert!(!paths(&model).contains(&"/long"));
}

#[test]
fn missed_ends_close_open_requests() {
    let now = Instant::now();
    let mut model = model(now);
    for id in 0..5 {
        model.upsert_row(row(id, "/a", None, now), now);
    }
    model.missed(3);
    model.retain_open(|key| *key == Key::Request(4));
    assert_eq!((model.open(), model.missed), (1, 3));
}

#[test]
fn a_paused_list_keeps_its_rows_while_counters_run() {
    let now = Instant::now();
    let mut model = model(now);
    model.upsert_row(row(1, "/a", None, now), now);
    letters(&mut model, "p", now);
    model.upsert_row(row(1, "/a", Some(200), now), now);
    model.upsert_row(row(2, "/b", Some(200), now), now);
    assert!(model.is_paused());
    assert_eq!((paths(&model), model.total), (vec!["/a"], 2));
    assert_eq!(model.visible_rows()[0].status, None);
    letters(&mut model, "p", now);
    assert_eq!(paths(&model), ["/b", "/a"]);
}

#[test]
fn a_filter_is_typed_and_cleared() {
    let now = Instant::now();
    let mut model = model(now);
    for (id, path, status) in [(1, "/api/users", 200), (2, "/Q", 500), (3, "/api/q", 404)] {
        model.upsert_row(row(id, path, Some(status), now), now);
    }
    letters(&mut model, "/API", now);
    assert_eq!(paths(&model), ["/api/q", "/api/users"]);
    // While the filter is typed, keys are letters.
    letters(&mut model, "/q", now);
    assert_eq!(paths(&model), ["/api/q"]);
    model.press(KeyPress::Backspace, now);
    model.press(KeyPress::Enter, now);
    assert!(!model.view.typing);
    assert_eq!(model.view.filter, "API/");
    model.press(KeyPress::Escape, now);
    letters(&mut model, "/50", now);
    assert_eq!(paths(&model), ["/Q"]);
    model.press(KeyPress::Escape, now);
    assert_eq!((model.view.typing, model.visible_rows().len()), (false, 3));
}

#[test]
fn a_scrolled_list_keeps_its_position() {
    let now = Instant::now();
    let mut model = model(now);
    for id in 0..30 {
        model.upsert_row(row(id, "/a", Some(200), now), now);
    }
    model.press(KeyPress::Down, now);
    model.press(KeyPress::PageDown, now);
    assert_eq!(model.view.scroll, 11);
    model.upsert_row(row(30, "/new", Some(200), now), now);
    assert_eq!(model.view.scroll, 12);
    model.press(KeyPress::End, now);
    assert_eq!(model.view.scroll, 30);
    model.press(KeyPress::PageDown, now);
    assert_eq!(model.view.scroll, 30);
    model.press(KeyPress::Home, now);
    model.upsert_row(row(31, "/new", Some(200), now), now);
    assert_eq!(model.view.scroll, 0);
    model.press(KeyPress::Up, now);
    assert_eq!(model.view.scroll, 0);
}

#[test]
fn keys_return_actions_outside_the_model() {
    let now = Instant::now();
    let mut model = model(now);
    assert_eq!(model.press(KeyPress::Letter('q'), now), Some(Action::Stop));
    assert_eq!(model.press(KeyPress::Interrupt, now), Some(Action::Stop));
    assert_eq!(model.press(KeyPress::Suspend, now), Some(Action::Suspend));
    // There is no address to copy yet.
    assert_eq!(model.press(KeyPress::Letter('c'), now), None);
    model.url = Some("https://web.test".to_owned());
    let copy = Action::Copy("https://web.test".to_owned());
    assert_eq!(model.press(KeyPress::Letter('c'), now), Some(copy));
    assert!(model.notice.is_some() && model.is_animated(now));
    model.tick(now + NOTICE_TIME);
    assert!(model.notice.is_none() && !model.is_animated(now));
    model.press(KeyPress::Letter('/'), now);
    assert_eq!(model.press(KeyPress::Letter('q'), now), None);
    assert_eq!(model.press(KeyPress::Interrupt, now), Some(Action::Stop));
}

#[test]
fn windows_are_closed_by_any_key() {
    let now = Instant::now();
    let mut model = model(now);
    model.press(KeyPress::Letter('?'), now);
    assert_eq!(model.view.overlay, Some(Overlay::Help));
    model.press(KeyPress::Letter('Q'), now);
    assert_eq!(model.view.overlay, Some(Overlay::Code));
    model.press(KeyPress::Letter('Q'), now);
    assert_eq!(model.view.overlay, None);
    model.press(KeyPress::Letter('i'), now);
    model.view.filter = "x".to_owned();
    model.press(KeyPress::Escape, now);
    assert_eq!(
        (model.view.overlay, model.view.filter.as_str()),
        (None, "x")
    );
    model.press(KeyPress::Escape, now);
    assert_eq!(model.view.filter, "");
}
