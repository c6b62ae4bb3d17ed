//! The dashboard: its document and files, the session as the caller of the API.

mod document;
