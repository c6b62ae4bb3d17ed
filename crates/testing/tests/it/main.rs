//! The test upstreams and visitors, connected directly.

#[cfg(test)]
mod upstreams;
