//! Lists, refusals, credentials and the document of the Engine API.

mod close;
mod document;
mod lists;
mod memory;
mod rates;
mod refusals;
