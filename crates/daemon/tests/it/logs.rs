//! Logging is set up once for a process.

use daemon::logs::{Format, Level, LogsError, init};

#[test]
fn logs_are_set_up_once_and_a_broken_filter_is_named() {
    let broken = init(Level::Info, Some("a=b=c"), Format::Json).unwrap_err();
    assert!(matches!(&broken, LogsError::Filter { filter, .. } if filter == "a=b=c"));
    init(Level::Error, None, Format::Json).unwrap();
    assert!(matches!(
        init(Level::Error, None, Format::Text),
        Err(LogsError::AlreadySet)
    ));
}
