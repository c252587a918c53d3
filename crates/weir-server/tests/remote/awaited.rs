//! Asynchronous reads of a server: on one thread without a runtime, and in a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use weir::{ConnectOptions, ConsequenceOffset, ErrorCode, ReadFrom, StoreError, Weir, WeirError};
use weir_server::Rate;

use crate::proxy::Proxy;
use crate::world::{UNREACHABLE, World, put};

/// The waker of an executor on the test thread.
struct ChannelWaker(Sender<()>);

impl Wake for ChannelWaker {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        let _ = self.0.send(());
    }
}

fn channel_waker() -> (Waker, Receiver<()>) {
    let (sender, receiver) = channel();
    (Waker::from(Arc::new(ChannelWaker(sender))), receiver)
}

/// Runs all futures together on this thread. Returns their results in the given order.
fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let (waker, receiver) = channel_waker();
    let mut context = Context::from_waker(&waker);
    let mut waiting: Vec<_> = futures
        .into_iter()
        .map(|one| (Box::pin(one), None))
        .collect();
    loop {
        let mut left = 0;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match future.as_mut().poll(&mut context) {
                    Poll::Ready(found) => *output = Some(found),
                    Poll::Pending => left += 1,
                }
            }
        }
        if left == 0 {
            return waiting
                .into_iter()
                .filter_map(|(_, output)| output)
                .collect();
        }
        receiver.recv().unwrap();
    }
}

fn one<T>(future: impl Future<Output = T>) -> T {
    all([future]).remove(0)
}

fn connect(url: &str) -> Weir {
    one(Weir::connect_async(url, &ConnectOptions::default())).unwrap()
}

fn url(world: &World) -> String {
    format!("weir://{}", world.address)
}

#[test]
fn a_thread_awaits_many_concurrent_reads() {
    let world = World::new();
    let remote = connect(&url(&world));
    let topic = remote.topic("t").unwrap();
    topic.ensure().unwrap();
    for n in 0..200 {
        topic
            .put(format!("k{n:03}"), n.to_string())
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    let found = all((0..200).map(|n| topic.get_async(format!("k{n:03}"))));
    for (n, found) in found.into_iter().enumerate() {
        assert_eq!(found.unwrap().unwrap().value(), n.to_string().as_bytes());
    }
    assert!(one(topic.get_async("none")).unwrap().is_none());
    let keys = one(topic.scan_async(b"k01", Some(b"k015"), 100)).unwrap();
    let keys: Vec<&[u8]> = keys.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, [b"k016", b"k017", b"k018", b"k019"]);
    let at = one(topic.at_async(ConsequenceOffset(2))).unwrap().unwrap();
    assert_eq!(at.value(), b"0");
    assert_eq!(one(topic.info_async()).unwrap().unwrap().keys, 200);
    // A future can also be waited for synchronously.
    assert_eq!(
        topic.get_async("k007").wait().unwrap().unwrap().value(),
        b"7"
    );
}

#[test]
fn new_records_can_be_awaited() {
    let world = World::new();
    let remote = connect(&url(&world));
    let topic = remote.topic("t").unwrap();
    // The topic need not exist yet.
    let mut reader = one(topic.listener_async(ReadFrom::Start)).unwrap();
    let mut seen = 0;
    topic.ensure().unwrap();
    for n in 0..50 {
        topic
            .put("k", n.to_string())
            .unwrap()
            .ensure_valid()
            .unwrap();
        while seen < n + 2 {
            seen += one(reader.next()).unwrap().iter().count();
        }
    }
    // A dropped future loses no record.
    {
        let (waker, receiver) = channel_waker();
        let mut next = pin!(reader.next());
        assert!(
            next.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        topic.put("k", "last").unwrap().ensure_valid().unwrap();
        receiver.recv().unwrap();
    }
    let page = one(reader.next()).unwrap();
    assert_eq!(page.iter().next().unwrap().unwrap().value, b"last");

    let mut tail = one(topic.listener_async(ReadFrom::Last(1))).unwrap();
    assert_eq!(
        one(tail.next())
            .unwrap()
            .iter()
            .next()
            .unwrap()
            .unwrap()
            .value,
        b"last"
    );
    let mut latest = one(topic.latest_async(Duration::ZERO)).unwrap();
    let now = one(latest.next_async()).unwrap();
    assert!(now.replay && now.value.value() == b"last");
    topic.put("k", "new").unwrap().ensure_valid().unwrap();
    let then = one(latest.next_async()).unwrap();
    assert!(!then.replay && then.value.value() == b"new");
}

#[test]
fn reads_and_writes_can_be_awaited_in_a_runtime() {
    let world = World::with(|config| config.rate_requests = Rate::Units(500));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let url = url(&world);
    runtime.block_on(async {
        let remote = Weir::connect_async(&url, &ConnectOptions::default())
            .await
            .unwrap();
        let topic = remote.topic("t").unwrap();
        remote
            .propose(&[weir::Intention::new(
                "t",
                weir::Operation::Create {
                    options: &weir::TopicOptions::default(),
                },
            )])
            .unwrap()
            .await
            .unwrap();
        remote
            .propose(&[put("t", "k", "v")])
            .unwrap()
            .await
            .unwrap();
        // More than the rate: the server refuses reads with a time to retry.
        let mut reads: Vec<_> = (0..800).map(|_| topic.get_async("k")).collect();
        for read in reads.drain(..) {
            assert_eq!(read.await.unwrap().unwrap().value(), b"v");
        }
    });
}

#[test]
fn awaited_calls_survive_a_broken_connection() {
    let mut world = World::new();
    world.connect().topic("t").unwrap().ensure().unwrap();
    let proxy = Proxy::new(world.address, i64::MAX, 700);
    let remote = connect(&format!("weir://{}", proxy.address));
    let topic = remote.topic("t").unwrap();
    let mut reader = one(topic.listener_async(ReadFrom::Start)).unwrap();
    world
        .local()
        .topic("t")
        .unwrap()
        .put("k", "v")
        .unwrap()
        .ensure_valid()
        .unwrap();
    for _ in 0..50 {
        assert_eq!(one(topic.get_async("k")).unwrap().unwrap().value(), b"v");
    }
    let mut seen = 0;
    while seen < 2 {
        seen += one(reader.next()).unwrap().iter().count();
    }
    world.restart();
    world
        .local()
        .topic("t")
        .unwrap()
        .put("k", "w")
        .unwrap()
        .ensure_valid()
        .unwrap();
    let page = one(reader.next()).unwrap();
    assert_eq!(page.iter().next().unwrap().unwrap().value, b"w");
}

#[test]
fn a_read_has_the_deadline_of_its_handle() {
    // The server refuses the read until the debt of the writes is paid, which takes longer than the
    // deadline.
    let world = World::with(|config| config.rate_requests = Rate::Units(10));
    let topic = world.local().topic("t").unwrap();
    topic.ensure().unwrap();
    let remote = connect(&url(&world));
    let many = vec![put("t", "k", "v"); 6000];
    assert_eq!(remote.propose(&many).unwrap().wait().unwrap().len(), 6000);
    let short = remote.within(Duration::from_millis(50));
    let error = one(short.topic("t").unwrap().get_async("k")).unwrap_err();
    let WeirError::Store(StoreError::Remote { code, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(code, ErrorCode::Rate);
}

#[test]
fn an_asynchronous_connect_fails_after_its_timeout() {
    let mut options = ConnectOptions::default();
    options.connect_timeout = Duration::from_millis(200);
    let error = one(Weir::connect_async(
        &format!("weir://{UNREACHABLE}"),
        &options,
    ))
    .unwrap_err();
    let WeirError::Store(StoreError::Remote { code, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(code, ErrorCode::Unreachable);
    let bad = one(Weir::connect_async("http://a", &options)).unwrap_err();
    assert!(matches!(
        bad,
        WeirError::Store(StoreError::Remote {
            code: ErrorCode::BadAddress,
            ..
        })
    ));
}
