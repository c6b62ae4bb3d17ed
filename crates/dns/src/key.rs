//! The shared secret of TSIG (RFC 8945), and the files that contain it.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hickory_proto::rr::Name;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use zeroize::Zeroizing;

use crate::name::parse_name;

/// The hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-384.
    HmacSha384,
    /// HMAC with SHA-512.
    HmacSha512,
}

impl KeyAlgorithm {
    /// The name in messages and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha384 => "hmac-sha384",
            Self::HmacSha512 => "hmac-sha512",
        }
    }

    /// The algorithm with a name, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];
        let text = text.trim_end_matches('.');
        all.into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(text))
    }

    pub(crate) fn of_messages(self) -> TsigAlgorithm {
        match self {
            Self::HmacSha256 => TsigAlgorithm::HmacSha256,
            Self::HmacSha384 => TsigAlgorithm::HmacSha384,
            Self::HmacSha512 => TsigAlgorithm::HmacSha512,
        }
    }
}

/// A key. Its secret is not printed.
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct TsigKey {
    name: Name,
    algorithm: KeyAlgorithm,
    secret: Zeroizing<Vec<u8>>,
}

/// The file of a key, and the parts that the configuration has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySource {
    /// The secret in base64, or a key of BIND: `key "name" { algorithm …; secret "…"; };`.
    pub file: PathBuf,
    /// Name of the key; required if the file has only the secret.
    pub name: Option<String>,
    /// The algorithm; without it that of the file, else HMAC with SHA-256.
    pub algorithm: Option<KeyAlgorithm>,
}

/// Reason why a key cannot be used. It has nothing of the secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {problem}", file.display())]
pub struct KeyError {
    file: PathBuf,
    problem: String,
}

impl KeySource {
    /// Reads the file now, so that a replaced key is used by the next update.
    ///
    /// # Errors
    /// The file cannot be read, other users may read it, or it contains no key.
    pub fn read(&self) -> Result<TsigKey, KeyError> {
        let text = read(&self.file);
        let key = text.and_then(|text| self.parse(&text));
        key.map_err(|problem| KeyError {
            file: self.file.clone(),
            problem,
        })
    }

    /// Parses the content of the file.
    fn parse(&self, text: &str) -> Result<TsigKey, String> {
        let file = KeyFile::parse(text)?;
        let name = match (&self.name, file.name) {
            (Some(name), Some(of_file)) if parse_name(name) != parse_name(of_file) => {
                return Err("has a key of another name; correct it or `key_name`".to_owned());
            }
            (Some(name), _) => name.as_str(),
            (None, Some(name)) => name,
            (None, None) => {
                return Err("has only a secret; set `key_name` to the name of the key".to_owned());
            }
        };
        let algorithm = match (self.algorithm, file.algorithm) {
            (Some(algorithm), Some(of_file)) if algorithm != of_file => {
                let message = "has a key of another algorithm; correct it or `algorithm`";
                return Err(message.to_owned());
            }
            (algorithm, of_file) => algorithm.or(of_file).unwrap_or(KeyAlgorithm::HmacSha256),
        };
        Ok(TsigKey {
            name: parse_name(name)
                .map_err(|_| "has a key whose name is none of DNS; correct it".to_owned())?,
            algorithm,
            secret: secret(file.secret)?,
        })
    }
}

impl TsigKey {
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }
}

impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TsigKey")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// The parts of a file.
struct KeyFile<'a> {
    name: Option<&'a str>,
    algorithm: Option<KeyAlgorithm>,
    secret: &'a str,
}

impl<'a> KeyFile<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        if !text.contains('{') {
            return Ok(Self {
                name: None,
                algorithm: None,
                secret: text.trim(),
            });
        }
        let unknown = || "is not a file with one key of BIND; correct it".to_owned();
        let mut tokens = Tokens(text);
        let mut name = None;
        if tokens.next() == Some("key") && tokens.next_is_word(&mut name) {
            Self::statements(tokens, name).ok_or_else(unknown)?
        } else {
            Err(unknown())
        }
    }

    /// The statements of a key, from `{` to the end of the file.
    fn statements(mut tokens: Tokens<'a>, name: Option<&'a str>) -> Option<Result<Self, String>> {
        let (mut algorithm, mut secret) = (None, None);
        if tokens.next()? != "{" {
            return None;
        }
        loop {
            let token = match tokens.next()? {
                "}" => break,
                "algorithm" => &mut algorithm,
                "secret" => &mut secret,
                _ => return None,
            };
            if token.is_some() || !tokens.next_is_word(token) || tokens.next()? != ";" {
                return None;
            }
        }
        if !matches!(tokens.next(), None | Some(";")) || tokens.next().is_some() {
            return None;
        }
        let secret = secret?;
        let Some(algorithm) = KeyAlgorithm::parse(algorithm?) else {
            let message = "has a key whose algorithm is not supported; use hmac-sha256, \
                           hmac-sha384 or hmac-sha512";
            return Some(Err(message.to_owned()));
        };
        Some(Ok(Self {
            name,
            algorithm: Some(algorithm),
            secret,
        }))
    }
}

/// Words, quoted texts without their quotes, and the symbols `{`, `}`, `;`. Comments are skipped.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    /// Puts the next token into `token`. Returns false if it is a symbol, or there is none.
    fn next_is_word(&mut self, token: &mut Option<&'a str>) -> bool {
        *token = self.next().filter(|token| !["{", "}", ";"].contains(token));
        token.is_some()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.0 = self.0.trim_start();
            let comment = if self.0.starts_with("//") || self.0.starts_with('#') {
                self.0.split_once('\n')
            } else if self.0.starts_with("/*") {
                self.0.split_once("*/")
            } else {
                break;
            };
            self.0 = comment.map(|(_, rest)| rest).unwrap_or_default();
        }
        if let Some(quoted) = self.0.strip_prefix('"') {
            let (text, rest) = quoted.split_once('"')?;
            self.0 = rest;
            return Some(text);
        }
        let is_end = |c: char| c.is_whitespace() || ['{', '}', ';', '"'].contains(&c);
        let end = match self.0.find(is_end) {
            // A symbol, which is one byte.
            Some(0) => 1,
            Some(end) => end,
            None => self.0.len(),
        };
        let (token, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        Some(token).filter(|token| !token.is_empty())
    }
}

fn secret(text: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let secret = BASE64_STANDARD.decode(text).map(Zeroizing::new);
    let secret = secret.map_err(|_| "has no secret in base64; correct it".to_owned())?;
    if secret.len() < MIN_SECRET_BYTES {
        return Err(format!(
            "has a secret of less than {MIN_SECRET_BYTES} bytes; create another one, for example \
             with tsig-keygen"
        ));
    }
    Ok(secret)
}

/// Reads a file that must be private.
fn read(path: &Path) -> Result<Zeroizing<String>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    if mode & FORBIDDEN_MODE != 0 {
        return Err("may be read by other users; run chmod 640 or 600 on it".to_owned());
    }
    let mut text = Zeroizing::new(String::new());
    let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
    read.map_err(failed)?;
    Ok(text)
}

/// The group may read: keys of a name server often belong to root and to its group, and credentials
/// of systemd are readable through a group.
const FORBIDDEN_MODE: u32 = 0o037;

/// A key has some hundred bytes.
const MAX_FILE_BYTES: u64 = 16 * 1024;

/// Half of the shortest hash (RFC 8945 section 9 requires at least so much randomness).
const MIN_SECRET_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::fs::Permissions;

    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0";

    fn source(name: Option<&str>, algorithm: Option<KeyAlgorithm>) -> KeySource {
        KeySource {
            file: "/key".into(),
            name: name.map(str::to_owned),
            algorithm,
        }
    }

    fn key(name: &str, algorithm: KeyAlgorithm) -> TsigKey {
        TsigKey {
            name: parse_name(name).unwrap(),
            algorithm,
            secret: Zeroizing::new(BASE64_STANDARD.decode(SECRET).unwrap()),
        }
    }

    #[test]
    fn a_file_with_the_secret_needs_the_name() {
        let text = format!("{SECRET}\n");
        let parsed = source(Some("svc"), None).parse(&text).unwrap();
        assert_eq!(parsed, key("svc", KeyAlgorithm::HmacSha256));
        let sha512 = Some(KeyAlgorithm::HmacSha512);
        let parsed = source(Some("svc"), sha512).parse(&text).unwrap();
        assert_eq!(parsed, key("svc", KeyAlgorithm::HmacSha512));
        let error = source(None, None).parse(&text).unwrap_err();
        assert!(error.contains("set `key_name`"), "{error}");
    }

    #[test]
    fn a_key_of_bind_has_all_parts() {
        let text = format!(
            "# of tsig-keygen\nkey \"svc.example\" {{ /* both */\n\talgorithm hmac-sha384;\n\
             \tsecret \"{SECRET}\"; // end\n}};\n"
        );
        let expected = key("svc.example", KeyAlgorithm::HmacSha384);
        let same = Some(KeyAlgorithm::HmacSha384);
        for source in [source(None, None), source(Some("SVC.example."), same)] {
            assert_eq!(source.parse(&text).unwrap(), expected);
        }
        let short = format!("key svc.example{{secret {SECRET};algorithm HMAC-SHA384.;}}");
        assert_eq!(source(None, None).parse(&short).unwrap(), expected);
        let other = source(Some("other"), None).parse(&text).unwrap_err();
        assert!(other.contains("another name"), "{other}");
        let other = source(None, Some(KeyAlgorithm::HmacSha256)).parse(&text);
        assert!(other.unwrap_err().contains("another algorithm"));
    }

    #[test]
    fn other_files_are_refused() {
        for (text, reason) in [
            ("", "less than 16 bytes"),
            ("not base64!", "no secret in base64"),
            ("c2hvcnQ=", "less than 16 bytes"),
            ("key k { algorithm hmac-sha256; };", "one key of BIND"),
            ("key k { secret \"c2hvcnQ=\" };", "one key of BIND"),
            ("key { }", "one key of BIND"),
            (
                "key k { algorithm hmac-md5; secret \"c2hvcnQ=\"; };",
                "hmac-sha256",
            ),
            (
                "key k { algorithm hmac-sha256; secret \"c2hvcnQ=\"; }; key l { };",
                "one key of BIND",
            ),
        ] {
            let error = source(Some("k"), None).parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        fs::write(&file, SECRET).unwrap();
        for (mode, is_private) in [(0o600, true), (0o640, true), (0o644, false), (0o660, false)] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let source = KeySource {
                file: file.clone(),
                ..source(Some("svc"), None)
            };
            assert_eq!(source.read().is_ok(), is_private, "{mode:o}");
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        let key = key("svc", KeyAlgorithm::HmacSha256);
        assert!(!format!("{key:?}").contains("secret"));
        let error = source(Some("svc"), None).parse("bm90 secret").unwrap_err();
        assert!(!error.contains("bm90"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_an_error(text in "[key\"{};/*#a-z=\n ]{0,64}") {
            source(Some("svc"), None).parse(&text).ok();
        }
    }
}
