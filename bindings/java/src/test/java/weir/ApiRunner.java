package weir;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Stream;

/** Runs the commands of {@code vectors/api}, in a directory or at a server. */
final class ApiRunner implements TranscriptTest.Runner {
    private final Path directory;
    private final Map<String, Session> sessions = new HashMap<>();
    private final Map<String, Reader> readers = new HashMap<>();
    private final Map<String, Deque<Stored>> unused = new HashMap<>();
    private final Map<String, Group> groups = new HashMap<>();
    private final Map<String, Map<Long, Claimed>> claims = new HashMap<>();
    private final StringBuilder out = new StringBuilder();
    private List<Intention> batch = new ArrayList<>();
    private List<Change> steps = new ArrayList<>();
    private final StoreServer server;
    private Pending pending;
    private Weir store;

    ApiRunner(boolean served) {
        try {
            directory = Files.createTempDirectory("weir");
            server = served ? new StoreServer(directory) : null;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public void close() {
        sessions.values().forEach(Session::close);
        readers.values().forEach(Reader::close);
        groups.values().forEach(Group::close);
        if (store != null) {
            store.close();
        }
        if (server != null) {
            server.close();
        }
        try (Stream<Path> files = Files.walk(directory)) {
            for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    @Override
    public String run(String line) {
        out.setLength(0);
        try {
            command(line);
        } catch (WeirException failed) {
            printLine("! " + failed.code());
        }
        return out.toString();
    }

    private void printLine(String line) {
        out.append(line).append('\n');
    }

    private Weir store() {
        if (store == null) {
            throw new WeirException(ErrorCode.CLOSED, "it was never opened");
        }
        return store;
    }

    private void command(String line) {
        String[] words = line.split(" ", -1);
        switch (words[0]) {
            case "open" -> store = server != null ? server.connect()
                    : Weir.open(directory, new OpenOptions().durability(Durability.MEMORY));
            case "close" -> store().close();
            case "ensure" -> printLine(store().topic(words[1]).ensure() ? "created" : "there");
            case "add" -> batch.add(intention(after(line, 1)));
            case "step" -> steps.add(step(line, words));
            case "send" -> pending = store().send(takeBatch());
            case "wait" -> {
                try (Pending waiting = pending) {
                    verdicts(waiting.await(Duration.ofMinutes(1)).orElseThrow());
                }
            }
            case "session" -> sessions.put(words[1], store().session(HexFormat.of().parseHex(words[2])));
            case "as" -> write(after(line, 2), sessions.get(words[1])::submit);
            case "nonce" -> printLine(Long.toString(sessions.get(words[1]).nextNonce()));
            case "resume" -> sessions.get(words[1]).resume(Long.parseLong(words[2]));
            case "get" -> one(store().topic(words[1]).get(bytes(words[2])));
            case "at" -> one(store().topic(words[1]).at(Long.parseLong(words[2])));
            case "scan", "scan-values" -> scan(words);
            case "log" -> {
                try (Stream<TopicRecord> records = store().topic(words[1]).records(position(words[2]))) {
                    records.forEach(record -> printLine(recordText(record.copy())));
                }
            }
            case "info" -> info(words[1]);
            case "topics" -> (words.length > 1 ? store().allTopics() : store().topics()).forEach(this::printLine);
            case "listen" -> {
                readers.put(words[1], store().topic(words[2]).listener(position(words[3])));
                unused.put(words[1], new ArrayDeque<>());
            }
            case "next" -> next(words[1], Integer.parseInt(words[2]), millis(words[3]));
            case "group" -> join(words);
            case "create", "alter", "destroy", "put", "put-meta", "put-if", "delete", "delete-if",
                    "transaction", "submit" -> write(line, store()::submit);
            default -> ofGroup(words);
        }
    }

    /** The rest of a line after the given number of words. */
    private static String after(String line, int words) {
        String rest = line;
        for (int at = 0; at < words; at++) {
            int space = rest.indexOf(' ');
            rest = space < 0 ? "" : rest.substring(space + 1);
        }
        return rest;
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? new byte[0] : text.replace("\\n", "\n").getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8).replace("\n", "\\n");
    }

    private static Duration millis(String text) {
        return Duration.ofMillis(Long.parseLong(text));
    }

    private static From position(String text) {
        String[] pair = text.split(":", 2);
        return switch (pair[0]) {
            case "start" -> From.start();
            case "end" -> From.end();
            case "text" -> From.parse(pair[1]);
            case "after" -> From.after(Long.parseLong(pair[1]));
            default -> From.last(Long.parseLong(pair[1]));
        };
    }

    private List<Intention> takeBatch() {
        List<Intention> all = batch;
        batch = new ArrayList<>();
        return all;
    }

    private void write(String line, Function<List<Intention>, List<Verdict>> send) {
        verdicts(send.apply(line.equals("submit") ? takeBatch() : List.of(intention(line))));
    }

    private static Change step(String line, String[] words) {
        byte[] value = words[1].equals("put") ? bytes(after(line, 3)) : null;
        return new Change(bytes(words[2]), value);
    }

    private Intention intention(String line) {
        String[] words = line.split(" ", -1);
        Intention intention = switch (words[0]) {
            case "create" -> Intention.create(options(words));
            case "alter" -> Intention.alter(options(words));
            case "destroy" -> Intention.destroy();
            case "put" -> Intention.put(bytes(words[2]), bytes(after(line, 3)));
            case "put-meta" -> Intention.put(bytes(words[2]), bytes(after(line, 4))).meta(bytes(words[3]));
            case "put-if" -> Intention.put(bytes(words[2]), bytes(after(line, 4))).expecting(expects(words[3]));
            case "delete" -> Intention.delete(bytes(words[2]));
            case "delete-if" -> Intention.delete(bytes(words[2])).expecting(expects(words[3]));
            case "transaction" -> {
                List<Change> all = steps;
                steps = new ArrayList<>();
                yield Intention.transaction(all).expecting(expects(words.length > 2 ? words[2] : ""));
            }
            default -> throw new AssertionError("no command " + line);
        };
        return intention.of(words[1]);
    }

    private static TopicOptions options(String[] words) {
        TopicOptions options = new TopicOptions();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            String[] pair = word.split("=");
            switch (pair[0]) {
                case "compaction" -> options.latest();
                case "key_bytes_max" -> options.keyBytes(Long.parseLong(pair[1]));
                case "value_bytes_max" -> options.valueBytes(Long.parseLong(pair[1]));
                case "keys_max" -> options.keys(Long.parseLong(pair[1]));
                default -> throw new AssertionError("no option " + word);
            }
        }
        return options;
    }

    private static Expect[] expects(String text) {
        if (text.isEmpty()) {
            return new Expect[0];
        }
        return Stream.of(text.split(",")).map(ApiRunner::expect).toArray(Expect[]::new);
    }

    private static Expect expect(String text) {
        String[] pair = text.split("@", 2);
        String[] parts = pair[0].split(":");
        long number = parts.length == 2 ? Long.parseLong(parts[1]) : 0;
        Expect expect = switch (parts[0]) {
            case "offset" -> Expect.keyAt(number);
            case "absent" -> Expect.keyAbsent();
            case "present" -> Expect.keyPresent();
            case "topic" -> Expect.topicAt(number);
            case "topic-absent-or" -> Expect.topicAbsentOrAt(number);
            case "topic-empty" -> Expect.topicEmpty();
            case "incarnation" -> Expect.incarnation(number);
            default -> throw new AssertionError("no condition " + text);
        };
        return pair.length == 2 ? expect.of(bytes(pair[1])) : expect;
    }

    private void verdicts(List<Verdict> verdicts) {
        for (Verdict verdict : verdicts) {
            String line = verdict.replayed() ? "again " : "";
            line += switch (verdict.effect()) {
                case VALID -> "valid " + verdict.intention()
                        + (verdict.records() > 0 ? " at " + verdict.offset() : "")
                        + (verdict.records() > 1 ? " +" + (verdict.records() - 1) : "");
                case REFUSED -> "refused " + verdict.reason() + " next " + verdict.detail().number();
                case INVALID -> "invalid " + verdict.intention() + " " + verdict.reason() + detail(verdict.detail());
                case ERROR -> "error " + verdict.intention() + " " + verdict.reason() + detail(verdict.detail());
            };
            printLine(line);
        }
    }

    private static String detail(Verdict.Detail detail) {
        return switch (detail.kind()) {
            case ACTUAL -> " actual " + detail.number();
            case LIMIT -> " limit " + detail.number();
            case STEP -> " step " + detail.number() + " " + detail.reason();
            case REJECTED -> " rejected " + detail.number() + " " + detail.text();
            case TRAP -> " trap " + detail.text();
            case TEXT -> " text " + detail.text();
            default -> "";
        };
    }

    private static String recordText(Stored record) {
        String line = record.offset() + " " + record.kind();
        if (record.kind() == TopicRecord.Kind.PUT) {
            line += " " + text(record.key()) + "=" + text(record.value());
        } else if (record.kind() == TopicRecord.Kind.DELETE) {
            line += " " + text(record.key());
        }
        return record.meta().length == 0 ? line : line + " meta " + text(record.meta());
    }

    private void one(Optional<Stored> record) {
        printLine(record.map(ApiRunner::recordText).orElse("absent"));
    }

    private void scan(String[] words) {
        boolean values = words[0].equals("scan-values");
        byte[] after = words[3].equals("-") ? null : bytes(words[3]);
        Optional<Page> found = store().topic(words[1]).scan(bytes(words[2]), after, Long.parseLong(words[4]), values);
        if (found.isEmpty()) {
            printLine("done");
            return;
        }
        try (Page page = found.get()) {
            for (TopicRecord record : page.records()) {
                String line = text(record.key()) + " " + record.offset();
                printLine(values ? line + " " + text(record.value()) : line);
            }
        }
    }

    private void info(String topic) {
        printLine(store().topic(topic).info()
                .map(info -> (info.live() ? "live" : "dead") + " first " + info.first() + " last "
                        + info.last() + " keys " + info.keys())
                .orElse("absent"));
    }

    private void next(String name, int wanted, Duration wait) {
        Deque<Stored> ready = unused.get(name);
        for (int at = 0; at < wanted; at++) {
            if (ready.isEmpty()) {
                Optional<Page> found = readers.get(name).next(wait);
                if (found.isEmpty()) {
                    printLine("timeout");
                    return;
                }
                try (Page page = found.get()) {
                    page.records().forEach(record -> ready.add(record.copy()));
                }
            }
            printLine(recordText(ready.remove()));
        }
    }

    private void join(String[] words) {
        GroupOptions options = new GroupOptions().member(words[5]);
        for (String word : Arrays.asList(words).subList(6, words.length)) {
            String[] pair = word.split("=");
            switch (pair[0]) {
                case "existing" -> options.existing();
                case "lease" -> options.lease(millis(pair[1]));
                case "attempts" -> options.attempts(Integer.parseInt(pair[1]));
                case "dead" -> options.deadLetters(pair[1]);
                case "start" -> options.start(position(pair[1]));
                default -> throw new AssertionError("no option " + word);
            }
        }
        GroupMode mode = GroupMode.valueOf(words[4].toUpperCase());
        groups.put(words[1], store().topic(words[2]).group(words[3], mode, options));
        claims.put(words[1], new HashMap<>());
    }

    private void ofGroup(String[] words) {
        Group group = groups.get(words[1]);
        if (group == null) {
            throw new AssertionError("no command or member: " + String.join(" ", words));
        }
        List<Long> lost = List.of();
        switch (words[0]) {
            case "claim" -> claim(words, group);
            case "done" -> lost = group.done(claimed(words, 2));
            case "done-soon" -> group.doneSoon(claimed(words, 2));
            case "fail" -> lost = group.fail(claimed(words, 3), millis(words[2]), "a reason");
            case "extend" -> lost = group.extend(claimed(words, 3), millis(words[2]));
            case "take-over" -> group.takeOver();
            case "leave" -> group.leave();
            case "reset" -> group.reset(position(words[2]));
            case "end" -> group.delete();
            case "group-info" -> {
                Group.Info info = group.info();
                printLine("cursor " + info.cursor() + " lag " + info.lag() + " leased " + info.leased()
                        + " waiting " + info.waiting());
            }
            default -> throw new AssertionError("no command " + words[0]);
        }
        lost.forEach(offset -> printLine("lost " + offset));
    }

    private void claim(String[] words, Group group) {
        Optional<Page> found = group.claim(Long.parseLong(words[2]), millis(words[3]));
        if (found.isEmpty()) {
            printLine("timeout");
            return;
        }
        try (Page page = found.get()) {
            for (TopicRecord record : page.records()) {
                claims.get(words[1]).put(record.offset(), record.claimed());
                printLine(recordText(record.copy()) + " attempt " + record.attempts());
            }
        }
    }

    private List<Claimed> claimed(String[] words, int from) {
        Map<Long, Claimed> ofMember = claims.get(words[1]);
        return Arrays.stream(words, from, words.length)
                .map(Long::valueOf)
                .map(offset -> ofMember.getOrDefault(offset, new Claimed(offset, 0)))
                .toList();
    }
}
