//! The fuzz target of lanes.

use wire::lane::{
    Decoder, Event, FrameStep, FrameType, LaneError, ReceiveWindow, SendWindow, Side, StreamState,
    encode_data, encode_empty, encode_open, encode_reset, window,
};

/// Frames of a lane; the first byte is the size of the pieces. The decoder's events are the same
/// for any split and after writing them again, and a stream's state accepts any order.
pub(super) fn check(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    let (told, error) = read(bytes, bytes.len().max(1));
    let (in_pieces, same_error) = read(bytes, usize::from(*size) + 1);
    assert_eq!(joined(&told), joined(&in_pieces));
    assert_eq!(error, same_error);

    let mut written = Vec::new();
    for event in &told {
        write(event, &mut written);
    }
    let (again, error) = read(&written, written.len().max(1));
    assert_eq!(error, None);
    assert_eq!(joined(&told), joined(&again));

    for side in [Side::Engine, Side::Agent] {
        let mut state = StreamState::new();
        let (mut sending, mut reading) = (SendWindow::new(side), ReceiveWindow::new(side));
        for event in &told {
            let Event::Step { step, bytes, .. } = event else {
                continue;
            };
            let was_over = state.is_over();
            state.on_receive(*step).ok();
            state.on_send(*step).ok();
            assert!(state.is_over() || !was_over, "it stays over");
            if reading.on_data(bytes.len()).is_ok() {
                reading.on_read(bytes.len() / 2);
            }
            sending.on_send(bytes.len().min(sending.available()));
            sending.on_taken().ok();
            assert!(sending.available() <= window(side), "the window is kept");
        }
    }
}

/// An event that owns its bytes.
type FrameSummary = (u32, Option<FrameStep>, Vec<u8>, String);

fn read(bytes: &[u8], cut: usize) -> (Vec<Event<'_>>, Option<LaneError>) {
    let mut decoder = Decoder::new();
    let mut told = Vec::new();
    for mut piece in bytes.chunks(cut) {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(event)) => told.push(event),
                Ok(None) => break assert!(piece.is_empty()),
                Err(error) => return (told, Some(error)),
            }
        }
    }
    (told, None)
}

/// The same events, with adjacent pieces and `DATA` frames of a stream joined.
fn joined(events: &[Event<'_>]) -> Vec<FrameSummary> {
    let mut joined: Vec<FrameSummary> = Vec::new();
    for event in events {
        match event {
            Event::Open { stream, open } => {
                joined.push((*stream, None, Vec::new(), format!("{open:?}")));
            }
            Event::Step {
                stream,
                step,
                bytes,
                error,
            } => match joined.last_mut() {
                Some((last, Some(FrameStep::Data), all, _))
                    if last == stream && *step == FrameStep::Data =>
                {
                    all.extend_from_slice(bytes);
                }
                _ => joined.push((*stream, Some(*step), bytes.to_vec(), format!("{error:?}"))),
            },
        }
    }
    joined
}

fn write(event: &Event<'_>, out: &mut Vec<u8>) {
    match event {
        Event::Open { stream, open } => {
            // The events are written again: unknown fields may be lost, but nothing else.
            encode_open(*stream, open, out).expect("a decoded opening can be encoded");
        }
        Event::Step {
            stream,
            step,
            bytes,
            error,
        } => match step {
            FrameStep::Data => {
                encode_data(*stream, bytes, out);
            }
            FrameStep::Reset => encode_reset(*stream, error.as_ref(), out),
            FrameStep::End => encode_empty(FrameType::End, *stream, out),
            FrameStep::Move => encode_empty(FrameType::Move, *stream, out),
            FrameStep::Taken => encode_empty(FrameType::Taken, *stream, out),
        },
    }
}
