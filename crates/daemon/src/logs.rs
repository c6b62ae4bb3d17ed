//! Log output of the process: text on a terminal, JSON lines elsewhere, on stderr.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// Log level; each includes the previous ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Failures that need attention.
    Error,
    /// Unexpected events that were handled.
    Warn,
    /// Information about a healthy process for operators.
    #[default]
    Info,
    /// Information for developers; includes peers and addresses.
    Debug,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Human-readable.
    Text,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// Text when stderr is a terminal, else JSON.
    pub fn of_stderr() -> Self {
        if io::stderr().is_terminal() {
            Self::Text
        } else {
            Self::Json
        }
    }
}

/// Reason why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter (the value of `SVC_LOG`) is invalid.
    #[error("the log filter {filter:?} cannot be read: {source}")]
    Filter {
        /// The text as given.
        filter: String,
        /// The error.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging was already set up.
    #[error("logging is already set up in this process")]
    AlreadySet,
}

/// Sets up logging for the whole process, once. `filter` is the value of `SVC_LOG` if it is set
/// (`debug`, or `info,engine=debug`) and overrides `level`.
///
/// # Errors
/// The filter is invalid, or logging was already set up.
pub fn init(level: Level, filter: Option<&str>, format: Format) -> Result<(), LogsError> {
    let filter = parse_filter(level, filter)?;
    subscriber(filter, format, io::stderr)
        .try_init()
        .map_err(|_| LogsError::AlreadySet)
}

/// `level` for the crates of this project; the protocol libraries at most at info, because their
/// debug level logs every frame.
fn parse_filter(level: Level, filter: Option<&str>) -> Result<EnvFilter, LogsError> {
    let text = filter
        .filter(|filter| !filter.is_empty())
        .unwrap_or(match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug,h2=info,hyper=info,hyper_util=info,rustls=info,reqwest=info",
        });
    let mut filter = EnvFilter::from_str(text).map_err(|source| LogsError::Filter {
        filter: text.to_owned(),
        source,
    })?;
    // The library warns of every malformed packet, which any client can send.
    if !text.contains(STUN)
        && let Ok(silence) = format!("{STUN}=off").parse()
    {
        filter = filter.add_directive(silence);
    }
    Ok(filter)
}

/// The library of TURN messages.
const STUN: &str = "stun_types";

fn subscriber<W>(
    filter: EnvFilter,
    format: Format,
    writer: W,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(PlainLineWriter(writer));
    match format {
        Format::Text => Box::new(builder.finish()),
        Format::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

/// Writes lines without characters that reverse text or look like the end of a line, so that a name
/// from an untrusted source cannot change the meaning of a line.
struct PlainLineWriter<W>(W);

/// One line.
struct PlainLine<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for PlainLineWriter<W> {
    type Writer = PlainLine<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        PlainLine(self.0.make_writer())
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        PlainLine(self.0.make_writer_for(meta))
    }
}

impl<W: Write> Write for PlainLine<W> {
    /// The formatter passes whole lines, one at a time.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) if text.contains(is_directional) => {
                let mut plain = String::with_capacity(text.len() + 8);
                for letter in text.chars() {
                    if is_directional(letter) {
                        // In the notation of JSON, which is also readable in text.
                        write!(plain, "\\u{:04x}", u32::from(letter)).map_err(io::Error::other)?;
                    } else {
                        plain.push(letter);
                    }
                }
                self.0.write_all(plain.as_bytes())?;
            }
            _ => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Directional formatting characters (Unicode Standard Annex 9) and line separators.
fn is_directional(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{85}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: Level, filter: Option<&str>, format: Format) -> String {
        let captured = CapturedLog::default();
        let writer = captured.clone();
        let filter = parse_filter(level, filter).unwrap();
        let subscriber = subscriber(filter, format, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(tunnel.id = "tun_1", "published");
            tracing::debug!("detail");
            tracing::debug!(target: "h2", "frame");
            tracing::warn!(target: "stun_types::message", "malformed");
        });
        let bytes = captured.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_is_one_object_a_line_with_dotted_fields() {
        let line = logged(Level::Info, None, Format::Json);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["message"], "published");
        assert_eq!(object["tunnel.id"], "tun_1");
        assert_eq!(object["level"], "INFO");
    }

    #[test]
    fn directional_characters_are_escaped() {
        for format in [Format::Json, Format::Text] {
            let captured = CapturedLog::default();
            let writer = captured.clone();
            let filter = parse_filter(Level::Info, None).unwrap();
            let subscriber = subscriber(filter, format, move || writer.clone());
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(name = "a\u{202e}b\u{2028}c", "named \u{2066}so");
            });
            let bytes = captured.0.lock().clone();
            let line = String::from_utf8(bytes).unwrap();
            assert!(!line.contains(is_directional), "{line}");
            // Text logs escape fields differently from the message.
            for code in ["202e", "2028", "2066"] {
                assert!(line.contains(code), "{line}");
            }
            if format == Format::Json {
                let object: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!(object["name"], "a\u{202e}b\u{2028}c");
            }
        }
    }

    #[test]
    fn text_is_human_readable() {
        assert!(logged(Level::Info, None, Format::Text).contains("published"));
    }

    #[test]
    fn a_level_includes_those_before_it_and_spares_the_protocol_libraries() {
        assert_eq!(logged(Level::Warn, None, Format::Json), "");
        let debug = logged(Level::Debug, None, Format::Json);
        assert!(debug.contains("detail") && !debug.contains("frame"));
    }

    #[test]
    fn malformed_packets_do_not_fill_the_log() {
        for (level, filter) in [(Level::Debug, None), (Level::Info, Some("warn"))] {
            assert!(!logged(level, filter, Format::Json).contains("malformed"));
        }
        assert!(logged(Level::Info, Some("stun_types=warn"), Format::Json).contains("malformed"));
    }

    #[test]
    fn the_filter_overrides_the_level() {
        assert!(logged(Level::Error, Some("debug"), Format::Json).contains("frame"));
        assert_eq!(logged(Level::Debug, Some("error"), Format::Json), "");
        assert!(
            logged(Level::Info, Some(""), Format::Json).contains("published"),
            "empty: unset"
        );
    }
}
