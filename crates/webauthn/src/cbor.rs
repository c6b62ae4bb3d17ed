//! The part of CBOR that authenticators write: the canonical form of CTAP2 section 8, with only
//! definite lengths and shortest integers. Anything else is refused. Nothing is copied, and a
//! length is checked against the available bytes.

use crate::CeremonyError;

/// The unread bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Number of pairs of a map.
    pub(crate) fn map(&mut self) -> Result<u64, CeremonyError> {
        self.expect(MAP)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, CeremonyError> {
        let length = self.expect(TEXT)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| MALFORMED)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], CeremonyError> {
        let length = self.expect(BYTES)?;
        self.take(length)
    }

    pub(crate) fn integer(&mut self) -> Result<i64, CeremonyError> {
        let (major, argument) = self.head()?;
        let value = i64::try_from(argument).map_err(|_| MALFORMED)?;
        match major {
            UNSIGNED => Ok(value),
            NEGATIVE => Ok(-1 - value),
            _ => Err(MALFORMED),
        }
    }

    /// Skips one value of any type.
    pub(crate) fn skip(&mut self) -> Result<(), CeremonyError> {
        self.skip_within(MAX_DEPTH)
    }

    fn skip_within(&mut self, depth: usize) -> Result<(), CeremonyError> {
        let (major, argument) = self.head()?;
        let values = match major {
            UNSIGNED | NEGATIVE => return Ok(()),
            BYTES | TEXT => return self.take(argument).map(drop),
            SIMPLE if (FALSE..=NULL).contains(&argument) => return Ok(()),
            ARRAY => argument,
            MAP => argument.checked_mul(2).ok_or(MALFORMED)?,
            _ => return Err(MALFORMED),
        };
        let deeper = depth.checked_sub(1).ok_or(MALFORMED)?;
        // Each value has at least one byte, so a count that is too large fails when the input ends.
        for _ in 0..values {
            self.skip_within(deeper)?;
        }
        Ok(())
    }

    fn expect(&mut self, major: u8) -> Result<u64, CeremonyError> {
        match self.head()? {
            (found, argument) if found == major => Ok(argument),
            _ => Err(MALFORMED),
        }
    }

    /// Major type and argument (RFC 8949 section 3), the argument in its shortest form.
    fn head(&mut self) -> Result<(u8, u64), CeremonyError> {
        let [first] = self.array()?;
        let (argument, least) = match first & 31 {
            short @ 0..=23 => (u64::from(short), 0),
            24 => (u64::from(u8::from_be_bytes(self.array()?)), 24),
            25 => (u64::from(u16::from_be_bytes(self.array()?)), 1 << 8),
            26 => (u64::from(u32::from_be_bytes(self.array()?)), 1 << 16),
            27 => (u64::from_be_bytes(self.array()?), 1 << 32),
            _ => return Err(MALFORMED),
        };
        if argument < least {
            return Err(MALFORMED);
        }
        Ok((first >> 5, argument))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CeremonyError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], CeremonyError> {
        let length = usize::try_from(length).map_err(|_| MALFORMED)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(bytes)
    }
}

pub(crate) const MALFORMED: CeremonyError = CeremonyError("the CBOR is malformed");

// RFC 8949 section 3.1.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const SIMPLE: u8 = 7;
const FALSE: u64 = 20;
const NULL: u64 = 22;

/// CTAP2 section 8: maps and arrays are nested at most four levels deep. A plain value inside the
/// innermost one is no further level.
const MAX_DEPTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_only_read_in_their_shortest_form() {
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x17], 23),
            (&[0x18, 24], 24),
            (&[0x26], -7),
            (&[0x39, 0x01, 0x00], -257),
            (&[0x1a, 0, 1, 0, 0], 65536),
        ] {
            assert_eq!(Reader::new(bytes).integer(), Ok(value), "{bytes:?}");
        }
        for bytes in [
            &[][..],
            &[0x18],
            &[0x18, 23],
            &[0x19, 0, 255],
            &[0x1b, 0, 0, 0, 0, 255, 255, 255, 255],
            &[0x1b, 255, 0, 0, 0, 0, 0, 0, 0],
            &[0x1c],
            &[0x1f],
            &[0x41, 1],
        ] {
            assert_eq!(Reader::new(bytes).integer(), Err(MALFORMED), "{bytes:?}");
        }
    }

    #[test]
    fn lengths_are_not_trusted() {
        assert_eq!(Reader::new(&[0x42, 1, 2]).bytes(), Ok(&[1, 2][..]));
        assert_eq!(Reader::new(&[0x43, 1, 2]).bytes(), Err(MALFORMED));
        let huge = [0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Reader::new(&huge).bytes(), Err(MALFORMED));
        assert_eq!(Reader::new(&[0x5f, 0x41, 1, 0xff]).bytes(), Err(MALFORMED));
        assert_eq!(Reader::new(&[0x61, 0xff]).text(), Err(MALFORMED));
    }

    #[test]
    fn skipping_is_limited_in_depth() {
        let mut reader = Reader::new(&[0xa1, 0x61, b'x', 0x82, 0x01, 0x41, 0, 0xf5]);
        assert_eq!(reader.skip(), Ok(()));
        assert_eq!(reader.rest(), [0xf5]);
        for (levels, result) in [(4, Ok(())), (5, Err(MALFORMED))] {
            for innermost in [
                &[0x81, 0x00][..],
                &[0x80],
                &[0xa1, 0x00, 0x41, 0x01],
                &[0xa0],
            ] {
                let nested = [&vec![0x81; levels - 1], innermost].concat();
                assert_eq!(Reader::new(&nested).skip(), result, "{nested:x?}");
            }
        }
        let many = [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
        assert_eq!(Reader::new(&many).skip(), Err(MALFORMED));
        for bad in [[0xf7], [0xe0], [0xfb], [0xc0]] {
            assert_eq!(Reader::new(&bad).skip(), Err(MALFORMED), "{bad:?}");
        }
    }
}
