//! The upstreams and visitors, put together without anything between them.

#[cfg(test)]
mod upstreams;
