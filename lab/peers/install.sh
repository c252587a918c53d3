#!/bin/sh
# Gets what the lab's peers are made of and builds them into target/lab-peers:
#
#   install.sh [libraries] [brokers] [http] [json] [bindings]     without a word: all of them
#
# libraries  parsers and SQLite, from Debian packages; C and C++
# brokers    Redis (Debian), NATS and etcd (Go modules), Kafka (Maven)
# http       the HTTP servers of http-json and the load client; C and Rust
# json       finding items in pages of JSON; Rust, built twice, and Go
# bindings   our package for Go on the same pages, with the C library; go-weir
#
# Says what it does, skips what is there; may be run again at any time. Getting
# packages needs root. Versions are pinned by go.sum, Cargo.lock and pom.xml.
set -eu
cd "$(dirname "$0")"
out=$(cd ../.. && pwd)/target/lab-peers
mkdir -p "$out"

say() { echo "peers: $*"; }

# Installs those of the packages named that are missing.
packages() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" ||
            missing="$missing $package"
    done
    if [ -z "$missing" ]; then
        say "all packages are there"
        return
    fi
    say "installing$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

# Ends with a sentence when a program is missing that packages do not bring.
need() {
    command -v "$1" >/dev/null || {
        say "$1 is missing: $2" >&2
        exit 1
    }
}

libraries() {
    packages g++ make pkg-config librapidxml-dev libsimdjson-dev libjson-c-dev libxml2-dev \
        libsqlite3-dev
    for peer in c-wire c-store; do
        say "building $peer"
        make --no-print-directory -C "$peer"
    done
}

brokers() {
    need go "Go of the version in go-brokers/go.mod or newer"
    need javac "a JDK of version 17 or newer"
    need mvn "Maven"
    packages redis-server
    say "building go-brokers, nats-server and etcd; the first time takes minutes"
    (
        cd go-brokers
        go build -trimpath -o "$out/brokers" .
        go build -trimpath -o "$out/nats-server" github.com/nats-io/nats-server/v2
        go build -trimpath -o "$out/etcd" go.etcd.io/etcd/server/v3
    )
    if [ ! -e "$out/kafka/pom.xml" ] || ! cmp -s java-kafka/pom.xml "$out/kafka/pom.xml"; then
        say "getting Kafka"
        rm -rf "$out/kafka"
        mvn -q -B -Dstyle.color=never -f java-kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$out/kafka"
        cp java-kafka/pom.xml "$out/kafka/"
    fi
    say "building java-kafka"
    javac -Xlint:all -Werror -cp "$out/kafka/*" -d "$out/kafka/classes" java-kafka/KafkaLoad.java
    for kind in redis nats etcd kafka; do
        "$out/brokers" $kind </dev/null | tr '\t' '\n' | sed -n '5,$s/^/peers: /p'
    done
}

http() {
    need cargo "Rust of the version in rust-toolchain.toml"
    packages gcc make zlib1g-dev libmicrohttpd-dev
    for peer in c-epoll c-microhttpd; do
        say "building $peer"
        make --no-print-directory -C "$peer"
    done
    say "building rust-hyper; the first time takes minutes"
    cargo build --release --locked --quiet --manifest-path rust-hyper/Cargo.toml \
        --target-dir "$out/../lab-peers-build"
    for program in hyper-bench weir-edge-stack http-load; do
        cp "$out/../lab-peers-build/release/$program" "$out/"
        say "$("$out/$program" --version)"
    done
}

json() {
    need cargo "Rust of the version in rust-toolchain.toml"
    say "building rust-json, as usual and for this CPU"
    cargo build --release --locked --quiet --manifest-path rust-json/Cargo.toml \
        --target-dir "$out/../lab-peers-build"
    cp "$out/../lab-peers-build/release/rust-json" "$out/"
    RUSTFLAGS="-C target-cpu=native" cargo build --release --locked --quiet \
        --manifest-path rust-json/Cargo.toml --target-dir "$out/../lab-peers-build-native"
    cp "$out/../lab-peers-build-native/release/rust-json" "$out/rust-json-native"
    say "$("$out/rust-json" --version)"
    need go "Go of the version in go-json/go.mod or newer"
    say "building go-json"
    (cd go-json && go build -trimpath -o "$out/go-json" .)
    say "$("$out/go-json" --version)"
}

bindings() {
    need cargo "Rust of the version in rust-toolchain.toml"
    need pkg-config "a package of the same name"
    say "building the C library, and go-weir from bindings/go/bench"
    (cd ../.. && cargo xtask capi install --release --shared --prefix "$out/capi")
    PKG_CONFIG_PATH="$out/capi/lib/pkgconfig" CGO_LDFLAGS="-Wl,-rpath,$out/capi/lib" \
        go build -C ../../bindings/go -buildvcs=false -trimpath -o "$out/go-weir" ./bench
    say "$("$out/go-weir" --version)"
}

[ $# -gt 0 ] || set -- libraries brokers http json bindings
for group in "$@"; do
    case $group in
    libraries | brokers | http | json | bindings) "$group" ;;
    *)
        say "$group is none of: libraries, brokers, http, json, bindings" >&2
        exit 2
        ;;
    esac
done
