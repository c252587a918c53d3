package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/valyala/fasthttp"
)

func serveNetHTTP(listener net.Listener) error {
	server := http.Server{Handler: http.HandlerFunc(handle)}
	return server.Serve(listener)
}

func handle(out http.ResponseWriter, in *http.Request) {
	respond(out, respondTo(out, in))
}

func respondTo(out http.ResponseWriter, in *http.Request) response {
	if in.ContentLength > bodyMax {
		out.Header().Set("Connection", "close")
		return failure(http.StatusRequestEntityTooLarge, "too large")
	}
	body, err := io.ReadAll(http.MaxBytesReader(out, in.Body, bodyMax))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return failure(http.StatusRequestEntityTooLarge, "too large")
	case err != nil:
		return failure(http.StatusBadRequest, "bad request")
	}
	return answer(in.Method, in.URL.Path, in.URL.RawQuery, body)
}

func respond(out http.ResponseWriter, answer response) {
	head := out.Header()
	head.Set("Content-Type", answer.kind)
	head.Set("Content-Length", strconv.Itoa(len(answer.body)))
	if answer.allow != "" {
		head.Set("Allow", answer.allow)
	}
	out.WriteHeader(answer.status)
	// An error here is a client that disconnected.
	_, _ = out.Write(answer.body)
}

func serveFastHTTP(listener net.Listener) error {
	server := fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			method, path := string(ctx.Method()), string(ctx.Path())
			query := string(ctx.URI().QueryString())
			set(ctx, answer(method, path, query, ctx.PostBody()))
		},
		ErrorHandler: func(ctx *fasthttp.RequestCtx, err error) {
			if errors.Is(err, fasthttp.ErrBodyTooLarge) {
				set(ctx, failure(fasthttp.StatusRequestEntityTooLarge, "too large"))
				return
			}
			set(ctx, failure(fasthttp.StatusBadRequest, "bad request"))
		},
		MaxRequestBodySize:    bodyMax,
		NoDefaultServerHeader: true,
	}
	return server.Serve(listener)
}

func set(ctx *fasthttp.RequestCtx, answer response) {
	ctx.SetStatusCode(answer.status)
	ctx.SetContentType(answer.kind)
	if answer.allow != "" {
		ctx.Response.Header.Set("Allow", answer.allow)
	}
	ctx.SetBody(answer.body)
}
