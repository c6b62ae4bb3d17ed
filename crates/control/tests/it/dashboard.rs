//! The dashboard: its document and files, the session as the caller of the API, live data.

mod document;
mod engine;
mod lists_chromium;
mod live;
mod session;
mod streams;
