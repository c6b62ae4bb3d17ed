//! Engines, agents, clocks and misbehaving upstreams for tests.
