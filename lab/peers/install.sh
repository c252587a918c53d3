#!/bin/sh
# Downloads and builds the peers of the lab into target/lab-peers:
#
#   install.sh [libraries] [brokers] [stores] [http] [json] [codec] [bindings] [emacs]     without a word: all
#
# libraries  parsers and SQLite, from Debian packages and crates.io; C, C++ and Rust
# brokers    Redis (Debian), NATS and etcd (Go modules), Kafka (Maven)
# stores     the event stores UmaDB and S2, from crates.io; Rust
# http       the HTTP servers of http-json and the load client; C, Rust, Go, and nginx of Debian
# json       finding items in pages of JSON; Rust, built twice, and Go
# codec      our codec from C, over the C library
# bindings   our C library, and our packages for Go, Java, Python and Node, on the pages of `json`. A
#            language whose tools are missing is left out and named
# emacs      Emacs with our module; the packages request and plz, if they are installed
#
# The script reports each step and skips what exists. It can be run again at any time. Installing
# packages needs root. go.sum, Cargo.lock, pom.xml and this script pin the versions.
set -eu
cd "$(dirname "$0")"
out=$(cd ../.. && pwd)/target/lab-peers
mkdir -p "$out"

say() { echo "peers: $*"; }

# Installs the packages that are missing.
packages() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" ||
            missing="$missing $package"
    done
    if [ -z "$missing" ]; then
        say "all packages are installed"
        return
    fi
    say "installing$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}

# Exits with an error if a program is missing that no package provides.
need() {
    command -v "$1" >/dev/null || {
        say "$1 is missing: $2" >&2
        exit 1
    }
}

libraries() {
    packages g++ make pkg-config librapidxml-dev libpugixml-dev libsimdjson-dev libjson-c-dev \
        libjson-glib-dev libxml2-dev libsqlite3-dev
    for peer in c-wire c-chat c-store; do
        say "building $peer"
        make --no-print-directory -C "$peer"
    done
    need cargo "Rust of the version in rust-toolchain.toml"
    newer_simdjson
    libpsyc
    say "building rust-wire, for this CPU like the parsers in C and C++"
    RUSTFLAGS="-C target-cpu=native" cargo build --release --locked --quiet \
        --manifest-path rust-wire/Cargo.toml --target-dir "$out/../lab-peers-build-native"
    cp "$out/../lab-peers-build-native/release/rust-wire" "$out/"
    say "$("$out/rust-wire" --version)"
}

# libpsyc takes part if it is installed. The project neither ships nor builds it.
libpsyc() {
    rm -f "$out/c-libpsyc"
    if ! pkg-config --exists libpsyc; then
        say "LEFT OUT: libpsyc, because pkg-config does not find it"
        return 0
    fi
    say "building c-libpsyc"
    make --no-print-directory -C c-libpsyc "OUT=$out" ||
        say "LEFT OUT: libpsyc, because its version has other functions"
}

# c-wire and c-chat with a newer simdjson than Debian's.
newer_simdjson() {
    rm -f "$out/c-wire-simdjson" "$out/c-chat-simdjson"
    if ! cargo vendor --quiet --locked --manifest-path simdjson/Cargo.toml "$out/crates/vendor" >/dev/null; then
        say "LEFT OUT: the newer simdjson, because the crate simdjson-sys cannot be downloaded"
        return 0
    fi
    for peer in c-wire c-chat; do
        say "building $peer-simdjson"
        make --no-print-directory -C "$peer" "OUT=$out" "SIMDJSON=$out/crates/vendor/simdjson-sys/vendor/simdjson" \
            "$out/$peer-simdjson"
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
        say "downloading Kafka"
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

stores() {
    need cargo "Rust of the version in rust-toolchain.toml"
    packages g++ make cmake pkg-config protobuf-compiler
    crate umadb 0.7.8 umadb
    crate s2-lite 0.39.2 server
}

# Builds the program BINARY of a crate with the lock file of the crate, as users install it. A crate
# that cannot be built is left out.
crate() {
    name=$1 version=$2 binary=$3
    say "building $name $version; the first time takes minutes"
    rm -f "$out/$name"
    if cargo install --quiet --locked "$name@$version" --bin "$binary" --root "$out/crates/$name" \
        --target-dir "$out/../lab-peers-build"; then
        ln -s "crates/$name/bin/$binary" "$out/$name"
        say "$name $version"
    else
        say "LEFT OUT: $name, because $name $version cannot be built here"
    fi
}

# nginx from its Debian package. The package is unpacked and not installed, because its installation
# starts a service.
nginx_bench() {
    say "downloading nginx"
    rm -rf "$out/nginx" "$out/nginx-bench"
    mkdir -p "$out/nginx"
    download() { (cd "$out/nginx" && apt-get download -qq nginx); }
    if download 2>/dev/null || { apt-get update -qq && download; }; then
        dpkg-deb -x "$out"/nginx/nginx_*.deb "$out/nginx"
    fi
    if version=$("$out/nginx/usr/sbin/nginx" -v 2>&1); then
        install -m 755 nginx/nginx-bench.sh "$out/nginx-bench"
        say "$version"
    else
        say "LEFT OUT: nginx, because its Debian package cannot be used here: $version"
    fi
}

http() {
    need cargo "Rust of the version in rust-toolchain.toml"
    packages gcc make zlib1g-dev libmicrohttpd-dev
    for peer in c-epoll c-microhttpd; do
        say "building $peer"
        make --no-print-directory -C "$peer"
    done
    rm -f "$out/go-http"
    if ! lacks go go-http; then
        say "building go-http"
        (cd go-http && go build -trimpath -o "$out/go-http" .)
        say "$("$out/go-http" --version)"
    fi
    nginx_bench
    say "building rust-hyper; the first time takes minutes"
    cargo build --release --locked --quiet --manifest-path rust-hyper/Cargo.toml \
        --target-dir "$out/../lab-peers-build"
    for program in hyper-bench axum-bench weir-edge-stack http-load; do
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

# Directory of the newest JDK that supports the Java package; empty if there is none.
jdk() {
    newest=21
    for home in "${JAVA_HOME:-}" /usr/lib/jvm/* /usr/java/* /opt/*; do
        [ -x "$home/bin/javac" ] && [ -f "$home/release" ] || continue
        major=$(sed -n 's/^JAVA_VERSION="\{0,1\}\([0-9]*\).*/\1/p' "$home/release")
        if [ "${major:-0}" -gt "$newest" ]; then
            newest=$major
            found=$home
        fi
    done
    echo "${found:-}"
}

# Prints the missing program of a language, if any. Its contenders are then left out, and reports say so.
lacks() {
    for program in $1; do
        command -v "$program" >/dev/null || {
            say "LEFT OUT: $2, because there is no $program"
            return 0
        }
    done
    return 1
}

# Creates the program NAME: WORDS, which runs the files in FOLDER. Its text changes with these
# files, so that a run is not resumed with another program.
wrapper() {
    name=$1 folder=$2
    shift 2
    digest=$(find "$folder" -type f ! -name '*.pyc' -exec sha256sum {} + | sed "s|$out/||" | sort -k 2 | sha256sum)
    printf '#!/bin/sh\n# runs %s\nhere=$(dirname "$0")\nexec %s "$@"\n' "${digest%% *}" "$*" >"$out/$name"
    chmod +x "$out/$name"
    version=$("$out/$name" --version)
    say "$version"
}

# Builds the C library and installs it for the peers.
capi() {
    need cargo "Rust of the version in rust-toolchain.toml"
    say "building the C library"
    (cd ../.. && cargo xtask capi install --shared --prefix "$out/capi")
}

codec() {
    packages g++ make pkg-config
    capi
    for folder in c-weir c-chat; do
        program="${folder%-weir}-weir"
        say "building $program"
        PKG_CONFIG_PATH="$out/capi/lib/pkgconfig" make --no-print-directory -C "$folder" "OUT=$out" "$out/$program"
    done
}

bindings() {
    capi
    rm -f "$out/c-query"
    if ! lacks "cc make pkg-config" c-query; then
        say "building c-query"
        PKG_CONFIG_PATH="$out/capi/lib/pkgconfig" make --no-print-directory -C c-query "OUT=$out" "$out/c-query"
    fi
    for language in go java python node; do
        rm -f "$out/$language-weir"
        "${language}_weir"
    done
}

go_weir() {
    ! lacks "go cc pkg-config" go-weir || return 0
    say "building go-weir from bindings/go/bench"
    PKG_CONFIG_PATH="$out/capi/lib/pkgconfig" CGO_LDFLAGS="-Wl,-rpath,$out/capi/lib" \
        go build -C ../../bindings/go -buildvcs=false -trimpath -o "$out/go-weir" ./bench
    say "$("$out/go-weir" --version)"
}

java_weir() {
    ! lacks mvn java-weir || return 0
    home=$(jdk)
    if [ -z "$home" ]; then
        say "LEFT OUT: java-weir, because there is no JDK of version 22 or newer"
        return 0
    fi
    say "building the Java package and java-weir, with $home"
    rm -rf "$out/java"
    library="$out/capi/lib/libweir.so.0"
    maven() { JAVA_HOME="$home" mvn -q -B -Dstyle.color=never "$@"; }
    maven -f ../../bindings/java/pom.xml package -DskipTests "-Dweir.library=$library"
    maven -f java-weir/pom.xml dependency:copy-dependencies "-DoutputDirectory=$out/java"
    cp ../../bindings/java/target/weir-*.jar "$out/java/"
    "$home/bin/javac" -Xlint:all,-restricted -Werror -cp "$out/java/*" -d "$out/java/classes" java-weir/Bench.java
    wrapper java-weir "$out/java" "$home/bin/java" -XX:+UseSerialGC --enable-native-access=ALL-UNNAMED \
        '"-Dweir.library=$here/capi/lib/libweir.so.0" -cp "$here/java/classes:$here/java/*" Bench'
}

python_weir() {
    ! lacks python3 python-weir || return 0
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        say "LEFT OUT: python-weir, because python3 is older than 3.11"
        return 0
    fi
    say "building the wheel for Python, and installing it into a clean environment"
    rm -rf "$out/python" "$out/wheel"
    python3 -m venv "$out/python"
    "$out/python/bin/pip" install --quiet --disable-pip-version-check -r python-weir/requirements.txt
    "$out/python/bin/maturin" build --quiet --release --locked --out "$out/wheel" \
        --manifest-path ../../bindings/python/Cargo.toml --interpreter "$out/python/bin/python"
    "$out/python/bin/pip" install --quiet --disable-pip-version-check --no-index "$out"/wheel/weir-*.whl
    cp python-weir/bench.py "$out/python/"
    wrapper python-weir "$out/wheel" '"$here/python/bin/python" "$here/python/bench.py"'
}

node_weir() {
    ! lacks "node npm" node-weir || return 0
    if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
        say "LEFT OUT: node-weir, because node is older than 20"
        return 0
    fi
    say "building the package for Node, and installing it into a clean directory"
    rm -rf "$out/node"
    mkdir -p "$out/node"
    node ../../bindings/node/build.mjs
    npm pack --silent --pack-destination "$out/node" ../../bindings/node
    printf '{ "private": true }\n' >"$out/node/package.json"
    (cd "$out/node" && npm install --silent --offline --ignore-scripts --no-audit --no-fund ./weir-*.tgz)
    cp node-weir/bench.mjs "$out/node/"
    wrapper node-weir "$out/node" 'node --max-old-space-size=8192 "$here/node/bench.mjs"'
}

# Emacs with the module, and the command `weir` for its server of notes.
emacs() {
    need cargo "Rust of the version in rust-toolchain.toml"
    # `command -v emacs` would find this function.
    env emacs --version >/dev/null 2>&1 || packages emacs-nox
    packages elpa-request elpa-plz
    say "building the module and the command"
    (cd ../.. && cargo build --release --locked --quiet --package weir-emacs --package weir-cli)
    target=${CARGO_TARGET_DIR:-../../target}/release
    rm -rf "$out/emacs"
    mkdir -p "$out/emacs"
    cp "$target/libweir_module.so" "$target/weir" "$out/emacs/"
    cp ../../emacs/*.el ../../emacs/bench/weir-bench.el ../../emacs/bench/weir-lab-peer.el "$out/emacs/"
    (cd "$out/emacs" && command emacs -Q --batch -L . -f batch-byte-compile ./*.el)
    wrapper emacs-weir "$out/emacs" 'env "WEIR_MODULE=$here/emacs/libweir_module.so"' \
        'emacs -Q --batch -L "$here/emacs" -l weir-lab-peer -f weir-lab-serve --'
    # A missing package is reported as a gap.
    for package in request plz; do
        rm -f "$out/emacs-$package"
        # Not -Q, because it hides the directories of the system packages.
        if command emacs --batch -q --no-site-file --eval "(package-initialize)" -l $package 2>/dev/null; then
            wrapper emacs-$package "$out/emacs" 'env "WEIR_MODULE=$here/emacs/libweir_module.so"' \
                'emacs -q --no-site-file --batch --eval "(package-initialize)" -L "$here/emacs" -l weir-lab-peer -f weir-lab-serve --'
        else
            say "LEFT OUT: $package, because the package is not installed"
        fi
    done
}

[ $# -gt 0 ] || set -- libraries brokers stores http json codec bindings emacs
case $# in
1) ;;
*)
    # Each group is a process of its own, so that the others are built if one cannot be.
    failed=""
    for group in "$@"; do
        ./install.sh "$group" || failed="$failed $group"
    done
    [ -z "$failed" ] && exit
    say "NOT BUILT:$failed" >&2
    exit 1
    ;;
esac
case $1 in
libraries | brokers | stores | http | json | codec | bindings | emacs) "$1" ;;
*)
    say "$1 is none of: libraries, brokers, stores, http, json, codec, bindings, emacs" >&2
    exit 2
    ;;
esac
