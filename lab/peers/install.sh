#!/bin/sh
# Gets what the lab's peers are built from (Debian packages) and builds them
# into target/lab-peers. Says what it does, skips what is there; may be run
# again at any time. Getting packages needs root.
set -eu
cd "$(dirname "$0")"

packages="g++ make pkg-config librapidxml-dev libsimdjson-dev libjson-c-dev libxml2-dev libsqlite3-dev"
missing=""
for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" ||
        missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "peers: installing$missing"
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
else
    echo "peers: all packages are there"
fi

for peer in */Makefile; do
    echo "peers: building ${peer%/Makefile}"
    make --no-print-directory -C "${peer%/Makefile}"
done
