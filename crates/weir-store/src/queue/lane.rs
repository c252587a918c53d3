//! The slow lane: a fair queue of calls that are expected to be costly.
//!
//! Each call belongs to one flow (a topic) and has an expected cost in fuel. The lane is a
//! start-time fair queue: a call gets a start tag when no call before it in its lists is left, and
//! the call with the smallest tag is the first. Each flow gets an equal share of fuel, also if many
//! calls wait in another flow.
//!
//! Invariants:
//!
//! - Calls that share a topic or a client leave the lane in the order of their arrival.
//! - The parts of one call leave the lane in order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use weir_core::ClientId;

/// Bound on the flows that are remembered without a waiting call. Above it, [`Lane::take`] removes
/// the flows that have no debt.
const IDLE_FLOWS_MAX: usize = 1024;

/// The names in a call. A call must not overtake an earlier call that shares a name with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) topics: BTreeSet<Box<str>>,
    pub(super) clients: BTreeSet<ClientId>,
    /// Topics for which the call starts a program.
    pub(super) starts: BTreeSet<Box<str>>,
    /// Number of the divided call, if this is a part of one.
    pub(super) divided_call: Option<u64>,
}

/// The calls that share one topic, client or divided call, in order, and the number of calls among
/// them that start a program.
#[derive(Debug, Default)]
struct WaitList {
    calls: VecDeque<u64>,
    starts: usize,
}

#[derive(Debug)]
struct Entry<T> {
    work: T,
    names: Names,
    flow: Box<str>,
    /// Number of lists in which another call is before this one, plus the held topics of this call.
    blocked: usize,
    /// Start tag; `None` until the call was ready once.
    start: Option<u64>,
    /// Expected cost. The flow is charged when the call gets its start tag.
    cost: u64,
}

#[derive(Debug)]
pub(super) struct Lane<T> {
    /// Boxed, so that a change of the map moves only pointers.
    entries: BTreeMap<u64, Box<Entry<T>>>,
    next: u64,
    topics: HashMap<Box<str>, WaitList>,
    clients: HashMap<ClientId, WaitList>,
    divided_calls: HashMap<u64, WaitList>,
    /// Topics whose calls wait for [`Lane::release`].
    held: BTreeSet<Box<str>>,
    /// Number of divided calls so far.
    divided: u64,
    /// Start tag and number of each call that is not blocked.
    ready: BTreeSet<(u64, u64)>,
    /// The earliest start tag of the next call of each flow.
    finish: HashMap<Box<str>, u64>,
    /// The largest start tag of a call that was taken.
    virtual_time: u64,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
            topics: HashMap::new(),
            clients: HashMap::new(),
            divided_calls: HashMap::new(),
            held: BTreeSet::new(),
            divided: 0,
            ready: BTreeSet::new(),
            finish: HashMap::new(),
            virtual_time: 0,
        }
    }
}

impl<T> Lane<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a call that names this topic waits.
    pub(super) fn has_topic(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// Whether a program start for this topic waits.
    pub(super) fn has_start(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|list| list.starts > 0)
    }

    /// Whether a call of this client waits.
    pub(super) fn has_client(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Returns a new number for a divided call.
    pub(super) fn divide(&mut self) -> u64 {
        self.divided += 1;
        self.divided
    }

    /// Returns the waiting call to which a new call with these names can be added. The waiting call
    /// must be the last one in each list of the new call, and the sum of both costs at most
    /// `cost_max`. `None` if the new call starts a program, or would make the waiting call wait for
    /// a held topic.
    pub(super) fn joinable(&mut self, names: &Names, cost: u64, cost_max: u64) -> Option<u64> {
        let is_newly_held = |name: &str| self.held.contains(name) && !self.has_topic(name);
        if !names.starts.is_empty() || names.topics.iter().any(|name| is_newly_held(name)) {
            return None;
        }
        let topics = names.topics.iter().filter_map(|name| self.topics.get(name));
        let clients = names.clients.iter().filter_map(|id| self.clients.get(id));
        let mut last = topics.chain(clients).map(|list| list.calls.back().copied());
        let number = last.next()??;
        let is_last = last.all(|other| other == Some(number));
        (is_last && self.has_room(number, cost, cost_max)).then_some(number)
    }

    /// Returns the waiting call to which a call of this topic and client can be added without new
    /// names: the last call of both. The sum of both costs is at most `cost_max`.
    pub(super) fn last_of(
        &self,
        topic: &str,
        client: ClientId,
        cost: u64,
        cost_max: u64,
    ) -> Option<u64> {
        let last = |list: &WaitList| list.calls.back().copied();
        let number = self.topics.get(topic).and_then(last)?;
        let is_last = client.is_none() || self.clients.get(&client).and_then(last) == Some(number);
        (is_last && self.has_room(number, cost, cost_max)).then_some(number)
    }

    /// Whether a call with this cost may be added to a waiting call. Never to a part of a divided
    /// call: the failure of another part would fail the added call too.
    fn has_room(&self, number: u64, cost: u64, cost_max: u64) -> bool {
        self.entries.get(&number).is_some_and(|entry| {
            entry.names.divided_call.is_none() && entry.cost.saturating_add(cost) <= cost_max
        })
    }

    /// Returns a call to which [`joinable`](Self::joinable) or [`last_of`](Self::last_of) permits
    /// adding another one.
    pub(super) fn get_mut(&mut self, number: u64) -> &mut T {
        let entry = self.entries.get_mut(&number);
        let entry =
            entry.unwrap_or_else(|| unreachable!("a call that can be joined is in the lane"));
        &mut entry.work
    }

    /// Registers the names and the cost of a call that was added to a waiting call.
    pub(super) fn join(&mut self, number: u64, names: &Names, cost: u64) {
        self.add_to_lists(number, names);
        let Some(entry) = self.entries.get_mut(&number) else {
            unreachable!("a call that can be joined is in the lane");
        };
        entry.cost = entry.cost.saturating_add(cost);
        entry.names.topics.extend(names.topics.iter().cloned());
        entry.names.clients.extend(&names.clients);
        if entry.start.is_some()
            && let Some(finish) = self.finish.get_mut(&entry.flow)
        {
            *finish = finish.saturating_add(cost);
        }
    }

    /// Adds a call.
    pub(super) fn push(&mut self, work: T, names: Names, flow: &str, cost: u64) {
        let number = self.next;
        self.next += 1;
        let held = names.topics.intersection(&self.held).count();
        let blocked = self.add_to_lists(number, &names) + held;
        let entry = Entry {
            work,
            names,
            flow: Box::from(flow),
            blocked,
            start: None,
            cost,
        };
        self.entries.insert(number, Box::new(entry));
        if blocked == 0 {
            self.make_ready(number);
        }
    }

    /// Makes a call that is not blocked available. Charges its flow if the call gets its start tag
    /// now.
    fn make_ready(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else {
            unreachable!("a call that becomes ready is in the lane")
        };
        let start = *entry.start.get_or_insert_with(|| {
            let finish = self.finish.entry(entry.flow.clone()).or_default();
            let start = self.virtual_time.max(*finish);
            *finish = start.saturating_add(entry.cost);
            start
        });
        self.ready.insert((start, number));
    }

    /// Adds a call at the end of its lists. Returns the number of lists in which another call is
    /// before it.
    fn add_to_lists(&mut self, number: u64, names: &Names) -> usize {
        let mut blocked = 0;
        let mut add = |list: &mut WaitList| {
            if list.calls.back() != Some(&number) {
                list.calls.push_back(number);
            }
            blocked += usize::from(list.calls.front() != Some(&number));
        };
        for topic in &names.topics {
            let list = self.topics.entry(topic.clone()).or_default();
            add(list);
            list.starts += usize::from(names.starts.contains(topic));
        }
        for client in &names.clients {
            add(self.clients.entry(*client).or_default());
        }
        if let Some(divided_call) = names.divided_call {
            add(self.divided_calls.entry(divided_call).or_default());
        }
        blocked
    }

    /// Holds all calls that name this topic until [`release`](Self::release).
    pub(super) fn hold(&mut self, topic: &str) {
        if !self.held.insert(Box::from(topic)) {
            return;
        }
        for number in self
            .topics
            .get(topic)
            .into_iter()
            .flat_map(|list| &list.calls)
        {
            if let Some(entry) = self.entries.get_mut(number) {
                entry.blocked += 1;
                if let Some(start) = entry.start {
                    self.ready.remove(&(start, *number));
                }
            }
        }
    }

    /// Ends [`hold`](Self::hold). A no-op if the topic is not held.
    pub(super) fn release(&mut self, topic: &str) {
        if !self.held.remove(topic) {
            return;
        }
        let waiting = self.topics.get(topic).map(|list| list.calls.clone());
        for number in waiting.into_iter().flatten() {
            self.unblock(number);
        }
    }

    /// Removes one reason for which a call waits.
    fn unblock(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.blocked -= 1;
            if entry.blocked == 0 {
                self.make_ready(number);
            }
        }
    }

    /// Returns the held topic whose first call has waited longest. `None` if no call waits for a
    /// held topic.
    pub(super) fn held_first(&self) -> Option<&str> {
        let first = |topic: &str| self.topics.get(topic)?.calls.front().copied();
        let waited_for = self
            .held
            .iter()
            .filter_map(|topic| Some((first(topic)?, topic)));
        waited_for.min().map(|(_, topic)| topic.as_ref())
    }

    /// Whether a call is ready to be taken.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the number of the next call in the fair order.
    pub(super) fn first(&self) -> Option<u64> {
        self.ready.first().map(|(_, number)| *number)
    }

    /// Returns the first call of a topic, if it is ready and of only this topic.
    pub(super) fn first_of(&self, topic: &str) -> Option<u64> {
        let number = *self.topics.get(topic)?.calls.front()?;
        let is_ready = self.entries.get(&number)?.blocked == 0;
        (is_ready && self.only_topic(number) == Some(topic)).then_some(number)
    }

    /// Returns the topic of a call that names no other topic and starts no program.
    pub(super) fn only_topic(&self, number: u64) -> Option<&str> {
        let entry = self.entries.get(&number)?;
        let is_of_flow = entry.names.topics.iter().eq([&entry.flow]);
        (is_of_flow && entry.names.starts.is_empty()).then_some(&entry.flow)
    }

    /// Returns a call and its expected cost.
    pub(super) fn get(&self, number: u64) -> Option<(&T, u64)> {
        let entry = self.entries.get(&number)?;
        Some((&entry.work, entry.cost))
    }

    /// Removes and returns a call that is ready. Its flow is charged `cost` instead of the cost
    /// that was expected when the call was added.
    pub(super) fn take(&mut self, number: u64, cost: u64) -> Option<T> {
        let entry = self.entries.get(&number)?;
        self.virtual_time = self.virtual_time.max(entry.start?);
        let (flow, expected) = (entry.flow.clone(), entry.cost);
        self.correct(&flow, expected, cost);
        let work = self.remove(number)?;
        let is_large = self.finish.len() > 2 * self.entries.len() + IDLE_FLOWS_MAX;
        if is_large {
            let virtual_time = self.virtual_time;
            self.finish.retain(|_, finish| *finish > virtual_time);
        }
        Some(work)
    }

    /// Removes and returns the calls for which `wanted` is true, in the order of their arrival.
    pub(super) fn take_if(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let found = self.entries.iter().filter(|(_, entry)| wanted(&entry.work));
        let numbers: Vec<u64> = found.map(|(number, _)| *number).collect();
        numbers
            .into_iter()
            .filter_map(|number| self.remove(number))
            .collect()
    }

    fn remove(&mut self, number: u64) -> Option<T> {
        let entry = *self.entries.remove(&number)?;
        if let Some(start) = entry.start {
            self.ready.remove(&(start, number));
        }
        let mut unblocked = Vec::new();
        let mut remove_from = |list: &mut WaitList| {
            if list.calls.front() == Some(&number) {
                list.calls.pop_front();
                unblocked.extend(list.calls.front().copied());
            } else {
                list.calls.retain(|other| *other != number);
            }
            list.calls.is_empty()
        };
        for topic in &entry.names.topics {
            if let Some(list) = self.topics.get_mut(topic) {
                list.starts -= usize::from(entry.names.starts.contains(topic));
                if remove_from(list) {
                    self.topics.remove(topic);
                }
            }
        }
        for client in &entry.names.clients {
            if self.clients.get_mut(client).is_some_and(&mut remove_from) {
                self.clients.remove(client);
            }
        }
        if let Some(divided_call) = &entry.names.divided_call
            && self
                .divided_calls
                .get_mut(divided_call)
                .is_some_and(&mut remove_from)
        {
            self.divided_calls.remove(divided_call);
        }
        for number in unblocked {
            self.unblock(number);
        }
        Some(entry.work)
    }

    /// Corrects the start of the next call of this flow by the difference between the expected and
    /// the actual cost of an earlier call.
    pub(super) fn correct(&mut self, flow: &str, expected: u64, actual: u64) {
        if let Some(finish) = self.finish.get_mut(flow) {
            *finish = finish.saturating_add(actual).saturating_sub(expected);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn names(topics: &[&str], clients: &[u8]) -> Names {
        Names {
            topics: topics.iter().map(|name| Box::from(*name)).collect(),
            clients: clients.iter().map(|id| ClientId([*id; 16])).collect(),
            ..Names::default()
        }
    }

    fn pop(lane: &mut Lane<&'static str>) -> Option<&'static str> {
        let number = lane.first()?;
        let (_, cost) = lane.get(number).unwrap();
        lane.take(number, cost)
    }

    fn order(lane: &mut Lane<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| pop(lane)).collect()
    }

    #[test]
    fn a_flow_with_one_call_does_not_wait_for_all_calls_of_another() {
        let mut lane = Lane::default();
        for _ in 0..300 {
            lane.push("loop", names(&["hostile"], &[]), "hostile", 1_000_000);
        }
        lane.push("start", names(&["fresh"], &[]), "fresh", 1_500_000);
        lane.push("write", names(&["fresh"], &[]), "fresh", 1_000);
        let order = order(&mut lane);
        let position = |what| order.iter().position(|one| *one == what).unwrap();
        assert!(position("start") <= 1, "{}", position("start"));
        assert!(position("write") <= 4, "{}", position("write"));
        assert_eq!(order.len(), 302);
    }

    #[test]
    fn each_flow_gets_an_equal_share_of_fuel() {
        let mut lane = Lane::default();
        for _ in 0..100 {
            lane.push("costly", names(&["costly"], &[]), "costly", 900);
            lane.push("cheap", names(&["cheap"], &[]), "cheap", 100);
        }
        let first: Vec<_> = std::iter::from_fn(|| pop(&mut lane)).take(50).collect();
        let costly = first.iter().filter(|one| **one == "costly").count();
        assert_eq!(
            costly, 5,
            "nine cheap calls for each costly call: {first:?}"
        );
    }

    #[test]
    fn a_flow_that_used_less_than_expected_gets_its_unused_share_back() {
        let mut lane = Lane::default();
        lane.push("refused", names(&["a"], &[]), "a", 1_000);
        assert_eq!(pop(&mut lane), Some("refused"));
        lane.correct("a", 1_000, 0);
        lane.push("b", names(&["b"], &[]), "b", 10);
        lane.push("b", names(&["b"], &[]), "b", 10);
        lane.push("a", names(&["a"], &[]), "a", 10);
        assert_eq!(order(&mut lane), ["b", "a", "b"]);
    }

    #[test]
    fn a_call_that_costs_less_than_expected_at_its_arrival_is_charged_less() {
        let mut lane = Lane::default();
        for _ in 0..3 {
            lane.push("new", names(&["new"], &[]), "new", 1_000);
        }
        for _ in 0..3 {
            lane.push("old", names(&["old"], &[]), "old", 100);
        }
        let first = lane.first().unwrap();
        assert_eq!(lane.only_topic(first), Some("new"));
        lane.take(first, 10);
        let second = lane.first_of("new").unwrap();
        lane.take(second, 10);
        // The third one has the tag 20.
        assert_eq!(order(&mut lane), ["old", "new", "old", "old"]);
    }

    #[test]
    fn only_a_ready_call_of_one_topic_is_the_first_of_its_topic() {
        let mut lane = Lane::default();
        lane.push("1", names(&["a"], &[1]), "a", 10);
        lane.push("2", names(&["b"], &[1]), "b", 10);
        lane.push("3", names(&["c", "d"], &[]), "c", 10);
        assert_eq!(lane.first_of("a"), Some(0));
        assert_eq!(lane.first_of("b"), None, "after a call of its client");
        assert_eq!(lane.first_of("c"), None, "of two topics");
        assert_eq!(lane.first_of("e"), None);
        lane.hold("a");
        assert_eq!(lane.first_of("a"), None);
    }

    #[test]
    fn calls_that_share_a_topic_or_a_client_keep_their_order() {
        let mut lane = Lane::default();
        lane.push("0", names(&["z"], &[]), "a", 1_000);
        lane.push("1", names(&["a"], &[1]), "a", 1_000);
        lane.push("2", names(&["b"], &[1]), "b", 1);
        lane.push("3", names(&["b", "c"], &[]), "c", 1);
        lane.push("4", names(&["d"], &[]), "d", 1);
        assert!(lane.has_topic("c") && lane.has_client(ClientId([1; 16])));
        assert_eq!(order(&mut lane), ["0", "4", "1", "2", "3"]);
        assert!(lane.is_empty());
        assert!(!lane.has_topic("c") && !lane.has_client(ClientId([1; 16])));
    }

    #[test]
    fn the_parts_of_a_call_keep_their_order() {
        let mut lane = Lane::default();
        lane.push("before", names(&["a"], &[]), "a", 1_000);
        let divided_call = Some(lane.divide());
        for (part, topic) in [("first", "a"), ("second", "b"), ("third", "c")] {
            let names = Names {
                divided_call,
                ..names(&[topic], &[])
            };
            lane.push(part, names, topic, 10);
        }
        lane.push("after", names(&["d"], &[]), "d", 10);
        let expected = ["before", "after", "first", "second", "third"];
        assert_eq!(order(&mut lane), expected);
        assert!(lane.divided_calls.is_empty());
    }

    #[test]
    fn a_call_joins_only_one_that_it_would_follow_directly() {
        let mut lane = Lane::default();
        lane.push("first", names(&["a"], &[]), "a", 10);
        lane.push("other", names(&["b"], &[7]), "b", 10);
        let both = names(&["a"], &[7]);
        assert_eq!(lane.joinable(&both, 1, 100), None, "after two calls");
        let one = names(&["a"], &[8]);
        assert_eq!(lane.joinable(&one, 91, 100), None, "too costly together");
        let number = lane.joinable(&one, 90, 100).unwrap();
        *lane.get_mut(number) = "joined";
        lane.join(number, &one, 90);
        assert_eq!(lane.joinable(&names(&["new"], &[]), 1, 100), None);
        assert_eq!(lane.get(number).unwrap().1, 100);
        assert_eq!(order(&mut lane), ["joined", "other"]);
        assert!(!lane.has_client(ClientId([8; 16])));
    }

    #[test]
    fn a_call_without_new_names_joins_only_the_last_call_of_its_topic_and_client() {
        let mut lane = Lane::default();
        let client = |id: u8| ClientId([id; 16]);
        lane.push("a", names(&["t"], &[1]), "t", 10);
        assert_eq!(lane.last_of("t", client(2), 1, 100), None, "other client");
        assert_eq!(lane.last_of("u", client(1), 1, 100), None, "other topic");
        assert_eq!(lane.last_of("t", client(1), 91, 100), None, "too costly");
        let number = lane.last_of("t", client(1), 90, 100).unwrap();
        lane.join(number, &Names::default(), 90);
        assert_eq!(lane.last_of("t", client(1), 1, 100), None, "full");
        assert_eq!(lane.last_of("t", client(1), 1, 200), Some(number));
        lane.push("b", names(&["u"], &[1]), "u", 10);
        assert_eq!(lane.last_of("t", client(1), 1, 200), None, "later call");
        assert_eq!(order(&mut lane), ["a", "b"]);
    }

    #[test]
    fn no_call_joins_a_part_of_a_divided_call() {
        let mut lane = Lane::default();
        let part = Names {
            divided_call: Some(lane.divide()),
            ..names(&["t"], &[1])
        };
        lane.push("part", part, "t", 10);
        assert_eq!(lane.joinable(&names(&["t"], &[1]), 1, 100), None);
        assert_eq!(lane.last_of("t", ClientId([1; 16]), 1, 100), None);
    }

    #[test]
    fn calls_of_a_held_topic_wait_and_no_others_do() {
        let mut lane = Lane::default();
        lane.push("1", names(&["a"], &[1]), "a", 10);
        lane.hold("a");
        lane.hold("b");
        lane.push("2", names(&["a"], &[]), "a", 1);
        lane.push("3", names(&["b", "c"], &[]), "b", 1);
        lane.push("4", names(&["d"], &[1]), "d", 1);
        lane.push("5", names(&["e"], &[]), "e", 1);
        assert_eq!(lane.held_first(), Some("a"));
        assert_eq!(lane.joinable(&names(&["e", "f"], &[]), 1, 100), Some(4));
        lane.hold("f");
        assert_eq!(lane.joinable(&names(&["e", "f"], &[]), 1, 100), None);
        assert_eq!(order(&mut lane), ["5"], "4 is after 1, of the same client");
        assert!(!lane.is_ready() && !lane.is_empty());
        lane.release("a");
        lane.release("a");
        assert_eq!(order(&mut lane), ["1", "4", "2"]);
        assert_eq!(lane.held_first(), Some("b"));
        lane.release("b");
        assert_eq!(order(&mut lane), ["3"]);
        assert!(lane.is_empty());
    }

    #[test]
    fn removing_a_call_unblocks_the_calls_after_it() {
        let mut lane = Lane::default();
        lane.push("1", names(&["a"], &[]), "a", 1);
        lane.push("2", names(&["a"], &[]), "a", 1);
        lane.push("3", names(&["a"], &[]), "a", 1);
        assert_eq!(lane.take_if(|work| *work != "3"), ["1", "2"]);
        assert_eq!(order(&mut lane), ["3"]);
    }
}
