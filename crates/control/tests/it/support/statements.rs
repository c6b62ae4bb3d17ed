//! Database queries of a request: the statements that sqlx logs within our span.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Once;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Instrument as _, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Awaits `work` and returns its statements in order, together with its result.
pub(crate) async fn recorded<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let wanted = filter_fn(|meta| meta.target() == TARGET || meta.name() == SPAN);
        let subscriber = tracing_subscriber::registry().with(Recorder.with_filter(wanted));
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    let number = super::next();
    let span = tracing::info_span!("recorded", number);
    let value = work.instrument(span).await;
    let statements = STATEMENTS
        .lock()
        .as_mut()
        .and_then(|all| all.remove(&number));
    (value, statements.unwrap_or_default())
}

static STATEMENTS: Mutex<Option<HashMap<u64, Vec<String>>>> = Mutex::new(None);
const TARGET: &str = "sqlx::query";
const SPAN: &str = "recorded";

struct Recorder;

/// The number of our span.
struct Number(u64);

/// The start of a statement, or all of it if it is longer.
#[derive(Default)]
struct Statement(String);

impl Visit for Statement {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if ["summary", "db.statement"].contains(&field.name()) {
            write!(self.0, "{value:?} ").unwrap();
        }
    }
}

#[derive(Default)]
struct Read(Option<u64>);

impl Visit for Read {
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

    fn record_u64(&mut self, _: &Field, value: u64) {
        self.0 = Some(value);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut read = Read::default();
        attributes.record(&mut read);
        if let (Some(number), Some(span)) = (read.0, context.span(id)) {
            span.extensions_mut().insert(Number(number));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(scope) = context.event_scope(event) else {
            return;
        };
        let number = scope
            .from_root()
            .find_map(|span| span.extensions().get::<Number>().map(|number| number.0));
        if let Some(number) = number {
            let mut statement = Statement::default();
            event.record(&mut statement);
            // A connection that the pool opens in the meantime runs its set-up statements.
            if statement.0.contains("PRAGMA") {
                return;
            }
            let mut all = STATEMENTS.lock();
            let all = all.get_or_insert_default();
            all.entry(number).or_default().push(statement.0);
        }
    }
}
