package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The programs in {@code examples}. */
class ExamplesTest {
    private static final Pattern ID = Pattern.compile("\"(d[0-9]{6})\"");

    private static List<String> ids(String text) {
        return ID.matcher(text).results().map(found -> found.group(1)).toList();
    }

    /** The output of an example. */
    private static String run(String name, String argument) throws Exception {
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        Path example = Path.of(System.getProperty("weir.root"), "bindings", "java", "examples", name);
        Process process = new ProcessBuilder(java.toString(), "--enable-native-access=ALL-UNNAMED",
                "-Dweir.library=" + System.getProperty("weir.library"),
                "-cp", System.getProperty("java.class.path"), example.toString(), argument)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor());
        return printed;
    }

    @Test
    void aJobThatFailsIsDeliveredAgainAndThenADeadLetter(@TempDir Path directory) throws Exception {
        List<String> lines = run("WorkQueue.java", directory.toString()).lines().toList();
        assertEquals(4, lines.stream().filter(line -> line.endsWith(", delivery 1: done")).count());
        assertTrue(lines.containsAll(List.of("job 3, delivery 1: failed", "job 3, delivery 2: failed")));
        assertEquals(8, lines.size());
        assertTrue(lines.get(6).contains("\"reason\":\"cannot do this job\""), lines.get(6));
        assertEquals("dead letter: job 3", lines.get(7));
    }

    /** With the server of the lab. */
    @ParameterizedTest
    @ValueSource(ints = {-1, 1})
    void documentsOfADatabaseAreInOrder(int split) throws Exception {
        String program = System.getenv("WEIR_COSMOS_MOCK");
        assumeTrue(program != null, "WEIR_COSMOS_MOCK does not name the server of lab/peers/cosmos-mock");
        Process server = new ProcessBuilder(program, "-partitions", "3", "-documents", "300",
                "-split", Integer.toString(split), "-split-after", "2").start();
        try (BufferedReader output = server.inputReader()) {
            String url = output.readLine();
            assertEquals(ordered(url), ids(run("Foreign.java", url)));
        } finally {
            server.destroy();
            server.waitFor();
        }
    }

    private static List<String> ordered(String url) throws Exception {
        try (InputStream answer = URI.create(url + "/ordered").toURL().openStream()) {
            return ids(new String(answer.readAllBytes(), StandardCharsets.UTF_8));
        }
    }
}
