package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A cluster that loses its leader, and then its majority, while a session writes. */
class FailOverTest {
    private static final int KILL = 100;
    private static final int DEAD = 200;
    private static final int END = 300;

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Reads the records after an offset up to another one, and checks that each arrives once and in order. */
    private static void checkRecords(Reader reader, long last, long to) {
        while (last < to) {
            try (Page page = reader.next(Duration.ofMinutes(1)).orElseThrow()) {
                for (TopicRecord record : page.records()) {
                    last++;
                    assertEquals(last, record.offset());
                    Stored copy = record.copy();
                    String value = new String(copy.value(), StandardCharsets.UTF_8);
                    assertEquals(last > 1 ? Long.toString(last - 2) : "", value);
                }
            }
        }
        assertEquals(to, last);
    }

    @Test
    void aKilledLeaderLosesNoWriteAndAWriteIsReceivedBeforeItIsCommitted(@TempDir Path directory) throws Exception {
        String command = System.getenv("WEIR_CLUSTER");
        assumeTrue(command != null, "WEIR_CLUSTER does not name what starts a cluster");
        Process cluster = new ProcessBuilder(command, "cluster", directory.toString())
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader lines = cluster.inputReader(); Writer requests = cluster.outputWriter()) {
            run(lines, requests);
        } finally {
            cluster.waitFor();
        }
    }

    private static void run(BufferedReader lines, Writer requests) throws Exception {
        try (Weir store = Weir.connect(lines.readLine(), new ConnectOptions().received())) {
            Topic topic = store.topic("orders");
            assertTrue(topic.ensure());
            byte[] client = new byte[16];
            client[0] = 7;
            try (Session session = store.session(client); Reader listener = topic.listener(From.start())) {
                for (int n = 0; n < END; n++) {
                    if (n == KILL) {
                        checkRecords(listener, 0, KILL + 1);
                        requests.write("kill\n");
                        requests.flush();
                    }
                    if (n == DEAD) {
                        assertTrue(lines.readLine().startsWith("killed "));
                    }
                    Intention put = Intention.put(bytes("k"), bytes(Integer.toString(n))).of("orders");
                    session.submit(List.of(put)).getFirst().orThrow();
                }
                checkRecords(listener, KILL + 1, END + 1);
                checkReceived(store, session, lines, requests);
            }
            try (Reader reader = topic.reader(From.start())) {
                checkRecords(reader, 0, END + 2);
                assertTrue(reader.next(Duration.ZERO).isEmpty());
            }
            assertEquals("300", new String(topic.get(bytes("k")).orElseThrow().value(), StandardCharsets.UTF_8));
        }
    }

    /** Checks the value of the key, which it reads with a consistency. */
    private static void checkValue(Weir store, Consistency consistency, String expected) {
        try (Weir reads = store.withConsistency(consistency)) {
            byte[] value = reads.topic("orders").get(bytes("k")).orElseThrow().value();
            assertEquals(expected, new String(value, StandardCharsets.UTF_8));
        }
    }

    /** Sends a write that no majority can commit, until the stopped nodes continue. */
    private static void checkReceived(Weir store, Session session, BufferedReader lines, Writer requests)
            throws Exception {
        checkValue(store, Consistency.LINEAR, "299");
        // The connection moves to the leader, which stays reachable.
        checkValue(store, Consistency.LEADER, "299");
        requests.write("stop\n");
        requests.flush();
        assertEquals("stopped", lines.readLine());
        checkValue(store, Consistency.LOCAL, "299");
        Intention put = Intention.put(bytes("k"), bytes(Integer.toString(END))).of("orders");
        try (Pending pending = session.send(List.of(put))) {
            assertTrue(pending.awaitReceived(Duration.ofMinutes(1)));
            assertTrue(pending.await(Duration.ZERO).isEmpty());
            requests.write("continue\n");
            requests.flush();
            assertEquals("continued", lines.readLine());
            pending.await(Duration.ofMinutes(1)).orElseThrow().getFirst().orThrow();
        }
    }
}
