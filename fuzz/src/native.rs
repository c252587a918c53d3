//! Any bytes as a stream of the native protocol, divided into pieces at any positions. Nothing
//! panics, packets and errors do not depend on the division, and a packet that was read can be
//! rendered and read again.

use weir_core::ClientId;
use weir_protocol::{Deframer, Encoder, Message, OutcomeLines, Packet, TopicLines, read_items};

/// Sizes of the packets up to the end or the first error, and the position of the error.
fn sizes(bytes: &[u8], step: usize) -> (Vec<usize>, Option<u64>) {
    let (mut deframer, mut sizes) = (Deframer::default(), Vec::new());
    let (mut start, mut end) = (0, 0);
    loop {
        match deframer.find(&bytes[start..end]) {
            Ok(Some(size)) => {
                sizes.push(size);
                start += size;
            }
            Ok(None) if end == bytes.len() => return (sizes, None),
            Ok(None) => end = (end + step).min(bytes.len()),
            Err(error) => return (sizes, Some(error.at())),
        }
    }
}

/// The fuzz target.
pub fn run(bytes: &[u8]) {
    let whole = sizes(bytes, bytes.len().max(1));
    assert_eq!(whole, sizes(bytes, 1));
    let (mut deframer, mut start) = (Deframer::default(), 0);
    for size in whole.0 {
        let packet = &bytes[start..start + size];
        start += size;
        deframer.find(packet).expect("was found before");
        let Ok(read) = deframer.read(packet) else {
            continue;
        };
        match read.message {
            Message::Write { count, items } => drop(read_items(ClientId::NONE, count, items)),
            Message::Committed { lines } => OutcomeLines::new(lines).for_each(drop),
            Message::TopicsResponse { lines, .. } => TopicLines::new(lines).for_each(drop),
            Message::Unknown { .. } => continue,
            _ => {}
        }
        let mut again = Vec::new();
        assert!(Encoder::default().encode(&read, &mut again));
        let mut second = Deframer::default();
        assert_eq!(second.find(&again), Ok(Some(again.len())));
        let same: Packet<'_> = second.read(&again).expect("what was rendered can be read");
        assert_eq!(same, read);
    }
}
