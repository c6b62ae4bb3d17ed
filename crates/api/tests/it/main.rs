//! The committed documents against the code that makes them.

mod engine_document;
