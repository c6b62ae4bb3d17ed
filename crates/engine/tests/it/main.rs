//! The engine through its real surfaces: a listening server on port 0, tokens, live state.

mod access;
mod api;
mod live;
mod support;
