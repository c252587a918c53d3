package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Arguments and errors of calls, and objects that only a call references. */
@Timeout(120)
class CallsTest {
    private static final OpenOptions MEMORY = new OpenOptions().durability(Durability.MEMORY);

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static ErrorCode code(Executable call) {
        return assertThrows(WeirException.class, call).code();
    }

    /** Runs a class in its own process. Returns the lines that it printed. */
    private static List<String> run(String library, List<String> options, Class<?> program, String... arguments)
            throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), "--enable-native-access=ALL-UNNAMED"));
        command.addAll(options);
        command.add(program.getName());
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().put("WEIR_LIBRARY", library);
        Process process = builder.redirectErrorStream(true).start();
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), printed);
        return printed.lines().toList();
    }

    /** Runs in its own process: the library is another one. */
    static final class WithoutLibrary {
        public static void main(String[] none) {
            for (int at = 0; at < 2; at++) {
                print(() -> new Query(new QueryOptions()));
                print(() -> From.parse("end"));
            }
        }

        private static void print(Runnable call) {
            try {
                call.run();
            } catch (WeirException failed) {
                System.out.println(failed.code());
            }
        }
    }

    @Test
    void everyCallReportsALibraryThatCannotBeUsed() throws Exception {
        for (String library : new String[] {"libc.so.6", "/none/libweir.so.0"}) {
            assertEquals(List.of("UNSUPPORTED", "UNSUPPORTED", "UNSUPPORTED", "UNSUPPORTED"),
                    run(library, List.of(), WithoutLibrary.class));
        }
    }

    /** Collects garbage until the process ends. */
    private static void collectGarbage() {
        Thread collector = new Thread(() -> {
            while (true) {
                System.gc();
            }
        });
        collector.setDaemon(true);
        collector.start();
    }

    /** Runs in its own process. Its code is compiled, so a reference ends with its last use. */
    static final class Drops {
        public static void main(String[] directory) {
            try (Weir store = Weir.open(Path.of(directory[0]), MEMORY)) {
                collectGarbage();
                System.out.println(store.topic("none").listener(From.start()).next(Duration.ofSeconds(1)));
            }
        }
    }

    /** Runs in its own process, as {@link Drops}. One step of its queries reads a whole topic. */
    static final class DropsQueries {
        public static void main(String[] directory) {
            try (Weir store = Weir.open(Path.of(directory[0]), MEMORY)) {
                Topic topic = store.topic("t");
                topic.ensure();
                List<Intention> writes = Collections.nCopies(10_000, Intention.put(null, bytes("{\"n\":1}")));
                for (int at = 0; at < 10; at++) {
                    topic.batch(writes);
                }
                collectGarbage();
                for (int at = 0; at < 20; at++) {
                    QueryOptions count = new QueryOptions().select("count");
                    Step step = store.query(new TopicsOptions("t"), count).next();
                    try (Page page = ((Step.Ready) step).page()) {
                        System.out.println(page.get(0).text());
                    }
                }
            }
        }
    }

    private static List<String> runCompiled(Class<?> program, Path directory) throws Exception {
        List<String> options = List.of("-Xcomp", "-XX:CompileCommand=compileonly,weir.*::*");
        return run(System.getProperty("weir.library"), options, program, directory.toString());
    }

    @Test
    void theCollectorDoesNotEndACallOfAnObject(@TempDir Path directory) throws Exception {
        assertEquals("Optional.empty", runCompiled(Drops.class, directory).getLast());
    }

    @Test
    void theCollectorDoesNotEndAStepOfAQuery(@TempDir Path directory) throws Exception {
        assertEquals("100000", runCompiled(DropsQueries.class, directory).getLast());
    }

    private record Sent(Pending pending, WeakReference<Session> session) {}

    private static Sent send(Weir store) {
        Session session = store.session(bytes("0123456789abcdef"));
        Pending pending = session.send(List.of(Intention.put(bytes("k"), bytes("v")).of("t")));
        return new Sent(pending, new WeakReference<>(session));
    }

    @Test
    void verdictsKeepTheirSession(@TempDir Path directory) {
        try (Weir store = Weir.open(directory, MEMORY)) {
            store.topic("t").ensure();
            Sent sent = send(store);
            for (int at = 0; at < 10; at++) {
                System.gc();
            }
            assertNotNull(sent.session().get());
            try (Pending pending = sent.pending()) {
                assertTrue(pending.await(Duration.ofMinutes(1)).orElseThrow().getFirst().isValid());
            }
        }
    }

    @Test
    void aWaitCanBeLongerThanEveryNumberOfMilliseconds(@TempDir Path directory) {
        assertEquals(Long.MAX_VALUE, Weir.millis(ChronoUnit.FOREVER.getDuration()));
        assertEquals(1, Weir.millis(Duration.ofNanos(1)));
        try (Weir store = Weir.open(directory, MEMORY)) {
            store.topic("t").ensure();
            try (Reader reader = store.topic("t").reader(From.start());
                    Page page = reader.next(ChronoUnit.FOREVER.getDuration()).orElseThrow()) {
                assertEquals(1, page.size());
            }
        }
    }

    @Test
    void anIntervalHasADefault(@TempDir Path directory) {
        Weir.open(directory, new OpenOptions().durability(Durability.INTERVAL)).close();
    }

    @Test
    void aQueryThatFollowsHasNoEnd(@TempDir Path directory) {
        try (Weir store = Weir.open(directory, MEMORY)) {
            store.topic("t").ensure();
            TopicsOptions both = new TopicsOptions("t").follow().asOf(1);
            assertEquals(ErrorCode.BAD_OPTION, code(() -> store.query(both, new QueryOptions())));
        }
    }

    @Test
    void aLimitAbove32BitsIsValid() {
        QueryOptions options = new QueryOptions().budgets(new Budgets().sources(Long.MAX_VALUE));
        try (Query query = new Query(options)) {
            assertEquals(0, query.source(new SourceOptions()).number());
        }
    }

    @Test
    void aNegativePositionIsAnErrorWithItsName(@TempDir Path directory) {
        try (Weir store = Weir.open(directory, MEMORY);
                Session session = store.session(bytes("0123456789abcdef"));
                Query query = new Query(new QueryOptions())) {
            Topic topic = store.topic("t");
            topic.ensure();
            Map<String, Executable> calls = Map.of(
                    "after", () -> From.after(-1),
                    "last", () -> From.last(-1),
                    "asOf", () -> store.query(new TopicsOptions("t").asOf(-1), new QueryOptions()),
                    "ordinal", () -> query.source(new SourceOptions().ordinal(-1)),
                    "nonce", () -> session.resume(-1),
                    "offset", () -> topic.at(-1));
            calls.forEach((name, call) -> {
                WeirException failed = assertThrows(WeirException.class, call, name);
                assertEquals("BAD_OPTION: " + name + " is -1; it must not be negative", failed.getMessage());
            });
        }
    }

    @Test
    void aValueIsNotNull() {
        assertThrows(NullPointerException.class, () -> Intention.put(bytes("k"), null));
    }

    @Test
    void anInterruptOfAFetchIsNotLost() {
        Fetch interrupted = needs -> {
            throw new InterruptedException("enough");
        };
        try (Query query = new Query(new QueryOptions().fetch(interrupted))) {
            query.source(new SourceOptions());
            IllegalStateException failed = assertThrows(IllegalStateException.class,
                    () -> query.pages().iterator().hasNext());
            assertTrue(Thread.interrupted());
            assertEquals("enough", failed.getCause().getMessage());
        }
    }

    @Test
    void anInvalidRequestEndsAListenerThatWaits(@TempDir Path directory) throws Exception {
        try (Weir store = Weir.open(directory, MEMORY)) {
            CompletableFuture<Flow.Subscription> subscribed = new CompletableFuture<>();
            CompletableFuture<Throwable> failed = new CompletableFuture<>();
            store.topic("quiet").follow(From.start()).subscribe(new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    subscription.request(1);
                    subscribed.complete(subscription);
                }

                @Override
                public void onNext(Stored record) {}

                @Override
                public void onError(Throwable thrown) {
                    failed.complete(thrown);
                }

                @Override
                public void onComplete() {}
            });
            subscribed.get().request(0);
            assertTrue(failed.get() instanceof IllegalArgumentException);
        }
    }
}
