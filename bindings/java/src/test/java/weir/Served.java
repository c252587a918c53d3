package weir;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Path;

/** Stores for tests: in a directory, or at a {@code weir serve} process. WEIR_COMMAND names the command. */
final class Served implements AutoCloseable {
    /** A test body that uses a store. */
    interface Use {
        void with(Weir store) throws Exception;
    }

    private final Process server;
    private final String address;

    /** Starts a server with a new store below a directory. */
    Served(Path directory) throws IOException {
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

    private static String address(BufferedReader said) throws IOException {
        for (String line = said.readLine(); line != null; line = said.readLine()) {
            int at = line.indexOf("weir://");
            if (at >= 0) {
                return line.substring(at).split("[ ,;]")[0];
            }
        }
        throw new IOException("the server does not say where it is");
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

    static void near(Path directory, Use use) throws Exception {
        try (Weir store = Weir.open(directory, new OpenOptions().durability(Durability.MEMORY))) {
            use.with(store);
        }
    }

    static void far(Path directory, Use use) throws Exception {
        try (Served server = new Served(directory); Weir store = server.connect()) {
            use.with(store);
        }
    }
}
