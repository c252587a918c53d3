//! A client whose server asks it to be slower: it is, and loses nothing.

use weir::{Intention, TopicOptions};
use weir_server::Rate;

use crate::world::{CLIENT, World, put};

#[test]
fn a_session_that_writes_too_fast_waits_and_goes_on() {
    const BATCHES: usize = 6;
    const ITEMS: usize = 1000;
    let world = World::with(|config| config.rate_requests = Rate::Units(2000));
    let options = TopicOptions::default();
    let topic = world.near().topic("t").unwrap();
    assert!(topic.create(&options).unwrap().is_valid());
    let far = world.connect();
    let mut session = far.session(CLIENT);
    for batch in 0..BATCHES {
        let values: Vec<String> = (0..ITEMS).map(|n| format!("{batch}.{n}")).collect();
        let puts: Vec<Intention<'_>> = values.iter().map(|value| put("t", "k", value)).collect();
        let verdicts = session.execute(&puts).unwrap();
        assert!(verdicts.iter().all(weir::Verdict::is_valid));
    }
    let found = world.values("t");
    assert_eq!(found.len(), BATCHES * ITEMS);
    assert_eq!(found.last().unwrap(), "5.999");
}
