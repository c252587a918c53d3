package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafka is one or more brokers, each with its own controller. A topic has one partition with a
// replica on every broker, and a message is answered when all replicas have it. Levels: `default`,
// the kernel decides when to write; `flush`, every batch is flushed before its answer. Modes:
// `java`, the producer of the Kafka project, in a separate process on our CPU; `go`, franz-go in
// this process.
type kafka struct{ jars string }

func newKafka(peers string) broker { return kafka{filepath.Join(peers, "kafka")} }

func (k kafka) versions() map[string]string {
	version := "not installed"
	if found, _ := filepath.Glob(filepath.Join(k.jars, "kafka-clients-*.jar")); len(found) > 0 {
		version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "kafka-clients-"), ".jar")
	}
	return map[string]string{"kafka": version, "java": output("java", "--version"), "franz-go": clientVersion("github.com/twmb/franz-go")}
}

// java is the command line before the class, with a heap of `heap`.
func (k kafka) java(p place, heap, log string) []string {
	return []string{
		"java", "-Xms" + heap, "-Xmx" + heap, "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC", "-Xshare:auto",
		"-Dlog4j2.configurationFile=" + filepath.Join(p.dir, "log4j2.properties"), "-Dlog4j2.level=" + log,
		"-cp", filepath.Join(k.jars, "*") + ":" + filepath.Join(k.jars, "classes"),
	}
}

func (k kafka) start(p place, l load) (*server, error) {
	ports, err := freePorts(2 * int(l.nodes))
	if err != nil {
		return nil, err
	}
	s, err := cluster(p, l.nodes, func(p place, number int) (*server, error) {
		return k.node(p, l, number, ports)
	})
	if err != nil {
		return nil, err
	}
	err = s.await(func() error {
		return withKafka(s, 2*time.Second, func(within context.Context, admin *kadm.Client) error {
			known, err := admin.BrokerMetadata(within)
			if err == nil && uint64(len(known.Brokers)) < l.nodes {
				err = fmt.Errorf("%d brokers of %d", len(known.Brokers), l.nodes)
			}
			return err
		})
	})
	if err == nil && l.mode != "go" {
		s.helper, err = startHelper(s.place, append(k.java(s.place, "512m", "ERROR"), "KafkaLoad", s.address))
		if err != nil {
			err = s.explain(err)
			s.end()
		}
	}
	return s, err
}

// node starts broker `number`, which has a port for clients and one for the other brokers.
func (k kafka) node(p place, l load, number int, ports []int) (*server, error) {
	var voters []string
	for other := range int(l.nodes) {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", other+1, ports[2*other+1]))
	}
	client, peer := ports[2*number], ports[2*number+1]
	copies := fmt.Sprint(l.nodes)
	settings := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        fmt.Sprint(number + 1),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", client, peer),
		"advertised.listeners":           fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", client),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       filepath.Join(p.dir, "data"),
		// One CPU needs no more threads.
		"num.network.threads":                      "1",
		"num.io.threads":                           "2",
		"socket.send.buffer.bytes":                 "1048576",
		"socket.receive.buffer.bytes":              "1048576",
		"message.max.bytes":                        "16777216",
		"offsets.topic.replication.factor":         copies,
		"transaction.state.log.replication.factor": copies,
		"transaction.state.log.min.isr":            copies,
		"min.insync.replicas":                      copies,
		"auto.create.topics.enable":                "false",
		"log.segment.delete.delay.ms":              "0",
		// A stopped broker must not be treated as dead, nor its replicas as late. Otherwise, the brokers
		// elect a controller and wait for their replicas each time they continue.
		"broker.session.timeout.ms":            "3600000",
		"replica.lag.time.max.ms":              "3600000",
		"replica.socket.timeout.ms":            "3600000",
		"controller.quorum.fetch.timeout.ms":   "3600000",
		"controller.quorum.request.timeout.ms": "3600000",
		"connections.max.idle.ms":              "3600000",
		// A replica of a new topic may ask a broker that does not know the topic yet. By default, it asks
		// again after a second, and the messages of the first second have no answer.
		"replica.fetch.backoff.ms": "10",
	}
	if l.level == "flush" {
		settings["log.flush.interval.messages"] = "1"
	}
	var text strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&text, "%s=%s\n", name, value)
	}
	file := filepath.Join(p.dir, "server.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	logging := "rootLogger.level=ERROR\nrootLogger.appenderRef.out.ref=out\nappender.out.type=Console\nappender.out.name=out\n"
	if err := os.WriteFile(filepath.Join(p.dir, "log4j2.properties"), []byte(logging), 0o600); err != nil {
		return nil, err
	}
	format := append(k.java(p, "128m", "ERROR"), "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", file)
	if output, err := exec.Command(format[0], format[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("kafka storage: %w: %.300s", err, output)
	}
	s, err := launch(p, append(k.java(p, "1g", "ERROR"), "kafka.Kafka", file)...)
	if err != nil {
		return nil, err
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", client)
	return s, nil
}

func withKafka(s *server, wait time.Duration, work func(context.Context, *kadm.Client) error) error {
	admin, err := kadm.NewOptClient(kgo.SeedBrokers(s.address))
	if err != nil {
		return err
	}
	defer admin.Close()
	within, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return work(within, admin)
}

func (kafka) create(s *server, topic string, l load) error {
	return withKafka(s, answerTime, func(within context.Context, admin *kadm.Client) error {
		made, err := admin.CreateTopic(within, 1, int16(l.nodes), nil, topic)
		// Names are unique: an existing topic is of a request whose answer was lost.
		if err == nil && !errors.Is(made.Err, kerr.TopicAlreadyExists) {
			err = made.Err
		}
		for err == nil {
			// A created topic may have no leader yet.
			var known kadm.Metadata
			known, err = admin.Metadata(within, topic)
			if err == nil && known.Topics[topic].Err == nil && known.Topics[topic].Partitions[0].Leader > 0 {
				return nil
			}
			time.Sleep(5 * time.Millisecond)
		}
		return err
	})
}

func (kafka) drop(s *server, topic string) error {
	return withKafka(s, answerTime, func(within context.Context, admin *kadm.Client) error {
		_, err := admin.DeleteTopic(within, topic)
		return err
	})
}

func (kafka) stored(s *server, topic string) (count uint64, err error) {
	err = withKafka(s, answerTime, func(within context.Context, admin *kadm.Client) error {
		ends, err := admin.ListEndOffsets(within, topic)
		if err != nil {
			return err
		}
		end, _ := ends.Lookup(topic, 0)
		count = uint64(end.Offset)
		return end.Err
	})
	return count, err
}

func (k kafka) read(s *server, topic string, each func([]byte)) error {
	count, err := k.stored(s, topic)
	if err != nil {
		return err
	}
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	c, err := kgo.NewClient(kgo.SeedBrokers(s.address), kgo.ConsumePartitions(from))
	if err != nil {
		return err
	}
	defer c.Close()
	within, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	for got := uint64(0); got < count; {
		page := c.PollFetches(within)
		if err := page.Err(); err != nil {
			return err
		}
		page.EachRecord(func(record *kgo.Record) {
			got++
			each(record.Value)
		})
	}
	return nil
}

type kafkaClient struct {
	client *kgo.Client
	load   load
}

func (kafka) client(s *server, topic string, l load, number uint64) (client, error) {
	if s.helper != nil {
		return &helperClient{s.helper, number}, s.helper.prepare(topic, l, number)
	}
	c, err := kgo.NewClient(
		kgo.SeedBrokers(s.address),
		kgo.DefaultProduceTopic(topic),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(l.batchBytes)),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(int(l.window)),
	)
	if err != nil {
		return nil, err
	}
	// Connects, and reads the metadata of the topic, before the timing.
	within, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if err := c.Ping(within); err != nil {
		return nil, err
	}
	return &kafkaClient{c, l}, nil
}

func (c *kafkaClient) put(p payload) error {
	var mutex sync.Mutex
	var wrong error
	var waiting sync.WaitGroup
	messages := c.load.each()
	waiting.Add(int(messages))
	answered := func(_ *kgo.Record, err error) {
		if err != nil {
			mutex.Lock()
			wrong = err
			mutex.Unlock()
		}
		waiting.Done()
	}
	records := make([]kgo.Record, messages)
	for number := range messages {
		records[number].Value = p.message(number)
		c.client.Produce(context.Background(), &records[number], answered)
	}
	waiting.Wait()
	return wrong
}

func (c *kafkaClient) close() { c.client.Close() }
