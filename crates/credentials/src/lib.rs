//! Token formats, claims, keys and their verification, without IO and without a clock.
