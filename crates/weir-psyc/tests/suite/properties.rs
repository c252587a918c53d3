//! Properties of all inputs. A rendered packet parses as an equal packet (I9).

use crate::feed::{Joined, feed};
use crate::{generate, oracle};
use proptest::prelude::*;
use weir_psyc::{Limits, Mode};

fn agree(mode: Mode, limits: Limits, input: &[u8], cuts: &[usize]) {
    let expected = oracle::parse(mode, limits, input);
    let whole = feed(mode, limits, std::iter::once(input));
    assert_eq!(whole, expected, "whole");
    assert_eq!(
        feed(mode, limits, input.chunks(1)),
        expected,
        "byte by byte"
    );
    let mut pieces = Vec::new();
    let mut rest = input;
    for &cut in cuts {
        let (front, after) = rest.split_at(cut % (rest.len() + 1));
        pieces.push(front);
        rest = after;
    }
    pieces.push(rest);
    assert_eq!(
        feed(mode, limits, pieces.into_iter()),
        expected,
        "in pieces"
    );
    if let Some((_, offset)) = expected.error {
        // The error is at the earliest byte: without this byte there is no error yet.
        let offset = usize::try_from(offset).expect("offset");
        let before = feed(mode, limits, std::iter::once(&input[..offset]));
        assert_eq!(before.error, None, "before the offending byte");
        let with = feed(mode, limits, std::iter::once(&input[..=offset]));
        assert_eq!(with.error, expected.error, "with the offending byte");
    }
}

proptest! {
    #![proptest_config(generate::cases(250))]

    #[test]
    fn streams_agree_with_the_naive_parser(
        input in prop_oneof![4 => generate::stream(), 1 => generate::noise()],
        limits in generate::limits(),
        cuts in prop::collection::vec(0usize..40, 0..5),
        routing_only in any::<bool>(),
    ) {
        let mode = if routing_only { Mode::RoutingOnly } else { Mode::Full };
        agree(mode, limits, &input, &cuts);
    }

    #[test]
    fn contents_agree_with_the_naive_parser(
        input in prop_oneof![4 => generate::content(), 1 => generate::noise()],
        limits in generate::limits(),
        cuts in prop::collection::vec(0usize..40, 0..5),
    ) {
        agree(Mode::Content { length: input.len() as u64 }, limits, &input, &cuts);
    }

    #[test]
    fn every_mode_ends_a_packet_at_the_same_byte(input in generate::stream()) {
        let limits = Limits::DEFAULT;
        let full = feed(Mode::Full, limits, std::iter::once(&input[..]));
        let routed = feed(Mode::RoutingOnly, limits, std::iter::once(&input[..]));
        let packets = |events: &[Joined]| {
            events.iter().filter(|event| **event == Joined::Complete).count()
        };
        // Routing-only mode accepts every stream that full mode accepts, with equal packets. The
        // contents that it returns parse to the events of full mode.
        if full.error.is_none() {
            prop_assert_eq!(routed.error, None);
            prop_assert_eq!(packets(&full.events), packets(&routed.events));
            prop_assert_eq!(full.clean, routed.clean);
        } else {
            prop_assert!(packets(&routed.events) >= packets(&full.events));
        }
        let mut rebuilt = Vec::new();
        for event in &routed.events {
            match event {
                Joined::Content(data, sized) => {
                    let mode = Mode::Content { length: data.len() as u64 };
                    let inner = feed(mode, limits, std::iter::once(&data[..]));
                    if inner.error.is_some() {
                        break;
                    }
                    rebuilt.extend(inner.events.into_iter().filter_map(|event| match event {
                        Joined::Body(method, data, _) => Some(Joined::Body(method, data, *sized)),
                        Joined::Complete => None,
                        event => Some(event),
                    }));
                }
                event => rebuilt.push(event.clone()),
            }
        }
        if full.error.is_none() {
            let complete = packets(&full.events);
            let until_complete = |events: &[Joined]| {
                let mut seen = 0;
                let taken: Vec<Joined> = events.iter().take_while(|event| {
                    let take = seen < complete;
                    seen += usize::from(**event == Joined::Complete);
                    take
                }).cloned().collect();
                taken
            };
            prop_assert_eq!(until_complete(&rebuilt), until_complete(&full.events));
        }
    }
}
