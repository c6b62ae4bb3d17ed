//! The committed documents against the code that makes them.

mod control_document;
mod engine_document;
#[cfg(test)]
mod webtty;
