package weir;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** A proxy between clients and a server, which can hold back the replies of the server. */
final class Relay implements AutoCloseable {
    private final ServerSocket listener;
    private final URI server;
    /** Write-locked while replies are held back, by the thread that holds them back. */
    private final ReentrantReadWriteLock gate = new ReentrantReadWriteLock();
    private final Semaphore requests = new Semaphore(0);

    Relay(String address) throws IOException {
        server = URI.create(address);
        listener = new ServerSocket(0, 0, InetAddress.getLoopbackAddress());
        start(this::accept);
    }

    String address() {
        return "weir://127.0.0.1:" + listener.getLocalPort();
    }

    /** Holds back the replies of the server until {@link #resume}. */
    void hold() {
        gate.writeLock().lock();
        requests.drainPermits();
    }

    void resume() {
        gate.writeLock().unlock();
    }

    /** Waits until a client has sent something to the server. */
    void awaitRequest() throws InterruptedException {
        requests.acquire();
    }

    private static void start(Runnable work) {
        Thread.ofPlatform().daemon().start(work);
    }

    private void accept() {
        try {
            while (true) {
                Socket client = listener.accept();
                Socket to = new Socket(server.getHost(), server.getPort());
                start(() -> pass(client, to, false));
                start(() -> pass(to, client, true));
            }
        } catch (IOException closed) {
            // The test is over.
        }
    }

    private void pass(Socket from, Socket to, boolean isReplies) {
        byte[] chunk = new byte[4096];
        try (from; to; InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            for (int read = in.read(chunk); read >= 0; read = in.read(chunk)) {
                if (isReplies) {
                    gate.readLock().lock();
                    gate.readLock().unlock();
                } else {
                    requests.release();
                }
                out.write(chunk, 0, read);
            }
        } catch (IOException ended) {
            // One of the two sides has closed its connection.
        }
    }

    @Override
    public void close() {
        try {
            listener.close();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }
}
