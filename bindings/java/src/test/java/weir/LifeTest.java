package weir;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Lifetimes and ownership of handles, pages and segments. */
class LifeTest {
    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** A query over lines that are already enqueued. */
    private static Query lines(String text) {
        Query query = new Query(new QueryOptions());
        query.source(new SourceOptions().shape("lines")).enqueue(bytes(text), null);
        return query;
    }

    private static Page page(Query query) {
        return ((Step.Ready) query.next()).page();
    }

    @Test
    void aSessionSendsAheadAndAStepHasItsMeta(@TempDir Path directory) {
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY));
                Session session = store.session(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})) {
            Topic topic = store.topic("t");
            topic.ensure();
            for (boolean replayed : new boolean[] {false, true}) {
                Pending first = session.send(List.of(Intention.put(bytes("k"), bytes("1")).of("t")));
                Pending second = session.send(List.of(Intention.put(bytes("k"), bytes("2")).of("t")));
                for (Pending pending : List.of(first, second)) {
                    Verdict verdict = pending.await(Duration.ofMinutes(1)).orElseThrow().getFirst();
                    assertEquals(Effect.VALID, verdict.effect());
                    assertEquals(pending == first ? 2 : 3, verdict.offset());
                    assertEquals(replayed, verdict.replayed());
                    pending.close();
                }
                session.resume(1);
            }
            topic.transaction(List.of(new Change(bytes("a"), bytes("3"), bytes("m")), new Change(bytes("k"), null)));
            try (Reader reader = topic.reader(From.after(3)); Page page = reader.next(Duration.ZERO).orElseThrow()) {
                List<String> metas = page.records().stream()
                        .map(record -> new String(record.copy().meta(), StandardCharsets.UTF_8)).toList();
                assertEquals(List.of("m", ""), metas);
            }
        }
    }

    @Test
    void aPageOutlivesItsQueryAndEndsWhenItIsClosed() {
        Query query = lines("1\n{\"a\":[2, 3]}\n");
        Page page = page(query);
        query.close();
        query.close();
        assertThrows(IllegalStateException.class, query::needs);
        Item item = page.get(1);
        MemorySegment found = item.get("$.a");
        assertEquals("{\"a\":[2, 3]}", item.text());
        assertEquals(6, found.byteSize());
        List<MemorySegment> all = page.get("$.a[1]");
        assertNull(all.get(0));
        assertEquals('3', all.get(1).get(ValueLayout.JAVA_BYTE, 0));
        ByteBuffer[][] table = page.values("$.a[0]", "$.b");
        assertNull(table[0][0]);
        assertEquals('2', table[1][0].get(0));
        assertNull(table[1][1]);
        assertEquals(2, page.values().length);
        assertEquals(ErrorCode.NOT_SINGULAR, assertThrows(WeirException.class,
                () -> page.values("$.a", "$..a")).code());
        String[] many = Collections.nCopies(65, "$.a").toArray(String[]::new);
        WeirException tooMany = assertThrows(WeirException.class, () -> page.values(many));
        assertEquals(ErrorCode.TOO_COMPLEX, tooMany.code());
        assertEquals("TOO_COMPLEX: more than 64 paths", tooMany.getMessage());
        page.close();
        page.close();
        assertThrows(IllegalStateException.class, () -> table[1][0].get(0));
        assertThrows(IllegalStateException.class, () -> page.values("$.a"));
        assertThrows(IllegalStateException.class, item::text);
        assertThrows(IllegalStateException.class, () -> found.get(ValueLayout.JAVA_BYTE, 0));
        assertThrows(IllegalStateException.class, () -> page.get("$.a"));
    }

    /** Waits until the collector has released all dropped handles. */
    private static void collectGarbage() {
        while (Lib.handlesOpen() > 0) {
            System.gc();
            Thread.yield();
        }
    }

    @Test
    @Timeout(60)
    void closedHandlesAreReleasedAtOnceAndUnreachableOnesLater() {
        collectGarbage();
        try (Query query = lines("1\n"); Page page = page(query)) {
            assertEquals(2, Lib.handlesOpen());
            assertEquals("1", page.get(0).text());
        }
        assertEquals(0, Lib.handlesOpen());
        page(lines("1\n"));
        collectGarbage();
    }

    private static Page pageOfClosedQuery(String text) {
        try (Query query = lines(text)) {
            return page(query);
        }
    }

    /** Waits until the collector has found a page, and has released everything that it found before. */
    private static void awaitCollected(WeakReference<Page> page) {
        while (page.get() != null) {
            System.gc();
            Thread.yield();
        }
        long open = Lib.handlesOpen();
        for (WeakReference<Page> later = new WeakReference<>(pageOfClosedQuery("2\n")); later.get() != null;) {
            System.gc();
            Thread.yield();
        }
        while (Lib.handlesOpen() > open) {
            System.gc();
            Thread.yield();
        }
    }

    @Test
    @Timeout(60)
    void aSegmentKeepsTheMemoryOfAnUnreachablePage() {
        collectGarbage();
        Page page = pageOfClosedQuery("[1, 22]\n").share();
        WeakReference<Page> reference = new WeakReference<>(page);
        List<MemorySegment> segments = new ArrayList<>(page.get("$[1]"));
        segments.add(page.get(0).segment());
        page = null;
        for (int at = 0; at < 2; at++) {
            awaitCollected(reference);
            assertEquals(1, Lib.handlesOpen());
            assertEquals(List.of("22", "[1, 22]").get(at), text(segments.removeFirst()));
        }
        collectGarbage();
    }

    private static String text(MemorySegment segment) {
        return new String(segment.toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
    }

    @Test
    @Timeout(60)
    void segmentsOfABufferEndWhenItIsTransferred() {
        collectGarbage();
        try (Query query = new Query(new QueryOptions())) {
            Source source = query.source(new SourceOptions().shape("lines"));
            Buffer transferred = new Buffer(8);
            MemorySegment segment = transferred.segment();
            segment.setString(0, "1\n");
            source.enqueue(transferred, 2, null);
            assertThrows(IllegalStateException.class, () -> segment.set(ValueLayout.JAVA_BYTE, 0, (byte) '2'));
            assertThrows(IllegalStateException.class, transferred::segment);
            transferred.close();
            try (Page page = page(query)) {
                assertEquals("1", page.get(0).text());
            }
        }
        Buffer closed = new Buffer(8);
        MemorySegment segment = closed.segment();
        closed.close();
        assertThrows(IllegalStateException.class, () -> segment.set(ValueLayout.JAVA_BYTE, 0, (byte) '2'));
        assertEquals(0, Lib.handlesOpen());
        new Buffer(8);
        collectGarbage();
    }

    @Test
    void aBufferIsTransferredByItsThreadOnly() {
        try (Query query = new Query(new QueryOptions()); Buffer buffer = new Buffer(8)) {
            Source source = query.source(new SourceOptions().shape("lines"));
            buffer.segment().setString(0, "1\n");
            ExecutionException wrong = assertThrows(ExecutionException.class,
                    () -> CompletableFuture.runAsync(() -> source.enqueue(buffer, 2, null)).get());
            assertTrue(wrong.getCause() instanceof WrongThreadException);
            // The query has no page yet, and the buffer still has its memory.
            source.enqueue(buffer, 2, null);
            try (Page page = page(query)) {
                assertEquals("1", page.get(0).text());
            }
        }
    }

    @Test
    void laterMinorVersionsAreCompatible() {
        int wanted = 0x0001_0002;
        assertTrue(Library.isCompatible(wanted, wanted));
        assertTrue(Library.isCompatible(0x0001_0003, wanted));
        assertFalse(Library.isCompatible(0x0001_0001, wanted));
        assertFalse(Library.isCompatible(0x0000_0002, wanted));
        assertFalse(Library.isCompatible(0x0002_0002, wanted));
        assertFalse(Library.isCompatible(0x8001_0002, wanted));
    }

    @Test
    void aPageBelongsToOneThreadUntilItIsShared() throws Exception {
        try (Query query = lines("1\n"); Page page = page(query)) {
            Item item = page.get(0);
            ExecutionException wrong = assertThrows(ExecutionException.class,
                    () -> CompletableFuture.supplyAsync(item::text).get());
            assertTrue(wrong.getCause() instanceof WrongThreadException);
            page.share();
            assertEquals("1", CompletableFuture.supplyAsync(item::text).get());
        }
    }

    @Test
    void errorsHaveCodeSourceAndOffset() {
        try (Query query = new Query(new QueryOptions().order("$.n"))) {
            Source source = query.source(new SourceOptions());
            WeirException failed = assertThrows(WeirException.class,
                    () -> source.enqueue(bytes("[{\"n\":1}, x]"), null));
            assertEquals(ErrorCode.NOT_JSON, failed.code());
            assertEquals(0, failed.source().orElseThrow());
            assertEquals(10, failed.offset().orElseThrow());
            // The page can be enqueued again.
            source.enqueue(bytes("[{\"n\":1}]"), null);
        }
        WeirException syntax = assertThrows(WeirException.class,
                () -> new Query(new QueryOptions().where("@.a = 1")));
        assertEquals(ErrorCode.SYNTAX, syntax.code());
    }

    @Test
    void aStreamFetchesTheNeededPages() throws IOException {
        List<String> requested = new ArrayList<>();
        Fetch fetch = needs -> {
            Need need = needs.getFirst();
            String name = need.continuation() == null ? "" : new String(need.continuation(), StandardCharsets.UTF_8);
            requested.add(name);
            byte[] next = name.length() < 2 ? bytes(name + "a") : null;
            need.source().enqueue(new ByteArrayInputStream(bytes("[\"" + name + "\"]")), next);
        };
        try (Query query = new Query(new QueryOptions().fetch(fetch))) {
            query.source(new SourceOptions());
            try (Stream<Item> items = query.items()) {
                assertEquals(List.of("\"\"", "\"a\"", "\"aa\""), items.map(Item::text).toList());
            }
        }
        assertEquals(List.of("", "a", "aa"), requested);
        Fetch broken = needs -> {
            throw new IOException("broken");
        };
        try (Query query = new Query(new QueryOptions().fetch(broken))) {
            query.source(new SourceOptions());
            IllegalStateException failed = assertThrows(IllegalStateException.class,
                    () -> query.pages().iterator().hasNext());
            assertEquals("broken", failed.getCause().getMessage());
        }
    }

    /** Runs in its own process. */
    static final class Opens {
        public static void main(String[] none) {
            new Query(new QueryOptions()).close();
        }
    }

    @Test
    void anEmptyNameOfTheLibraryMeansTheDefault() throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        ProcessBuilder run = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"),
                "--enable-native-access=ALL-UNNAMED", Opens.class.getName());
        run.environment().put("WEIR_LIBRARY", "");
        Path folder = Path.of(System.getProperty("weir.library")).getParent();
        if (folder != null) {
            run.environment().put("LD_LIBRARY_PATH", folder.toString());
        }
        Process process = run.redirectErrorStream(true).start();
        String message = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), message);
    }

    @Test
    void aFetchThatEnqueuesNothingIsAnError() {
        Fetch idle = needs -> {};
        checkMissingPage(null, "BAD_OPTION: a page of source north is needed; give `fetch`");
        checkMissingPage(idle, "BAD_OPTION: `fetch` enqueued nothing, and a page of source north is needed");
    }

    private static void checkMissingPage(Fetch fetch, String message) {
        try (Query query = new Query(new QueryOptions().fetch(fetch))) {
            Source source = query.source(new SourceOptions().name("north"));
            WeirException failed = assertThrows(WeirException.class,
                    () -> query.pages().iterator().hasNext());
            assertEquals(message, failed.getMessage());
            assertEquals(ErrorCode.BAD_OPTION, failed.code());
            assertEquals(0, failed.source().getAsInt());
            // The query is still usable.
            source.enqueue(bytes("[1,2]"), null);
            try (Stream<Item> items = query.items()) {
                assertEquals(2, items.count());
            }
        }
    }

    @Test
    void aFetchMayFinishOrSplitItsSource() {
        Fetch fetch = needs -> {
            Source source = needs.getFirst().source();
            if (source.number() == 0) {
                source.replace(List.of(new SourceOptions()));
            } else {
                source.finish();
            }
        };
        try (Query query = new Query(new QueryOptions().fetch(fetch))) {
            query.source(new SourceOptions());
            assertTrue(!query.pages().iterator().hasNext());
        }
    }

    @Test
    void aLargePageIsReadFromAStream() throws IOException {
        String text = "\"0123456789\"\n".repeat(50_000);
        try (Query query = new Query(new QueryOptions().select("count"))) {
            query.source(new SourceOptions().shape("lines"))
                    .enqueue(new ByteArrayInputStream(bytes(text)), null);
            try (Page page = page(query)) {
                assertEquals("50000", page.get(0).text());
                assertTrue(page.get(0).isConstructed());
            }
        }
    }

    @Test
    void anotherQueryResumesAtAToken() {
        byte[] token = null;
        List<String> got = new ArrayList<>();
        for (int at = 0; at < 3; at++) {
            try (Query query = new Query(new QueryOptions().order("$.n").token(token))) {
                query.source(new SourceOptions().name("s").sorted())
                        .enqueue(bytes("[{\"n\":1},{\"n\":2},{\"n\":3}]"), null);
                try (Page page = ((Step.Ready) query.next(1, 0)).page()) {
                    got.add(page.get(0).text());
                }
                token = query.token();
            }
        }
        assertEquals(List.of("{\"n\":1}", "{\"n\":2}", "{\"n\":3}"), got);
    }

    @Test
    void listenersReceiveWhatTheyRequestUntilTheyCancel(@TempDir Path directory) throws Exception {
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY))) {
            Topic topic = store.topic("news");
            List<String> got = new ArrayList<>();
            CountDownLatch two = new CountDownLatch(2);
            CompletableFuture<Flow.Subscription> subscribed = new CompletableFuture<>();
            CompletableFuture<Throwable> failed = new CompletableFuture<>();
            topic.follow(From.start()).subscribe(new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    subscription.request(2);
                    subscribed.complete(subscription);
                }

                @Override
                public void onNext(Stored record) {
                    got.add(record.kind() + record.text());
                    two.countDown();
                }

                @Override
                public void onError(Throwable thrown) {
                    failed.complete(thrown);
                }

                @Override
                public void onComplete() {}
            });
            topic.ensure();
            topic.append(bytes("one"));
            topic.append(bytes("two"));
            two.await();
            assertEquals(List.of("CREATE", "PUTone"), got);
            subscribed.get().request(0);
            assertTrue(failed.get() instanceof IllegalArgumentException);
        }
    }

    @Test
    @Timeout(60)
    void aCancelledListenerReceivesNothing(@TempDir Path directory) throws Exception {
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY))) {
            CompletableFuture<Flow.Subscription> subscribed = new CompletableFuture<>();
            CountDownLatch called = new CountDownLatch(1);
            store.topic("quiet").follow(From.start()).subscribe(new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    subscription.request(Long.MAX_VALUE);
                    subscribed.complete(subscription);
                }

                @Override
                public void onNext(Stored record) {
                    called.countDown();
                }

                @Override
                public void onError(Throwable thrown) {
                    called.countDown();
                }

                @Override
                public void onComplete() {}
            });
            Flow.Subscription subscription = subscribed.get();
            subscription.cancel();
            subscription.cancel();
            // The collector releases its reader, even though nobody closed the store.
            while (Lib.handlesOpen() > 1) {
                System.gc();
                Thread.yield();
            }
            store.topic("quiet").ensure();
            assertEquals(1, called.getCount());
        }
    }

    @Test
    void aReaderThatWaitsIsEndedByACancel(@TempDir Path directory) throws Exception {
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY));
                Reader reader = store.topic("none").listener(From.start())) {
            CompletableFuture<ErrorCode> ended = CompletableFuture.supplyAsync(() ->
                    assertThrows(WeirException.class, () -> reader.next(Duration.ofMinutes(10))).code());
            reader.cancel();
            assertEquals(ErrorCode.CANCELLED, ended.get());
        }
    }

    @Test
    void recordsAndScansAreInOrderAndCopiesOutliveTheStore(@TempDir Path directory) {
        Stored copied;
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY))) {
            Topic topic = store.topic("t");
            assertTrue(topic.ensure(new TopicOptions().keyBytes(8)));
            List<Intention> writes = new ArrayList<>();
            for (int at = 0; at < 2500; at++) {
                writes.add(Intention.put(bytes(String.format("a%04d", at)), bytes("v" + at)));
            }
            assertEquals(2500, topic.batch(writes).stream().filter(Verdict::isValid).count());
            try (Stream<TopicRecord> records = topic.scan(bytes("a"))) {
                int[] at = {0};
                records.forEach(record ->
                        assertArrayEquals(bytes(String.format("a%04d", at[0]++)), record.key()));
                assertEquals(2500, at[0]);
            }
            try (Stream<TopicRecord> records = topic.records(From.last(1))) {
                assertEquals(List.of("v2499"), records.map(TopicRecord::text).toList());
            }
            Verdict refused = topic.put(bytes("much too long"), bytes("x"));
            WeirException limit = assertThrows(WeirException.class, refused::orThrow);
            assertEquals(ErrorCode.LIMIT, limit.code());
            copied = topic.get(bytes("a0007")).orElseThrow();
        }
        assertEquals("v7", copied.text());
    }
}
