package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// etcd is a cluster of one or more members. A topic is a prefix of keys; a message is the value of
// a separate key. A client has at most `window` puts in flight. With `batch` above 1,
// each is a transaction of `batch` messages.
type etcd struct{ program string }

func newEtcd(peers string) broker { return etcd{filepath.Join(peers, "etcd")} }

func (e etcd) versions() map[string]string {
	return map[string]string{"etcd": output(e.program, "--version"), "client": "clientv3 " + clientVersion("go.etcd.io/etcd/client/v3")}
}

func (e etcd) start(p place, l load) (*server, error) {
	ports, err := freePorts(2 * int(l.nodes))
	if err != nil {
		return nil, err
	}
	s, err := cluster(p, l.nodes, func(p place, number int) (*server, error) {
		return e.node(p, number, ports)
	})
	if err != nil {
		return nil, err
	}
	return s, s.await(func() error {
		c, err := dialEtcd(s)
		if err != nil {
			return err
		}
		defer c.Close()
		within, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err = c.Put(within, "ready", "")
		return err
	})
}

// node starts member `number`, which has a port for clients and one for the other members.
func (e etcd) node(p place, number int, ports []int) (*server, error) {
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", ports[port]) }
	client, peer := url(2*number), url(2*number+1)
	var members []string
	for other := range len(ports) / 2 {
		members = append(members, fmt.Sprintf("n%d=%s", other, url(2*other+1)))
	}
	s, err := launch(p, e.program,
		"--name", fmt.Sprintf("n%d", number),
		"--data-dir", filepath.Join(p.dir, "data"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(members, ","),
		"--log-level", "error",
		// No snapshot, no compaction and no size limit while messages arrive.
		"--snapshot-count", "100000000",
		"--auto-compaction-retention", "0",
		"--quota-backend-bytes", "17179869184",
		"--max-txn-ops", "100000",
		"--max-request-bytes", "33554432",
		// The log alone makes a put durable; the tree may be written later.
		"--backend-batch-interval", "1s", "--backend-batch-limit", "100000",
		// A stopped server must not conclude that it lost its leader.
		"--heartbeat-interval", "100", "--election-timeout", "1000",
	)
	if err != nil {
		return nil, err
	}
	s.address = client
	return s, nil
}

func dialEtcd(s *server) (*clientv3.Client, error) {
	const window = 64 << 20
	endpoints := s.addresses()
	if s.leader != "" {
		endpoints = []string{s.leader}
	}
	return clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
			grpc.WithWriteBufferSize(256 << 10), grpc.WithReadBufferSize(256 << 10),
		},
		MaxCallSendMsgSize: 64 << 20,
		MaxCallRecvMsgSize: 64 << 20,
	})
}

func withEtcd(s *server, work func(context.Context, *clientv3.Client) error) error {
	c, err := dialEtcd(s)
	if err != nil {
		return err
	}
	defer c.Close()
	within, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return work(within, c)
}

// create finds the leader. Clients connect to it, so that no member forwards their requests.
func (etcd) create(s *server, _ string, _ load) error {
	if len(s.others) == 0 {
		return nil
	}
	s.leader = ""
	return s.await(func() error {
		return withEtcd(s, func(within context.Context, c *clientv3.Client) error {
			// Members that were stopped may elect a leader first.
			if _, err := c.Put(within, "ready", ""); err != nil {
				return err
			}
			for _, address := range s.addresses() {
				status, err := c.Status(within, address)
				if err != nil {
					return err
				}
				if status.Header.MemberId == status.Leader {
					s.leader = address
					return nil
				}
			}
			return fmt.Errorf("no member leads")
		})
	})
}

func (etcd) drop(s *server, topic string) error {
	return withEtcd(s, func(within context.Context, c *clientv3.Client) error {
		gone, err := c.Delete(within, topic+"/", clientv3.WithPrefix())
		if err == nil {
			_, err = c.Compact(within, gone.Header.Revision, clientv3.WithCompactPhysical())
		}
		return err
	})
}

func (etcd) stored(s *server, topic string) (count uint64, err error) {
	err = withEtcd(s, func(within context.Context, c *clientv3.Client) error {
		got, err := c.Get(within, topic+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			count = uint64(got.Count)
		}
		return err
	})
	return count, err
}

func (etcd) read(s *server, topic string, each func([]byte)) error {
	return withEtcd(s, func(within context.Context, c *clientv3.Client) error {
		got, err := c.Get(within, topic+"/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, entry := range got.Kvs {
			each(entry.Value)
		}
		return nil
	})
}

type etcdClient struct {
	client *clientv3.Client
	prefix string
	load   load
}

func (etcd) client(s *server, topic string, l load, number uint64) (client, error) {
	c, err := dialEtcd(s)
	if err != nil {
		return nil, err
	}
	// Connects before the timing.
	if _, err := c.Get(context.Background(), "ready"); err != nil {
		return nil, err
	}
	return &etcdClient{c, topic + "/" + string(rune('a'+number)), l}, nil
}

func (c *etcdClient) key(number uint64) string {
	return string(binary.BigEndian.AppendUint32([]byte(c.prefix), uint32(number)))
}

func (c *etcdClient) put(p payload) error {
	messages, batch := c.load.each(), c.load.batch
	calls := (messages + batch - 1) / batch
	var next atomic.Uint64
	var wrong atomic.Pointer[error]
	var done sync.WaitGroup
	for range min(c.load.window, calls) {
		done.Go(func() {
			for wrong.Load() == nil {
				call := next.Add(1) - 1
				if call >= calls {
					return
				}
				if err := c.call(p, call*batch, min(messages, (call+1)*batch)); err != nil {
					wrong.Store(&err)
				}
			}
		})
	}
	done.Wait()
	if err := wrong.Load(); err != nil {
		return *err
	}
	return nil
}

// call puts the messages from `from` up to but not `until`.
func (c *etcdClient) call(p payload, from, until uint64) error {
	within := context.Background()
	if until-from == 1 {
		_, err := c.client.Put(within, c.key(from), string(p.message(from)))
		return err
	}
	puts := make([]clientv3.Op, 0, until-from)
	for number := from; number < until; number++ {
		puts = append(puts, clientv3.OpPut(c.key(number), string(p.message(number))))
	}
	_, err := c.client.Txn(within).Then(puts...).Commit()
	return err
}

func (c *etcdClient) close() { _ = c.client.Close() }
