//! A hundred thousand topics: all are listed, all requests are served, and the size of the metrics
//! and the status does not grow.

use weir_core::{Effect, Intention, Operation, Outcome, TopicOptions};

use crate::world::with;

const TOPICS: usize = 100_000;
/// Number of topics that one call creates.
const TOPICS_PER_CALL: usize = 10_000;
/// Maximum size of a page of metrics in bytes, independent of the number of topics.
const METRICS_BYTES_MAX: usize = 128 << 10;

#[test]
fn many_topics_are_listed_and_delay_no_other_request() {
    let world = with(&[]);
    let names: Vec<String> = (0..TOPICS).map(|n| format!("t{n:06}")).collect();
    let options = TopicOptions::default();
    for names in names.chunks(TOPICS_PER_CALL) {
        let creations: Vec<_> = names
            .iter()
            .map(|name| Intention::new(name, Operation::Create { options: &options }))
            .collect();
        let outcomes = world.store.propose(&creations).unwrap().wait().unwrap();
        let is_created = |outcome: &Outcome| matches!(outcome, Outcome::Committed(commit) if commit.effect == Effect::Valid);
        assert!(outcomes.runs().iter().all(|run| is_created(&run.outcome)));
    }
    // Another client writes and reads between two pages of the list.
    let (mut after, mut found) = (String::new(), Vec::with_capacity(TOPICS));
    let mut pages = 0;
    loop {
        let page = world.ask(&format!("GET /v1/topics?limit=1000&after={after}"), "", b"");
        assert_eq!(page.status, 200, "{page:?}");
        let listed = page.json();
        let listed = listed["topics"]
            .as_array()
            .unwrap_or_else(|| panic!("{listed}"));
        let Some(last) = listed.last() else { break };
        last["name"]
            .as_str()
            .unwrap_or_else(|| panic!("{last}"))
            .clone_into(&mut after);
        found.extend(
            listed
                .iter()
                .map(|topic| topic["name"].as_str().unwrap().to_owned()),
        );
        let topic = &names[pages * 997 % TOPICS];
        let put = world.ask(&format!("PUT /v1/topics/{topic}/keys/k"), "", b"v");
        assert_eq!(put.status, 201, "{put:?}");
        let got = world.ask(&format!("GET /v1/topics/{topic}/keys/k"), "", b"");
        assert_eq!(got.body, b"v");
        pages += 1;
    }
    assert!(found == names, "{} in {pages} pages", found.len());
    let metrics = world.ask("GET /metrics", "", b"");
    assert!(
        metrics.body.len() < METRICS_BYTES_MAX,
        "{}",
        metrics.body.len()
    );
}
