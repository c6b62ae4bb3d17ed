//! The server over real streams, with real shells.
#![cfg(unix)]

mod ends;
mod published;
mod resume;
mod sealed;
mod web;
mod wrong;
