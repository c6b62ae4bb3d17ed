//! Bodies for display: decompressed, within a limit.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use crate::{
    exchange::{Body, Fields},
    limits::SHOWN_BYTES,
};

/// A body for display.
#[derive(Debug)]
pub(crate) struct DisplayedBody {
    pub(crate) bytes: Vec<u8>,
    /// The removed content coding, such as `gzip`.
    pub(crate) decoded: Option<String>,
    /// True if the body is longer than shown.
    pub(crate) is_truncated: bool,
    /// Reason why an encoded body is shown undecoded.
    pub(crate) decode_error: Option<String>,
}

/// Removes the content codings of a body, the last applied one first.
pub(crate) fn decode_body(fields: &Fields, body: &Body) -> DisplayedBody {
    let cut = !body.is_complete || body.size > body.kept.len() as u64;
    let coding = fields.get("content-encoding").unwrap_or_default().trim();
    decode(coding, &body.kept, cut)
}

/// The same for bytes with a coding; `cut` if the bytes are incomplete.
pub(crate) fn decode(coding: &str, bytes: &[u8], cut: bool) -> DisplayedBody {
    let mut displayed = DisplayedBody {
        bytes: bytes.to_vec(),
        decoded: None,
        is_truncated: cut,
        decode_error: None,
    };
    let codings: Vec<_> = coding
        .split(',')
        .map(|one| one.trim().to_ascii_lowercase())
        .filter(|one| !one.is_empty() && one != "identity")
        .collect();
    if codings.is_empty() || bytes.is_empty() {
        return displayed;
    }
    if codings.len() > MAX_CODINGS {
        displayed.decode_error = Some("too many content encodings".to_owned());
        return displayed;
    }
    for one in codings.iter().rev() {
        match decompress(one, &displayed.bytes) {
            Ok((unfolded, more)) => {
                displayed.bytes = unfolded;
                displayed.is_truncated |= more;
            }
            Err(trouble) => {
                return DisplayedBody {
                    bytes: bytes.to_vec(),
                    decoded: None,
                    is_truncated: cut,
                    decode_error: Some(trouble),
                };
            }
        }
    }
    displayed.decoded = Some(codings.join(", "));
    displayed
}

/// Decompresses up to the limit; true if there is more. Truncated input is shown as far as it can
/// be decoded.
fn decompress(coding: &str, bytes: &[u8]) -> Result<(Vec<u8>, bool), String> {
    match coding {
        "gzip" | "x-gzip" => bounded(MultiGzDecoder::new(bytes)),
        // The standard requires a zlib header, but some servers leave it out.
        "deflate" => match bounded(ZlibDecoder::new(bytes)) {
            Err(_) => bounded(DeflateDecoder::new(bytes)),
            unfolded => unfolded,
        },
        "br" => bounded(brotli_decompressor::Decompressor::new(bytes, BUFFER)),
        "zstd" => {
            let decoder =
                ruzstd::decoding::StreamingDecoder::new_with_max_window_size(bytes, ZSTD_WINDOW);
            match decoder {
                Ok(decoder) => bounded(decoder),
                Err(error) => Err(format!("not zstd: {error}")),
            }
        }
        other => Err(format!("the encoding {other} is not supported")),
    }
}

fn bounded(mut reader: impl Read) -> Result<(Vec<u8>, bool), String> {
    let mut out = Vec::new();
    let limit = SHOWN_BYTES as u64;
    let read = reader.by_ref().take(limit).read_to_end(&mut out);
    match read {
        Ok(_) if out.len() < SHOWN_BYTES => Ok((out, false)),
        Ok(_) => {
            let mut one = [0];
            Ok((out, !matches!(reader.read(&mut one), Ok(0))))
        }
        Err(_) if !out.is_empty() => Ok((out, true)),
        Err(error) => Err(format!("cannot be decompressed: {error}")),
    }
}

/// Maximum number of codings. More than one is rare; hundreds are an attack on the reader.
const MAX_CODINGS: usize = 4;

const BUFFER: usize = 4096;

/// The limit of browsers (RFC 9659).
const ZSTD_WINDOW: u64 = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn each_coding_is_removed() {
        let plain = b"hello, hello, hello, hello";
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(plain).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(plain).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(
            &plain[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        // Encoded by the reference implementation.
        let brotli = [
            0x1b, 0x19, 0x00, 0xf8, 0x8d, 0x94, 0x6e, 0xde, 0x44, 0x09, 0x52, 0x86, 0x96, 0x6c,
            0x2c, 0x6f, 0x31, 0x4f, 0x24, 0xb0, 0xe3, 0x00,
        ];
        for (coding, bytes) in [
            ("gzip", gzip(plain)),
            ("deflate", zlib.finish().unwrap()),
            ("deflate", raw.finish().unwrap()),
            ("zstd", zstd),
            ("gzip, identity", gzip(plain)),
            ("gzip, gzip", gzip(&gzip(plain))),
        ] {
            let body = decode(coding, &bytes, false);
            assert_eq!(body.bytes, plain, "{coding}: {:?}", body.decode_error);
            assert!(!body.is_truncated && body.decoded.is_some());
        }
        let body = decode("br", &brotli, false);
        assert_eq!(body.bytes, plain, "{:?}", body.decode_error);
    }

    #[test]
    fn a_decompression_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![0; 50 * SHOWN_BYTES]);
        let body = decode("gzip", &bomb, false);
        assert_eq!(body.bytes.len(), SHOWN_BYTES);
        assert!(body.is_truncated);
    }

    #[test]
    fn truncated_bodies_are_shown_partially() {
        let whole = gzip(
            &(0..50_000_u32)
                .flat_map(u32::to_le_bytes)
                .collect::<Vec<_>>(),
        );
        let body = decode("gzip", &whole[..whole.len() / 2], true);
        assert!(body.bytes.len() > 1000 && body.is_truncated);
        assert_eq!(body.bytes[..8], [0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn undecodable_bodies_are_shown_unchanged() {
        for coding in ["gzip", "br", "zstd", "deflate", "compress"] {
            let body = decode(coding, b"\xFFplain", false);
            assert_eq!(body.bytes, b"\xFFplain", "{coding}");
            assert!(body.decode_error.is_some(), "{coding}");
        }
    }

    #[test]
    fn the_number_of_codings_is_limited() {
        let mut bytes = b"plain".to_vec();
        for codings in 1..=5 {
            bytes = gzip(&bytes);
            let body = decode(&vec!["gzip"; codings].join(","), &bytes, false);
            assert_eq!(body.bytes == b"plain", codings <= 4, "{codings}");
        }
    }

    /// RFC 8878 section 3.1.1.1.2: the exponent plus ten is the size in bits, the mantissa is in
    /// eighths.
    #[test]
    fn the_zstd_window_is_limited() {
        for (window, is_read) in [(13 << 3, true), (13 << 3 | 1, false)] {
            let head = [0x28, 0xb5, 0x2f, 0xfd, 0, window];
            let last_raw_block = [2 << 3 | 1, 0, 0, b'h', b'i'];
            let bytes = [&head[..], &last_raw_block].concat();
            let body = decode("zstd", &bytes, false);
            assert_eq!(body.bytes == b"hi", is_read, "{:?}", body.decode_error);
        }
    }
}
