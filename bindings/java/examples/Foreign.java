import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import weir.ErrorCode;
import weir.Item;
import weir.Need;
import weir.Query;
import weir.QueryOptions;
import weir.Source;
import weir.SourceOptions;
import weir.Step;
import weir.WeirException;

/**
 * Merges the partitions of a document database. The query requests pages of each partition, which are read
 * over HTTP with continuation tokens. If a partition is split, its parts replace it.
 *
 * <pre>java -cp weir-0.1.0.jar --enable-native-access=ALL-UNNAMED Foreign.java http://127.0.0.1:8081</pre>
 *
 * prints the documents in order. {@code lab/peers/cosmos-mock} is a server for trying it.
 */
final class Foreign {
    private static final int OK = 200;
    private static final int GONE = 410;

    private final HttpClient client = HttpClient.newHttpClient();
    private final String url;
    /** The partition of each source. */
    private final Map<Integer, String> partitions = new HashMap<>();

    private Foreign(String url) {
        this.url = url;
    }

    /** A partition in the list of the server. */
    private record Range(String id, List<String> parents) {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: Foreign.java URL");
            System.exit(2);
        }
        new Foreign(arguments[0]).print();
    }

    private void print() throws Exception {
        QueryOptions options = new QueryOptions().order("$.order, $.id").fetch(this::fetch);
        try (Query query = new Query(options)) {
            for (Range range : ranges()) {
                partitions.put(query.source(source(range.id())).number(), range.id());
            }
            try (Stream<Item> items = query.items()) {
                items.forEach(item -> System.out.println(item.text()));
            }
        }
    }

    /** Describes the pages of a partition. */
    private static SourceOptions source(String partition) {
        return new SourceOptions().name(partition).shape("member:$.Documents").sorted();
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(url + path));
    }

    /** Returns the partitions that can be read. A second query finds them in the answer of the server. */
    private List<Range> ranges() throws IOException, InterruptedException {
        byte[] answer = client.send(request("/pkranges").build(), HttpResponse.BodyHandlers.ofByteArray()).body();
        List<Range> found = new ArrayList<>();
        try (Query query = new Query(new QueryOptions())) {
            query.source(new SourceOptions().shape("member:$.PartitionKeyRanges")).enqueue(answer, null);
            if (query.next() instanceof Step.Ready(var page)) {
                try (page) {
                    for (Item range : page) {
                        String parents = text(range, "$.parents[0]");
                        found.add(new Range(text(range, "$.id"), parents == null ? List.of() : List.of(parents)));
                    }
                }
            }
        }
        return found;
    }

    /** A string of an item without its quotes; null if there is none. */
    private static String text(Item item, String path) {
        var found = item.get(path);
        if (found == null) {
            return null;
        }
        String json = StandardCharsets.UTF_8.decode(found.asByteBuffer()).toString();
        return json.substring(1, json.length() - 1);
    }

    /** Fetches the pages that the query needs, and the pages to read ahead. */
    private void fetch(List<Need> needs) throws Exception {
        for (Need need : needs) {
            page(need);
        }
    }

    private void page(Need need) throws Exception {
        String partition = partitions.get(need.source().number());
        HttpRequest.Builder request = request("/docs").POST(HttpRequest.BodyPublishers.noBody())
                .header("x-ms-documentdb-partitionkeyrangeid", partition)
                .header("x-ms-max-item-count", "10");
        if (need.continuation() != null) {
            request.header("x-ms-continuation", new String(need.continuation(), StandardCharsets.UTF_8));
        }
        HttpResponse<InputStream> response =
                client.send(request.build(), HttpResponse.BodyHandlers.ofInputStream());
        try (InputStream body = response.body()) {
            switch (response.statusCode()) {
                case OK -> {
                    byte[] next = response.headers().firstValue("x-ms-continuation")
                            .map(token -> token.getBytes(StandardCharsets.UTF_8)).orElse(null);
                    try {
                        need.source().enqueue(body, next);
                    } catch (WeirException refused) {
                        // The query requests a page ahead again later if it has no room for it now.
                        if (need.required() || refused.code() != ErrorCode.OVER_BUDGET) {
                            throw refused;
                        }
                    }
                }
                case GONE -> split(need, partition);
                default -> throw new IOException("partition " + partition + ": " + response.statusCode());
            }
        }
    }

    /** Replaces a partition by its parts, which continue after the last page of the partition. */
    private void split(Need need, String whole) throws Exception {
        List<Range> parts = ranges().stream().filter(range -> range.parents().contains(whole)).toList();
        List<SourceOptions> options = new ArrayList<>();
        for (Range part : parts) {
            options.add(source(part.id()).first(need.continuation()));
        }
        List<Source> sources = need.source().replace(options);
        for (int at = 0; at < parts.size(); at++) {
            partitions.put(sources.get(at).number(), parts.get(at).id());
        }
    }
}
