//! Tests listeners of topics that do not exist yet, the close of a store that has other handles,
//! and waits with a timeout.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use weir::{ReadFrom, RecordKind, StoreError, Weir, WeirError};

#[test]
fn a_listener_on_a_name_that_was_never_created_sees_its_creation_first() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("later").unwrap();
    let mut listener = topic.listener(ReadFrom::Start).unwrap();
    assert!(listener.next_page().unwrap().is_none());
    let waiting = {
        let mut listener = listener.clone();
        std::thread::spawn(move || listener.wait(None))
    };
    // A write to another topic must not end the wait.
    weir.topic("other").unwrap().ensure().unwrap();
    topic.ensure().unwrap();
    topic.append("first").unwrap().ensure_valid().unwrap();
    assert!(waiting.join().unwrap());
    let mut kinds = Vec::new();
    while let Some(page) = listener.next_page().unwrap() {
        kinds.extend(page.iter().map(|record| record.unwrap().kind));
    }
    assert_eq!(kinds, [RecordKind::Create, RecordKind::Put]);
}

#[test]
fn closing_ends_waits_and_unlocks_the_directory_while_handles_exist() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let topic = weir.topic("t").unwrap();
    topic.ensure().unwrap();
    let never = weir
        .topic("never")
        .unwrap()
        .listener(ReadFrom::Start)
        .unwrap();
    let end = topic.listener(ReadFrom::End).unwrap();
    let waiting = [never, end].map(|mut listener| std::thread::spawn(move || listener.wait(None)));
    weir.close().unwrap();
    for thread in waiting {
        assert!(!thread.join().unwrap(), "no record will follow");
    }
    let refused = topic.append("late");
    assert!(matches!(refused, Err(WeirError::Store(StoreError::Closed))));
    let again = Weir::open(dir.path()).unwrap();
    assert!(again.topic("t").unwrap().info().unwrap().live);
}

#[test]
fn a_proposal_can_be_waited_for_again_after_a_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let weir = Weir::open(dir.path()).unwrap();
    let options = weir::TopicOptions::default();
    let create = weir::Intention::new("t", weir::Operation::Create { options: &options });
    let mut proposal = weir.propose(&[create]).unwrap();
    let outcomes = loop {
        match proposal.wait_for(Duration::from_micros(1)) {
            Ok(result) => break result.unwrap(),
            Err(unanswered) => proposal = unanswered,
        }
    };
    assert_eq!(outcomes.len(), 1);
}
