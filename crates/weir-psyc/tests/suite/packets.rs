//! The packet vectors and the packet files.

use crate::feed::{feed, printed};
use crate::{oracle, vectors};
use weir_psyc::{Limits, Mode};

fn mode_of(case: &vectors::Case, input: &[u8]) -> Mode {
    match case.setting("mode") {
        None => Mode::Full,
        Some("routing-only") => Mode::RoutingOnly,
        Some("content") => Mode::Content {
            length: input.len() as u64,
        },
        Some(other) => panic!("{}: mode {other}", case.title),
    }
}

#[test]
fn packet_vectors_hold_for_every_cut() {
    let cases = vectors::read("packets.txt", &["in", "mode"]);
    let mut feeds = 0;
    for case in &cases {
        let input = case.bytes("in").expect("input");
        let mode = mode_of(case, &input);
        case.check(&printed(mode, false, std::iter::once(&input[..])), "whole");
        case.check(&printed(mode, false, input.chunks(1)), "byte by byte");
        for cut in 0..=input.len() {
            let (front, behind) = input.split_at(cut);
            case.check(
                &printed(mode, false, [front, behind].into_iter()),
                "in two pieces",
            );
        }
        let expected = oracle::parse(mode, Limits::DEFAULT, &input);
        assert_eq!(
            feed(mode, Limits::DEFAULT, input.chunks(1)),
            expected,
            "{}",
            case.title
        );
        feeds += input.len() + 3;
    }
    println!("packets.txt: {} cases in {feeds} feedings", cases.len());
    assert!(cases.len() >= 36);
}

#[test]
fn fed_byte_by_byte_a_sized_body_comes_in_single_bytes() {
    let cases = vectors::read("packets.txt", &["in", "mode"]);
    let case = cases
        .iter()
        .find(|case| case.title.contains("E05"))
        .expect("E05");
    let input = case.bytes("in").expect("input");
    let text = printed(Mode::Full, true, input.chunks(1));
    let body: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("body"))
        .collect();
    assert_eq!(body.len(), 19);
    assert_eq!(body[0], "body-start\t_message\t18\t");
    assert!(
        body[1..18]
            .iter()
            .all(|line| line.starts_with("body-cont\t") && line.len() == 11)
    );
    assert_eq!(body[18], "body-end\t.");
}
