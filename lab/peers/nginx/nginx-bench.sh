#!/bin/sh
# Runs nginx as one process, which answers GET /bench/json with a fixed text.
#
#   nginx-bench --data DIRECTORY --listen ADDRESS:PORT     nginx-bench --version
#
# nginx comes from the folder `nginx` beside this script: the files of the Debian package.
set -eu
nginx=$(dirname "$0")/nginx/usr/sbin/nginx
case "$#:${1:-}:${3:-}" in
1:--version:)
    "$nginx" -v 2>&1
    exit
    ;;
4:--data:--listen) ;;
*)
    echo "usage: nginx-bench --data DIRECTORY --listen ADDRESS:PORT | --version" >&2
    exit 2
    ;;
esac
data=$2 address=$4
mkdir -p "$data"
# Directories without a leading slash are below $data. An idle connection is not closed by count, and the
# access log is off, as with the other servers.
cat >"$data/nginx.conf" <<END
daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events {
    worker_connections 4096;
}
http {
    access_log off;
    server_tokens off;
    keepalive_requests 1000000000;
    default_type application/json;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen $address backlog=4096;
        location = /bench/json {
            return 200 '{"message":"Hello, World!"}';
        }
    }
}
END
exec "$nginx" -e stderr -p "$data" -c nginx.conf
