package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The transcripts that every language runs: commands above a rule, the expected output below it. */
class TranscriptTest {
    /** Runs the commands of a transcript. */
    interface Runner extends AutoCloseable {
        /** Runs a command and returns its output. */
        String run(String line) throws Exception;

        @Override
        void close();
    }

    @TestFactory
    Stream<DynamicTest> query() throws IOException {
        return replay("query", "", QueryRunner::new);
    }

    @TestFactory
    Stream<DynamicTest> api() throws IOException {
        return replay("api", "", () -> new ApiRunner(false));
    }

    @TestFactory
    Stream<DynamicTest> served() throws IOException {
        return replay("api", ", served", () -> new ApiRunner(true));
    }

    private static Stream<DynamicTest> replay(String set, String suffix, Supplier<Runner> newRunner)
            throws IOException {
        Path folder = Path.of(System.getProperty("weir.root"), "vectors", set);
        List<Path> paths;
        try (Stream<Path> found = Files.list(folder)) {
            paths = found.filter(path -> path.toString().endsWith(".txt"))
                    .filter(path -> suffix.isEmpty() || !path.getFileName().toString().startsWith("directory-"))
                    .sorted()
                    .toList();
        }
        assertTrue(!paths.isEmpty(), "there are no transcripts of " + set);
        int[] count = {0, 0};
        return paths.stream().map(path -> DynamicTest.dynamicTest(path.getFileName() + suffix, () -> {
            try (Runner runner = newRunner.get()) {
                count[1] += runBlocks(Files.readString(path), runner);
            }
            if (++count[0] == paths.size()) {
                System.out.printf("transcripts of %s%s: %d, steps: %d%n", set, suffix, count[0], count[1]);
            }
        }));
    }

    /** Runs the blocks of a transcript and returns the number of commands. */
    private static int runBlocks(String text, Runner runner) throws Exception {
        int steps = 0;
        List<String> wrong = new ArrayList<>();
        for (String block : text.stripTrailing().split("\n\n", -1)) {
            String[] parts = ("\n" + block + "\n").split("\n----\n", 2);
            StringBuilder printed = new StringBuilder();
            for (String line : parts[0].split("\n", -1)) {
                if (!line.isBlank() && !line.startsWith("#")) {
                    steps++;
                    printed.append(runner.run(line));
                }
            }
            String want = parts.length == 2 ? parts[1] : "";
            if (!want.contentEquals(printed)) {
                wrong.add(block + "\n==== prints\n" + printed);
            }
        }
        assertEquals("", String.join("\n\n", wrong));
        assertTrue(steps > 0);
        return steps;
    }
}
