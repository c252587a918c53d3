package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// hashes is the number of values of the hash that selects the partition of a document.
// Four hexadecimal digits of the hash name a range.
const hashes = 1 << 16

// shape configures a collection.
type shape struct {
	partitions, documents, payload int
	// split is the partition that is split after splitAfter of its pages were served.
	split, splitAfter int
}

// document is one stored item.
type document struct {
	order int
	id    string
	hash  int
	json  []byte
}

// partition is a range of hashes; it serves its documents by order, then id.
type partition struct {
	id       string
	from, to int
	parent   string
	gone     bool
	pages    int
}

// collection is all partitions, including those that were split.
type collection struct {
	shape     shape
	documents []document

	mutex      sync.Mutex
	partitions []*partition
}

func newCollection(shape shape) (*collection, error) {
	if shape.partitions < 1 || shape.partitions > 256 {
		return nil, fmt.Errorf("%d partitions; 1 to 256 are allowed", shape.partitions)
	}
	if shape.documents < 0 || shape.payload < 0 {
		return nil, fmt.Errorf("a number is negative")
	}
	c := &collection{shape: shape}
	for i := range shape.partitions {
		c.partitions = append(c.partitions, &partition{
			id:   strconv.Itoa(i),
			from: i * hashes / shape.partitions,
			to:   (i + 1) * hashes / shape.partitions,
		})
	}
	for i := range shape.documents {
		c.documents = append(c.documents, newDocument(i, shape))
	}
	sort.Slice(c.documents, func(i, j int) bool {
		return c.documents[i].before(c.documents[j].order, c.documents[j].id)
	})
	return c, nil
}

func newDocument(number int, shape shape) document {
	id := fmt.Sprintf("d%06d", number)
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id))
	// Numbers in random order, each about three times.
	order := (number * 7919) % (shape.documents/3 + 1)
	payload := strings.Repeat("x", shape.payload)
	return document{
		order: order,
		id:    id,
		hash:  int(hash.Sum32() % hashes),
		json:  fmt.Appendf(nil, `{"id":"%s","order":%d,"payload":"%s"}`, id, order, payload),
	}
}

func (d document) before(order int, id string) bool {
	if d.order != order {
		return d.order < order
	}
	return d.id < id
}

func (p *partition) holds(d document) bool {
	return p.from <= d.hash && d.hash < p.to
}

// position is the content of a continuation token: the document after which the next page
// begins. It names no partition, so the parts of a partition continue at the position of the
// whole.
type position struct {
	Order int    `json:"o"`
	ID    string `json:"i"`
}

func (p position) token() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func positionOf(token string) (position, error) {
	var p position
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	return p, err
}

// errGone reports that a partition was split; its parts name it as their parent.
var errGone = fmt.Errorf("the partition is gone")

// errUnknown reports that the partition never existed.
var errUnknown = fmt.Errorf("there is no such partition")

// page returns documents of a partition after a position, and the token of the next page;
// the token is empty after the last page.
func (c *collection) page(id string, after *position, most int) ([][]byte, string, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	p := c.find(id)
	if p == nil {
		return nil, "", errUnknown
	}
	if !p.gone && id == strconv.Itoa(c.shape.split) && p.pages >= c.shape.splitAfter {
		c.divide(p)
	}
	if p.gone {
		return nil, "", errGone
	}
	p.pages++
	first := 0
	if after != nil {
		first = sort.Search(len(c.documents), func(i int) bool {
			d := c.documents[i]
			return !d.before(after.Order, after.ID) && d.id != after.ID
		})
	}
	var found [][]byte
	var last document
	for _, d := range c.documents[first:] {
		if !p.holds(d) {
			continue
		}
		if len(found) == most {
			return found, position{last.order, last.id}.token(), nil
		}
		found = append(found, d.json)
		last = d
	}
	return found, "", nil
}

// divide replaces a partition by two.
func (c *collection) divide(p *partition) {
	p.gone = true
	middle := (p.from + p.to) / 2
	for at, bounds := range [][2]int{{p.from, middle}, {middle, p.to}} {
		c.partitions = append(c.partitions, &partition{
			id:     fmt.Sprintf("%s-%d", p.id, at),
			from:   bounds[0],
			to:     bounds[1],
			parent: p.id,
		})
	}
}

func (c *collection) find(id string) *partition {
	for _, p := range c.partitions {
		if p.id == id {
			return p
		}
	}
	return nil
}

// live lists the readable partitions.
func (c *collection) live() []partition {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var found []partition
	for _, p := range c.partitions {
		if !p.gone {
			found = append(found, *p)
		}
	}
	return found
}
