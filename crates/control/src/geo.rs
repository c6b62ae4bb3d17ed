//! Of `geo`.
