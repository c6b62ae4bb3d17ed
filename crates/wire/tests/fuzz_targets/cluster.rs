//! Messages between the engines of a cluster.

use wire::cluster::{
    ConnectionPurpose, ForwardedVisitor, MAX_FRAME, MAX_NAME, PeerDecoder, PeerFrame, encode_frame,
};
use wire::pool::StreamOpen;

/// Frames of a control connection, in pieces of the size in the first byte; an accepted frame can be
/// written and read again.
pub(super) fn check_frames(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(*size) + 1));
    for frame in whole {
        if let PeerFrame::Hello(identity) = &frame {
            assert_ne!(identity.purpose, ConnectionPurpose::Unspecified);
        }
        let mut again = Vec::new();
        // As for messages of agents, a frame may be longer when it is written than when it was read.
        if encode_frame(&frame, &mut again).is_ok() {
            assert_eq!(read(&again, again.len()), [frame]);
        }
    }
}

fn read(bytes: &[u8], piece: usize) -> Vec<PeerFrame> {
    let mut decoder = PeerDecoder::default();
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        while let Ok(Some(frame)) = decoder.next_frame() {
            frames.push(frame);
        }
        match decoder.missing() {
            Ok(missing) => assert!(missing <= MAX_FRAME + 4),
            Err(_) => return frames,
        }
    }
    frames
}

/// The payload of an opening: an accepted header has valid names, and can be written and read again.
pub(super) fn check_header(data: &[u8]) {
    let Ok(open) = StreamOpen::decode_payload(data) else {
        return;
    };
    let Ok(forwarding) = ForwardedVisitor::decode(&open) else {
        return;
    };
    for name in [&forwarding.name, &forwarding.project] {
        assert!((1..=MAX_NAME).contains(&name.len()));
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    let again = StreamOpen {
        forward: forwarding.encode(),
        ..open
    };
    assert_eq!(ForwardedVisitor::decode(&again), Ok(forwarding));
}
