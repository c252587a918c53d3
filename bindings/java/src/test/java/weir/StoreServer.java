package weir;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Path;

/** Stores for tests: in a directory, or at a {@code weir serve} process. WEIR_COMMAND names the command. */
final class StoreServer implements AutoCloseable {
    /** A test body that uses a store. */
    interface Use {
        void with(Weir store) throws Exception;
    }

    private final Process server;
    private final String address;

    /** Starts a server with a new store below a directory. */
    StoreServer(Path directory) throws IOException {
        String command = System.getenv("WEIR_COMMAND");
        assumeTrue(command != null, "WEIR_COMMAND does not name the command `weir`");
        ProcessBuilder builder = new ProcessBuilder(command, "serve", "--at",
                directory.resolve("store").toString(), "--http", "off", "--native", "127.0.0.1:0",
                "--durability", "memory");
        builder.environment().put("HOME", directory.toString());
        builder.environment().put("XDG_CONFIG_HOME", directory.toString());
        builder.redirectOutput(ProcessBuilder.Redirect.DISCARD);
        server = builder.start();
        address = address(server.errorReader());
    }

    private static String address(BufferedReader stderr) throws IOException {
        for (String line = stderr.readLine(); line != null; line = stderr.readLine()) {
            int at = line.indexOf("weir://");
            if (at >= 0) {
                return line.substring(at).split("[ ,;]")[0];
            }
        }
        throw new IOException("the server does not print its address");
    }

    String address() {
        return address;
    }

    /** A connection to the server. */
    Weir connect() {
        return Weir.connect(address);
    }

    @Override
    public void close() {
        server.destroyForcibly().onExit().join();
    }

    static void withLocalStore(Path directory, Use use) throws Exception {
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY))) {
            use.with(store);
        }
    }

    static void withRemoteStore(Path directory, Use use) throws Exception {
        try (StoreServer server = new StoreServer(directory); Weir store = server.connect()) {
            use.with(store);
        }
    }
}
