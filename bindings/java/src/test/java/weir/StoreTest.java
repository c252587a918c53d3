package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Tests that run with a directory and with a server. */
class StoreTest {
    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void topicsAreQueriedInADirectory(@TempDir Path directory) throws Exception {
        StoreServer.withLocalStore(directory, StoreTest::query);
    }

    @Test
    void topicsAreQueriedAtAServer(@TempDir Path directory) throws Exception {
        StoreServer.withRemoteStore(directory, StoreTest::query);
    }

    private static void query(Weir store) throws Exception {
        for (String name : List.of("orders.a", "orders.b")) {
            Topic topic = store.topic(name);
            assertTrue(topic.ensure());
            for (int at = 0; at < 3; at++) {
                topic.append(bytes("{\"n\":" + at + ",\"in\":\"" + name + "\"}")).orThrow();
            }
        }
        QueryOptions options = new QueryOptions().where("@.n > 0").order("$.n desc, $.in").select("$.in");
        try (Query query = store.query(new TopicsOptions("orders.*"), options)) {
            List<String> got = new ArrayList<>();
            try (Stream<Item> items = query.items()) {
                items.forEach(item -> {
                    got.add(item.text());
                    assertEquals(item.text(), "\"" + query.sourceName(item.source()).orElseThrow() + "\"");
                });
            }
            assertEquals(List.of("\"orders.a\"", "\"orders.b\"", "\"orders.a\"", "\"orders.b\""), got);
            WeirException refused = assertThrows(WeirException.class, () -> query.source(new SourceOptions()));
            assertEquals(ErrorCode.UNSUPPORTED, refused.code());
        }
        TopicsOptions following = new TopicsOptions("orders.*").follow();
        try (Query query = store.query(following, new QueryOptions().where("@.n == 9"))) {
            assertEquals(new Step.Needing(), query.next(Duration.ZERO));
            store.topic("orders.b").append(bytes("{\"n\":9}")).orThrow();
            try (Page page = query.pages().iterator().next()) {
                assertEquals("{\"n\":9}", page.get(0).text());
            }
            assertTrue(query.token().length > 0);
            CompletableFuture<ErrorCode> ended = CompletableFuture.supplyAsync(() ->
                    assertThrows(WeirException.class, () -> query.pages().iterator().hasNext()).code());
            query.cancel();
            assertEquals(ErrorCode.CANCELLED, ended.get());
        }
    }

    @Test
    void aQueryStartsAtAPositionInADirectory(@TempDir Path directory) throws Exception {
        StoreServer.withLocalStore(directory, StoreTest::queryFrom);
    }

    @Test
    void aQueryStartsAtAPositionAtAServer(@TempDir Path directory) throws Exception {
        StoreServer.withRemoteStore(directory, StoreTest::queryFrom);
    }

    private static void queryFrom(Weir store) {
        Topic topic = store.topic("orders");
        assertTrue(topic.ensure());
        for (int at = 0; at < 3; at++) {
            topic.append(bytes(Integer.toString(at))).orThrow();
        }
        // The topic begins with the record of its creation.
        Map<String, From> positions = Map.of("012", From.start(), "12", From.after(2), "2", From.parse("-1"), "",
                From.end());
        positions.forEach((expected, from) -> {
            TopicsOptions topics = new TopicsOptions("orders").from(from);
            try (Query query = store.query(topics, new QueryOptions()); Stream<Item> items = query.items()) {
                assertEquals(expected, items.map(Item::text).collect(Collectors.joining()));
            }
        });
        TopicsOptions latest = new TopicsOptions("orders").latest().from(From.end());
        WeirException refused =
                assertThrows(WeirException.class, () -> store.query(latest, new QueryOptions()).close());
        assertEquals(ErrorCode.BAD_OPTION, refused.code());
    }

    @Test
    void everyConsistencyReadsTheSameInADirectory(@TempDir Path directory) throws Exception {
        StoreServer.withLocalStore(directory, StoreTest::readWithEachConsistency);
    }

    @Test
    void everyConsistencyReadsTheSameAtAServer(@TempDir Path directory) throws Exception {
        StoreServer.withRemoteStore(directory, StoreTest::readWithEachConsistency);
    }

    private static void readWithEachConsistency(Weir store) {
        Topic topic = store.topic("orders");
        assertTrue(topic.ensure());
        topic.put(bytes("k"), bytes("v")).orThrow();
        for (Consistency consistency : Consistency.values()) {
            try (Weir reads = store.withConsistency(consistency)) {
                byte[] value = reads.topic("orders").get(bytes("k")).orElseThrow().value();
                assertEquals("v", new String(value, StandardCharsets.UTF_8));
            }
        }
        assertTrue(topic.get(bytes("k")).isPresent());
    }

    @Test
    void aRecordPrintsItsFields(@TempDir Path directory) throws Exception {
        StoreServer.withLocalStore(directory, store -> {
            Topic topic = store.topic("orders");
            topic.ensure();
            topic.put(bytes("4711"), bytes("{\"state\":\"open\"}"));
            topic.put(bytes("k".repeat(101)), bytes("é".repeat(101)));
            topic.put(new byte[] {-1}, new byte[] {-1, 0});
            // A deleted key has no value, unlike a key with an empty one.
            topic.put(bytes("k"), new byte[0]);
            topic.delete(bytes("k"));
            topic.put(bytes("a\n9 PUT b"), bytes("x\u001b[2J\ty"));
            String cut = "3 PUT " + "k".repeat(100) + "…=" + "é".repeat(100) + "…";
            List<String> wanted = List.of("1 CREATE", "2 PUT 4711={\"state\":\"open\"}", cut,
                    "4 PUT <1 bytes>=<2 bytes>", "5 PUT k=", "6 DELETE k", "7 PUT a 9 PUT b=x\ufffd[2J y");
            try (var records = topic.records(From.start())) {
                assertEquals(wanted, records.map(Object::toString).toList());
            }
            assertEquals(wanted.get(1), topic.get(bytes("4711")).orElseThrow().toString());
        });
    }

    private static void checkNegative(String message, Executable call) {
        WeirException failed = assertThrows(WeirException.class, call);
        assertEquals("BAD_OPTION: " + message + "; it must not be negative", failed.getMessage());
    }

    @Test
    void aNegativeTimeOrNumberIsAnError(@TempDir Path directory) throws Exception {
        Duration negative = Duration.ofSeconds(-1);
        StoreServer.withLocalStore(directory, store -> {
            Topic jobs = store.topic("jobs");
            jobs.ensure();
            checkNegative("lease is PT-1S", () -> jobs.group("g", GroupMode.SHARED, new GroupOptions().lease(negative)));
            checkNegative("claimLease is PT-1S",
                    () -> jobs.group("g", GroupMode.SHARED, new GroupOptions().claimLease(negative)));
            checkNegative("keys is -1", () -> jobs.create(new TopicOptions().keys(-1)));
            checkNegative("attempts is -1", () -> jobs.group("g", GroupMode.SHARED, new GroupOptions().attempts(-1)));
            checkNegative("pending is -1", () -> jobs.group("g", GroupMode.SHARED, new GroupOptions().pending(-1)));
            checkNegative("limit is -1", () -> jobs.scan(new byte[0], null, -1, false));
            List<Claimed> claims = List.of(new Claimed(2, 1));
            try (Group group = jobs.group("g", GroupMode.SHARED)) {
                checkNegative("lease is PT-1S", () -> group.extend(claims, negative));
                checkNegative("delay is PT-1S", () -> group.fail(claims, negative, ""));
                checkNegative("limit is -1", () -> group.claim(-1, Duration.ZERO));
            }
        });
        checkNegative("limit is -1", () -> new Query(new QueryOptions().limit(-1)));
        checkNegative("interval is PT-1S",
                () -> Weir.open(directory.resolve("other"), new OpenOptions().interval(negative)));
        checkNegative("keyBytes is -1", () -> Weir.open(directory.resolve("other"), new OpenOptions().keyBytes(-1)));
        checkNegative("patience is PT-1S",
                () -> Weir.connect("weir://127.0.0.1:1", new ConnectOptions().patience(negative)));
    }

    @Test
    void aGroupSharesItsRecordsAtAServer(@TempDir Path directory) throws Exception {
        StoreServer.withRemoteStore(directory, store -> {
            Topic jobs = store.topic("jobs");
            jobs.ensure();
            jobs.batch(List.of(Intention.put(bytes("a"), bytes("1")), Intention.put(bytes("b"), bytes("2"))));
            try (Group group = jobs.group("work", GroupMode.SHARED)) {
                try (Page page = group.claim(10, Duration.ofMinutes(1)).orElseThrow()) {
                    List<Claimed> claims = Group.claimed(page);
                    assertEquals(2, claims.size());
                    assertEquals(List.of(), group.done(claims.subList(0, 1)));
                    assertEquals(List.of(), group.fail(claims.subList(1, 2), Duration.ZERO, "later"));
                }
                try (Page again = group.claim(10, Duration.ofMinutes(1)).orElseThrow()) {
                    assertEquals("2", again.records().getFirst().text());
                    assertEquals(2, again.records().getFirst().attempts());
                }
                CompletableFuture<ErrorCode> ended = CompletableFuture.supplyAsync(() -> assertThrows(
                        WeirException.class, () -> group.claim(1, Duration.ofMinutes(10))).code());
                group.cancel();
                assertEquals(ErrorCode.CANCELLED, ended.get());
            }
        });
    }

    @Test
    void aWriteIsReceivedAndThenCommitted(@TempDir Path directory) throws Exception {
        try (StoreServer server = new StoreServer(directory);
                Weir store = Weir.connect(server.address(), new ConnectOptions().received())) {
            assertTrue(store.topic("orders").ensure());
            Intention put = Intention.put(bytes("k"), bytes("v")).of("orders");
            byte[] client = new byte[16];
            client[0] = 7;
            try (Session session = store.session(client);
                    Pending first = store.send(List.of(put, put));
                    Pending second = session.send(List.of(put, put))) {
                for (Pending pending : List.of(first, second)) {
                    assertTrue(pending.awaitReceived(Duration.ofMinutes(1)));
                    List<Verdict> verdicts = pending.await(Duration.ofMinutes(1)).orElseThrow();
                    assertTrue(verdicts.size() == 2 && verdicts.stream().allMatch(Verdict::isValid));
                }
            }
        }
    }
}
