//! Whether a caller may touch what it names: tenancy first (404), then role and boundary (403).
