//! A small version of the fuzz targets, with input close to packets of real clients.

use proptest::prelude::*;

use crate::fuzz_targets::{frames, packets, username};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_of_a_stream(data in prop::collection::vec(any::<u8>(), 0..600)) {
        frames(&data);
    }

    #[test]
    fn any_text_as_a_username(text in "(v1:)?[0-9]{0,14}:?(api|pat|app|x)?:?[0-9a-f]{0,9}:?[a-z_:]{0,9}") {
        username(text.as_bytes());
    }

    /// Existing attributes with valid or nearly valid lengths.
    #[test]
    fn any_packets_of_a_client(given in prop::collection::vec(
        (any::<u8>(), prop::collection::vec((0_u8..0x30, 0_u8..24, any::<[u8; 24]>()), 0..6)), 0..8,
    )) {
        let mut data = Vec::new();
        for (kind, attributes) in given {
            let mut bytes = Vec::new();
            for (name, length, value) in attributes {
                bytes.extend([0, name, 0, length]);
                bytes.extend(&value[..usize::from(length).next_multiple_of(4)]);
            }
            data.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
            data.push(kind);
            data.extend(bytes);
        }
        packets(&data);
    }
}
