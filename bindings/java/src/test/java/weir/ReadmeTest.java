package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The fragments of programs that the README prints. {@code cargo xtask bindings} runs its first, whole program. */
class ReadmeTest {
    private static final Path ROOT = Path.of(System.getProperty("weir.root"));
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

    private final List<String> written = new ArrayList<>();

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** The lines of this file between the marks of a fragment, without their common indentation. */
    private static String fragment(String source, String name) {
        int begin = source.indexOf('\n', source.indexOf("// [" + name + "]\n")) + 1;
        int end = source.lastIndexOf('\n', source.indexOf("// [end]\n", begin));
        return source.substring(begin, end).stripIndent() + "\n";
    }

    @Test
    void theReadmePrintsTheFragmentsOfThisTest() throws IOException {
        Path java = ROOT.resolve("bindings/java");
        String source = Files.readString(java.resolve("src/test/java/weir/ReadmeTest.java"));
        String page = Files.readString(java.resolve("README.md"));
        List<String> blocks = BLOCK.matcher(page).results().map(found -> found.group(1)).toList();
        List<String> fragments =
                Stream.of("query", "programs", "deadlines").map(name -> fragment(source, name)).toList();
        assertEquals(fragments, blocks.subList(1, blocks.size()));
    }

    private void fetch(List<Need> needs) {
        for (Need need : needs) {
            boolean first = need.continuation() == null;
            String page = first
                    ? "{\"Documents\":[{\"updated\":9},{\"updated\":7}]}"
                    : "{\"Documents\":[{\"updated\":3}]}";
            need.source().enqueue(bytes(page), first ? bytes("second") : null);
        }
    }

    private void write(MemorySegment document) {
        written.add(new String(document.toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8));
    }

    @Test
    void aQueryReadsThePagesOfItsSource() {
        // [query]
        try (Query query = new Query(new QueryOptions().order("$.updated desc").fetch(this::fetch))) {
            query.source(new SourceOptions().name("p1").shape("member:$.Documents").sorted());
            try (Stream<Item> items = query.items()) {
                items.forEach(item -> write(item.segment())); // the document as it was sent
            }
        }
        // [end]
        assertEquals(List.of("{\"updated\":9}", "{\"updated\":7}", "{\"updated\":3}"), written);
    }

    @Test
    void aProgramRejectsAValue(@TempDir Path directory) throws Exception {
        Path module = ROOT.resolve("programs/prebuilt/json-shape.wasm");
        byte[] key = bytes("ann");
        byte[] value = bytes("{\"name\":7}");
        StoreServer.withLocalStore(directory, store -> {
            // [programs]
            byte[] shape = Files.readAllBytes(module); // programs/prebuilt/json-shape.wasm
            Topic people = store.topic("people");
            people.create(new TopicOptions().fuel(10_000_000), shape, "string $.name".getBytes()).orThrow();
            Verdict verdict = people.put(key, value); // INVALID with REJECTED if the program rejects the value
            people.replace(shape, "string 1..80 $.name".getBytes()).orThrow();
            // [end]
            assertEquals(ErrorCode.REJECTED, verdict.reason());
        });
    }

    @Test
    void aHandleHasADeadline(@TempDir Path directory) throws Exception {
        byte[] key = bytes("4711");
        StoreServer.withLocalStore(directory, store -> {
            store.topic("orders").ensure();
            // [deadlines]
            try (Weir quick = store.within(Duration.ofMillis(200))) {
                Optional<Stored> order = quick.topic("orders").get(key);
            }
            // [end]
        });
    }
}
