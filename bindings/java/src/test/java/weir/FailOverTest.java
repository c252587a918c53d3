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

/** A cluster that loses its leader while a session writes and a reader listens. */
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
    void aKilledLeaderLosesAndRepeatsNoWrite(@TempDir Path directory) throws Exception {
        String command = System.getenv("WEIR_CLUSTER");
        assumeTrue(command != null, "WEIR_CLUSTER does not name what starts a cluster");
        Process cluster = new ProcessBuilder(command, "cluster", directory.toString())
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader lines = cluster.inputReader(); Writer orders = cluster.outputWriter()) {
            killLeader(lines, orders);
        } finally {
            cluster.waitFor();
        }
    }

    private static void killLeader(BufferedReader lines, Writer orders) throws Exception {
        try (Weir store = Weir.connect(lines.readLine())) {
            Topic topic = store.topic("orders");
            assertTrue(topic.ensure());
            byte[] client = new byte[16];
            client[0] = 7;
            try (Session session = store.session(client); Reader listener = topic.listener(From.start())) {
                for (int n = 0; n < END; n++) {
                    if (n == KILL) {
                        checkRecords(listener, 0, KILL + 1);
                        orders.write("kill\n");
                        orders.flush();
                    }
                    if (n == DEAD) {
                        assertTrue(lines.readLine().startsWith("killed "));
                    }
                    Intention put = Intention.put(bytes("k"), bytes(Integer.toString(n))).of("orders");
                    session.submit(List.of(put)).getFirst().orThrow();
                }
                checkRecords(listener, KILL + 1, END + 1);
            }
            try (Reader reader = topic.reader(From.start())) {
                checkRecords(reader, 0, END + 1);
                assertTrue(reader.next(Duration.ZERO).isEmpty());
            }
            assertEquals("299", new String(topic.get(bytes("k")).orElseThrow().value(), StandardCharsets.UTF_8));
        }
    }
}
