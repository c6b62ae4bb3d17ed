//! Strict HTTP/1.1 message heads and bodies, without IO.
