//! Tests of the server over real streams, with real shells.
#![cfg(unix)]

#[cfg(test)]
mod ends;
#[cfg(test)]
mod interceptor;
#[cfg(test)]
mod invalid_messages;
#[cfg(test)]
mod published;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod sealed;
#[cfg(test)]
mod web;
