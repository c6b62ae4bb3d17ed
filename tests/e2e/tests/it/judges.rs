//! Third-party tests of WebSocket and HTTP/2 through the edge, with `ws`, `websockets`, `h2`,
//! h2spec, nghttp2 and the attacks of slowhttptest. Each table is in the judge. The tests here
//! start the servers and require that every row succeeds.

mod h2;
mod h2spec;
mod nghttp;
mod slow;
mod websocket;
