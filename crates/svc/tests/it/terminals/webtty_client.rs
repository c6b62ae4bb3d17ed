//! `svc webtty` at the client: the program, and a server on a real socket.

mod exec;
mod files;
mod keys;
mod sealed;
mod served;
mod terminal;
mod tunnels;
