//! Patterns of boundaries.
