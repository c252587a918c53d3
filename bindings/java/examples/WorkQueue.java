import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import weir.From;
import weir.Group;
import weir.GroupMode;
import weir.GroupOptions;
import weir.Page;
import weir.Topic;
import weir.TopicRecord;
import weir.Weir;

/**
 * A work queue. Jobs are written, claimed with a lease and acknowledged. A job that fails is delivered again;
 * after its second failure it is a dead letter.
 *
 * <pre>java -cp weir-0.1.0.jar --enable-native-access=ALL-UNNAMED WorkQueue.java DIRECTORY</pre>
 */
final class WorkQueue {
    private static final int JOBS = 5;
    private static final Duration LEASE = Duration.ofSeconds(30);
    /** How long a worker waits for the next job before it ends. */
    private static final Duration PATIENCE = Duration.ofMillis(200);

    private WorkQueue() {}

    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            System.err.println("usage: WorkQueue.java DIRECTORY");
            System.exit(2);
        }
        try (Weir store = Weir.open(Path.of(arguments[0]))) {
            Topic failed = store.topic("failed");
            failed.ensure();
            Topic jobs = store.topic("jobs");
            jobs.ensure();
            for (int job = 0; job < JOBS; job++) {
                jobs.append(("job " + job).getBytes(StandardCharsets.UTF_8)).orThrow();
            }
            GroupOptions options = new GroupOptions().lease(LEASE).attempts(2).deadLetters("failed");
            try (Group group = jobs.group("workers", GroupMode.SHARED, options)) {
                work(group);
            }
            // A dead letter has two records: a description of the failure, and a copy of the job.
            try (Stream<TopicRecord> letters = failed.records(From.after(1))) {
                letters.forEach(letter -> System.out.println("dead letter: " + letter.text()));
            }
        }
    }

    /** Claims and settles jobs until none arrives in time. */
    private static void work(Group group) {
        for (Optional<Page> claimed; (claimed = group.claim(2, PATIENCE)).isPresent();) {
            try (Page page = claimed.get()) {
                for (TopicRecord job : page.records()) {
                    boolean done = !job.text().equals("job 3");
                    if (done) {
                        group.done(List.of(job.claimed()));
                    } else {
                        group.fail(List.of(job.claimed()), Duration.ZERO, "cannot do this job");
                    }
                    System.out.println(job.text() + ", delivery " + job.attempts() + (done ? ": done" : ": failed"));
                }
            }
        }
    }
}
