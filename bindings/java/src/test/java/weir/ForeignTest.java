package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The example {@code Foreign}, with the server of the lab. */
class ForeignTest {
    private static final Pattern ID = Pattern.compile("\"(d[0-9]{6})\"");

    private static List<String> ids(String text) {
        return ID.matcher(text).results().map(found -> found.group(1)).toList();
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, 1})
    void documentsAreInOrder(int split) throws Exception {
        String program = System.getenv("WEIR_COSMOS_MOCK");
        assumeTrue(program != null, "WEIR_COSMOS_MOCK does not name the server of lab/peers/cosmos-mock");
        Process server = new ProcessBuilder(program, "-partitions", "3", "-documents", "300",
                "-split", Integer.toString(split), "-split-after", "2").start();
        try (BufferedReader output = server.inputReader()) {
            String url = output.readLine();
            assertEquals(ordered(url), ids(example(url)));
        } finally {
            server.destroy();
            server.waitFor();
        }
    }

    private static String example(String url) throws Exception {
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        Path example = Path.of(System.getProperty("weir.root"), "bindings", "java", "examples", "Foreign.java");
        Process process = new ProcessBuilder(java.toString(), "--enable-native-access=ALL-UNNAMED",
                "-Dweir.library=" + System.getProperty("weir.library"),
                "-cp", System.getProperty("java.class.path"), example.toString(), url)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor());
        return printed;
    }

    private static List<String> ordered(String url) throws Exception {
        try (InputStream answer = URI.create(url + "/ordered").toURL().openStream()) {
            return ids(new String(answer.readAllBytes(), StandardCharsets.UTF_8));
        }
    }
}
