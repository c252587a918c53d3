package weir;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Topics whose intentions a program validates. */
class ProgramTest {
    private static final byte[] NUMBER = bytes("integer 0..9 $.n");
    private static final byte[] TEXT = bytes("string $.t");

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] program(String name) throws IOException {
        return Files.readAllBytes(Path.of(System.getProperty("weir.root"), "programs/prebuilt", name + ".wasm"));
    }

    private static byte[] digest(byte[] program) throws NoSuchAlgorithmException {
        return MessageDigest.getInstance("SHA-256").digest(program);
    }

    private static void checkVerdicts(Weir store) throws Exception {
        byte[] shape = program("json-shape");
        Topic topic = store.topic("shaped");
        assertTrue(topic.create(new TopicOptions().fuel(10_000_000), shape, NUMBER).isValid());
        Verdict accepted = topic.put(bytes("a"), bytes("{\"n\":3}"));
        assertTrue(accepted.isValid() && accepted.fuel() > 0, accepted.toString());
        Verdict wrong = topic.put(bytes("a"), bytes("{\"n\":10}"));
        assertEquals(ErrorCode.REJECTED, wrong.reason());
        assertEquals(Verdict.Kind.REJECTED, wrong.detail().kind());
        assertEquals("out of range: rule 1", wrong.detail().text());
        assertTrue(topic.replace(shape, TEXT).isValid());
        assertEquals(ErrorCode.REJECTED, topic.put(bytes("a"), bytes("{\"n\":3}")).reason());
        assertTrue(topic.put(bytes("b"), bytes("{\"t\":\"x\"}")).isValid());
        // Replacing a program fails if another client has already replaced it.
        byte[] other = program("vanilla");
        List<Verdict> verdicts = topic.batch(List.of(
                Intention.replace(other, new byte[0]).replacing(digest(other)),
                Intention.replace(other, new byte[0]).replacing(digest(shape)),
                Intention.put(bytes("c"), bytes("not JSON"))));
        assertEquals(List.of(false, true, true), verdicts.stream().map(Verdict::isValid).toList());
        try (Stream<TopicRecord> records = topic.records(From.start())) {
            assertEquals(
                    List.of("CREATE", "PUT", "REPLACE", "PUT", "REPLACE", "PUT"),
                    records.map(record -> record.kind().name()).toList());
        }
    }

    @Test
    void programsDecideWritesInADirectory(@TempDir Path directory) throws Exception {
        StoreServer.withLocalStore(directory, ProgramTest::checkVerdicts);
    }

    @Test
    void programsDecideWritesAtAServer(@TempDir Path directory) throws Exception {
        StoreServer.withRemoteStore(directory, ProgramTest::checkVerdicts);
    }

    @Test
    void anInvalidModuleIsRejectedWithAMessage(@TempDir Path directory) throws Exception {
        StoreServer.withLocalStore(directory, store -> {
            Verdict verdict = store.topic("t").create(new TopicOptions(), bytes("no module"), new byte[0]);
            assertTrue(!verdict.isValid() && !verdict.detail().text().isEmpty(), verdict.toString());
            assertTrue(store.topics().isEmpty());
        });
    }

    @Test
    void theOptionsOfATopicSetTheStateOfItsProgram(@TempDir Path directory) throws Exception {
        byte[] memory = program("vanilla-memory");
        StoreServer.withLocalStore(directory, store -> {
            TopicOptions options = new TopicOptions().programState(ProgramState.MEMORY);
            assertTrue(store.topic("t").create(options, memory, new byte[0]).isValid());
            assertTrue(store.topic("t").put(bytes("k"), bytes("v")).isValid());
            assertEquals("v", store.topic("t").get(bytes("k")).orElseThrow().text());
        });
    }
}
