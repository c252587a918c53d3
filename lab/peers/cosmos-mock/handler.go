package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Headers of a request for a page and of the response.
const (
	headerRange        = "x-ms-documentdb-partitionkeyrangeid"
	headerContinuation = "x-ms-continuation"
	headerMost         = "x-ms-max-item-count"
	headerSubstatus    = "x-ms-substatus"
	headerCount        = "x-ms-item-count"
)

// substatusSplit, with status 410, reports that a partition was split.
const substatusSplit = "1002"

// pageMost is the maximum and the default number of documents of a page.
const pageMost = 100

// handler serves
//
//	GET  /pkranges  the partitions that can be read, with their parents
//	POST /docs      a page of the partition that a header names
//	GET  /ordered   ids of all documents in order, to compare with
func (c *collection) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pkranges", c.ranges)
	mux.HandleFunc("POST /docs", c.documentsPage)
	mux.HandleFunc("GET /ordered", c.ordered)
	return mux
}

func (c *collection) ranges(w http.ResponseWriter, _ *http.Request) {
	type keyRange struct {
		ID      string   `json:"id"`
		From    string   `json:"minInclusive"`
		To      string   `json:"maxExclusive"`
		Parents []string `json:"parents"`
	}
	answer := struct {
		Ranges []keyRange `json:"PartitionKeyRanges"`
		Count  int        `json:"_count"`
	}{Ranges: []keyRange{}}
	for _, p := range c.live() {
		parents := []string{}
		if p.parent != "" {
			parents = append(parents, p.parent)
		}
		answer.Ranges = append(answer.Ranges, keyRange{
			ID:      p.id,
			From:    fmt.Sprintf("%04x", p.from),
			To:      fmt.Sprintf("%04x", p.to),
			Parents: parents,
		})
	}
	answer.Count = len(answer.Ranges)
	reply(w, answer)
}

func (c *collection) documentsPage(w http.ResponseWriter, r *http.Request) {
	most := pageMost
	if text := r.Header.Get(headerMost); text != "" {
		requested, err := strconv.Atoi(text)
		if err != nil || requested < 1 {
			http.Error(w, headerMost+" is not a number above 0", http.StatusBadRequest)
			return
		}
		most = min(most, requested)
	}
	var after *position
	if token := r.Header.Get(headerContinuation); token != "" {
		found, err := positionOf(token)
		if err != nil {
			http.Error(w, "the continuation token is invalid", http.StatusBadRequest)
			return
		}
		after = &found
	}
	documents, token, err := c.page(r.Header.Get(headerRange), after, most)
	switch {
	case errors.Is(err, errGone):
		w.Header().Set(headerSubstatus, substatusSplit)
		http.Error(w, err.Error(), http.StatusGone)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	if token != "" {
		w.Header().Set(headerContinuation, token)
	}
	w.Header().Set(headerCount, strconv.Itoa(len(documents)))
	w.Header().Set("Content-Type", "application/json")
	body := []byte(`{"_rid":"mock","Documents":[`)
	for at, document := range documents {
		if at > 0 {
			body = append(body, ',')
		}
		body = append(body, document...)
	}
	body = fmt.Appendf(body, `],"_count":%d}`, len(documents))
	// An error means that the reader has disconnected.
	_, _ = w.Write(body)
}

func (c *collection) ordered(w http.ResponseWriter, _ *http.Request) {
	ids := []string{}
	for _, d := range c.documents {
		ids = append(ids, d.id)
	}
	reply(w, ids)
}

func reply(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
