//! Changes of the options of a topic.

use weir_core::intention::{Expect, Intention, Operation};
use weir_core::{Effect, ErrorCode};
use weir_store::Store;

use crate::world::{self, create, execute};

#[test]
fn a_change_of_options_that_the_caller_has_not_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), &world::options()).unwrap();
    create(&store, "t");
    let read = store.topic("t").unwrap().options;
    let mut changed = read.clone();
    changed.keys_max = Some(7);
    let expect = [Expect::Options(read.fingerprint())];
    let options = &changed;
    let alter = [Intention::new("t", Operation::Alter { options }).expecting(&expect)];
    let first = execute(&store, &alter).swap_remove(0);
    assert_eq!(first.effect, Effect::Valid);
    // The options are now those of the first change.
    let second = execute(&store, &alter).swap_remove(0);
    let verdict = (second.effect, second.reason);
    assert_eq!(verdict, (Effect::Invalid, Some(ErrorCode::Conflict)));
    assert_eq!(store.topic("t").unwrap().options, changed);
    // The log has the condition.
    store.close().unwrap();
    let store = Store::open(directory.path(), &world::options()).unwrap();
    assert_eq!(store.topic("t").unwrap().options, changed);
    store.close().unwrap();
}
