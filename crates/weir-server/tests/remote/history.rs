//! Recorded histories of concurrent writers and readers are linearizable.
//!
//! The store reports the order in which it executed writes, so no search is needed. The order must
//! respect real time: a call that returned before another one started precedes it. Every verdict
//! must equal that of a simple model. Every read must return a value that was current between its
//! call and its return.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use weir::{ClientId, Expect, TxnOp, Weir};

use crate::series::local_and_remote;

const KEYS: [&str; 3] = ["a", "b", "c"];
const WRITERS: u64 = 4;
const STEPS: u64 = 150;

/// The kinds of calls.
#[derive(Clone, Debug)]
enum Call {
    Get(usize),
    Put(usize),
    Delete(usize),
    /// Puts only if the key has this offset; 0: only if it has no value.
    PutIf(usize, u64),
    /// Puts both keys only if the first one has this offset.
    Both(usize, usize, u64),
}

/// A call and its result, with the times of call and return.
#[derive(Clone, Debug)]
struct Event {
    call: Call,
    called: u64,
    returned: u64,
    /// Of a write: its position in the order, and whether it was VALID.
    intention: u64,
    valid: bool,
    /// Of a read: the offset of the value. Of a write: the offset of its first record.
    offset: u64,
}

/// A deterministic sequence of pseudo-random numbers.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn run(weir: &Weir, seed: u64, clock: &AtomicU64) -> Vec<Event> {
    let topic = weir.topic("t").unwrap();
    let mut session = weir.session(ClientId([u8::try_from(seed).unwrap() + 1; 16]));
    let mut state = seed * 0x9e37_79b9 + 1;
    let mut events = Vec::new();
    // The last known offset of each key, which is often, but not always, current.
    let mut known = [0_u64; KEYS.len()];
    for n in 0..STEPS {
        let at = usize::try_from(next_random(&mut state) % 3).unwrap();
        let other = (at + 1) % KEYS.len();
        let call = match next_random(&mut state) % 8 {
            0..=2 => Call::Get(at),
            3 => Call::Put(at),
            4 => Call::Delete(at),
            5 | 6 => Call::PutIf(at, known[at]),
            _ => Call::Both(at, other, known[at]),
        };
        let called = clock.fetch_add(1, Ordering::SeqCst);
        let value = format!("{seed}.{n}");
        let key = KEYS[at].as_bytes();
        let put = weir::Operation::Put {
            key,
            value: value.as_bytes(),
        };
        let expect = |offset: u64| match offset {
            0 => Expect::KeyAbsent(Some(key)),
            offset => Expect::KeyOffset(Some(key), offset),
        };
        let ops = [at, other].map(|at| TxnOp::Put {
            key: KEYS[at].as_bytes(),
            value: value.as_bytes(),
            meta: b"",
        });
        let expects;
        let intention = match call {
            Call::Get(_) => None,
            Call::Put(_) => Some(weir::Intention::new("t", put)),
            Call::Delete(_) => Some(weir::Intention::new("t", weir::Operation::Delete { key })),
            Call::PutIf(_, offset) => {
                expects = [expect(offset)];
                Some(weir::Intention::new("t", put).expecting(&expects))
            }
            Call::Both(_, _, offset) => {
                expects = [expect(offset)];
                let both = weir::Operation::Txn { ops: &ops };
                Some(weir::Intention::new("t", both).expecting(&expects))
            }
        };
        let (mut order, mut valid) = (0, true);
        let offset = if let Some(intention) = intention {
            let verdict = session.execute(&[intention]).unwrap().remove(0);
            (order, valid) = (verdict.intention().0, verdict.is_valid());
            verdict.offset().map_or(0, |offset| offset.0)
        } else {
            let found = topic.get(KEYS[at]).unwrap();
            known[at] = found.as_ref().map_or(0, |value| value.record().offset.0);
            known[at]
        };
        let returned = clock.fetch_add(1, Ordering::SeqCst);
        events.push(Event {
            call,
            called,
            returned,
            intention: order,
            valid,
            offset,
        });
    }
    events
}

/// For each key: the offset of its value, from which intention on.
type Versions = [Vec<(u64, u64)>; KEYS.len()];

/// Checks the writes against a model, in the order of the store.
fn check_writes(events: &[Event]) -> Versions {
    let mut writes: Vec<&Event> = events.iter().filter(|e| e.intention != 0).collect();
    writes.sort_by_key(|event| event.intention);
    let mut versions: Versions = [const { Vec::new() }; KEYS.len()];
    let mut now = [0_u64; KEYS.len()];
    let mut latest_call = 0;
    for event in writes {
        // No earlier write in this order may have been called after this write returned.
        assert!(event.returned > latest_call, "{event:?}");
        latest_call = latest_call.max(event.called);
        let holds = match event.call {
            Call::PutIf(at, offset) | Call::Both(at, _, offset) => now[at] == offset,
            _ => true,
        };
        assert_eq!(event.valid, holds, "{event:?} with {now:?}");
        if !holds {
            continue;
        }
        let mut set = |at: usize, offset: u64| {
            now[at] = offset;
            versions[at].push((event.intention, offset));
        };
        match event.call {
            Call::Put(at) | Call::PutIf(at, _) => set(at, event.offset),
            Call::Delete(at) => set(at, 0),
            Call::Both(first, second, _) => {
                set(first, event.offset);
                set(second, event.offset + 1);
            }
            Call::Get(_) => {}
        }
    }
    versions
}

fn check(events: &[Event]) {
    let versions = check_writes(events);
    let mut returned: BTreeMap<u64, u64> = BTreeMap::new();
    let mut called: BTreeMap<u64, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.intention != 0) {
        returned.insert(event.returned, event.intention);
        called.insert(event.called, event.intention);
    }
    for event in events {
        let Call::Get(at) = event.call else { continue };
        // Writes that returned before the read was called precede the read. Writes that were called
        // after the read returned follow it.
        let before = returned.range(..event.called).map(|(_, n)| *n).max();
        let low = before.unwrap_or(0);
        let after = called.range(event.returned..).map(|(_, n)| *n).min();
        let high = after.unwrap_or(u64::MAX);
        let mut from = 0;
        let mut offset = 0;
        let mut was_current = false;
        for (until, next) in versions[at].iter().copied().chain([(u64::MAX, 0)]) {
            // This version is current from `from` to `until`, exclusive.
            was_current |= offset == event.offset && from < high && until > low;
            (from, offset) = (until, next);
        }
        assert!(was_current, "{event:?} between {low} and {high}");
    }
}

#[test]
fn x_histories_are_linearizable() {
    local_and_remote(|weir, other, _| {
        weir.topic("t").unwrap().ensure().unwrap();
        let clock = AtomicU64::new(1);
        let events: Vec<Event> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS)
                .map(|seed| {
                    let handle = if seed % 2 == 0 { weir } else { other };
                    let clock = &clock;
                    scope.spawn(move || run(handle, seed, clock))
                })
                .collect();
            let events = threads.into_iter().map(|thread| thread.join().unwrap());
            events.flatten().collect()
        });
        check(&events);
        let failed = events.iter().filter(|event| !event.valid).count();
        assert!(failed > 0, "some condition fails");
    });
}

#[test]
#[should_panic(expected = "between")]
fn a_stale_read_is_found() {
    let event = |call, called, intention, offset| Event {
        call,
        called,
        returned: called + 1,
        intention,
        valid: true,
        offset,
    };
    check(&[
        event(Call::Put(0), 1, 5, 2),
        event(Call::Put(0), 3, 6, 3),
        event(Call::Get(0), 5, 0, 2),
    ]);
}
