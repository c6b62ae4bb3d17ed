//! Records without their content.

use super::*;

/// A record with a salt but without a content hash, from before records could be withheld.
const SALTED: &str = r#"{"seq":"1","created_at":"2023-11-14T22:13:20.250Z","type":"data","direction":"client_to_server","stream_type":"stdin","participant_id":"p1","payload_length":1,"payload":"eA==","salt":"01010101010101010101010101010101","prev_hash":"551390e1edf08455ab01fbd7a643b87c2189c26f54a6da4b0a3ce3873b3a37f1","hash":"699958901a5b14abd8c85fc60a82c8aaeefea1d09d59da30763109247c1d3022"}
{"seq":"2","created_at":"2023-11-14T22:13:20.500Z","type":"data","direction":"server_to_client","stream_type":"stdout","payload_length":1,"payload":"eA==","salt":"02020202020202020202020202020202","prev_hash":"699958901a5b14abd8c85fc60a82c8aaeefea1d09d59da30763109247c1d3022","hash":"122ce057925d45fdd7a5125233cde027fcf387b433be96b91f35a33dbd7fbccb"}"#;

/// Such records are verified with their content, and cannot be withheld.
#[test]
fn salted_recordings_without_content_hashes_are_verified_and_not_withheld() {
    let lines = SALTED.lines();
    let records: Vec<Record> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(verify(SESSION, &records, None).is_ok());
    assert_eq!(records[0].clone().withhold_content(), None);
    let mut changed = records;
    changed[1].payload = "y".into();
    let broken = verify(SESSION, &changed, None).unwrap_err();
    assert_eq!((broken.seq, broken.fault), (2, ChainFault::Content));
}

/// Entries of any kind that exports may leave out or show.
fn any_entry() -> impl Strategy<Value = Entry> {
    let bytes = prop::collection::vec(any::<u8>(), 0..4);
    (0..4_u8, bytes).prop_map(|(kind, bytes)| match kind {
        0 => Entry::input("p1", bytes.into(), false),
        1 => Entry::input("p1", bytes.into(), true),
        2 => Entry::output(StreamType::Stdout, bytes.into()),
        _ => Entry::internal(RecordType::Control, Some("p2"), "granted"),
    })
}

proptest! {
    /// WT-4: an export that omits any of the contents can be verified up to the head, and contains
    /// no salt of omitted contents. Any change of the rest is detected.
    #[test]
    fn wt_4_an_export_is_verified_without_contents(
        entries in prop::collection::vec((any_entry(), any::<bool>()), 1..12),
        changed in any::<prop::sample::Index>(),
    ) {
        let (entries, withheld): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let (records, head) = record_all(entries);
        let shown = records.into_iter().zip(&withheld).map(|(record, withheld)| {
            if *withheld { record.withhold_content().unwrap() } else { record }
        });
        let mut shown: Vec<Record> = shown
            .map(|record| serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap())
            .collect();
        prop_assert_eq!(verify(SESSION, &shown, Some(&head)), Ok(head));
        for (record, withheld) in shown.iter().zip(&withheld) {
            prop_assert_eq!(record.is_withheld(), *withheld);
            prop_assert!(!withheld || record.salt.is_none() && record.payload.is_empty() && record.detail.is_none());
        }
        let changed = changed.index(shown.len());
        let found = |records: &[Record]| verify(SESSION, records, None).unwrap_err();
        let original = shown[changed].clone();
        let at = original.seq;
        shown[changed].payload = "forged".into();
        prop_assert_eq!(found(&shown), ChainError { seq: at, fault: ChainFault::Content });
        shown[changed] = Record { payload_length: original.payload_length + 1, ..original.clone() };
        prop_assert_eq!(found(&shown), ChainError { seq: at, fault: ChainFault::Content });
        shown[changed] = Record { content_hash: Some(ContentHash([1; 32])), ..original };
        prop_assert_eq!(found(&shown), ChainError { seq: at, fault: ChainFault::Content });
    }
}
