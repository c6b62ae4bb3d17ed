//! Terminals and processes of this host: the one place with unsafe code.

#![cfg(unix)]
