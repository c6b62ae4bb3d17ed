//! Real shells, with and without a terminal.

#[cfg(test)]
mod login;
#[cfg(test)]
mod shells;
#[cfg(test)]
mod world;
