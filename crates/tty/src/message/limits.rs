//! Maximum sizes of messages and their parts.

/// One message, in bytes: the maximum of the published programs.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// A message that is not [`Data`](super::Data), in bytes. The lists in an `OpenCommand` can take two dozen
/// times as much memory as in the message, so they must be smaller than [`MAX_MESSAGE`].
pub const MAX_CONTROL: usize = 256 * 1024;

/// Bytes of a stream in one message, with room for its header in [`MAX_MESSAGE`].
pub const MAX_DATA: usize = MAX_MESSAGE - 1024;

/// Arguments of a command, and variables of its environment: far more than people write, few enough
/// to check one by one.
pub const MAX_LIST: usize = 1024;

/// All arguments, or all variables, in bytes: the limit of Linux for one argument
/// (`MAX_ARG_STRLEN`), and a fraction of its limit for all of them.
pub const MAX_TEXTS: usize = 128 * 1024;

/// The working directory, in bytes: `PATH_MAX` of Linux.
pub const MAX_PATH: usize = 4096;

/// The name of an account, in bytes: Linux has at most 32, directories of companies more.
pub const MAX_USER: usize = 256;

/// Error messages and reasons, in bytes.
pub const MAX_ERROR: usize = 4096;

/// An identifier or a time as text, in bytes: ours have 30, foreign ones at most 64.
pub const MAX_ID: usize = 128;

/// A key, a key's id, a nonce, a hash or a signature, in bytes. The largest one of current suites
/// is a public key of P-521 in DER (158).
pub const MAX_KEY: usize = 512;

/// A grant or a credential, in bytes: a signed token with a margin.
pub const MAX_GRANT: usize = 16 * 1024;

/// Keys wrapped for recipients in one grant: devices of a workspace's members.
pub const MAX_ENVELOPES: usize = 256;

/// Suites or capabilities in a list: only a few of each exist.
pub const MAX_SUITES: usize = 32;

/// Rows, columns or pixels: the maximum of terminal drivers.
pub const MAX_SIDE: u32 = 65_535;
