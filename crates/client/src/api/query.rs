//! Queries of the Engine API's lists and event streams.

use serde_json::{Map, Value};

/// The filters of a list or an event stream: the `filters` of one kind of object, as the
/// Engine API writes them.
pub type Filters = Map<String, Value>;

/// The query of a list. By default it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    filters: Filters,
    limit: Option<u32>,
}

impl ListQuery {
    /// Selects everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only objects that match these filters.
    #[must_use]
    pub fn with_filters(self, filters: Filters) -> Self {
        Self { filters, ..self }
    }

    /// Sets the maximum number of objects; `None` is the engine's own limit.
    #[must_use]
    pub fn with_limit(self, limit: impl Into<Option<u32>>) -> Self {
        Self {
            limit: limit.into(),
            ..self
        }
    }

    pub(super) fn params(&self) -> Filters {
        let mut params = Filters::new();
        if !self.filters.is_empty() {
            params.insert("filters".to_owned(), self.filters.clone().into());
        }
        if let Some(limit) = self.limit {
            params.insert("limit".to_owned(), limit.into());
        }
        params
    }
}

/// The query of an event stream. Default: all events of clients and tunnels, over SSE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    pub(super) transport: Transport,
    pub(super) params: Filters,
}

impl EventQuery {
    /// Selects every event of clients and tunnels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only events of clients that match these filters.
    #[must_use]
    pub fn with_clients(self, filters: Filters) -> Self {
        self.with_param("clients", filters)
    }

    /// Selects only events of tunnels that match these filters.
    #[must_use]
    pub fn with_tunnels(self, filters: Filters) -> Self {
        self.with_param("tunnels", filters)
    }

    /// Sets a parameter of the Engine API, for example to enable another group of events.
    #[must_use]
    pub fn with_param(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.params.insert(name.into(), value.into());
        self
    }

    /// Sets the transport.
    #[must_use]
    pub fn over(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }
}

/// Transport of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Server-sent events: a response without an end.
    #[default]
    Sse,
    /// A WebSocket with a text frame for each event.
    WebSocket,
}
