//! Of `mail`.
