//! How large a message and its parts may be.

/// One message, in bytes: what the published programs read at most.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// A message that is not [`Data`](super::Data), in bytes. The lists in an open can become two
/// dozen times as large in memory as they are here, so they do not get the whole of
/// [`MAX_MESSAGE`].
pub const MAX_CONTROL: usize = 256 * 1024;

/// Bytes of a stream in one message, which leaves room for its head in [`MAX_MESSAGE`].
pub const MAX_DATA: usize = MAX_MESSAGE - 1024;

/// Arguments of a command, and variables of its environment: far more than people write, few enough
/// to look at one by one.
pub const MAX_LIST: usize = 1024;

/// All arguments, or all variables, in bytes: what Linux lets one argument have (`MAX_ARG_STRLEN`),
/// and a fraction of what it lets all of them have.
pub const MAX_TEXTS: usize = 128 * 1024;

/// The working directory, in bytes: `PATH_MAX` of Linux.
pub const MAX_PATH: usize = 4096;

/// The name of an account, in bytes: Linux has at most 32, directories of companies more.
pub const MAX_USER: usize = 256;

/// What went wrong, and reasons that people give, in bytes.
pub const MAX_ERROR: usize = 4096;

/// An identifier or a time as text, in bytes: ours have 30, those of others at most 64.
pub const MAX_ID: usize = 128;

/// A key, a key's id, a nonce, a hash or a signature, in bytes: the largest that suites of today
/// have is a public key of P-521 in DER (158).
pub const MAX_KEY: usize = 512;

/// A grant or a credential, in bytes: a signed token with room.
pub const MAX_GRANT: usize = 16 * 1024;

/// Keys wrapped for recipients in one grant: devices of a workspace's members.
pub const MAX_ENVELOPES: usize = 256;

/// Suites or capabilities in a list: each exists a few times.
pub const MAX_SUITES: usize = 32;

/// Rows, columns or pixels: what a terminal's driver can hold.
pub const MAX_SIDE: u32 = 65_535;
