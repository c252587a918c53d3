package weir;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Runs the commands of {@code vectors/query}. */
final class QueryRunner implements TranscriptTest.Runner {
    private final Map<String, Source> sources = new HashMap<>();
    private final Map<String, List<String>> options = new HashMap<>();
    private final List<String> settings = new ArrayList<>();
    private final List<String> budgets = new ArrayList<>();
    private final StringBuilder out = new StringBuilder();
    private Query query;
    private byte[] token;

    @Override
    public void close() {
        if (query != null) {
            query.close();
        }
    }

    @Override
    public String run(String line) {
        out.setLength(0);
        try {
            String[] parts = cut(line);
            command(parts[0], parts[1]);
        } catch (WeirException failed) {
            out.append(failed.getMessage()).append('\n');
        }
        return out.toString();
    }

    private static String[] cut(String text) {
        int space = text.indexOf(' ');
        return space < 0
                ? new String[] {text, ""}
                : new String[] {text.substring(0, space), text.substring(space + 1)};
    }

    private void command(String word, String rest) {
        String[] parts = cut(rest);
        switch (word) {
            case "set" -> set(parts[0], rest);
            case "budget" -> budgets.add(rest);
            case "open" -> open(null);
            case "resume" -> open(token);
            case "stop" -> {
                token = query.token();
                query.close();
            }
            case "next" -> next(rest);
            case "values" -> values(rest.split(" "));
            case "needs" -> needs();
            case "abandon" -> query.abandon(rest);
            case "explain" -> out.append(query.explain());
            case "source" -> {
                Source source = query.source(source(parts[0], parts[1]));
                sources.put(parts[0], source);
                options.put(parts[0], List.of(parts[1].split(" ")));
            }
            default -> ofSource(word, parts[0], parts[1]);
        }
    }

    private void ofSource(String word, String name, String rest) {
        Source source = sources.getOrDefault(name, query.source(99));
        switch (word) {
            case "page" -> {
                String[] parts = cut(rest);
                source.enqueue(bytes(parts[1]), parts[0].getBytes(StandardCharsets.UTF_8));
            }
            case "frames" -> {
                String[] parts = cut(rest);
                source.enqueue(bytes(parts[1]), frames(parts[0]), null);
            }
            case "last" -> source.enqueue(bytes(rest), null);
            case "finish" -> source.finish();
            case "watermark" -> source.watermark(Arrays.asList(rest.split(" ")));
            case "split" -> split(name, source, rest);
            default -> throw new AssertionError("no command " + word);
        }
    }

    private static Frames frames(String text) {
        Frames frames = new Frames();
        for (String item : text.split(",")) {
            String[] words = item.split("/");
            String[] place = words[0].split("\\+");
            frames.item(Integer.parseInt(place[0]), Integer.parseInt(place[1]));
            for (String word : Arrays.asList(words).subList(1, words.length)) {
                String[] pair = word.split("=");
                String[] value = pair[1].split("\\+");
                if (value.length == 1) {
                    frames.meta(pair[0], Long.parseLong(value[0]));
                } else {
                    frames.meta(pair[0], Integer.parseInt(value[0]), Integer.parseInt(value[1]));
                }
            }
        }
        return frames;
    }

    private static byte[] bytes(String text) {
        return text.replace("\\n", "\n").getBytes(StandardCharsets.UTF_8);
    }

    private void set(String field, String rest) {
        if (field.equals("none")) {
            settings.clear();
        } else {
            settings.add(rest);
        }
    }

    private void open(byte[] from) {
        close();
        sources.clear();
        query = new Query(text().token(from));
    }

    private void next(String rest) {
        int items = rest.isEmpty() ? 0 : Integer.parseInt(rest);
        switch (query.next(items, 0)) {
            case Step.Done() -> out.append("done\n");
            case Step.Needing() -> needs();
            case Step.Ready(Page page) -> {
                try (page) {
                    for (Item item : page) {
                        String name = item.isConstructed() ? "constructed" : name(item.source());
                        out.append(name).append(' ').append(item.text().replace("\n", "\\n")).append('\n');
                    }
                    if (page.skipped() > 0) {
                        out.append("skipped ").append(page.skipped()).append('\n');
                    }
                }
            }
        }
    }

    private void values(String... paths) {
        if (!(query.next(0, 0) instanceof Step.Ready(Page page))) {
            throw new AssertionError("no page");
        }
        try (page) {
            for (ByteBuffer[] row : page.values(paths)) {
                out.append(Arrays.stream(row)
                        .map(value -> value == null ? "-" : StandardCharsets.UTF_8.decode(value).toString())
                        .collect(Collectors.joining(" | ", "", "\n")));
            }
        }
    }

    private void needs() {
        for (Need need : query.needs()) {
            out.append(need.required() ? "need " : "ahead ").append(name(need.source().number()));
            if (need.continuation() != null) {
                out.append(' ').append(new String(need.continuation(), StandardCharsets.UTF_8));
            }
            out.append('\n');
        }
    }

    private String name(int number) {
        return sources.entrySet().stream()
                .filter(entry -> entry.getValue().number() == number)
                .map(Map.Entry::getKey)
                .findFirst()
                .orElse("?");
    }

    private void split(String name, Source source, String rest) {
        List<String> whole = options.get(name).stream()
                .filter(word -> !word.startsWith("ordinal=") && !word.startsWith("first="))
                .toList();
        List<String> names = new ArrayList<>();
        List<List<String>> words = new ArrayList<>();
        for (String part : rest.isEmpty() ? new String[0] : rest.split(" ")) {
            String[] pair = part.split("=", 2);
            List<String> of = new ArrayList<>(whole);
            if (pair.length == 2) {
                of.add("first=" + pair[1]);
            }
            names.add(pair[0]);
            words.add(of);
        }
        List<SourceOptions> parts = new ArrayList<>();
        for (int at = 0; at < names.size(); at++) {
            parts.add(source(names.get(at), String.join(" ", words.get(at))));
        }
        List<Source> added = source.replace(parts);
        for (int at = 0; at < names.size(); at++) {
            sources.put(names.get(at), added.get(at));
            options.put(names.get(at), words.get(at));
        }
    }

    private QueryOptions text() {
        QueryOptions text = new QueryOptions();
        for (String setting : settings) {
            String[] parts = cut(setting);
            String value = parts[1];
            switch (parts[0]) {
                case "where" -> text.where(value);
                case "order" -> text.order(value);
                case "select" -> text.select(value);
                case "group" -> text.group(value);
                case "distinct" -> text.distinct();
                case "offset" -> text.offset(Long.parseLong(value));
                case "limit" -> text.limit(Long.parseLong(value));
                case "top" -> text.top(Long.parseLong(value));
                case "param" -> text.param(cut(value)[0], cut(value)[1]);
                case "strings" -> text.strings(StringOrder.UTF16);
                case "complex" -> text.complex(ComplexKeys.RANK);
                case "missing" -> text.missing(MissingKeys.DROP);
                case "strict" -> text.level(Level.STRICT);
                case "bad" -> text.badItems(value.equals("skip") ? BadItems.SKIP : BadItems.UNDEFINED);
                case "mode" -> text.mode(Mode.valueOf(value.toUpperCase()));
                default -> throw new AssertionError("no field " + setting);
            }
        }
        return text.budgets(limits());
    }

    private Budgets limits() {
        Budgets limits = new Budgets();
        for (String budget : budgets) {
            long value = Long.parseLong(cut(budget)[1]);
            switch (cut(budget)[0]) {
                case "buffer" -> limits.bufferBytes(value);
                case "ahead" -> limits.pagesAhead(value == 0 ? -1 : (int) value);
                case "sort" -> limits.sortBytes(value);
                case "groups" -> limits.groups(value);
                case "distinct" -> limits.distinctValues(value);
                case "sources" -> limits.sources(value);
                case "item" -> limits.itemBytes(value);
                case "depth" -> limits.depth((int) value);
                default -> throw new AssertionError("no budget " + budget);
            }
        }
        return limits;
    }

    private static SourceOptions source(String name, String rest) {
        SourceOptions options = new SourceOptions().name(name);
        for (String word : rest.split(" ")) {
            String[] pair = word.split("=", 2);
            String value = pair.length == 2 ? pair[1] : "";
            switch (pair[0]) {
                case "" -> { }
                case "sorted" -> options.sorted();
                case "trusted" -> options.trustOrder();
                case "unstable" -> options.unstable();
                case "partial" -> options.partial();
                case "ordinal" -> options.ordinal(Long.parseLong(value));
                case "tie" -> options.tie(value);
                case "first" -> options.first(value.getBytes(StandardCharsets.UTF_8));
                case "bound" -> options.bound(List.of(value.split(",")));
                case "strict" -> options.level(Level.STRICT);
                case "none" -> options.level(Level.NONE);
                case "shape" -> options.shape(value);
                default -> options.meta(word.substring("meta.".length(), word.indexOf('=')), value);
            }
        }
        return options;
    }
}
