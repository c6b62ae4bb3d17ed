//! svc: publish a private service, or dial one.

fn main() {}
