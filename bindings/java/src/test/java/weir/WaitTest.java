package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Deadlines, cancels and interrupts of calls that wait for a server. */
@Timeout(60)
class WaitTest {
    private static final Duration SOON = Duration.ofMillis(500);

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private interface Use {
        void with(Weir store, Relay relay) throws Exception;
    }

    /** A store with the key {@code k} in the topic {@code t}, behind a relay. */
    private static void withStalledStore(Path directory, Use use) throws Exception {
        try (StoreServer server = new StoreServer(directory);
                Relay relay = new Relay(server.address());
                Weir store = Weir.connect(relay.address())) {
            store.topic("t").ensure();
            store.topic("t").put(bytes("k"), bytes("v")).orThrow();
            use.with(store, relay);
            assertEquals("v", store.topic("t").get(bytes("k")).orElseThrow().text());
        }
    }

    /** Calls that change nothing. */
    private static Map<String, Executable> reads(Weir store) {
        Topic topic = store.topic("t");
        Map<String, Executable> reads = new LinkedHashMap<>();
        reads.put("topics", store::topics);
        reads.put("sync", store::sync);
        reads.put("ensure", topic::ensure);
        reads.put("info", topic::info);
        reads.put("get", () -> topic.get(bytes("k")));
        reads.put("at", () -> topic.at(2));
        reads.put("scan", () -> topic.scan(bytes(""), null, 10, true));
        reads.put("reader", () -> topic.reader(From.start()));
        reads.put("query", () -> store.query(new TopicsOptions("t"), new QueryOptions()));
        return reads;
    }

    private static ErrorCode code(Executable call) {
        return assertThrows(WeirException.class, call).code();
    }

    /** Opens an object. Tries again if a loaded machine was too slow for the deadline of the store. */
    private static <T> T opened(Supplier<T> open) {
        while (true) {
            try {
                return open.get();
            } catch (WeirException slow) {
                assertEquals(ErrorCode.DEADLINE, slow.code());
            }
        }
    }

    @Test
    void aDeadlineReachesEveryCallOfItsStore(@TempDir Path directory) throws Exception {
        withStalledStore(directory, (store, relay) -> {
            try (Weir soon = store.within(SOON)) {
                byte[] client = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
                Session session = opened(() -> soon.session(client));
                Reader reader = opened(() -> soon.topic("t").listener(From.start()));
                relay.hold();
                reads(soon).forEach((name, read) -> assertEquals(ErrorCode.DEADLINE, code(read), name));
                Intention same = Intention.put(bytes("k"), bytes("v"));
                assertEquals(ErrorCode.INDETERMINATE, code(() -> soon.topic("t").batch(List.of(same))));
                assertEquals(ErrorCode.DEADLINE, code(() -> reader.next(Duration.ZERO)));
                relay.resume();
                reader.close();
                session.close();
            }
        });
    }

    @Test
    void aCancelReachesTheCallsOfItsStoreAndNoOthers(@TempDir Path directory) throws Exception {
        withStalledStore(directory, (store, relay) -> {
            relay.hold();
            try (Weir one = store.within(Duration.ofMinutes(1))) {
                CompletableFuture<ErrorCode> ended =
                        CompletableFuture.supplyAsync(() -> code(() -> one.topic("t").get(bytes("k"))));
                relay.awaitRequest();
                one.cancel();
                assertEquals(ErrorCode.CANCELLED, ended.get());
                assertEquals(ErrorCode.CANCELLED, code(one::topics));
            }
            assertEquals(ErrorCode.UNSUPPORTED, code(store::cancel));
            relay.resume();
        });
    }

    @Test
    void anInterruptEndsEveryCallThatWaitsForAServer(@TempDir Path directory) throws Exception {
        withStalledStore(directory, (store, relay) -> {
            Map<String, Executable> calls = reads(store);
            calls.put("put", () -> store.topic("t").put(bytes("k"), bytes("v")));
            for (Map.Entry<String, Executable> call : calls.entrySet()) {
                relay.hold();
                CompletableFuture<ErrorCode> ended = new CompletableFuture<>();
                Thread thread = Thread.ofPlatform().start(() -> {
                    ErrorCode code = code(call.getValue());
                    // The thread is still interrupted, so the next call ends before it starts.
                    assertTrue(Thread.currentThread().isInterrupted());
                    assertEquals(ErrorCode.CANCELLED, code(store::topics));
                    ended.complete(code);
                });
                relay.awaitRequest();
                thread.interrupt();
                ErrorCode wanted = call.getKey().equals("put") ? ErrorCode.INDETERMINATE : ErrorCode.CANCELLED;
                assertEquals(wanted, ended.get(), call.getKey());
                relay.resume();
                store.topics();
            }
        });
    }

    @Test
    void anInterruptEndsOneCallOfAHandle(@TempDir Path directory) throws Exception {
        withStalledStore(directory, (store, relay) -> {
            Topic topic = store.topic("t");
            Duration minute = Duration.ofMinutes(1);
            Intention put = Intention.put(bytes("s"), bytes("1")).of("t");
            QueryOptions numbers = new QueryOptions().badItems(BadItems.SKIP).where("@ == 1");
            try (Reader reader = topic.listener(From.start());
                    Group group = topic.group("g", GroupMode.SHARED);
                    Session session = store.session(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
                    Query query = store.query(new TopicsOptions("t").follow(), numbers)) {
                Map<String, Executable> calls = new LinkedHashMap<>();
                calls.put("reader", () -> reader.next(minute));
                calls.put("claim", () -> group.claim(1, minute));
                calls.put("session", () -> session.submit(List.of(put)));
                // The query may already have sent a request when it was opened.
                Executable waits = () -> query.next(minute);
                calls.put("query", waits);
                for (Map.Entry<String, Executable> call : calls.entrySet()) {
                    relay.hold();
                    CompletableFuture<ErrorCode> ended = new CompletableFuture<>();
                    Thread thread = Thread.ofPlatform().start(() -> ended.complete(code(call.getValue())));
                    if (call.getValue() != waits) {
                        relay.awaitRequest();
                    }
                    thread.interrupt();
                    ErrorCode wanted =
                            call.getKey().equals("session") ? ErrorCode.INDETERMINATE : ErrorCode.CANCELLED;
                    assertEquals(wanted, ended.get(), call.getKey());
                    relay.resume();
                }
                try (Page page = reader.next(minute).orElseThrow()) {
                    assertFalse(page.records().isEmpty());
                }
                session.resume(1);
                assertTrue(session.submit(List.of(put)).getFirst().replayed());
                group.info();
                try (Page page = ((Step.Ready) query.next(minute)).page()) {
                    assertEquals(1, page.size());
                }
            }
        });
    }

    @Test
    void aLateInterruptEndsNoOtherCall(@TempDir Path directory) {
        try (Weir store = Weir.open(directory)) {
            store.topic("t").ensure();
            try (Group group = store.topic("t").group("g", GroupMode.SHARED)) {
                Thread.currentThread().interrupt();
                // In a local store, this call waits for nobody.
                group.reset(From.start());
                assertTrue(Thread.interrupted());
                assertTrue(group.claim(1, Duration.ZERO).isEmpty());
                Thread.currentThread().interrupt();
                assertEquals(ErrorCode.CANCELLED, code(() -> group.claim(1, Duration.ofMinutes(1))));
                assertTrue(Thread.interrupted());
                assertTrue(group.claim(1, Duration.ZERO).isEmpty());
                group.cancel();
                assertEquals(ErrorCode.CANCELLED, code(() -> group.claim(1, Duration.ZERO)));
            }
        }
    }

    @Test
    void aCancelEndsACallOfASession(@TempDir Path directory) throws Exception {
        withStalledStore(directory, (store, relay) -> {
            try (Session session = store.session(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
                    var one = Executors.newSingleThreadExecutor()) {
                relay.hold();
                Intention put = Intention.put(bytes("s"), bytes("1")).of("t");
                var ended = one.submit(() -> code(() -> session.submit(List.of(put))));
                relay.awaitRequest();
                session.cancel();
                assertEquals(ErrorCode.INDETERMINATE, ended.get());
                relay.resume();
                session.resume(1);
                Verdict again = session.submit(List.of(put)).getFirst();
                assertTrue(again.replayed());
            }
        });
    }

    @Test
    void handlesOutliveTheStoreWithADeadlineThatOpenedThem(@TempDir Path directory) throws Exception {
        withStalledStore(directory, (store, relay) -> {
            Reader reader;
            try (Weir soon = store.within(Duration.ofMinutes(1))) {
                reader = soon.topic("t").reader(From.start());
            }
            assertFalse(reader.next(Duration.ZERO).isEmpty());
            reader.close();
        });
    }
}
