//! nginx as a private service.
