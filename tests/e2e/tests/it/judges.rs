//! Judges by others: WebSocket and HTTP/2 through the edge as `ws`, `websockets`, `h2`, h2spec and
//! nghttp2 understand the RFCs, and slowhttptest's attacks. Each table is in the judge; the tests
//! here give it a world and want everything right.

mod h2;
mod h2spec;
mod nghttp;
mod slow;
mod websocket;
