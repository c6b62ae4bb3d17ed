//! The program as its users meet it.

#[cfg(test)]
mod python_sdk;
