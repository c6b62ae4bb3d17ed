//! Reading of small files that an operator provides.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The whole file.
///
/// # Errors
/// It cannot be read, or it is longer than `limit` bytes: a device, or the wrong path.
pub fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_bounded_from(File::open(path)?, limit)
}

/// The rest of an opened file.
///
/// # Errors
/// As of [`read_bounded`].
pub fn read_bounded_from(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {limit} bytes"),
        ));
    }
    Ok(bytes)
}
