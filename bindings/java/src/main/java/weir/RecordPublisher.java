package weir;

import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Flow;

/** New records of a topic; each subscriber has its own thread. */
final class RecordPublisher implements Flow.Publisher<Stored> {
    private static final Duration WAIT = Duration.ofMinutes(1);

    private final Topic topic;
    private final From from;

    RecordPublisher(Topic topic, From from) {
        this.topic = topic;
        this.from = from;
    }

    @Override
    public void subscribe(Flow.Subscriber<? super Stored> subscriber) {
        Objects.requireNonNull(subscriber);
        Listener listener = new Listener(subscriber);
        Thread thread = new Thread(listener, "weir-follow-" + topic.name());
        thread.setDaemon(true);
        thread.start();
    }

    private final class Listener implements Runnable, Flow.Subscription {
        private final Flow.Subscriber<? super Stored> subscriber;
        private long demand;
        private boolean cancelled;
        private RuntimeException invalidRequest;
        private Reader reader;

        Listener(Flow.Subscriber<? super Stored> subscriber) {
            this.subscriber = subscriber;
        }

        @Override
        public synchronized void request(long n) {
            if (n <= 0) {
                invalidRequest = new IllegalArgumentException("a demand is a number above 0");
                endWait();
            } else {
                demand = demand + n < 0 ? Long.MAX_VALUE : demand + n;
            }
            notifyAll();
        }

        @Override
        public synchronized void cancel() {
            cancelled = true;
            endWait();
            notifyAll();
        }

        /** Ends a wait for records. */
        private void endWait() {
            if (reader != null) {
                reader.cancel();
            }
        }

        /** Waits until a record is requested. Returns false if the subscription was cancelled. */
        private synchronized boolean awaitDemand() throws InterruptedException {
            while (demand == 0 && !cancelled && invalidRequest == null) {
                wait();
            }
            if (!isActive()) {
                return false;
            }
            if (demand != Long.MAX_VALUE) {
                demand--;
            }
            return true;
        }

        /** Returns false if the subscription was cancelled. Throws the error of an invalid request. */
        private synchronized boolean isActive() {
            if (invalidRequest != null) {
                throw invalidRequest;
            }
            return !cancelled;
        }

        /** The error of an invalid request, which also ends a wait for records, or otherwise this one. */
        private synchronized Throwable errorOr(Throwable thrown) {
            return invalidRequest != null ? invalidRequest : thrown;
        }

        private synchronized boolean isCancelled() {
            return cancelled;
        }

        @Override
        public void run() {
            subscriber.onSubscribe(this);
            Reader opened = null;
            try {
                opened = new Reader(topic, from, true);
                synchronized (this) {
                    reader = opened;
                }
                read(opened);
            } catch (Throwable thrown) {
                if (!isCancelled()) {
                    subscriber.onError(errorOr(thrown));
                }
            } finally {
                // From here on, there is no call that a cancel must wake.
                synchronized (this) {
                    reader = null;
                }
                if (opened != null) {
                    opened.close();
                }
            }
        }

        private void read(Reader from) throws InterruptedException {
            while (isActive()) {
                Optional<Page> next = from.next(WAIT);
                if (next.isEmpty()) {
                    continue;
                }
                try (Page page = next.get()) {
                    for (TopicRecord record : page.records()) {
                        if (!awaitDemand()) {
                            return;
                        }
                        subscriber.onNext(record.copy());
                    }
                }
            }
        }
    }
}
