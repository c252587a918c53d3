package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sort"
	"testing"
)

// reader reads partitions as a client does.
type reader struct {
	t   *testing.T
	url string
	// ids of the documents in the order of arrival.
	ids []string
	// splits counts partitions that are parts of others.
	splits int
}

func (r *reader) ranges() []string {
	r.t.Helper()
	response, err := http.Get(r.url + "/pkranges")
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		PartitionKeyRanges []struct {
			ID      string
			Parents []string
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, found := range answer.PartitionKeyRanges {
		ids = append(ids, found.ID)
		if len(found.Parents) > 0 {
			r.splits++
		}
	}
	return ids
}

// read reads a partition to its end, including its parts if it is split.
func (r *reader) read(id, token string) {
	r.t.Helper()
	for {
		request, err := http.NewRequest("POST", r.url+"/docs", bytes.NewReader(nil))
		if err != nil {
			r.t.Fatal(err)
		}
		request.Header.Set(headerRange, id)
		request.Header.Set(headerMost, "7")
		if token != "" {
			request.Header.Set(headerContinuation, token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			r.t.Fatal(err)
		}
		if response.StatusCode == http.StatusGone {
			response.Body.Close()
			if response.Header.Get(headerSubstatus) != substatusSplit {
				r.t.Fatal("status 410 without the substatus of a split")
			}
			r.read(id+"-0", token)
			r.read(id+"-1", token)
			return
		}
		var answer struct{ Documents []struct{ ID string } }
		err = json.NewDecoder(response.Body).Decode(&answer)
		response.Body.Close()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, document := range answer.Documents {
			r.ids = append(r.ids, document.ID)
		}
		token = response.Header.Get(headerContinuation)
		if token == "" {
			return
		}
	}
}

func TestASplitNeitherLosesNorRepeatsDocuments(t *testing.T) {
	shape := shape{partitions: 3, documents: 200, payload: 10, split: 1, splitAfter: 2}
	collection, err := newCollection(shape)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(collection.handler())
	defer server.Close()
	r := &reader{t: t, url: server.URL}
	for _, id := range r.ranges() {
		r.read(id, "")
	}
	if parts := r.ranges(); len(parts) != 4 || r.splits != 2 {
		t.Fatalf("%d partitions, %d of them parts", len(parts), r.splits)
	}
	sort.Strings(r.ids)
	for at, id := range r.ids {
		if want := newDocument(at, shape).id; id != want {
			t.Fatalf("document %d is %s, not %s", at, id, want)
		}
	}
	if len(r.ids) != shape.documents {
		t.Fatalf("%d documents of %d", len(r.ids), shape.documents)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	collection, err := newCollection(shape{partitions: 1, documents: 3, split: -1})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(collection.handler())
	defer server.Close()
	for name, header := range map[string][2]string{
		"token":     {headerContinuation, "!"},
		"most":      {headerMost, "0"},
		"partition": {headerRange, "9"},
	} {
		request, err := http.NewRequest("POST", server.URL+"/docs", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(headerRange, "0")
		request.Header.Set(header[0], header[1])
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode/100 != 4 {
			t.Errorf("%s: status %d", name, response.StatusCode)
		}
	}
}
