//! Of `billing`.
