//! Lists, refusals, credentials and the document of the Engine API.

mod document;
mod lists;
mod refusals;
