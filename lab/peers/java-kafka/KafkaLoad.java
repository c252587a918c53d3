import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Kafka clients of the lab: one producer for each client. lab/peers/go-brokers/helper.go describes
 * the requests on standard input and the responses on standard output.
 */
public final class KafkaLoad {
    /** Number of different messages of a producer; then they repeat. */
    private static final int DISTINCT = 4096;

    private final String address;
    private final List<Client> clients = new ArrayList<>();
    private String topic = "";
    private int messages;

    private KafkaLoad(String address) {
        this.address = address;
    }

    public static void main(String[] words) throws Exception {
        KafkaLoad load = new KafkaLoad(words[0]);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = load.serve(line.split(" "));
            } catch (Exception problem) {
                answer = "error " + problem.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
        load.close();
    }

    private String serve(String[] word) throws Exception {
        switch (word[0]) {
            case "prepare":
                prepare(word);
                return "ready";
            case "put":
                return put();
            default:
                return "error unknown word";
        }
    }

    /** Connects all clients and creates their messages. */
    private void prepare(String[] word) {
        close();
        topic = word[1];
        messages = Integer.parseInt(word[3]);
        for (int number = 0; number < Integer.parseInt(word[2]); number++) {
            clients.add(new Client(number, Integer.parseInt(word[4]), word[5]));
        }
    }

    private void close() {
        clients.forEach(client -> client.producer.close());
        clients.clear();
    }

    /** Starts the puts of all clients at one time. The measured time ends with the slowest client. */
    private String put() throws Exception {
        CountDownLatch ready = new CountDownLatch(clients.size());
        CountDownLatch start = new CountDownLatch(1);
        AtomicReference<Exception> wrong = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (Client client : clients) {
            Thread thread =
                    new Thread(
                            () -> {
                                try {
                                    ready.countDown();
                                    start.await();
                                    client.put(wrong);
                                } catch (Exception problem) {
                                    wrong.set(problem);
                                }
                            });
            thread.start();
            threads.add(thread);
        }
        ready.await();
        long from = System.nanoTime();
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        long wall = System.nanoTime() - from;
        if (wrong.get() != null) {
            throw wrong.get();
        }
        return "done " + wall;
    }

    /** One producer with its messages. */
    private final class Client {
        private final KafkaProducer<byte[], byte[]> producer;
        private final byte[][] payload = new byte[DISTINCT][];

        Client(long number, int bytes, String batchBytes) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", address);
            settings.put("acks", "all");
            settings.put("linger.ms", "5");
            settings.put("batch.size", batchBytes);
            settings.put("buffer.memory", "268435456");
            settings.put("max.request.size", "16777216");
            settings.put("compression.type", "none");
            settings.put("send.buffer.bytes", "1048576");
            settings.put("receive.buffer.bytes", "1048576");
            settings.put("enable.metrics.push", "false");
            producer =
                    new KafkaProducer<>(
                            settings, new ByteArraySerializer(), new ByteArraySerializer());
            // Connects, and loads the metadata of the topic, before the timing.
            producer.partitionsFor(topic);
            for (int i = 0; i < DISTINCT; i++) {
                payload[i] = message((number << 32) + i, bytes);
            }
        }

        void put(AtomicReference<Exception> wrong) {
            for (int i = 0; i < messages; i++) {
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, 0, null, payload[i % DISTINCT]);
                producer.send(
                        record,
                        (metadata, problem) -> {
                            if (problem != null) {
                                wrong.set(problem);
                            }
                        });
            }
            producer.flush();
        }
    }

    /** A message of the numbers of SplitMix64 with this seed, little-endian. */
    private static byte[] message(long seed, int bytes) {
        ByteBuffer buffer =
                ByteBuffer.allocate((bytes + 7) / 8 * 8).order(ByteOrder.LITTLE_ENDIAN);
        long state = seed;
        while (buffer.hasRemaining()) {
            state += 0x9E3779B97F4A7C15L;
            long z = state;
            z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
            z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
            buffer.putLong(z ^ (z >>> 31));
        }
        return java.util.Arrays.copyOf(buffer.array(), bytes);
    }
}
