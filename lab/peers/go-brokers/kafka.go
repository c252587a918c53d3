package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafka is a broker with its own controller; a topic has one partition. Levels:
// `default`, the kernel decides when to write; `flush`, every batch is flushed before its
// answer. Modes: `java`, the producer of the Kafka project, in a separate process on our
// CPU; `go`, franz-go in this process.
type kafka struct{ jars string }

func newKafka(peers string) broker { return kafka{filepath.Join(peers, "kafka")} }

func (k kafka) versions() map[string]string {
	version := "not there"
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
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       fmt.Sprintf("1@127.0.0.1:%d", ports[1]),
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", ports[0], ports[1]),
		"advertised.listeners":           fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", ports[0]),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       filepath.Join(p.dir, "data"),
		// One CPU needs no more threads.
		"num.network.threads":                      "1",
		"num.io.threads":                           "2",
		"socket.send.buffer.bytes":                 "1048576",
		"socket.receive.buffer.bytes":              "1048576",
		"message.max.bytes":                        "16777216",
		"offsets.topic.replication.factor":         "1",
		"transaction.state.log.replication.factor": "1",
		"transaction.state.log.min.isr":            "1",
		"auto.create.topics.enable":                "false",
		"log.segment.delete.delay.ms":              "0",
		// A stopped broker must not be treated as dead.
		"broker.session.timeout.ms": "3600000",
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
	if said, err := exec.Command(format[0], format[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("kafka storage: %w: %.300s", err, said)
	}
	s, err := launch(p, append(k.java(p, "1g", "ERROR"), "kafka.Kafka", file)...)
	if err != nil {
		return nil, err
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	err = s.await(func() error {
		return withKafka(s, 2*time.Second, func(within context.Context, admin *kadm.Client) error {
			_, err := admin.BrokerMetadata(within)
			return err
		})
	})
	if err == nil && l.mode != "go" {
		s.helper, err = startHelper(p, append(k.java(p, "512m", "ERROR"), "KafkaLoad", s.address))
		if err != nil {
			err = s.explain(err)
			s.end()
		}
	}
	return s, err
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

func (kafka) fresh(s *server, topic string, _ load) error {
	return withKafka(s, answerTime, func(within context.Context, admin *kadm.Client) error {
		made, err := admin.CreateTopic(within, 1, 1, nil, topic)
		if err == nil {
			err = made.Err
		}
		for err == nil {
			// A created topic may have no leader yet.
			var known kadm.Metadata
			known, err = admin.Metadata(within, topic)
			if err == nil && known.Topics[topic].Err == nil && known.Topics[topic].Partitions[0].Leader == 1 {
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
	// Connected and with the topic's metadata, before the clock starts.
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
