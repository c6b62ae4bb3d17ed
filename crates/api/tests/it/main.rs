//! The committed documents are compared with the code that generates them.

mod control_document;
#[cfg(test)]
mod dashboard_pages;
mod engine_document;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod webtty;
